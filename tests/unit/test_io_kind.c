/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of waiting for storage, on simulated devices: one that shares its
 * bandwidth among those who wait, and one that takes its time for each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/io/kind.h"
#include "analysis/io/units.h"
#include "model/model.h"
#include "stream.h"

#define T0 (1000 * ST_S)
#define WALL (4 * ST_S)
#define P 500u
#define DEV 0x800001u
#define READERS 3
#define KB 1024.0

struct device {
	double bytes_per_ms; /* shared by all who wait; 0: as fast as you like */
	double latency_ms;   /* of each, by itself */
	bool in_turn;	     /* serves one after the other, as they came */
};

struct load {
	double low, high; /* bytes of a read */
	unsigned files;	  /* each read is all of one; 0: somewhere in a large one */
	bool in_order;	  /* ... one behind the other */
};

struct reader {
	double think, left_ms, left_bytes, begin; /* ms */
	uint64_t size, was; /* of this read and of the one before */
	uint64_t at, inode;
};

struct world {
	struct stream s;
	struct reader r[READERS];
	uint64_t seed;
	struct pt_model *m;
	struct pt_report *rep;
	struct pt_places places;
	struct pt_trainer t;
	struct pt_io io;
};

static double rnd(struct world *w)
{
	w->seed = w->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(w->seed >> 11) / 9007199254740992.0;
}

static void ask(struct world *w, struct reader *r, const struct device *d,
		const struct load *l)
{
	r->was = r->size;
	r->at = l->in_order ? r->at + r->size :
		l->files ? 0 : (uint64_t)(rnd(w) * 1e9);
	r->size = (uint64_t)(l->low + rnd(w) * (l->high - l->low));
	r->inode = l->files ? 10 + (uint64_t)(rnd(w) * l->files) : 10;
	r->think = rnd(w) * 12;
	r->left_ms = d->latency_ms;
	r->left_bytes = d->bytes_per_ms > 0 ? (double)r->size : 0;
	r->begin = -1;
}

/* A wait is over: what it brought shows in the thread's next record. */
static void note(struct world *w, unsigned i, double now)
{
	struct reader *r = &w->r[i];
	uint64_t b = T0 + (uint64_t)(r->begin * 1e6),
		 e = T0 + (uint64_t)(now * 1e6);
	struct pt_rec_off *o = st_off(&w->s, P, P + 1 + i, b, e, e + 1000);
	struct pt_rec_read *c;

	o->syscall = 0; /* read */
	o->obj_kind = PT_OBJ_FILE;
	o->object = r->inode;
	o->dev = DEV;
	o->state = 2;
	o->hdr.flags |= PT_F_IOWAIT;
	st_bytes(&w->s, r->was, 0);
	c = &st_add(&w->s, PT_REC_READ, sizeof(*c), e + 2000, P, P + 1 + i)->read;
	c->begin_ts = b - 1000;
	c->inode = r->inode;
	c->dev = DEV;
	c->offset = r->at;
	c->ret = (int64_t)r->size;
	c->obj_kind = PT_OBJ_FILE;
	c->door = PT_DOOR_FEXIT;
}

static bool first_of(const struct world *w, unsigned i)
{
	unsigned k;

	for (k = 0; k < READERS; k++)
		if (w->r[k].begin >= 0 && k != i &&
		    (w->r[k].begin < w->r[i].begin ||
		     (w->r[k].begin == w->r[i].begin && k < i)))
			return false;
	return true;
}

/* In steps of 20 us. */
static void simulate(struct world *w, const struct device *d,
		     const struct load *l)
{
	const double dt = 0.02;
	double now;
	unsigned i;

	for (i = 0; i < READERS; i++)
		ask(w, &w->r[i], d, l);
	for (now = 1; now < WALL / 1e6 - 50; now += dt) {
		unsigned waiting = 0;

		for (i = 0; i < READERS; i++)
			waiting += w->r[i].begin >= 0;
		for (i = 0; i < READERS; i++) {
			struct reader *r = &w->r[i];

			if (r->begin < 0) {
				r->think -= dt;
				if (r->think <= 0)
					r->begin = now;
				continue;
			}
			if (d->in_turn && !first_of(w, i))
				continue;
			if (r->left_ms > 0)
				r->left_ms -= dt;
			else if (r->left_bytes > 0)
				r->left_bytes -= d->bytes_per_ms * dt /
						 (d->in_turn ? 1 : waiting);
			if (r->left_ms > 0 || r->left_bytes > 0)
				continue;
			note(w, i, now);
			ask(w, r, d, l);
		}
	}
}

static void look(struct world *w, uint64_t seed, const struct device *d,
		 const struct load *l)
{
	struct pt_an an = { 0 };
	struct pt_rec_host *h;
	unsigned i;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	h = &st_add(&w->s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = PT_DOOR_FEXIT;
	st_mark(&w->s, T0, PT_MARK_BEGIN);
	st_task(&w->s, T0, P, P, 1, "job");
	for (i = 0; i < READERS; i++)
		st_task(&w->s, T0, P, P + 1 + i, 1, "reader");
	simulate(w, d, l);
	st_mark(&w->s, T0 + WALL, PT_MARK_END);
	st_seal(&w->s);
	w->rep = st_analyze(&w->s, &w->m);
	an.m = w->m;
	an.r = w->rep;
	an.a = w->rep->arena;
	an.t0 = T0;
	an.t1 = T0 + WALL;
	assert_int_equal(pt_find_places(&an, &w->places), 0);
	an.places = &w->places;
	w->t.thread_loader = true;
	w->t.main = pt_model_thread(w->m, P);
	w->t.proc = w->t.main->proc;
	for (i = 0; i < READERS; i++) {
		struct pt_worker x = { .main = pt_model_thread(w->m, P + 1 + i),
				       .role = PT_ROLE_THREAD };

		assert_non_null(x.main);
		x.proc = x.main->proc;
		assert_int_equal(pt_vec_push(&w->t.workers, x), 0);
	}
	assert_int_equal(pt_measure_io(&an, &w->t, &w->io), 0);
	pt_io_decide(&an.r->memory, &w->io);
	assert_true(w->io.waits > 100);
}

static void forget(struct world *w)
{
	pt_vec_free(&w->t.workers);
	pt_free_places(&w->places);
	pt_report_free(w->rep);
	pt_model_free(w->m);
	st_free(&w->s);
}

static void expect(const struct device *d, const struct load *l,
		   enum pt_io_kind kind)
{
	struct world w;
	uint64_t seed;

	for (seed = 1; seed <= 5; seed++) {
		look(&w, seed, d, l);
		assert_int_equal(w.io.kind, kind);
		forget(&w);
	}
}

static const struct device narrow = { 20 * KB, 0.1, false }; /* 20 MiB/s */
static const struct device far = { 0, 9, false };
/* ... that serve one after the other */
static const struct device queue = { 20 * KB, 0.1, true };
static const struct device arm = { 0, 7, true };

static void bandwidth(void **state)
{
	(void)state;
	expect(&narrow, &(struct load){ 64 * KB, 600 * KB, 80, false }, PT_IO_BANDWIDTH);
	/* of one size: who shares it tells, of long reads */
	expect(&narrow, &(struct load){ 256 * KB, 256 * KB, 80, false }, PT_IO_BANDWIDTH);
	/* small files of many sizes: it is the bytes all the same */
	expect(&(struct device){ 2 * KB, 0.1, false },
	       &(struct load){ 4 * KB, 90 * KB, 80, false }, PT_IO_BANDWIDTH);
}

static void latency(void **state)
{
	(void)state;
	expect(&far, &(struct load){ 140 * KB, 600 * KB, 80, false }, PT_IO_LATENCY);
	expect(&far, &(struct load){ 200 * KB, 200 * KB, 80, false }, PT_IO_LATENCY);
}

static void small_files(void **state)
{
	(void)state;
	expect(&far, &(struct load){ 4 * KB, 60 * KB, 200, false }, PT_IO_SMALL_FILES);
	/* too few for a dataset of small files */
	expect(&far, &(struct load){ 4 * KB, 60 * KB, 4, false }, PT_IO_LATENCY);
}

static void random_access(void **state)
{
	(void)state;
	expect(&far, &(struct load){ 4 * KB, 60 * KB, 0, false }, PT_IO_RANDOM);
	expect(&far, &(struct load){ 4 * KB, 60 * KB, 0, true }, PT_IO_LATENCY);
}

/* Nothing varies, and small files may be anything: it is not made up. */
static void cannot_tell(void **state)
{
	struct load l = { 64 * KB, 64 * KB, 80, false };

	(void)state;
	expect(&(struct device){ 40 * KB, 0.1, false }, &l, PT_IO_UNKNOWN);
}

static void in_turn(void **state)
{
	(void)state;
	expect(&queue, &(struct load){ 64 * KB, 600 * KB, 80, false }, PT_IO_BANDWIDTH);
	expect(&arm, &(struct load){ 140 * KB, 600 * KB, 80, false }, PT_IO_LATENCY);
	expect(&arm, &(struct load){ 4 * KB, 60 * KB, 200, false }, PT_IO_SMALL_FILES);
	expect(&arm, &(struct load){ 4 * KB, 60 * KB, 0, false }, PT_IO_RANDOM);
}

/* A throttle: each second so many bytes, or so many reads; a disk that answers at
 * once. Reads of a second are of a size of their own. */
static void held(struct world *w, unsigned seconds, bool by_bytes, double vary,
		 struct pt_io *o)
{
	struct pt_r_disk disk = { .reads = 400, .read_bytes = 1 << 30,
				  .read_latency_ms = { .n = 400, .mean = 1 } };
	struct pt_report r = { .disks = &disk, .n_disks = 1 };
	struct pt_an an = { .r = &r, .t0 = T0, .t1 = T0 + seconds * ST_S };
	pt_io_units v = { 0 };
	unsigned i, k, n;

	for (i = 0; i < seconds; i++) {
		double size = 1e5 * (1 + vary * (rnd(w) - 0.5));

		n = by_bytes ? (unsigned)(4e6 / size + rnd(w)) : 40;
		for (k = 0; k < n; k++) {
			struct pt_io_unit u = { .t = 20, .n = size, .ns = 20 * ST_MS };

			u.end = T0 + i * ST_S + (k + 1) * (ST_S / 80);
			assert_int_equal(pt_vec_push(&v, u), 0);
		}
	}
	*o = (struct pt_io){ .fetched_per_s = 4e6 };
	assert_int_equal(pt_io_held(&an, &v, o), 0);
	pt_vec_free(&v);
}

static void held_back(void **state)
{
	struct world w = { .seed = 11 };
	struct pt_io o;
	unsigned i;

	(void)state;
	for (i = 0; i < 5; i++) {
		held(&w, 12, true, 0.6, &o);
		assert_true(o.held > 0.9);
		assert_int_equal(o.limit, PT_IO_LIMIT_BYTES);
		held(&w, 12, false, 0.6, &o);
		assert_true(o.held > 0.9);
		assert_int_equal(o.limit, PT_IO_LIMIT_COUNT);
		/* nothing varies, or too short */
		held(&w, 12, true, 0, &o);
		assert_int_equal(o.limit, PT_IO_LIMIT_UNKNOWN);
		held(&w, 4, true, 0.6, &o);
		assert_int_equal(o.limit, PT_IO_LIMIT_UNKNOWN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bandwidth),   cmocka_unit_test(latency),
		cmocka_unit_test(small_files), cmocka_unit_test(random_access),
		cmocka_unit_test(cannot_tell), cmocka_unit_test(in_turn),
		cmocka_unit_test(held_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
