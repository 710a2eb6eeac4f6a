/* SPDX-License-Identifier: BSD-2-Clause */
/* simjob: loader workers, their pipes, and delivery in order. */
#include "job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 5000 /* as a DataLoader does: then look who died */

struct index_msg {
	uint64_t batch;
	uint32_t slot;
	uint32_t pad;
};

/* Whole message or nothing: 1, 0 at end of file, -errno. */
static int read_msg(int fd, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n < 0 && errno == EINTR && got)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return got ? -EPIPE : 0;
		got += (size_t)n;
	}
	return 1;
}

static int write_msg(int fd, const void *buf, size_t len)
{
	ssize_t n;

	do /* below PIPE_BUF: all or nothing */
		n = write(fd, buf, len);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static unsigned char *slot_of(const struct job_loader *l, unsigned worker,
			      unsigned slot)
{
	return l->slots +
	       ((size_t)worker * l->slots_per_worker + slot) * l->batch_bytes;
}

static int worker_main(struct job_loader *l, unsigned me, int index_fd)
{
	struct index_msg m;
	int err;

	while ((err = read_msg(index_fd, &m, sizeof(m))) > 0) {
		struct job_result r = {
			.batch = m.batch, .worker = me, .slot = m.slot,
			.pid = (int32_t)getpid(),
		};

		r.err = job_batch_make(l->o, me, m.batch,
				       slot_of(l, me, m.slot), &r.cost);
		r.done_ns = job_now();
		if (write_msg(l->result_out, &r, sizeof(r)))
			return 0; /* the trainer is gone */
	}
	return err ? 1 : 0;
}

static int worker_start(struct job_loader *l, unsigned i)
{
	pid_t parent = getpid(), pid;
	int p[2];

	if (pipe(p))
		return -errno;
	pid = fork();
	if (pid < 0) {
		int err = -errno;

		close(p[0]);
		close(p[1]);
		return err;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		/* Ctrl-C reaches the whole group: the trainer decides */
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_DFL);
		for (unsigned j = 0; j < i; j++)
			close(l->w[j].index_fd);
		close(p[1]);
		close(l->result_fd);
		_exit(worker_main(l, i, p[0]));
	}
	close(p[0]);
	l->w[i].pid = pid;
	l->w[i].index_fd = p[1];
	return 0;
}

static int send_next(struct job_loader *l)
{
	struct job_worker *w = &l->w[l->sent % l->n];
	struct index_msg m = { .batch = l->sent, .slot = w->next_slot };

	w->next_slot = (w->next_slot + 1) % l->slots_per_worker;
	l->sent++;
	return write_msg(w->index_fd, &m, sizeof(m));
}

int job_loader_start(struct job_loader *l, const struct job_opts *o)
{
	unsigned workers = o->workers ? o->workers : 1;
	int p[2], err = 0;

	memset(l, 0, sizeof(*l));
	l->o = o;
	l->result_fd = l->result_out = -1;
	l->batch_bytes = o->items * o->item_bytes;
	/* those in flight, and the one that the trainer uses */
	l->slots_per_worker = o->workers ? o->prefetch + 1 : 1;
	l->slots_len = (size_t)workers * l->slots_per_worker * l->batch_bytes;
	l->slots = mmap(NULL, l->slots_len, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (l->slots == MAP_FAILED) {
		l->slots = NULL;
		err = -errno;
		goto out;
	}
	if (!o->workers)
		return 0;
	if (o->threads) {
		err = job_pool_start(l);
		goto out;
	}
	if (pipe(p)) {
		err = -errno;
		goto out;
	}
	l->result_fd = p[0];
	l->result_out = p[1];
	for (unsigned i = 0; i < o->workers && !err; i++) {
		err = worker_start(l, i);
		if (!err)
			l->n++;
	}
	close(l->result_out);
	l->result_out = -1;
	for (unsigned i = 0; i < o->workers * o->prefetch && !err; i++)
		err = send_next(l);
out:
	if (err) {
		fprintf(stderr, "simjob: cannot start the workers: %s\n",
			strerror(-err));
		job_loader_stop(l);
	}
	return err;
}

static int dead_worker(struct job_loader *l)
{
	for (unsigned i = 0; i < l->n; i++)
		if (waitpid(l->w[i].pid, NULL, WNOHANG) == l->w[i].pid) {
			fprintf(stderr, "simjob: worker %u (pid %d) died\n", i,
				(int)l->w[i].pid);
			l->w[i].pid = 0;
			return -ECHILD;
		}
	return 0;
}

/* One message off the result pipe into the stash. */
static int receive(struct job_loader *l, const volatile int *stop)
{
	struct pollfd pfd = { .fd = l->result_fd, .events = POLLIN };
	struct job_result r;
	unsigned at;
	int n;

	if (*stop)
		return -EINTR;
	n = poll(&pfd, 1, POLL_MS);
	if (n < 0)
		return errno == EINTR && !*stop ? 0 : -errno;
	if (!n)
		return dead_worker(l);
	n = read_msg(l->result_fd, &r, sizeof(r));
	if (n == -EINTR)
		return 0;
	if (n <= 0) {
		fprintf(stderr, "simjob: every worker is gone\n");
		return n ? n : -ECHILD;
	}
	if (r.err) {
		fprintf(stderr, "simjob: worker %u, batch %llu: %s\n",
			r.worker, (unsigned long long)r.batch,
			strerror(-r.err));
		return r.err;
	}
	at = (unsigned)(r.batch % (l->n * l->o->prefetch));
	l->stash[at] = r;
	l->have[at] = true;
	return 0;
}

int job_loader_next(struct job_loader *l, uint64_t batch,
		    struct job_result *res, const unsigned char **data,
		    const volatile int *stop)
{
	unsigned at;
	int err;

	if (!l->n) {
		*res = (struct job_result){ .batch = batch,
					    .pid = (int32_t)getpid() };
		*data = l->slots;
		err = job_batch_make(l->o, 0, batch, l->slots, &res->cost);
		if (err)
			fprintf(stderr, "simjob: batch %llu: %s\n",
				(unsigned long long)batch, strerror(-err));
		res->done_ns = job_now();
		return err;
	}
	if (l->pool)
		return job_pool_next(l, batch, res, data, stop);
	at = (unsigned)(batch % (l->n * l->o->prefetch));
	while (!l->have[at]) {
		err = receive(l, stop);
		if (err)
			return err;
	}
	l->have[at] = false;
	*res = l->stash[at];
	*data = slot_of(l, res->worker, res->slot);
	/* refill before use: the worker goes on while the GPU computes */
	err = send_next(l);
	if (err)
		fprintf(stderr, "simjob: index pipe: %s\n", strerror(-err));
	return err;
}

void job_loader_stop(struct job_loader *l)
{
	if (l->pool)
		job_pool_stop(l);
	for (unsigned i = 0; i < l->n; i++)
		close(l->w[i].index_fd); /* the worker reads end of file */
	if (l->result_fd >= 0)
		close(l->result_fd);
	for (unsigned i = 0; i < l->n; i++) {
		/* it may have a batch in hand; nobody wants it */
		if (l->w[i].pid <= 0)
			continue;
		kill(l->w[i].pid, SIGTERM);
		waitpid(l->w[i].pid, NULL, 0);
	}
	if (l->slots)
		munmap(l->slots, l->slots_len);
	l->n = 0;
	l->slots = NULL;
	l->result_fd = -1;
}
