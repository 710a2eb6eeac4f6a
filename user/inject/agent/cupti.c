/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUPTI switched on and off. All calls into it are made by the agent's own
 * thread; its callbacks come from whatever thread CUPTI likes.
 *
 * Off means: activities disabled, buffers back, no subscriber, the clock that
 * CUPTI documents as its default. cuptiFinalize() is not called: it is only
 * safe inside an API callback, and races with other threads' CUDA calls.
 */
#include "agent_int.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>

/* A buffer is returned when all in it has ended: small ones come back soon
 * where the queue never drains. */
#define BUF_SIZE (256u << 10)
#define BUFS 64
#define LEAVE_NS (2 * NS_PER_S) /* for callbacks to leave */

static struct {
	CUptiResult (*get_version)(uint32_t *);
	CUptiResult (*result_string)(CUptiResult, const char **);
	CUptiResult (*subscribe)(void **, cupti_callback_fn, void *);
	CUptiResult (*subscribe_v2)(void **, cupti_callback_fn, void *,
				    struct cupti_subscriber_params *);
	CUptiResult (*unsubscribe)(void *);
	CUptiResult (*register_callbacks)(cupti_request_fn, cupti_complete_fn);
	CUptiResult (*register_timestamp)(cupti_timestamp_fn);
	CUptiResult (*get_timestamp)(uint64_t *);
	CUptiResult (*enable)(uint32_t), (*disable)(uint32_t);
	CUptiResult (*flush_all)(uint32_t), (*flush_period)(uint32_t);
	CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
	CUptiResult (*num_dropped)(void *, uint32_t, size_t *);
} cu;

static const uint32_t kinds[] = {
	CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
	CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET,
	CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_OVERHEAD,
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))
#define KINDS_NEEDED 2 /* kernels and copies; the others are a gain */

static void *subscriber;
static bool handed_out; /* CUPTI knows our callbacks */
static uint64_t on_since;
static uint32_t enabled; /* bit: index in kinds */

/* ---- buffers: any thread ---------------------------------------------------- */

static uint8_t *bufs[BUFS];
static uint64_t free_bufs; /* bit: ours, mapped, not with CUPTI */
static uint32_t bufs_made, bufs_lock;
static uint32_t open_now; /* callbacks may use the ring */
static uint32_t inside;	  /* callbacks that are under way */

static bool enter_callback(void)
{
	__atomic_fetch_add(&inside, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&open_now, __ATOMIC_SEQ_CST) && ag_here();
}

static void leave_callback(void)
{
	__atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST);
}

static uint8_t *take_buf(void)
{
	uint64_t have = __atomic_load_n(&free_bufs, __ATOMIC_ACQUIRE);
	uint8_t *p = NULL;

	while (have) {
		uint32_t i = (uint32_t)__builtin_ctzll(have);

		if (__atomic_compare_exchange_n(&free_bufs, &have,
						have & ~(1ull << i), false,
						__ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			return bufs[i];
	}
	while (__atomic_exchange_n(&bufs_lock, 1, __ATOMIC_ACQUIRE))
		ag_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	if (bufs_made < BUFS)
		p = ag_mmap(BUF_SIZE);
	if (p)
		bufs[bufs_made++] = p;
	__atomic_store_n(&bufs_lock, 0, __ATOMIC_RELEASE);
	return p;
}

static void give_buf(const uint8_t *p)
{
	uint32_t n = __atomic_load_n(&bufs_made, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++)
		if (bufs[i] == p)
			__atomic_fetch_or(&free_bufs, 1ull << i,
					  __ATOMIC_ACQ_REL);
}

/* CUPTI drops and counts what it has no buffer for. */
static void on_request(uint8_t **buffer, size_t *size, size_t *max)
{
	*buffer = enter_callback() ? take_buf() : NULL;
	*size = *buffer ? BUF_SIZE : 0;
	*max = 0;
	leave_callback();
}

static void count_dropped(void)
{
	size_t n = 0;

	if (!cu.num_dropped(NULL, 0, &n) && n)
		AG_COUNT(dropped, n);
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer,
			size_t size, size_t valid)
{
	CUpti_Activity *rec = NULL;

	(void)context, (void)stream;
	if (!buffer)
		return;
	if (enter_callback()) {
		if (valid > size)
			valid = size;
		while (valid && !cu.next_record(buffer, valid, &rec) && rec)
			ag_convert((uint8_t *)rec,
				   valid - (size_t)((uint8_t *)rec - buffer));
		count_dropped();
	}
	give_buf(buffer);
	leave_callback();
}

static void on_api(void *user, int domain, uint32_t id, const void *data)
{
	(void)user, (void)domain, (void)id, (void)data; /* none is enabled */
}

static uint64_t monotonic(void)
{
	return ag_now();
}

/* CUPTI's documented default on Linux, for who comes after us. */
static uint64_t realtime(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- on --------------------------------------------------------------------- */

static bool load(void)
{
	static const struct {
		const char *name;
		void **to;
		bool needed;
	} syms[] = {
		{ "cuptiGetVersion", (void **)&cu.get_version, true },
		{ "cuptiGetResultString", (void **)&cu.result_string, false },
		{ "cuptiSubscribe", (void **)&cu.subscribe, true },
		{ "cuptiSubscribe_v2", (void **)&cu.subscribe_v2, false },
		{ "cuptiUnsubscribe", (void **)&cu.unsubscribe, true },
		{ "cuptiActivityRegisterCallbacks",
		  (void **)&cu.register_callbacks, true },
		{ "cuptiActivityRegisterTimestampCallback",
		  (void **)&cu.register_timestamp, false },
		{ "cuptiGetTimestamp", (void **)&cu.get_timestamp, true },
		{ "cuptiActivityEnable", (void **)&cu.enable, true },
		{ "cuptiActivityDisable", (void **)&cu.disable, true },
		{ "cuptiActivityFlushAll", (void **)&cu.flush_all, true },
		{ "cuptiActivityFlushPeriod", (void **)&cu.flush_period, false },
		{ "cuptiActivityGetNextRecord", (void **)&cu.next_record, true },
		{ "cuptiActivityGetNumDroppedRecords",
		  (void **)&cu.num_dropped, true },
	};
	void *lib = ag_find_cupti();

	if (!lib)
		return false;
	for (size_t i = 0; i < sizeof(syms) / sizeof(*syms); i++) {
		*syms[i].to = dlsym(lib, syms[i].name);
		if (!*syms[i].to && syms[i].needed) {
			ag_say("libcupti lacks ", syms[i].name);
			return false;
		}
	}
	return true;
}

static enum pt_agent_why refuse(CUptiResult err, const char *call)
{
	const char *text = NULL;

	AG_PUT(cupti_error, err);
	ag_say(call, "");
	if (cu.result_string && !cu.result_string(err, &text) && text) {
		char both[160] = "";

		ag_add(both, sizeof(both), call);
		ag_add(both, sizeof(both), ": ");
		ag_say(both, text);
	}
	return PT_AGENT_CUPTI_ERROR;
}

static enum pt_agent_why subscribe(void)
{
	char old[128] = "";
	struct cupti_subscriber_params p = {
		.struct_size = sizeof(p), .name = "pipetrace",
		.old_name = old, .old_size = sizeof(old),
	};
	const char *who;
	CUptiResult err;

	if (cu.subscribe_v2)
		err = cu.subscribe_v2(&subscriber, on_api, NULL, &p);
	else
		err = cu.subscribe(&subscriber, on_api, NULL);
	if (!err)
		return PT_AGENT_OK;
	subscriber = NULL;
	if (err != CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
		return refuse(err, "cuptiSubscribe");
	AG_PUT(cupti_error, err);
	old[sizeof(old) - 1] = 0;
	who = old[0] ? old : ag_other_profiler();
	ag_say(who ? who : "its name is not known", NULL);
	return PT_AGENT_IN_USE;
}

static enum pt_agent_why switch_on(void)
{
	CUptiResult err;

	/* before any activity is on, so that every record is in this clock */
	memset(&ag_clock, 0, sizeof(ag_clock));
	handed_out = true;
	ag_clock.same = cu.register_timestamp &&
			!cu.register_timestamp(monotonic);
	AG_PUT(timestamp_callback, ag_clock.same);
	if (!ag_clock.same) {
		ag_clock_measure(cu.get_timestamp);
		AG_PUT(clock_offset_ns[0],
		       (int64_t)(ag_clock.mono[1] - ag_clock.stamp[1]));
		if (!ag_clock.mono[1])
			return refuse(CUPTI_ERROR_UNKNOWN, "cuptiGetTimestamp");
	}
	__atomic_store_n(&open_now, 1, __ATOMIC_SEQ_CST);
	err = cu.register_callbacks(on_request, on_complete);
	if (err)
		return refuse(err, "cuptiActivityRegisterCallbacks");
	for (uint32_t i = 0; i < KINDS; i++) {
		err = cu.enable(kinds[i]);
		if (err && i < KINDS_NEEDED)
			return refuse(err, "cuptiActivityEnable");
		if (!err)
			enabled |= 1u << i;
	}
	if (cu.flush_period)
		cu.flush_period(AG_GET(flush_ms));
	on_since = ag_now();
	return PT_AGENT_OK;
}

enum pt_agent_why ag_cupti_begin(void)
{
	enum pt_agent_why why;
	CUptiResult err;
	size_t old;

	ag_last_end = 0;
	ag_finishing = false;
	enabled = 0;
	if (!load())
		return PT_AGENT_NO_CUPTI;
	err = cu.get_version(&ag_cupti_version);
	if (err)
		return refuse(err, "cuptiGetVersion");
	AG_PUT(cupti_version, ag_cupti_version);
	why = subscribe();
	if (why)
		return why;
	cu.num_dropped(NULL, 0, &old); /* of who was here before */
	why = switch_on();
	if (why)
		ag_cupti_end();
	return why;
}

bool ag_cupti_holds_us(void)
{
	return handed_out;
}

/* ---- running and off --------------------------------------------------------- */

static void tell_cover(uint64_t until, bool all)
{
	struct pt_rec_act a;

	memset(&a, 0, sizeof(a));
	a.hdr.size = sizeof(a);
	a.hdr.kind = PT_REC_ACT;
	a.hdr.tid = a.hdr.tgid = (uint32_t)ag.pid;
	a.what = PT_ACT_COVER;
	a.detail = all;
	a.flags = ag_clock.same ? 0 : PT_ACT_F_HOST_CLOCK;
	a.begin = on_since;
	a.end = a.hdr.ts = until > on_since ? until : on_since;
	a.bytes = AG_GET(dropped) + AG_GET(no_room) + AG_GET(unknown);
	a.device = UINT32_MAX;
	ag_put(&a);
}

void ag_cupti_flush(void)
{
	if (!ag_clock.same) {
		ag_clock_measure(cu.get_timestamp);
		AG_PUT(clock_offset_ns[1],
		       (int64_t)(ag_clock.mono[1] - ag_clock.stamp[1]));
	}
	cu.flush_all(0);
	count_dropped();
	/* what had ended before may still share a buffer with what has not */
	tell_cover(ag_last_end, false);
}

void ag_cupti_end(void)
{
	uint64_t off, give_up;
	bool was_on = enabled;

	if (!ag_clock.same && was_on)
		ag_clock_measure(cu.get_timestamp);
	off = ag_now();
	for (uint32_t i = 0; i < KINDS; i++)
		if (enabled & 1u << i)
			cu.disable(kinds[i]);
	enabled = 0;
	if (was_on) {
		cu.flush_all(0);
		ag_finishing = true;
		cu.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
		count_dropped();
		tell_cover(off, true);
	}
	if (cu.flush_period)
		cu.flush_period(0);
	if (ag_clock.same)
		cu.register_timestamp(realtime);
	if (subscriber)
		cu.unsubscribe(subscriber);
	subscriber = NULL;
	__atomic_store_n(&open_now, 0, __ATOMIC_SEQ_CST);
	give_up = ag_now() + LEAVE_NS;
	while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) && ag_now() < give_up)
		ag_wait(&inside, UINT32_MAX, NS_PER_MS);
}
