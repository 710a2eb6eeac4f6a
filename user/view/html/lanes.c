// SPDX-License-Identifier: BSD-2-Clause
/*
 * The lanes of the page: disk, CPU and, for each trainer, its device, steps, data
 * waits, main thread and workers.
 */
#include <stdlib.h>

#include "model/past.h"
#include "view/html/html_int.h"
#include "view/timeline/trace.h"

#define USE_BUCKETS 65536 /* of the lanes that are sums over all threads */
#define OTHERS 12	  /* threads that are shown where nobody trains */

struct page {
	struct pt_jb *b;
	const struct pt_export *x;
	uint64_t begin, end;
	json_t *lanes;
	size_t cap;   /* bytes of a lane */
	size_t n, left_out; /* lanes of threads */
	const struct pt_thread *shown[PT_HTML_LANES];
};

static json_t *lane(struct page *p, const char *kind, int64_t trainer)
{
	json_t *o = json_object();

	pt_j_put(p->b, o, "kind", json_string(kind));
	pt_j_put(p->b, o, "trainer", pt_j_int(trainer));
	return o;
}

static void pack(struct page *p, json_t *o, pt_lod_fn fn, const void *src)
{
	pt_lod_pack(p->b, o, fn, src, p->begin, p->end, p->cap);
	pt_j_add(p->b, p->lanes, o);
}

/* ---- threads ------------------------------------------------------------------ */

static enum pt_html_cat cat_of(unsigned wait)
{
	static const uint8_t cats[PT_WAIT_NR] = {
		[PT_WAIT_RUNQ] = PT_HC_RUNQ,
		[PT_WAIT_DISK] = PT_HC_DISK,
		[PT_WAIT_DISK_WRITE] = PT_HC_DISK_WRITE,
		[PT_WAIT_FAULT] = PT_HC_FAULT,
		[PT_WAIT_PIPE_IN] = PT_HC_PIPE_IN,
		[PT_WAIT_PIPE_OUT] = PT_HC_PIPE_OUT,
		[PT_WAIT_SOCK] = PT_HC_SOCK,
		[PT_WAIT_FUTEX] = PT_HC_FUTEX,
		[PT_WAIT_SLEEP] = PT_HC_SLEEP,
		[PT_WAIT_POLL] = PT_HC_POLL,
		[PT_WAIT_STOPPED] = PT_HC_STOPPED,
		[PT_WAIT_OTHER] = PT_HC_BLOCKED,
		[PT_WAIT_FLOCK] = PT_HC_BLOCKED,
		[PT_WAIT_CHILD] = PT_HC_BLOCKED,
		[PT_WAIT_MSGQ] = PT_HC_BLOCKED,
		[PT_WAIT_SEM] = PT_HC_FUTEX,
		[PT_WAIT_EVENT] = PT_HC_POLL,
		[PT_WAIT_INODE_LOCK] = PT_HC_BLOCKED,
		[PT_WAIT_RECLAIM] = PT_HC_BLOCKED,
		[PT_WAIT_URING] = PT_HC_POLL,
		[PT_WAIT_SIGNAL] = PT_HC_SLEEP,
	};

	return wait == PT_PAST_RUNNING ? PT_HC_RUNNING :
	       wait < PT_WAIT_NR      ? cats[wait] : PT_HC_BLOCKED;
}

static void state_in(void *ctx, uint64_t begin, uint64_t end, unsigned state)
{
	pt_lod_add(ctx, begin, end, cat_of(state));
}

struct thread {
	const struct pt_thread *th;
	const struct pt_past *past;
};

/* What was summed up, as shares of its time. */
static void past_lane(const struct pt_past *p, const struct pt_past_thread *t,
		      struct pt_lod *l)
{
	uint8_t cats[PT_PAST_STATES];
	double share[PT_PAST_STATES];
	uint64_t at = p->begin, next;
	unsigned k;
	size_t i;

	for (i = 0; i < PT_PAST_BUCKETS && at < t->until; i++, at = next) {
		uint64_t end = at + p->width < t->until ? at + p->width : t->until;

		next = at + p->width;
		for (k = 0; k < PT_PAST_STATES; k++) {
			cats[k] = (uint8_t)cat_of(k);
			share[k] = (double)t->v[i][k] / (double)(end - at);
		}
		pt_lod_mix(l, at, end, cats, share, PT_PAST_STATES);
	}
}

static void thread_lane(const void *src, struct pt_lod *l)
{
	const struct thread *s = src;
	const struct pt_past_thread *t = pt_past_of(s->past, s->th->tid);

	if (t)
		past_lane(s->past, t, l);
	pt_thread_states(s->th, t, state_in, l);
}

static bool shown(const struct page *p, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		if (p->shown[i] == th)
			return true;
	return false;
}

static void add_thread(struct page *p, const struct pt_thread *th,
		       const char *role, int64_t trainer, int64_t worker)
{
	json_t *o;

	if (!th || shown(p, th))
		return;
	if (p->n == PT_HTML_LANES) {
		p->left_out++;
		return;
	}
	p->shown[p->n++] = th;
	o = lane(p, "thread", trainer);
	pt_j_put(p->b, o, "worker", pt_j_int(worker));
	pt_j_put(p->b, o, "pid", json_integer(pt_real_id(th->tgid)));
	pt_j_put(p->b, o, "tid", json_integer(pt_real_id(th->tid)));
	pt_j_text(p->b, o, "role", role);
	pt_j_text(p->b, o, "name", th->comm);
	pack(p, o, thread_lane, &(struct thread){ th, p->x->lanes->past });
}

/* ---- disk and CPU: sums over all threads ------------------------------------------ */

enum use { USE_RUN = 0, USE_RUNQ, USE_DISK, USE_FAULT, USE_WRITE, USE_NR };

struct uses {
	float (*v)[USE_NR]; /* mean number of threads in each bucket */
	double width;	    /* ns */
	uint64_t begin, end;
	double scale; /* what fills the lane */
	unsigned first, n; /* which of them the lane shows */
	bool waited; /* the thread that is walked over did, for storage */
};

static void use_mean(struct uses *u, uint64_t begin, uint64_t end,
		     enum pt_html_cat cat, double threads)
{
	static const uint8_t uses[PT_HC_NR] = {
		[PT_HC_RUNNING] = USE_RUN + 1, [PT_HC_RUNQ] = USE_RUNQ + 1,
		[PT_HC_DISK] = USE_DISK + 1, [PT_HC_FAULT] = USE_FAULT + 1,
		[PT_HC_DISK_WRITE] = USE_WRITE + 1,
	};
	double from, to;
	size_t i;

	begin = begin > u->begin ? begin : u->begin;
	end = end < u->end ? end : u->end;
	if (!uses[cat] || end <= begin)
		return;
	u->waited |= uses[cat] - 1 >= USE_DISK;
	from = (double)(begin - u->begin) / u->width;
	to = (double)(end - u->begin) / u->width;
	for (i = (size_t)from; i < USE_BUCKETS && (double)i < to; i++) {
		double a = from > (double)i ? from : (double)i;
		double z = to < (double)i + 1 ? to : (double)i + 1;

		u->v[i][uses[cat] - 1] += (float)((z - a) * threads);
	}
}

static void use_in(void *ctx, uint64_t begin, uint64_t end, unsigned state)
{
	use_mean(ctx, begin, end, cat_of(state), 1);
}

static void use_past(struct uses *u, const struct pt_past *p)
{
	uint64_t at = p->begin;
	size_t i;
	unsigned k;

	for (i = 0; i < PT_PAST_BUCKETS; i++, at += p->width)
		for (k = 0; k < PT_PAST_STATES; k++)
			if (p->sum[i][k] > 0)
				use_mean(u, at, at + p->width, cat_of(k),
					 (double)p->sum[i][k] / (double)p->width);
}

static bool waited_for_storage(const struct pt_past_thread *t)
{
	size_t i;

	for (i = 0; t && i < PT_PAST_BUCKETS; i++)
		if (t->v[i][PT_WAIT_DISK] > 0 || t->v[i][PT_WAIT_FAULT] > 0 ||
		    t->v[i][PT_WAIT_DISK_WRITE] > 0)
			return true;
	return false;
}

static void use_lane(const void *src, struct pt_lod *l)
{
	static const uint8_t cats[USE_NR] = { PT_HC_RUNNING, PT_HC_RUNQ,
					      PT_HC_DISK, PT_HC_FAULT,
					      PT_HC_DISK_WRITE };
	const struct uses *u = src;
	double share[USE_NR], left;
	uint64_t at = u->begin, next;
	size_t i;
	unsigned k;

	for (i = 0; i < USE_BUCKETS; i++, at = next) {
		next = u->begin + (uint64_t)(u->width * (double)(i + 1));
		for (k = 0, left = 1; k < u->n; k++) {
			share[k] = u->v[i][u->first + k] / u->scale;
			share[k] = share[k] < left ? share[k] : left;
			left -= share[k];
		}
		pt_lod_mix(l, at, next, cats + u->first, share, u->n);
	}
}

static void add_use(struct page *p, struct uses *u, const char *kind,
		    unsigned first, unsigned n, double scale)
{
	json_t *o = lane(p, kind, PT_NULL);

	u->first = first;
	u->n = n;
	u->scale = scale > 0 ? scale : 1;
	pt_j_put(p->b, o, "scale", json_real(u->scale));
	pack(p, o, use_lane, u);
}

static void add_uses(struct page *p)
{
	const struct pt_model *m = p->x->m;
	struct uses u = { .begin = p->begin, .end = p->end };
	const struct pt_past *past = p->x->lanes->past;
	int64_t cores = p->x->r->host.cores;
	size_t i, waiters = 0;
	double most = 1;

	u.v = calloc(USE_BUCKETS, sizeof(*u.v));
	u.width = (double)(p->end - p->begin) / USE_BUCKETS;
	if (!u.v) {
		p->b->failed = true;
		return;
	}
	if (past)
		use_past(&u, past);
	for (i = 0; i < m->all_threads.n; i++) {
		const struct pt_thread *th = m->all_threads.v[i];
		const struct pt_past_thread *t = pt_past_of(past, th->tid);

		u.waited = waited_for_storage(t);
		pt_thread_states(th, t, use_in, &u);
		waiters += u.waited;
	}
	for (i = 0; i < USE_BUCKETS; i++)
		most = u.v[i][USE_RUN] > most ? u.v[i][USE_RUN] : most;
	add_use(p, &u, "disk", USE_DISK, 3, (double)waiters);
	add_use(p, &u, "cpu", USE_RUN, 2, cores > 0 ? (double)cores : most);
	free(u.v);
}

/* ---- device ------------------------------------------------------------------- */

/* Where a list of spans, or of waits, stands at a time that only grows. */
struct cursor {
	const struct pt_lane_span *spans;
	const struct pt_lane_step *steps;
	size_t n, i;
	unsigned j;
};

static const struct pt_lane_span *look(struct cursor *c, uint64_t t)
{
	while (c->i < c->n) {
		if (c->spans) {
			if (c->spans[c->i].end > t)
				return &c->spans[c->i];
		} else {
			const struct pt_lane_step *s = &c->steps[c->i];

			for (; c->j < s->n_wait; c->j++)
				if (s->wait[c->j].end > t)
					return &s->wait[c->j];
		}
		c->i++;
		c->j = 0;
	}
	return NULL;
}

/* Inside of it at `t`? *next comes no later than the next change. */
static bool inside(struct cursor *c, uint64_t t, uint64_t *next)
{
	const struct pt_lane_span *s = look(c, t);
	uint64_t edge;

	if (!s)
		return false;
	edge = s->begin > t ? s->begin : s->end;
	*next = edge < *next ? edge : *next;
	return s->begin <= t;
}

struct device {
	const struct pt_lane_trainer *t;
	uint64_t begin, end;
};

static void device_lane(const void *src, struct pt_lod *l)
{
	const struct device *d = src;
	const struct pt_lane_trainer *t = d->t;
	struct cursor hard = { .spans = t->idle_hard, .n = t->n_idle_hard };
	struct cursor likely = { .spans = t->idle_likely,
				 .n = t->n_idle_likely };
	struct cursor wait = { .steps = t->steps, .n = t->n_steps };
	uint64_t at, next, begin = d->begin;
	size_t i;

	for (i = 0; i < t->n_before; i++) {
		static const uint8_t cats[] = { PT_HC_GPU_BUSY,
						PT_HC_GPU_STARVED_LIKELY,
						PT_HC_GPU_IDLE_LIKELY };
		const struct pt_lane_mix *x = &t->before[i];
		const double shares[] = { x->busy, x->starved, x->idle };

		pt_lod_mix(l, x->begin, x->end, cats, shares, 3);
		begin = x->end;
	}
	for (at = begin; at < d->end; at = next) {
		bool h, k, w;

		next = d->end;
		h = inside(&hard, at, &next);
		k = inside(&likely, at, &next);
		w = inside(&wait, at, &next);
		if (h)
			pt_lod_add(l, at, next, w ? PT_HC_GPU_STARVED :
						    PT_HC_GPU_IDLE);
		else if (k)
			pt_lod_add(l, at, next, w ? PT_HC_GPU_STARVED_LIKELY :
						    PT_HC_GPU_IDLE_LIKELY);
		else if (t->device_known)
			pt_lod_add(l, at, next, PT_HC_GPU_BUSY);
	}
}

/* ---- trainers ----------------------------------------------------------------- */

static void steps_lane(const void *src, struct pt_lod *l)
{
	const struct pt_lane_trainer *t = src;
	size_t i;

	for (i = 0; i < t->n_steps; i++)
		pt_lod_add(l, t->steps[i].begin, t->steps[i].end,
			   i & 1 ? PT_HC_STEP_ODD : PT_HC_STEP_EVEN);
}

static void waits_lane(const void *src, struct pt_lod *l)
{
	const struct pt_lane_trainer *t = src;
	size_t i;
	unsigned j;

	for (i = 0; i < t->n_steps; i++) {
		const struct pt_lane_step *s = &t->steps[i];
		unsigned cause = s->cause < PT_CAUSE_NR ? s->cause :
							  PT_CAUSE_UNKNOWN;

		for (j = 0; j < s->n_wait; j++)
			pt_lod_add(l, s->wait[j].begin, s->wait[j].end,
				   (enum pt_html_cat)(PT_HC_CAUSE + cause));
	}
}

static json_t *add_trainer(struct page *p, size_t i)
{
	const struct pt_lane_trainer *t = &p->x->lanes->trainers[i];
	const struct pt_model *m = p->x->m;
	struct device d = { .t = t, .begin = p->begin, .end = p->end };
	json_t *o = json_object();
	int64_t at = (int64_t)i;
	size_t w;

	if (t->device_known || t->n_idle_hard || t->n_before)
		pack(p, lane(p, "gpu", at), device_lane, &d);
	if (t->n_steps) {
		pack(p, lane(p, "wait", at), waits_lane, t);
		pack(p, lane(p, "steps", at), steps_lane, t);
	}
	add_thread(p, pt_model_thread(m, t->main_tid), "trainer", at, PT_NULL);
	for (w = 0; w < t->n_workers; w++)
		add_thread(p, pt_model_thread(m, t->workers[w].tid), "loader",
			   at, (int64_t)w);
	pt_j_put(p->b, o, "pid", json_integer(pt_real_id(t->tgid)));
	pt_j_put(p->b, o, "rank", pt_j_int(t->rank));
	pt_j_put(p->b, o, "top", json_boolean(t->top));
	pt_j_put(p->b, o, "feeds", pt_html_feeds(p->b, p->x, t));
	return o;
}

/* Those of the report that have no lane yet: pin threads, feeders, ... */
static void add_workers(struct page *p)
{
	const struct pt_report *r = p->x->r;
	const struct pt_model *m = p->x->m;
	size_t i;

	for (i = 0; i < r->n_workers; i++)
		if (r->workers[i].tid > 0 && r->workers[i].tid <= UINT32_MAX)
			add_thread(p, pt_model_thread(m, pt_model_id(m,
					   (uint32_t)r->workers[i].tid)),
				   r->workers[i].role, PT_NULL, PT_NULL);
	if (p->n)
		return;
	/* nobody trains: the first threads that did anything */
	for (i = 0; i < m->all_threads.n && p->n < OTHERS; i++)
		if (m->all_threads.v[i]->iv.n)
			add_thread(p, m->all_threads.v[i], NULL, PT_NULL,
				   PT_NULL);
}

static json_t *categories(struct pt_jb *b)
{
	static const char *const names[] = {
#define X(id, name) name,
		PT_HTML_CATS(X)
#undef X
	};
	json_t *a = json_array();
	size_t i;
	int c;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		pt_j_add(b, a, json_string(names[i]));
	for (c = 0; c < PT_CAUSE_NR; c++)
		pt_j_add(b, a, json_string(pt_cause_name((enum pt_cause)c)));
	return a;
}

/* How many lanes there will be, for the share of each. */
static size_t count_lanes(const struct pt_export *x)
{
	size_t i, threads = 0, n = 2;

	for (i = 0; i < x->lanes->n_trainers; i++) {
		n += 4;
		threads += x->lanes->trainers[i].n_workers;
	}
	/* most of the report's workers are these */
	n += threads > x->r->n_workers ? threads : x->r->n_workers;
	return n < PT_HTML_LANES + 32 ? n : PT_HTML_LANES + 32;
}

json_t *pt_html_timeline(struct pt_jb *b, const struct pt_export *x)
{
	const struct pt_r_capture *c = &x->r->capture;
	struct page p = { .b = b, .x = x, .lanes = json_array() };
	json_t *o = json_object(), *trainers = json_array();
	size_t i;

	p.begin = (uint64_t)c->begin_ns;
	p.end = (uint64_t)c->end_ns;
	p.cap = PT_LOD_BYTES / count_lanes(x);
	p.cap = p.cap < PT_LOD_LANE_MAX ? p.cap : PT_LOD_LANE_MAX;
	if (c->begin_ns > 0 && c->end_ns > c->begin_ns) {
		add_uses(&p);
		/* the one that the report is about first */
		for (i = 0; i < x->lanes->n_trainers; i++)
			pt_j_add(b, trainers, add_trainer(&p, i));
		add_workers(&p);
		pt_j_put(b, o, "duration_us",
			 json_integer((json_int_t)((p.end - p.begin) / 1000)));
	}
	pt_j_put(b, o, "coarse_buckets", json_integer(PT_LOD_COARSE));
	pt_j_put(b, o, "categories", categories(b));
	pt_j_put(b, o, "first_cause", json_integer(PT_HC_CAUSE));
	pt_j_put(b, o, "causes_shown", json_integer(PT_CAUSES_SHOWN));
	pt_j_put(b, o, "trainers", trainers);
	pt_j_put(b, o, "lanes", p.lanes);
	pt_j_put(b, o, "lanes_left_out", json_integer((json_int_t)p.left_out));
	pt_j_put(b, o, "steps", pt_html_steps(b, x));
	return o;
}
