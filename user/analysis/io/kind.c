/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which kind of waiting for storage it is. The first that holds:
 *
 *  1. page_cache_too_small: most of what was fetched had been in memory before
 *     and was evicted: the kernel counts such refaults itself (Documentation/
 *     admin-guide/cgroup-v2.rst, workingset_refault_file).
 *  2. bandwidth: the waiting goes with the bytes. A device that is limited by
 *     bandwidth shares it among those who wait (processor sharing; Kleinrock
 *     1967), so a wait for n bytes with c waiting takes n c / B; or it serves them
 *     in turn (a queue, as a throttle and a single link have it), so that a wait
 *     takes w / B, w the bytes of all whose waits ended meanwhile. One that serves
 *     a request at a time, whatever its size, takes c A (a disk arm; a limit of
 *     operations), or k A, k the number of those; one that serves all at their own
 *     pace takes L. Waits are fitted by L + c A + n c / B and by L + k A + w / B;
 *     of the two that which leaves less unexplained holds. What its last term has
 *     of the mean wait says whether bytes are what lacks. Where sizes do not vary the last two cannot
 *     be told apart: then bandwidth is said of long accesses only, of which it
 *     takes most on every kind of device.
 *     A throttle makes bursts, which no such fit shows: where the disk answers in a
 *     small part of the waiting (held.c), bytes are held back, or requests.
 *  3. many_small_files: files shorter than the kernel reads ahead by default
 *     (128 KiB, VM_READAHEAD_PAGES in include/linux/mm.h), many of them: reading
 *     ahead cannot help, every file costs a wait. Or the waiting is for opening.
 *  4. random_access: the same inside large files: runs as short between jumps.
 *  5. latency: neither, and the fit says that it is not the bytes.
 *  3 and 4 hold without a fit where bytes come so slowly that no link or disk in
 *  use is the reason; with less certainty, for a limit may be. Else unknown.
 */
#include "analysis/io/kind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/io/units.h"
#include "analysis/verdicts/thresholds.h"

const char *pt_io_kind_name(enum pt_io_kind k)
{
	static const char *const names[] = {
		NULL, "bandwidth", "latency", "many_small_files",
		"random_access", "page_cache_too_small",
	};

	return names[k];
}

/* ---- the fits --------------------------------------------------------------- */

struct moments {
	double n, mt, mx, mc, sxc, scc;
};

enum fit_on {
	ON_C,	  /* who waited meanwhile */
	ON_SHARE, /* n c */
	ON_BYTES, /* n c, beside c */
	ON_QUEUE, /* w, beside k */
};

/*
 * Opening a file is another thing than reading it, and what brought no bytes
 * (the end of a file) says nothing of them. On a long run the kernel reads
 * ahead: what a call returns is not what its wait was for. Runs that one
 * request can fetch are.
 */
static bool fits(const struct pt_io_unit *u, enum fit_on on)
{
	return !u->opening && u->x > 0 && (on < ON_BYTES || u->sized);
}

static double x_of(const struct pt_io_unit *u, enum fit_on on)
{
	return on == ON_C ? u->c : on == ON_QUEUE ? u->w : u->x;
}

static double beside_of(const struct pt_io_unit *u, enum fit_on on)
{
	return on == ON_QUEUE ? u->k : u->c;
}

static struct moments moments_of(const pt_io_units *v, enum fit_on on)
{
	struct moments m = { 0 };
	size_t i;

	for (i = 0; i < v->n; i++)
		m.n += fits(&v->v[i], on);
	for (i = 0; i < v->n; i++) {
		if (!fits(&v->v[i], on))
			continue;
		m.mt += v->v[i].t / m.n;
		m.mx += x_of(&v->v[i], on) / m.n;
		m.mc += beside_of(&v->v[i], on) / m.n;
	}
	for (i = 0; i < v->n; i++) {
		double dc = beside_of(&v->v[i], on) - m.mc;

		if (!fits(&v->v[i], on))
			continue;
		m.scc += dc * dc;
		m.sxc += dc * (x_of(&v->v[i], on) - m.mx);
	}
	return m;
}

/*
 * Least squares of t on c, on n c, or on n c with an intercept and c beside it: by the
 * part of n c that those do not explain (Frisch and Waugh 1933). Single waits are
 * noisy and skewed, so the error of the slope is White's (1980), which does not
 * take the spread to be the same everywhere.
 */
static struct pt_io_part fit(const pt_io_units *v, enum fit_on on, double spread,
			     double *left)
{
	struct pt_io_part out = { NAN, NAN };
	struct moments m = moments_of(v, on);
	bool beside = on >= ON_BYTES && m.scc > 0;
	double k = 0, kt = 0, srr = 0, srt = 0, meat = 0, b;
	size_t i;

	*left = INFINITY;
	if (m.n < PT_IO_FIT_WAITS || !(m.mt > 0) || !(m.mx > 0))
		return out;
	if (beside)
		k = m.sxc / m.scc;
	for (i = 0; i < v->n; i++) {
		double r = x_of(&v->v[i], on) - m.mx -
			   k * (beside_of(&v->v[i], on) - m.mc);

		if (!fits(&v->v[i], on))
			continue;
		srr += r * r;
		srt += r * (v->v[i].t - m.mt);
	}
	if (on == ON_QUEUE && m.mc > 1) /* a sum of so many sizes varies less */
		spread /= sqrt(m.mc);
	if (!(sqrt(srr / m.n) >= spread * m.mx))
		return out;
	b = srt / srr;
	for (i = 0; beside && i < v->n; i++)
		kt += !fits(&v->v[i], on) ? 0 :
		      (beside_of(&v->v[i], on) - m.mc) *
		      (v->v[i].t - m.mt -
			 b * (x_of(&v->v[i], on) - m.mx)) / m.scc;
	for (i = 0, *left = 0; i < v->n; i++) {
		double dc = beside_of(&v->v[i], on) - m.mc;
		double dx = x_of(&v->v[i], on) - m.mx;
		double r = dx - k * dc, e = v->v[i].t - m.mt - b * dx - kt * dc;

		if (!fits(&v->v[i], on))
			continue;
		meat += r * r * e * e;
		*left += e * e;
	}
	out.value = b * m.mx / m.mt;
	out.se = sqrt(meat) / srr * m.mx / m.mt;
	return out;
}

/* ---- files ------------------------------------------------------------------ */

/* Length of the folder that both are in, its "/" included. */
static size_t common_folder(const char *a, size_t len, const char *b)
{
	size_t i, end = 0;

	for (i = 0; i < len && a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			end = i + 1;
	return end;
}

static size_t folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The file that half of the waiting is for, or else the folder that all of the
 * files lie in. *place: the file that most of it is for. */
static int name_where(const struct pt_an *an, uint64_t sum, const struct pt_place **place,
		      struct pt_io *o)
{
	const struct pt_place *c, *most = NULL;
	const char *folder = NULL;
	const struct pt_file *f;
	size_t len = 0;

	for (c = an->places->all; c; c = c->hh.next) {
		if (!c->waited_ns)
			continue;
		if (!most || c->waited_ns > most->waited_ns)
			most = c;
		f = pt_model_file(an->m, (uint32_t)c->key.dev, c->key.inode);
		if (!f || !f->path)
			continue;
		if (!folder) {
			folder = f->path;
			len = folder_of(folder);
		} else {
			len = common_folder(folder, len, f->path);
		}
	}
	if (!most)
		return 0;
	*place = most;
	f = pt_model_file(an->m, (uint32_t)most->key.dev, most->key.inode);
	if ((double)most->waited_ns >= PT_IO_ONE_FILE * (double)sum) {
		o->where = f && f->path ? pt_arena_strdup(an->a, f->path) : NULL;
		return f && f->path && !o->where ? -ENOMEM : 0;
	}
	if (len < 2) /* the root says nothing */
		return 0;
	o->where_folder = true;
	o->where = pt_arena_strndup(an->a, folder, len);
	return o->where ? 0 : -ENOMEM;
}

static bool hops(const struct pt_place *p)
{
	const char *kind = pt_place_kind(p);

	return kind && strcmp(kind, "sequential") != 0 &&
	       pt_place_run(p) < PT_READ_AHEAD;
}

/* What the files that were waited for tell. */
static void sum_files(const struct pt_an *an, uint64_t sum, struct pt_io *o)
{
	uint64_t visits = 0, bytes = 0, hopped = 0;
	double wall = pt_sec(an->t1 - an->t0);
	const struct pt_place *p;

	for (p = an->places->all; p; p = p->hh.next) {
		if (!p->waited_ns)
			continue;
		o->files++;
		if (!p->starts)
			continue;
		visits += p->starts + p->again;
		bytes += p->placed;
		if (hops(p))
			hopped += p->waited_ns;
	}
	o->visits_per_s = o->visit_bytes = NAN;
	if (visits) {
		o->visits_per_s = (double)visits / wall;
		o->visit_bytes = (double)bytes / (double)visits;
	}
	o->random = sum ? (double)hopped / (double)sum : 0;
}

static int look_at_files(struct pt_an *an, pt_io_units *v, const struct pt_place **place,
			 struct pt_io *o)
{
	uint64_t sum = 0, opening = 0, longer = 0;
	struct pt_place *p;

	pt_each(struct pt_io_unit, u, v) {
		p = u->inode ? pt_place_of(an->places, u->dev, u->inode) : NULL;
		sum += u->ns;
		opening += u->opening ? u->ns : 0;
		if (!p)
			continue;
		p->waited_ns += u->ns;
		/* runs that are short enough for one request */
		u->sized = pt_place_run(p) <= PT_IO_REQUEST;
		longer += pt_place_run(p) > PT_IO_REQUEST ? u->ns : 0;
	}
	o->opening = sum ? (double)opening / (double)sum : 0;
	o->long_runs = 2 * longer >= sum;
	sum_files(an, sum, o);
	return name_where(an, sum, place, o);
}

/* ---- the decision ----------------------------------------------------------- */

static double refaults(const struct pt_r_memory *m, const struct pt_io *o)
{
	if (m->refaulted == PT_NULL || !(m->refault_s > 0) ||
	    !(o->fetched_per_s > 0))
		return NAN;
	/* those of the machine may be somebody else's, but for a job that
	 * alone reads more than fits */
	if (!strcmp(m->refaulted_in, "host") && m->set.fits != 0)
		return NAN;
	return (double)m->refaulted / m->refault_s / o->fetched_per_s;
}

static bool mostly(const struct pt_io_part *p)
{
	return p->value - PT_IO_ERRORS * p->se >= PT_IO_MOSTLY;
}

static bool hardly(const struct pt_io_part *p)
{
	return p->value + PT_IO_ERRORS * p->se < PT_IO_MOSTLY;
}

/* By what is read: short files, short runs; or nothing of the kind. */
static enum pt_io_kind shape(const struct pt_io *o)
{
	if (o->opening >= PT_IO_MOSTLY ||
	    (o->files >= PT_IO_MANY_FILES && o->visit_bytes < PT_READ_AHEAD))
		return PT_IO_SMALL_FILES;
	return o->random >= PT_IO_MOSTLY ? PT_IO_RANDOM : PT_IO_UNKNOWN;
}

void pt_io_decide(const struct pt_r_memory *m, struct pt_io *o)
{
	enum pt_io_kind by_shape = shape(o);

	if (!o->measured)
		return;
	o->refault = refaults(m, o);
	if (!o->looked)
		return;
	o->certainty = PT_CONF_HIGH;
	if (o->refault >= PT_IO_REFAULT)
		o->kind = PT_IO_CACHE;
	else if (mostly(&o->by_bytes) || (!isfinite(o->by_bytes.value) &&
					  mostly(&o->by_share) && !by_shape))
		o->kind = PT_IO_BANDWIDTH;
	else if (o->held >= PT_IO_HELD) {
		o->kind = o->limit == PT_IO_LIMIT_BYTES ? PT_IO_BANDWIDTH :
			  o->limit == PT_IO_LIMIT_COUNT && by_shape ? by_shape :
			  o->limit == PT_IO_LIMIT_COUNT ? PT_IO_LATENCY :
							  PT_IO_UNKNOWN;
		o->certainty = PT_CONF_MEDIUM;
	} else if (hardly(&o->by_bytes) || hardly(&o->by_share))
		o->kind = by_shape ? by_shape : PT_IO_LATENCY;
	else if (by_shape && o->busy_per_s < PT_IO_SLOWEST) {
		o->kind = by_shape;
		o->certainty = PT_CONF_MEDIUM;
	} else {
		o->certainty = PT_CONF_LOW;
	}
}

int pt_measure_io(struct pt_an *an, struct pt_trainer *t, struct pt_io *out)
{
	const struct pt_place *place = NULL;
	pt_io_units v = { 0 };
	int err;

	*out = (struct pt_io){ .refault = NAN, .held = NAN, .stride = PT_NULL,
			       .read_bytes = NAN, .visit_bytes = NAN,
			       .visits_per_s = NAN, .by_bytes = { NAN, NAN },
			       .by_share = { NAN, NAN }, .certainty = PT_CONF_LOW };
	err = pt_io_collect(an, t, &v, out);
	if (!err && v.n && an->places)
		err = look_at_files(an, &v, &place, out);
	if (!err && v.n) {
		struct pt_io_part queue;
		double shared, queued, any;

		out->by_bytes = fit(&v, ON_BYTES, PT_IO_FIT_SIZES, &shared);
		queue = fit(&v, ON_QUEUE, PT_IO_FIT_SIZES, &queued);
		if (queued < shared)
			out->by_bytes = queue;
		out->by_share = fit(&v, out->long_runs ? ON_C : ON_SHARE,
				    PT_IO_FIT_SPREAD, &any);
		err = pt_io_held(an, &v, out);
		out->measured = true;
	}
	out->looked = an->places;
	out->placed = place && place->starts;
	if (place) {
		const char *kind = pt_place_kind(place);

		out->read_bytes = (double)place->bytes / (double)place->calls;
		if (kind && !strcmp(kind, "stride"))
			out->stride = place->stride;
	}
	pt_vec_free(&v);
	return err;
}
