/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trace a process for some seconds and print every record, one per line as
 * key=value: for looking at a stream, and for tests that check one.
 *
 *   dump_records PID SECONDS [light|standard|full] [perf]
 */
#include <poll.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture/capture.h"
#include "gpu/api.h"

static void print_totals(const struct pt_totals *t)
{
	printf(" run=%llu runq=%llu iow=%llu block=%llu rchar=%llu rbytes=%llu wchar=%llu wbytes=%llu",
	       t->run_ns, t->runq_ns, t->iowait_ns, t->block_ns, t->rchar,
	       t->read_bytes, t->wchar, t->write_bytes);
}

static void print_name(const char *key, const char *s, size_t max)
{
	size_t i;

	printf(" %s=", key);
	for (i = 0; i < max && s[i]; i++)
		printf(s[i] > 32 && s[i] < 127 ? "%c" : "\\x%02x",
		       (unsigned char)s[i]);
}

static void print_path(const struct pt_rec_file *f)
{
	const char *p = f->path;
	size_t left = f->hdr.size - offsetof(struct pt_rec_file, path), l;
	const char *part[32];
	int i, n = f->parts < 32 ? f->parts : 32;

	for (i = 0; i < n && left; i++) {
		l = strnlen(p, left);
		part[i] = p;
		l += l < left;
		p += l;
		left -= l;
	}
	printf(" path=");
	while (i-- > 0) {
		printf("/");
		for (p = part[i]; *p; p++)
			printf(*p > 32 && *p < 127 && *p != '\\' ? "%c" :
			       "\\x%02x", (unsigned char)*p);
	}
}

static void print_off(const struct pt_rec_off *o)
{
	printf(" off=%llu wake=%llu state=%u sys=%d obj=%u:%u:%llu arg=%llx,%llx,%llx waker=%u/%u wsys=%d wobj=%u:%u:%llu warg0=%llx",
	       o->off_ts, o->wake_ts, o->state, o->syscall, o->obj_kind, o->dev,
	       o->object, o->arg[0], o->arg[1], o->arg[2], o->waker_tgid,
	       o->waker_tid, o->waker_syscall, o->waker_obj_kind, o->waker_dev,
	       o->waker_object, o->waker_arg0);
	print_totals(&o->tot);
}

static void print_gpu(const struct pt_rec_gpu *g)
{
	const struct pt_api *a = pt_api_get(g->api);

	printf(" api=%s lib=%u stream=%llx v=%llx,%llx,%llx",
	       a ? a->symbol : "?", g->lib, g->stream, g->v[0], g->v[1], g->v[2]);
}

static void print_record(void *ctx, const void *rec, size_t len)
{
	static const char *const names[] = { "?", "FORK", "EXEC", "EXIT", "COMM",
					     "OFF", "ENTER", "RETURN", "READ",
					     "FILE", "TASK", "NVTX", "READS",
					     "FAULTS" };
	static const char *const user[] = { "SAMPLE", "LOSS", "LIB", "MARK",
					    "HOST" };
	const struct pt_hdr *h = rec;
	unsigned i;

	(void)ctx;
	(void)len;
	printf("%s ts=%llu tid=%u tgid=%u cpu=%u flags=%x seq=%u start=%u",
	       h->kind <= 13 ? names[h->kind] :
	       h->kind >= 64 && h->kind <= 68 ? user[h->kind - 64] : "?",
	       h->ts, h->tid, h->tgid, h->cpu, h->flags, h->seq, h->start);
	switch (h->kind) {
	case PT_REC_FORK: {
		const struct pt_rec_fork *f = rec;

		printf(" child=%u/%u cstart=%u", f->child_tgid, f->child_tid,
		       f->child_start);
		print_name("comm", f->comm, PT_COMM_LEN);
		break;
	}
	case PT_REC_TASK:
	case PT_REC_EXEC:
	case PT_REC_COMM: {
		const struct pt_rec_task *t = rec;

		printf(" ppid=%u old_tid=%u", t->ppid, t->old_tid);
		print_name("comm", t->comm, PT_COMM_LEN);
		break;
	}
	case PT_REC_EXIT: {
		const struct pt_rec_exit *e = rec;

		printf(" code=%x", e->exit_code);
		print_totals(&e->tot);
		break;
	}
	case PT_REC_FAULTS: {
		const struct pt_rec_faults *f = rec;

		printf(" begin=%llu obj=%u:%llu count=%u major=%u bytes=%llu pos=%llu door=%u",
		       f->begin_ts, f->dev, f->inode, f->count, f->major,
		       f->bytes, f->offset, f->door);
		break;
	}
	case PT_REC_OFF:
		print_off(rec);
		break;
	case PT_REC_GPU_ENTER:
	case PT_REC_GPU_RETURN:
		print_gpu(rec);
		break;
	case PT_REC_READ: {
		const struct pt_rec_read *r = rec;

		printf(" begin=%llu obj=%u:%u:%llu ret=%lld pos=%lld door=%u",
		       r->begin_ts, r->obj_kind, r->dev, r->inode, r->ret,
		       (long long)r->offset, r->door);
		break;
	}
	case PT_REC_READS: {
		const struct pt_rec_reads *r = rec;

		printf(" begin=%llu obj=%u:%u:%llu bytes=%llu count=%u failed=%u "
		       "door=%u",
		       r->begin_ts, r->obj_kind, r->dev, r->inode, r->bytes,
		       r->count, r->failed, r->door);
		break;
	}
	case PT_REC_FILE: {
		const struct pt_rec_file *f = rec;

		printf(" obj=1:%u:%llu size=%llu mode=%o magic=%x parts=%u cut=%u",
		       f->dev, f->inode, f->size, f->mode, f->fs_magic, f->parts,
		       f->truncated);
		print_path(f);
		break;
	}
	case PT_REC_LOSS: {
		const struct pt_rec_loss *l = rec;

		for (i = 0; i < PT_LOSS_NR; i++)
			printf(" l%u=%llu", i, l->count[i]);
		break;
	}
	case PT_REC_LIB: {
		const struct pt_rec_lib *l = rec;

		printf(" lib=%u symbols=%u", l->lib, l->symbols);
		print_name("path", l->path, PT_PATH_LEN);
		break;
	}
	case PT_REC_MARK: {
		const struct pt_rec_mark *m = rec;

		printf(" mark=%u unix=%llu", m->mark, m->unix_ns);
		break;
	}
	case PT_REC_HOST: {
		const struct pt_rec_host *m = rec;

		printf(" cores=%u pid=%u quota=%llu door=%u boot=%.40s", m->cores,
		       m->target_pid, m->quota_mcores, m->read_door, m->boot_id);
		break;
	}
	case PT_REC_SAMPLE: {
		const struct pt_rec_sample *s = rec;

		printf(" anon=%llu file=%llu shmem=%llu fds=%u threads=%u rchar=%llu",
		       s->rss_anon, s->rss_file, s->rss_shmem, s->fds, s->threads,
		       s->rchar);
		break;
	}
	}
	putchar('\n');
}

static void warn(void *ctx, const char *msg)
{
	(void)ctx;
	fprintf(stderr, "warning: %s\n", msg);
}

static volatile sig_atomic_t stop;
static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD,
				     .warn = warn };
	const struct pt_hook_state *hooks;
	struct pt_err err = { "" };
	struct pt_capture *c;
	double t0, end, tick;
	size_t i, n;
	pid_t pid;
	int k;

	if (argc < 3) {
		fprintf(stderr, "usage: %s PID SECONDS [MODE] [perf]\n", argv[0]);
		return 2;
	}
	pid = (pid_t)strtol(argv[1], NULL, 10);
	o.pids = &pid;
	for (k = 3; k < argc; k++) {
		if (!strcmp(argv[k], "light"))
			o.mode = PT_MODE_LIGHT;
		else if (!strcmp(argv[k], "full"))
			o.mode = PT_MODE_FULL;
		else if (!strcmp(argv[k], "perf"))
			o.no_uprobe_multi = true;
	}
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	t0 = now();
	if (pt_capture_open(&c, &o, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	fprintf(stderr, "attached in %.3f s\n", now() - t0);
	end = now() + strtod(argv[2], NULL);
	tick = now() + 1;
	while (!stop && now() < end && !pt_capture_target_gone(c)) {
		struct pollfd p[4];
		int fds[4];

		n = pt_capture_fds(c, fds, 4);
		for (i = 0; i < n; i++)
			p[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
		poll(p, n, 50);
		pt_capture_drain(c, print_record, NULL);
		if (now() >= tick) {
			pt_capture_tick(c, print_record, NULL);
			tick += 1;
		}
	}
	t0 = now();
	pt_capture_stop(c, print_record, NULL);
	fprintf(stderr, "stopped in %.3f s, %llu events\n", now() - t0,
		(unsigned long long)pt_capture_events(c));
	n = pt_capture_hooks(c, &hooks);
	for (i = 0; i < n; i++)
		fprintf(stderr, "hook %s: %s %s\n", hooks[i].need, hooks[i].door,
			hooks[i].note);
	t0 = now();
	pt_capture_close(c, NULL, NULL);
	fprintf(stderr, "closed in %.3f s\n", now() - t0);
	return 0;
}
