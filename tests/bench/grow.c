/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recorded file as long as one likes, made of a short recording:
 *
 *     grow [-n RECORDS] STREAM OUT.ptrace
 *
 * The records of STREAM (a raw stream) come again and again, with their times
 * moved on by its length each time, until RECORDS (30 million) are reached: the
 * same job for as long as that takes. The file is written by the recorder's own
 * code. What such a file cannot show is a job that changes with time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/vec.h"
#include "bench/repeat.h"
#include "store/recording.h"

#define BLOCK (4u << 20) /* as store/recorder.c cuts them */

struct out {
	struct pt_rf_writer w;
	unsigned char block[BLOCK];
	size_t n;
	double cpu_s; /* of encoding, compressing and writing */
};

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void flush(struct out *o)
{
	double t = cpu_s();

	if (pt_rf_put(&o->w, o->block, o->n)) {
		fprintf(stderr, "grow: cannot write\n");
		exit(1);
	}
	o->cpu_s += cpu_s() - t;
	o->n = 0;
}

static void put(void *ctx, const void *rec, size_t len)
{
	struct out *o = ctx;
	const struct pt_hdr *h = rec;

	(void)len;
	if (o->n + h->size > BLOCK)
		flush(o);
	memcpy(o->block + o->n, rec, h->size);
	o->n += h->size;
}

static int grow(const char *from, const char *to, double records)
{
	struct pt_repeat *in = pt_repeat_open(from);
	struct out *o = calloc(1, sizeof(*o));
	FILE *f = fopen(to, "we");
	unsigned rounds, i;

	if (!in || !o || !f || pt_rf_begin(&o->w, f, 0)) {
		fprintf(stderr, "grow: cannot make %s of %s\n", to, from);
		return 1;
	}
	rounds = (unsigned)ceil(records / (double)pt_repeat_records(in));
	for (i = 0; i < rounds; i++)
		pt_repeat_round(in, i, i + 1 == rounds, put, o);
	flush(o);
	/* nothing is known of host and target but what the records say */
	if (pt_rf_about(&o->w, "", 0) || pt_rf_end(&o->w) || fclose(f)) {
		fprintf(stderr, "grow: cannot write %s\n", to);
		return 1;
	}
	printf("%llu records, %u rounds, %.2f bytes a record, %.0f ns of CPU a "
	       "record to write\n", (unsigned long long)o->w.records, rounds,
	       (double)o->w.at / (double)o->w.records,
	       1e9 * o->cpu_s / (double)o->w.records);
	pt_rf_writer_free(&o->w);
	pt_repeat_close(in);
	free(o);
	return 0;
}

int main(int argc, char **argv)
{
	double records = 30e6;

	if (argc > 2 && !strcmp(argv[1], "-n")) {
		records = atof(argv[2]);
		argv += 2;
		argc -= 2;
	}
	if (argc != 3 || !(records > 0)) {
		fprintf(stderr, "usage: grow [-n RECORDS] STREAM OUT.ptrace\n");
		return 2;
	}
	return grow(argv[1], argv[2], records);
}
