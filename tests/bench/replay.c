/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast records become a diagnosis, and what they take in memory:
 *
 *     replay [-n RECORDS] STREAM...
 *     replay -w OUT [-n RECORDS] STREAM
 *
 * Repeats each recording until RECORDS (3 million) are reached, and feeds and
 * analyses them on one thread. Reading the file and moving the times is not
 * counted. Prints one line for each, tab-separated, with a head. With -w it only
 * writes the longer stream.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <malloc.h>

#include "analysis/analysis.h"
#include "view/timeline/trace.h"
#include "base/heap.h"
#include "base/vec.h"
#include "bench/repeat.h"
#include "model/timeline.h"
#include "store/rawstream.h"

struct batch { /* one round's records, back to back, each with its length */
	PT_VEC(unsigned char) bytes;
};

static void keep(void *ctx, const void *rec, size_t len)
{
	struct batch *b = ctx;

	if (b->bytes.n + len > b->bytes.cap) {
		size_t cap = 2 * b->bytes.cap + len;
		unsigned char *p = realloc(b->bytes.v, cap);

		if (!p)
			abort();
		b->bytes.v = p;
		b->bytes.cap = cap;
	}
	memcpy(b->bytes.v + b->bytes.n, rec, len);
	b->bytes.n += len;
}

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return (double)(m.uordblks + m.hblkhd);
}

static double feed(struct pt_model *m, const struct batch *b)
{
	double t = cpu_s();
	size_t at = 0;

	while (at < b->bytes.n) {
		struct pt_hdr h;

		memcpy(&h, b->bytes.v + at, sizeof(h));
		if (pt_model_feed(m, b->bytes.v + at, h.size))
			abort();
		at += h.size;
	}
	return cpu_s() - t;
}

/* ---- export --------------------------------------------------------------- */

struct counter {
	struct pt_trace_writer w;
	double events; /* begins, ends, instants and values, as Perfetto counts */
};

static int count_track(struct pt_trace_writer *w, const struct pt_trace_track *t)
{
	(void)w;
	(void)t;
	return 0;
}

static int count_slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	((struct counter *)w)->events += e->end > e->begin ? 2 : 1;
	return 0;
}

static int count_value(struct pt_trace_writer *w, const struct pt_trace_track *t,
		       uint64_t ts, double v)
{
	(void)t;
	(void)ts;
	(void)v;
	((struct counter *)w)->events++;
	return 0;
}

/* Seconds that one format takes, without a disk. */
static double export_s(const struct pt_export *x,
		       int (*fn)(const struct pt_export *, FILE *))
{
	FILE *null = fopen("/dev/null", "w");
	double t = cpu_s();

	if (!null || setvbuf(null, NULL, _IOFBF, 1 << 20) || fn(x, null))
		abort();
	t = cpu_s() - t;
	fclose(null);
	return t;
}

static void exported(const struct pt_export *x, const char *name)
{
	struct counter c = { .w = { count_track, count_slice, count_slice,
				    count_value } };
	double p = export_s(x, pt_export_perfetto);
	double j = export_s(x, pt_export_chrome);

	if (pt_trace_walk(x, &c.w))
		abort();
	printf("%s\t%.0f\t%.0f\t%.2f\t%.2f\n", name, (double)x->m->records,
	       c.events, c.events / p / 1e6, c.events / j / 1e6);
	fflush(stdout);
}

static int one(const char *path, double records, bool export)
{
	struct pt_repeat *in = pt_repeat_open(path);
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	struct pt_lanes lanes = { 0 };
	struct pt_analysis_opts o = { .lanes = export ? &lanes : NULL };
	struct batch b = { 0 };
	double fed = 0, settled, done, kept, n, threads, before = heap_bytes();
	unsigned rounds, i;
	const char *name = strrchr(path, '/');

	if (!in || !m || !r)
		return 1;
	rounds = (unsigned)ceil(records / (double)pt_repeat_records(in));
	for (i = 0; i < rounds; i++) {
		b.bytes.n = 0;
		pt_repeat_round(in, i, i + 1 == rounds, keep, &b);
		fed += feed(m, &b);
	}
	settled = cpu_s();
	if (pt_model_finish(m))
		abort();
	done = cpu_s();
	settled = done - settled;
	if (pt_analyze(m, &o, r))
		abort();
	done = cpu_s() - done;
	kept = heap_bytes() - before - (double)b.bytes.cap;
	n = (double)m->records;
	threads = (double)m->all_threads.n;
	if (export) {
		struct pt_export x = { .m = m, .r = r, .lanes = &lanes };

		exported(&x, name ? name + 1 : path);
		goto out;
	}
	printf("%s\t%.0f\t%.0f\t%lld\t%.3f\t%.3f\t%.3f\t%.2f\t%.1f\t%.0f\t%.0f\t%s\n",
	       name ? name + 1 : path, n, threads, (long long)r->steps.count,
	       1e9 * fed / n, 1e9 * settled / n, 1e9 * done / n,
	       n / (fed + settled + done) / 1e6, kept / n, kept / threads,
	       r->steps.count > 0 ? kept / (double)r->steps.count : NAN,
	       r->n_verdicts ? r->verdicts[0].id : "-");
	fflush(stdout);
out:
	pt_report_free(r);
	pt_model_free(m);
	pt_repeat_close(in);
	pt_vec_free(&b.bytes);
	return 0;
}

static void put(void *ctx, const void *rec, size_t len)
{
	if (pt_raw_put(ctx, rec, len))
		abort();
}

static int lengthen(const char *path, double records, const char *to)
{
	struct pt_repeat *in = pt_repeat_open(path);
	FILE *f = fopen(to, "w");
	unsigned rounds, i;

	if (!in || !f || pt_raw_begin(f))
		return 1;
	rounds = (unsigned)ceil(records / (double)pt_repeat_records(in));
	for (i = 0; i < rounds; i++)
		pt_repeat_round(in, i, i + 1 == rounds, put, f);
	pt_repeat_close(in);
	return fclose(f) ? 1 : 0;
}

int main(int argc, char **argv)
{
	double records = 3e6;
	bool export = argc > 1 && !strcmp(argv[1], "-e");
	const char *to = NULL;
	int i = 1, bad = 0;

	argv += export;
	argc -= export;
	if (argc > 2 && !strcmp(argv[1], "-w")) {
		to = argv[2];
		argv += 2;
		argc -= 2;
	}
	if (argc > 2 && !strcmp(argv[1], "-n")) {
		records = atof(argv[2]);
		i = 3;
	}
	if (i == argc || !(records > 0)) {
		fprintf(stderr, "usage: replay [-e | -w OUT] [-n RECORDS] STREAM...\n");
		return 2;
	}
	if (to)
		return lengthen(argv[i], records, to);
	pt_heap_huge_pages(); /* as `pipetrace report` does */
	if (export)
		printf("stream\trecords\tevents\tperfetto M/s\tchrome M/s\n");
	else
		printf("stream\trecords\tthreads\tsteps\tfeed_ns\tsettle_ns\tanalyse_ns\tM/s\tB/record\tB/thread\tB/step\tverdict\n");
	for (; i < argc; i++)
		bad |= one(argv[i], records, export);
	return bad;
}
