/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The truth log (PT_SIM_LOG): kept in memory, written by the device thread.
 * Only whole lines are handed to write(), so a reader never sees a torn one
 * unless the process dies, or the disk fills, inside a write.
 */
#include "cudart_device.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REC_MAX (1u << 20) /* between two flushes */
#define LINE_MAX_LEN 256
#define CHUNK (64 * 1024)

static int fd = -1;
static struct sim_log_rec *recs, *spare;
static size_t n_recs, cap_recs, cap_spare;
static uint64_t lost;
static bool complained;

static void complain(const char *what, int err)
{
	if (!complained)
		fprintf(stderr, "simulated GPU: PT_SIM_LOG: %s: %s\n", what,
			strerror(err));
	complained = true;
}

/* %p becomes the pid; any other % stays as it is. -ENAMETOOLONG. */
static int expand(char *out, size_t size, const char *in)
{
	size_t n = 0;

	for (; *in; in++) {
		int len = 1;

		if (in[0] == '%' && in[1] == 'p') {
			len = snprintf(out + n, size - n, "%d", (int)getpid());
			in++;
		} else if (n + 1 < size) {
			out[n] = *in;
		}
		if (len < 0 || n + (size_t)len >= size)
			return -ENAMETOOLONG;
		n += (size_t)len;
	}
	out[n] = '\0';
	return 0;
}

static void put(const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			complain("write", errno);
			return;
		}
		buf += n;
		len -= (size_t)n;
	}
}

void sim_log_open(void)
{
	static const char header[] =
		"op,stream,submit_ns,start_ns,end_ns,bytes,tid,api";
	const char *want = getenv("PT_SIM_LOG");
	char path[4096], line[LINE_MAX_LEN];
	int err, n;

	if (!want || !*want)
		return;
	err = expand(path, sizeof(path), want);
	if (err) {
		complain("path", -err);
		return;
	}
	/* appended to, so that several processes may share one file */
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
		  0644);
	if (fd < 0) {
		complain("open", errno);
		return;
	}
	n = snprintf(line, sizeof(line), "# pipetrace-sim 1 pid=%d\n%s%s\n",
		     (int)getpid(), header,
		     sim_cfg.devices > 1 ? ",device" : "");
	put(line, (size_t)n);
}

bool sim_log_enabled(void)
{
	return fd >= 0;
}

void sim_log_add(const struct sim_log_rec *r)
{
	if (fd < 0)
		return;
	if (n_recs == cap_recs) {
		size_t cap = cap_recs ? cap_recs * 2 : 1024;
		struct sim_log_rec *p = NULL;

		if (cap <= REC_MAX)
			p = realloc(recs, cap * sizeof(*p));
		if (!p) {
			lost++;
			return;
		}
		recs = p;
		cap_recs = cap;
	}
	recs[n_recs++] = *r;
}

bool sim_log_pending(void)
{
	return fd >= 0 && (n_recs || lost);
}

static int format(char *buf, size_t size, const struct sim_log_rec *r)
{
	char device[16] = "";

	if (sim_cfg.devices > 1)
		snprintf(device, sizeof(device), ",%" PRIu32, r->device);
	return snprintf(buf, size,
			"%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
			",%" PRIu64 ",%" PRId32 ",%s%s\n",
			r->op, r->stream, r->submit, r->start, r->end,
			r->bytes, r->tid, r->api, device);
}

void sim_log_flush(void)
{
	static char buf[CHUNK + LINE_MAX_LEN];
	struct sim_log_rec *mine = recs;
	size_t n = n_recs, cap = cap_recs, len = 0;
	uint64_t gone = lost;

	if (!sim_log_pending())
		return;
	recs = spare;
	cap_recs = cap_spare;
	spare = NULL;
	n_recs = 0;
	lost = 0;
	sim_unlock();
	for (size_t i = 0; i < n; i++) {
		/* op and api are our own strings: a line always fits */
		len += (size_t)format(buf + len, LINE_MAX_LEN, &mine[i]);
		if (len >= CHUNK) {
			put(buf, len);
			len = 0;
		}
	}
	if (gone)
		len += (size_t)snprintf(buf + len, LINE_MAX_LEN,
					"# lost %" PRIu64 "\n", gone);
	put(buf, len);
	sim_lock();
	spare = mine;
	cap_spare = cap;
}

void sim_log_close(void)
{
	if (fd >= 0)
		close(fd);
	fd = -1;
	free(recs);
	free(spare);
	recs = spare = NULL;
	n_recs = cap_recs = cap_spare = 0;
}
