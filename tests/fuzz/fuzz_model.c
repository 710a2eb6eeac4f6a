/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model: records back to back, as in a recorded stream without its head. Fed to a
 * model, analysed, rendered; the report must keep what every report promises
 * (case_trouble()).
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analysis.h"
#include "base/records.h"
#include "model/callclass.h"
#include "model/timeline.h"
#include "stream_case.h"

#define SERIES_MAX 1000 /* a longer one only takes time to render */

/*
 * What a job makes by the million takes more than an input holds: a record of this kind,
 * which no version has, stands for so many exits, names of kernels, files or counters of a
 * disk, as hdr.cpu says, from hdr.tid on. One of each in an input counts.
 */
#define CROWD (PT_REC_KINDS - 1)
enum { EXITS, NAMES, FILES, DISKS, CROWDS };
static const uint32_t crowds[CROWDS] = { 4400, 66000, 66000, 66000 };

static void feed_crowd(struct pt_model *m, const struct pt_hdr *h, bool met[CROWDS])
{
	unsigned of = h->cpu % CROWDS;
	union pt_rec_any r;
	uint32_t i;

	for (i = 0; i < crowds[of] && !met[of]; i++) {
		memset(&r, 0, sizeof(r));
		r.hdr = *h;
		r.hdr.ts += i;
		r.hdr.seq = 0;
		if (of == EXITS) {
			r.hdr.kind = PT_REC_EXIT;
			r.hdr.size = sizeof(r.exit);
			r.hdr.tid += i;
			r.hdr.tgid = h->tid + i / 2 * 2;
			r.hdr.flags = i % 2 ? PT_F_GROUP_DEAD : 0;
		} else if (of == NAMES) {
			r.hdr.kind = PT_REC_NAME;
			r.hdr.size = sizeof(r.name);
			r.name.key = i + 1;
			r.name.space = PT_NAME_ACT;
			r.name.name[0] = 'k';
		} else if (of == DISKS) {
			r.hdr.kind = PT_REC_DISK;
			r.hdr.size = sizeof(r.disk);
			r.disk.dev = r.disk.disk = JOB_FILE_DEV + i % 2;
			r.disk.reads = i;
		} else {
			r.hdr.kind = PT_REC_FILE;
			r.hdr.size = sizeof(r.file);
			r.file.dev = JOB_FILE_DEV;
			r.file.inode = JOB_FILE(i / 2);
			r.file.parts = 1;
			r.file.path[0] = (char)('a' + i % 2);
		}
		pt_model_feed(m, &r, r.hdr.size);
	}
	met[of] = true;
}

/* Up to `until` bytes, and the record there whole. Returns how many. */
static size_t feed(struct pt_model *m, const uint8_t *data, size_t size, size_t until,
		   bool met[CROWDS])
{
	struct pt_hdr h;
	size_t at = 0;

	while (at < until && size - at >= sizeof(h)) {
		memcpy(&h, data + at, sizeof(h));
		/* the last one may be cut off, or of no size */
		pt_model_feed(m, data + at, size - at);
		if (h.size < sizeof(h) || h.size > size - at)
			return size;
		if (h.kind == CROWD)
			feed_crowd(m, &h, met);
		at += h.size;
	}
	return at;
}

void model_run(const uint8_t *data, size_t size)
{
	struct pt_analysis_opts o = { .batch_size = 32 };
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	struct pt_provisional live;
	const char *trouble;
	char buf[160];
	bool met[CROWDS] = { false }, few;
	size_t half;

	if (!m || !r)
		abort();
	half = feed(m, data, size, size / 2, met); /* a live look in the middle */
	pt_analyze_live(m, &o, UINT64_MAX, 500 * ST_MS, &live);
	if (pt_model_lend_open(m))
		abort();
	pt_model_take_back(m);
	if (size / 8 % 4 == 3)
		pt_model_keep_samples(m);
	feed(m, data + half, size - half, size - half, met);
	few = met[EXITS] || met[NAMES] || met[FILES] || met[DISKS] || size / 8 % 2;
	pt_model_trim(m, few ? 1 << 12 : 1 << 20);
	if (pt_model_finish(m))
		abort();
	if (!fuzz_in_full(data, size))
		goto out;
	if (pt_analyze(m, &o, r)) {
		fprintf(stderr, "out of memory?\n");
		abort();
	}
	trouble = case_trouble(r, buf, sizeof(buf));
	if (trouble) {
		fprintf(stderr, "promise broken: %s\n", trouble);
		abort();
	}
	if (r->n_series < SERIES_MAX)
		free(case_json(r));
out:
	pt_report_free(r);
	pt_model_free(m);
}

/* ---- seeds: a few steps of simulated jobs of every kind ------------------------- */

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
	uint32_t i, k;

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
		if (i % 8 == 7) { /* as nothing real is */
			d->util = d->mem_util = 101;
			d->mem_total = 1ull << 60;
		}
		if (i % 8 == 5)
			d->mem_used = 2 * d->mem_total;
		if (i % 4 == 1) { /* told twice */
			d = (struct pt_rec_device *)st_add(&j->s, PT_REC_DEVICE, sizeof(*d), ts, 0, 0);
			d->index = i % 8 == 1 ? 1 : 1u << 20;
			for (k = 0; k < 2; k++) {
				st_add(&j->s, PT_REC_SAMPLE, sizeof(struct pt_rec_sample), ts,
				       JOB_TRAINER, JOB_TRAINER);
				st_add(&j->s, PT_REC_MEMORY, sizeof(struct pt_rec_memory), ts, 0, 0);
			}
		}
		if (i % 2) /* the handle of a range that was started */
			continue;
		r = (struct pt_rec_nvtx *)st_add(&j->s, PT_REC_NVTX, sizeof(*r), ts + ST_US,
						 JOB_TRAINER, JOB_WORKER(0));
		r->op = i % 4 ? PT_NVTX_ID : PT_NVTX_START;
		r->id = 100 + i;
	}
}

/* Sleeps in every call that is told apart, on every kind of object, ended in every way. */
static void add_waits(struct job *j, unsigned part)
{
	static const uint16_t in[] = { PT_WAKER_KNOWN, PT_WAKER_KNOWN | PT_WAKER_SOFTIRQ,
				       PT_WAKER_KNOWN | PT_WAKER_HARDIRQ, 0,
				       PT_WAKER_KNOWN | PT_WAKER_KTHREAD,
				       PT_WAKER_KNOWN | PT_WAKER_EXITING };
	static const uint16_t flags[] = { 0, 0, 0, 0, PT_F_IOWAIT, 0, PT_F_RECLAIM, PT_F_FAULT };
	static const uint16_t objects[] = { PT_OBJ_FILE, PT_OBJ_PIPE, PT_OBJ_SOCK, PT_OBJ_CHR,
					    PT_OBJ_OTHER, PT_OBJ_ANON, PT_OBJ_MSGQ, PT_OBJ_SEM,
					    PT_OBJ_NONE, PT_OBJ_FUTEX, PT_OBJ_DIR };
	int nr, calls[512], n = 0, i;

	for (nr = 0; nr < 512; nr++)
		if (pt_call_class(nr))
			calls[n++] = nr;
	for (i = 0; i < n; i++) {
		uint64_t ts = JOB_BEGIN + (16 + (unsigned)i % 40) * ST_MS + (unsigned)i * ST_US;
		struct pt_rec_off *r = (struct pt_rec_off *)st_add(
			&j->s, PT_REC_OFF, sizeof(*r), ts, JOB_WORKER(0), JOB_WORKER(0));

		r->hdr.flags = flags[i / 3 % 8];
		r->off_ts = ts - 300 * ST_US;
		r->wake_ts = i % 13 ? ts - 10 * ST_US : 0;
		r->syscall = calls[i];
		r->state = i % 3 ? 1 : 2;
		r->object = 60 + (unsigned)i % 2;
		r->obj_kind = objects[(unsigned)i * (part + 1) % 11];
		r->arg[0] = i % 5 ? 0x2000 : 0x4000;
		r->arg[1] = i % 2 ? 7 : 38;
		r->waker_tid = r->waker_tgid = JOB_TRAINER;
		r->waker_in = in[(unsigned)i / 2 % 6];
		/* who wakes is often in the same call, or in one next to it */
		r->waker_syscall = calls[(unsigned)(i + (int)part * (i % 7)) % (unsigned)n];
		r->waker_object = i % 4 ? r->object : 60;
		r->waker_obj_kind = i % 5 == 4 ? PT_OBJ_NONE : r->obj_kind;
		r->waker_arg0 = i % 3 ? r->arg[0] : 0;
	}
}

/* A few records of every kind that there is, of other processes, with small numbers. */
static void add_kinds(struct job *j)
{
	const struct pt_rec_line *l;
	const struct pt_rec_kind *k;
	unsigned kind, i, n, m, x;

	for (kind = 0; kind < PT_REC_KINDS; kind++) {
		k = pt_rec_kind((uint16_t)kind);
		for (i = 0; k && i < 4; i++) {
			unsigned char *r = (unsigned char *)st_add(
				&j->s, (uint16_t)kind, k->size,
				JOB_BEGIN + (20 + 9 * i) * ST_MS + kind * ST_US,
				5000 + i / 2, 5000 + i);

			for (l = k->lines(&n), m = 0; m < n; m++)
				for (x = 0; l[m].says == PT_SAYS_MEMBER && x < l[m].n; x++)
					r[l[m].off + x * l[m].width] =
						(unsigned char)(i * m % 7);
		}
	}
}

/* Device times of CUPTI with their names, and both ends of connections. */
static void add_acts_socks(struct job *j)
{
	struct pt_rec_sock *s;
	struct pt_rec_name *n;
	struct pt_rec_act *a;
	uint64_t ts;
	uint32_t i;

	/* functions by a handle, which has the name that its function has */
	for (i = 0; i < 8; i++) {
		ts = JOB_BEGIN + (18 + i) * ST_MS;
		st_gpu(&j->s, "cudaGetFuncBySymbol", JOB_TRAINER, JOB_TRAINER, ts, ts + ST_US, 0,
		       500 + i % 2, 1 + i % 3, i < 6 ? 7 + i : 1 + i % 3);
		((struct pt_rec_gpu *)&j->s.recs.v[j->s.recs.n - 1].r)->v[1] = 7 + i;
		st_gpu(&j->s, "cudaLaunchKernel", JOB_TRAINER, JOB_TRAINER, ts + 2 * ST_US,
		       ts + 3 * ST_US, 0, 7 + i, 1, 1);
	}
	for (i = 0; i < 24; i++) {
		ts = JOB_BEGIN + (18 + i) * ST_MS;
		a = (struct pt_rec_act *)st_add(&j->s, PT_REC_ACT, sizeof(*a), ts,
						JOB_TRAINER, JOB_TRAINER);
		a->what = 1 + i % PT_ACT_LAST;
		a->begin = a->what == PT_ACT_COVER ? JOB_BEGIN : ts - ST_MS;
		a->end = ts;
		a->correlation = i / 2;
		a->name = 1 + i % 3;
		n = (struct pt_rec_name *)st_add(&j->s, PT_REC_NAME, sizeof(*n), ts,
						 JOB_TRAINER, JOB_TRAINER);
		n->key = 1 + i % 3;
		n->space = 1 + i % 2;
		snprintf(n->name, sizeof(n->name), "_Z%ukernel%u", 7, i % 3);
		s = (struct pt_rec_sock *)st_add(&j->s, PT_REC_SOCK, sizeof(*s), ts,
						 i % 2 ? JOB_TRAINER : JOB_WORKER(0),
						 JOB_TRAINER);
		s->inode = 70 + i % 8;
		s->family = i % 8 < 4 ? 2 : i % 8 < 6 ? 10 : 1;
		s->protocol = s->family == 1 ? 0 : 6;
		s->state = i % 8 == 3 ? 10 : 1; /* it listens */
		s->local_port = i % 2 ? 80 : 4000;
		s->remote_port = i % 2 ? 4000 : 80;
		s->local[0] = s->remote[0] = 10;
		s->received = i << 12;
		s->opened = ts - ST_MS;
		snprintf(s->path, sizeof(s->path), "/run/%u", i % 2);
	}
}

/* Sums of reads, writes and faults; files of the same number under other names. */
static void add_files(struct job *j)
{
	struct pt_rec_reads *r;
	struct pt_rec_writes *w;
	struct pt_rec_faults *f;
	char name[16];
	uint64_t ts;
	uint32_t i;

	for (i = 0; i < 16; i++) {
		ts = JOB_BEGIN + (18 + 2 * i) * ST_MS;
		snprintf(name, sizeof(name), "%u.jpg", i / 4);
		st_file(&j->s, ts, JOB_FILE_DEV, JOB_FILE(i % 2), name, "data");
		r = (struct pt_rec_reads *)st_add(&j->s, PT_REC_READS, sizeof(*r), ts,
						  JOB_WORKER(0), JOB_WORKER(0));
		r->begin_ts = ts - ST_MS;
		r->inode = JOB_FILE(i % 2);
		r->dev = JOB_FILE_DEV;
		r->obj_kind = PT_OBJ_FILE;
		r->bytes = 4096;
		r->busy_ns = i % 3 ? 1000 : ~0ull;
		r->offset = 8192;
		r->count = r->placed = 4;
		r->contiguous = i % 3;
		r->forward = 3 - i % 3;
		r->before = i % 2;
		r->moved = r->beyond = i % 4;
		w = (struct pt_rec_writes *)st_add(&j->s, PT_REC_WRITES, sizeof(*w), ts,
						   JOB_TRAINER, JOB_TRAINER);
		w->begin_ts = ts - ST_MS;
		w->inode = JOB_FILE(i % 2);
		w->dev = JOB_FILE_DEV;
		w->writes = 1 + i;
		w->bytes = 100;
		f = (struct pt_rec_faults *)st_add(&j->s, PT_REC_FAULTS, sizeof(*f), ts,
						   JOB_WORKER(1), JOB_WORKER(1));
		f->begin_ts = ts - ST_MS;
		f->inode = JOB_FILE(i % 2);
		f->dev = JOB_FILE_DEV;
		f->count = 2;
		f->major = 1;
		f->hdr.flags = i % 2 ? PT_F_TEXT : 0;
		st_read(&j->s, JOB_TRAINER, JOB_TRAINER, ts, ts + 1000, JOB_FILE_DEV,
			JOB_FILE(0), 100);
	}
	st_mark(&j->s, JOB_BEGIN + 40 * ST_MS, PT_MARK_CUT);
}

static void seed(const char *name, const struct job_opts *o, unsigned changed)
{
	struct job j;
	char *all = NULL;
	size_t i, len = 0;
	FILE *f = open_memstream(&all, &len);

	job_run(&j, o);
	if (!strcmp(name, "ranges-devices"))
		add_ranges(&j);
	if (!strncmp(name, "waits-", 6))
		add_waits(&j, (unsigned)(name[6] - '0'));
	if (!strcmp(name, "kinds"))
		add_kinds(&j);
	if (!strcmp(name, "acts-socks"))
		add_acts_socks(&j);
	if (!strcmp(name, "files"))
		add_files(&j);
	if (!strncmp(name, "crowd-", 6))
		st_add(&j.s, CROWD, sizeof(struct pt_hdr), JOB_BEGIN + 16 * ST_MS,
		       JOB_TRAINER, 10000)->hdr.cpu = (uint16_t)(name[6] - '0');
	st_file(&j.s, JOB_BEGIN + 20 * ST_MS, JOB_FILE_DEV, JOB_FILE(0), "a.jpg",
		"data");
	job_window(&j, JOB_BEGIN + 15 * ST_MS, JOB_BEGIN + 60 * ST_MS);
	if (!f)
		abort();
	for (i = 0; i < j.s.recs.n; i++)
		fwrite(&j.s.recs.v[i].r, j.s.recs.v[i].r.hdr.size, 1, f);
	job_free(&j);
	if (fclose(f))
		abort();
	fuzz_seed_changed(name, all, len, changed);
	free(all);
}

void model_seeds(void)
{
	struct job_opts o = tiny(2);

	seed("workers", &o, 0);
	o.sockets = true;
	o.mix[JOB_DISK] = 0.5;
	o.loop = JOB_AHEAD;
	seed("sockets-disk-ahead", &o, 0);
	o = tiny(2);
	o.pin = true;
	o.loss_item = true;
	seed("pin-loss", &o, 0);
	o = tiny(1);
	o.direct = true;
	o.loop = JOB_THREAD;
	o.mix[JOB_RUNQ] = 0.4;
	seed("direct-thread", &o, 0);
	o = tiny(0);
	o.mix[JOB_FAULT] = 0.3;
	o.sync_every = 3;
	seed("own", &o, 0);
	o = tiny(3);
	o.hogs = true;
	o.mix[JOB_DISK] = 0.4;
	o.mix[JOB_LOCK] = 0.2;
	o.mix[JOB_NET] = 0.2;
	o.sync_every = 0;
	seed("mixed-nosync", &o, 0);
	o = tiny(1);
	seed("ranges-devices", &o, 0);
	seed("kinds", &o, 40);
	seed("acts-socks", &o, 40);
	seed("files", &o, 40);
	seed("waits-0", &o, 0);
	seed("waits-1", &o, 0);
	seed("waits-2", &o, 0);
	seed("waits-3", &o, 4);
	seed("crowd-0", &o, 8); /* EXITS ... */
	seed("crowd-1", &o, 2);
	seed("crowd-2", &o, 2);
	seed("crowd-3", &o, 2);
}
