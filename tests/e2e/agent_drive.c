/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tracer's part without a tracer: find the agent that CUDA loaded into a
 * process, have it run, and print what comes.
 *
 *   agent_drive PID MS [hold]   hold: no last word; ends as one that is killed
 *   agent_drive PID MS raw FILE  also writes the records to FILE, as they are
 *   agent_drive PID 0           only says how it stands
 *
 * Lines: "on NS", "act WHAT BEGIN END DEVICE STREAM CORRELATION GRAPH BYTES
 * DETAIL FLAGS NAME", "name KEY TEXT", "status ...", all times CLOCK_MONOTONIC.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "inject/ring.h"

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* The agent's memory in `pid`, opened anew; -1: none. */
static int find_memory(const char *pid)
{
	char dir[64], path[400], to[256];
	struct dirent *e;
	int fd = -1;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%s/fd", pid);
	d = opendir(dir);
	while (d && fd < 0 && (e = readdir(d))) {
		ssize_t n;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n <= 0)
			continue;
		to[n] = 0;
		if (strstr(to, "memfd:" PT_AGENT_MEMFD))
			fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (d)
		closedir(d);
	return fd;
}

static int print(void *ctx, const void *rec, size_t len)
{
	const struct pt_rec_act *a = rec;
	const struct pt_rec_name *n = rec;

	if (ctx)
		fwrite(rec, 1, len, ctx);
	if (a->hdr.kind == PT_REC_NAME)
		printf("name %llx %s\n", n->key, n->name);
	else
		printf("act %u %llu %llu %u %u %u %u %llu %u %u %llx\n", a->what,
		       a->begin, a->end, a->device, a->stream, a->correlation,
		       a->graph, a->bytes, a->detail, a->flags, a->name);
	return 0;
}

static void pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static void tell(const struct pt_ring *r)
{
	struct pt_ring_status s;

	pt_ring_status(r, &s);
	printf("status state=%d why=%d error=%d version=%u thread=%d callback=%d "
	       "dropped=%" PRIu64 " no_room=%" PRIu64 " unknown=%" PRIu64
	       " made=%" PRIu64 " taken=%" PRIu64 " bad=%" PRIu64
	       " lost=%" PRIu64 " said=%s\n", s.state, s.why, s.cupti_error,
	       s.cupti_version, s.thread, s.timestamp_callback, s.dropped,
	       s.no_room, s.unknown, s.made, s.taken, s.bad, pt_ring_lost(r),
	       s.said);
}

int main(int argc, char **argv)
{
	struct pt_ring_status s;
	struct pt_ring *r;
	uint64_t end;
	FILE *raw = NULL;
	int fd = -1, err;

	if (argc < 3)
		return 2;
	if (argc > 4)
		raw = fopen(argv[4], "w");
	end = now() + 10000000000ull;
	while (fd < 0 && now() < end) {
		fd = find_memory(argv[1]);
		if (fd < 0)
			pause_ms(20);
	}
	if (fd < 0) {
		fprintf(stderr, "no agent in %s\n", argv[1]);
		return 1;
	}
	err = pt_ring_open(fd, (uint32_t)atoi(argv[1]), &r);
	if (err) {
		fprintf(stderr, "pt_ring_open: %s\n", strerror(-err));
		return err == -EBUSY ? 3 : 1;
	}
	if (!atol(argv[2])) {
		tell(r);
		pt_ring_close(r);
		close(fd);
		return 0;
	}
	pt_ring_want(r, PT_AGENT_RUN);
	printf("on %" PRIu64 "\n", now());
	end = now() + (uint64_t)atol(argv[2]) * 1000000ull;
	while (now() < end) {
		pt_ring_beat(r);
		pt_ring_drain(r, print, raw);
		pt_ring_status(r, &s);
		if (s.state == PT_AGENT_REFUSED)
			break;
		pause_ms(20);
	}
	fflush(stdout);
	if (argc > 3 && !raw)
		_exit(9);
	pt_ring_want(r, PT_AGENT_QUIET);
	end = now() + 5000000000ull;
	do {
		pause_ms(10);
		pt_ring_drain(r, print, raw);
		pt_ring_status(r, &s);
	} while (s.state != PT_AGENT_STOPPED && s.state != PT_AGENT_REFUSED &&
		 now() < end);
	tell(r);
	pt_ring_close(r);
	close(fd);
	return raw && fclose(raw) ? 1 : 0;
}
