/* SPDX-License-Identifier: BSD-2-Clause */
/* Write the seed corpus: a few steps of simulated jobs of every kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stream_job.h"

static struct job_opts tiny(unsigned workers)
{
	struct job_opts o = job_defaults();

	o.workers = workers;
	o.batch_ns = 8 * ST_MS;
	o.launches = 3;
	o.kernel_ns = 400 * ST_US;
	o.slices = 1;
	o.run_s_x10 = 1;
	return o;
}

/* Ranges of two threads by all operations, and samples of two devices. */
static void add_ranges(struct job *j)
{
	uint32_t i;

	for (i = 0; i < 40; i++) {
		uint64_t ts = JOB_BEGIN + (16 + i) * ST_MS;
		struct pt_rec_nvtx *r = (struct pt_rec_nvtx *)st_add(
			&j->s, PT_REC_NVTX, sizeof(*r), ts, JOB_TRAINER,
			JOB_TRAINER);
		struct pt_rec_device *d;

		r->op = 1 + i % 7;
		r->id = i % 5;
		r->domain = i % 2;
		r->text_id = i % 11 ? 0 : i % 5;
		snprintf(r->text, sizeof(r->text), "range %u", i % 4);
		d = (struct pt_rec_device *)st_add(&j->s, PT_REC_DEVICE,
						   sizeof(*d), ts, 0, 0);
		d->index = d->ordinal = i % 2;
		d->util = i;
		d->mem_used = i << 20;
		d->mem_total = 1 << 30;
		d->throttle = i;
		d->sm_mhz = d->sm_max_mhz = 1000;
		d->procs = d->traced = 1;
		d->pid = JOB_TRAINER;
		snprintf(d->name, sizeof(d->name), "made up");
	}
}

static int write_job(const char *dir, const char *name, const struct job_opts *o)
{
	struct job j;
	char path[4096];
	FILE *f;
	size_t i;

	job_run(&j, o);
	if (!strcmp(name, "ranges-devices"))
		add_ranges(&j);
	st_file(&j.s, JOB_BEGIN + 20 * ST_MS, JOB_FILE_DEV, JOB_FILE(0), "a.jpg",
		"data");
	job_window(&j, JOB_BEGIN + 15 * ST_MS, JOB_BEGIN + 95 * ST_MS);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "wb");
	if (!f) {
		perror(path);
		return 1;
	}
	for (i = 0; i < j.s.recs.n; i++)
		fwrite(&j.s.recs.v[i].r, j.s.recs.v[i].r.hdr.size, 1, f);
	job_free(&j);
	return fclose(f) ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct job_opts o;
	int bad = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s DIR\n", argv[0]);
		return 2;
	}
	o = tiny(2);
	bad |= write_job(argv[1], "workers", &o);
	o.sockets = true;
	o.mix[JOB_DISK] = 0.5;
	o.loop = JOB_AHEAD;
	bad |= write_job(argv[1], "sockets-disk-ahead", &o);
	o = tiny(2);
	o.pin = true;
	o.loss_item = true;
	bad |= write_job(argv[1], "pin-loss", &o);
	o = tiny(1);
	o.direct = true;
	o.loop = JOB_THREAD;
	o.mix[JOB_RUNQ] = 0.4;
	bad |= write_job(argv[1], "direct-thread", &o);
	o = tiny(0);
	o.mix[JOB_FAULT] = 0.3;
	o.sync_every = 3;
	bad |= write_job(argv[1], "own", &o);
	o = tiny(3);
	o.hogs = true;
	o.mix[JOB_DISK] = 0.4;
	o.mix[JOB_LOCK] = 0.2;
	o.mix[JOB_NET] = 0.2;
	o.sync_every = 0;
	bad |= write_job(argv[1], "mixed-nosync", &o);
	o = tiny(1);
	bad |= write_job(argv[1], "ranges-devices", &o);
	return bad;
}
