/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trace a process for some seconds and print every record, one per line as
 * key=value: for looking at a stream, and for tests that check one.
 *
 *   dump_records PID SECONDS [light|standard|full] [perf]
 */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/records.h"
#include "capture/capture.h"

static void print_text(const char *s, size_t max)
{
	while (max && !s[max - 1])
		max--;
	for (; max--; s++)
		printf(*s > 32 && *s < 127 && *s != '\\' ? "%c" : "\\x%02x",
		       (unsigned char)*s);
}

static void print_number(const unsigned char *p, unsigned width, bool is_signed)
{
	uint64_t v = 0;

	memcpy(&v, p, width); /* little-endian */
	if (is_signed && v >> (8 * width - 1))
		printf("-%" PRIu64, (0 - v) << (64 - 8 * width) >> (64 - 8 * width));
	else
		printf("%" PRIu64, v);
}

static void print_line(const unsigned char *rec, size_t len,
		       const struct pt_rec_line *l, const struct pt_rec_kind *k)
{
	size_t end = l->off + (size_t)l->width * l->n;
	unsigned i;

	if (l->says > PT_SAYS_TEXT || !strcmp(l->name, "pad") || end > len)
		return;
	printf(" %s=", l->name);
	if (l->says == PT_SAYS_TEXT) /* one that is last may be longer */
		print_text((const char *)rec + l->off,
			   (end == k->size && len > end ? len : end) - l->off);
	else
		for (i = 0; i < l->n; i++, printf(i < l->n ? "," : ""))
			print_number(rec + l->off + i * l->width, l->width,
				     l->is_signed);
}

static void print_record(void *ctx, const void *rec, size_t len)
{
	const struct pt_hdr *h = rec;
	const struct pt_rec_kind *k = pt_rec_kind(h->kind);
	const struct pt_rec_line *lines;
	unsigned i, n = 0;

	(void)ctx;
	(void)len;
	printf("%s ts=%llu tid=%u tgid=%u cpu=%u flags=%u seq=%u start=%u",
	       k ? k->name : "?", h->ts, h->tid, h->tgid, h->cpu, h->flags,
	       h->seq, h->start);
	lines = k ? k->lines(&n) : NULL;
	for (i = 0; i < n; i++)
		print_line(rec, h->size, &lines[i], k);
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
