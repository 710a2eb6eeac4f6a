/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CUPTI's activity API (libcupti.so.13, .12, .11) over the simulated device, by
 * its real names and with the record layouts of that version: records come in
 * buffers that the client gives, from a thread of CUPTI's own, in CUPTI's own
 * clock unless the client brings one. One subscriber at a time.
 *
 * PT_SIM_CUPTI_VERSION  11, 12, 13: whose layouts (default: the file's name)
 * PT_SIM_CUPTI_CLOCK    OFFSET_NS[:PPM]: its clock is so far from
 *                       CLOCK_MONOTONIC, and so much faster; default
 *                       CLOCK_REALTIME, as documented
 * PT_SIM_CUPTI_FAIL     what goes wrong, several with commas: version,
 *                       subscribe, inuse, enable, notimestamp, nobuffer (every
 *                       second request for one finds none), slow, hang (flushes)
 */
#include "cupti_sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ptsim.h"

struct cupti cu = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER,
	.flushed = PTHREAD_COND_INITIALIZER,
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define API __attribute__((visibility("default"), noinline)) CUptiResult
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

bool cu_fails(const char *what)
{
	const char *s = getenv("PT_SIM_CUPTI_FAIL");
	size_t n = strlen(what);

	for (; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, what, n) && (!s[n] || s[n] == ','))
			return true;
	return false;
}

uint64_t cu_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void init(void)
{
	const char *v = getenv("PT_SIM_CUPTI_VERSION");
	const char *clock = getenv("PT_SIM_CUPTI_CLOCK");
	char *end;

	cu.major = v ? atoi(v) : SIM_CUPTI_MAJOR;
	if (cu.major < 11 || cu.major > 13)
		cu.major = SIM_CUPTI_MAJOR;
	if (clock && *clock) {
		cu.own_clock = true;
		cu.offset = strtoll(clock, &end, 10);
		cu.ppm = *end == ':' ? strtod(end + 1, NULL) : 0;
	}
	cu.t0 = cu_clock(CLOCK_MONOTONIC);
}

/* How far a clock is ahead of CLOCK_MONOTONIC: of several looks the one that
 * was interrupted least. */
static uint64_t ahead(cupti_timestamp_fn clock)
{
	uint64_t best = UINT64_MAX, off = 0;

	for (int i = 0; i < 5; i++) {
		uint64_t a = cu_clock(CLOCK_MONOTONIC);
		uint64_t x = clock ? clock() : cu_clock(CLOCK_REALTIME);
		uint64_t b = cu_clock(CLOCK_MONOTONIC);

		if (b - a < best) {
			best = b - a;
			off = x - a - (b - a) / 2;
		}
	}
	return off;
}

void cu_normalize(void)
{
	/* to the client's clock as of now, or to the default one */
	if (cu.timestamp || !cu.own_clock)
		cu.normal = ahead(cu.timestamp);
}

/* What CUPTI's clock shows at a moment of CLOCK_MONOTONIC. */
uint64_t cu_stamp(uint64_t mono)
{
	if (cu.timestamp || !cu.own_clock)
		return mono + cu.normal;
	return mono + (uint64_t)cu.offset +
	       (uint64_t)(int64_t)((double)(int64_t)(mono - cu.t0) * cu.ppm / 1e6);
}

API cuptiGetVersion(uint32_t *version)
{
	pthread_once(&once, init);
	if (!version || cu_fails("version"))
		return CUPTI_ERROR_INVALID_PARAMETER;
	*version = cu.major >= 13 ? 130000 : cu.major == 12 ? 22 : 18;
	return CUPTI_SUCCESS;
}

API cuptiGetResultString(CUptiResult result, const char **text)
{
	switch (result) {
	case CUPTI_SUCCESS: *text = "CUPTI_SUCCESS"; break;
	case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
		*text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
		break;
	case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
		*text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
		break;
	default: *text = "CUPTI_ERROR_UNKNOWN"; break;
	}
	return CUPTI_SUCCESS;
}

/* ---- subscriber ----------------------------------------------------------- */

static char subscriber_name[64];

static CUptiResult subscribe(void **subscriber, cupti_callback_fn fn, void *user,
			     struct cupti_subscriber_params *p)
{
	CUptiResult err = CUPTI_SUCCESS;
	bool other = cu_fails("inuse");

	(void)user;
	pthread_once(&once, init);
	if (!subscriber || !fn)
		return CUPTI_ERROR_INVALID_PARAMETER;
	if (cu_fails("subscribe"))
		return CUPTI_ERROR_UNKNOWN;
	pthread_mutex_lock(&cu.lock);
	if (cu.subscribed || other) {
		err = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
		if (p && p->old_name && p->old_size)
			snprintf(p->old_name, p->old_size, "%s",
				 other ? "Nsight Systems" : subscriber_name);
	} else {
		cu.subscribed = true;
		snprintf(subscriber_name, sizeof(subscriber_name), "CUPTI for %s",
			 p && p->name ? p->name : "unknown");
		*subscriber = &cu;
	}
	pthread_mutex_unlock(&cu.lock);
	return err;
}

API cuptiSubscribe(void **subscriber, cupti_callback_fn fn, void *user)
{
	return subscribe(subscriber, fn, user, NULL);
}

#if SIM_CUPTI_MAJOR >= 13
API cuptiSubscribe_v2(void **subscriber, cupti_callback_fn fn, void *user,
		      struct cupti_subscriber_params *p)
{
	if (p && p->struct_size != sizeof(*p))
		return CUPTI_ERROR_INVALID_PARAMETER;
	return subscribe(subscriber, fn, user, p);
}
#endif

API cuptiUnsubscribe(void *subscriber)
{
	CUptiResult err = CUPTI_ERROR_INVALID_PARAMETER;

	pthread_mutex_lock(&cu.lock);
	if (subscriber == &cu && cu.subscribed) {
		cu.subscribed = false;
		err = CUPTI_SUCCESS;
	}
	pthread_mutex_unlock(&cu.lock);
	return err;
}

/* ---- activities ----------------------------------------------------------- */

API cuptiActivityRegisterCallbacks(cupti_request_fn request,
				   cupti_complete_fn complete)
{
	pthread_once(&once, init);
	if (!request || !complete)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&cu.lock);
	cu.request = request;
	cu.complete = complete;
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}

API cuptiActivityRegisterTimestampCallback(cupti_timestamp_fn fn)
{
	pthread_once(&once, init);
	if (!fn)
		return CUPTI_ERROR_INVALID_PARAMETER;
	if (cu_fails("notimestamp"))
		return CUPTI_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&cu.lock);
	cu.timestamp = fn;
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}

API cuptiGetTimestamp(uint64_t *timestamp)
{
	pthread_once(&once, init);
	if (!timestamp)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&cu.lock);
	if (cu.timestamp)
		*timestamp = cu.timestamp();
	else if (!cu.own_clock)
		*timestamp = cu_clock(CLOCK_REALTIME);
	else
		*timestamp = cu_stamp(cu_clock(CLOCK_MONOTONIC));
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}

static bool known_kind(uint32_t kind)
{
	return kind == CUPTI_ACTIVITY_KIND_MEMCPY ||
	       kind == CUPTI_ACTIVITY_KIND_MEMCPY2 ||
	       kind == CUPTI_ACTIVITY_KIND_MEMSET ||
	       kind == CUPTI_ACTIVITY_KIND_KERNEL ||
	       kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
	       kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ||
	       kind == CUPTI_ACTIVITY_KIND_OVERHEAD;
}

API cuptiActivityEnable(uint32_t kind)
{
	pthread_once(&once, init);
	if (!known_kind(kind))
		return CUPTI_ERROR_INVALID_KIND;
	if (cu_fails("enable"))
		return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
	pthread_mutex_lock(&cu.lock);
	cu.enabled |= 1ull << kind;
	pthread_mutex_unlock(&cu.lock);
	return cu_worker_start() ? CUPTI_ERROR_OUT_OF_MEMORY : CUPTI_SUCCESS;
}

API cuptiActivityDisable(uint32_t kind)
{
	if (!known_kind(kind))
		return CUPTI_ERROR_INVALID_KIND;
	cu_poll(); /* what has ended by now was recorded */
	pthread_mutex_lock(&cu.lock);
	cu.enabled &= ~(1ull << kind);
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}

API cuptiActivityFlushPeriod(uint32_t ms)
{
	pthread_mutex_lock(&cu.lock);
	cu.period_ms = ms;
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}

API cuptiActivityFlushAll(uint32_t flag)
{
	return cu_flush(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

API cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n)
{
	(void)context, (void)stream;
	if (!n)
		return CUPTI_ERROR_INVALID_PARAMETER;
	*n = __atomic_exchange_n(&cu.dropped, 0, __ATOMIC_RELAXED);
	return CUPTI_SUCCESS;
}

API cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **rec)
{
	size_t at = 0;

	if (!buffer || !rec)
		return CUPTI_ERROR_INVALID_PARAMETER;
	if (*rec)
		at = (size_t)((uint8_t *)*rec - buffer) + cu_length((*rec)->kind);
	if (at >= valid)
		return CUPTI_ERROR_MAX_LIMIT_REACHED;
	*rec = (CUpti_Activity *)(buffer + at);
	return cu_length((*rec)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

API cuptiFinalize(void)
{
	cu_worker_stop();
	pthread_mutex_lock(&cu.lock);
	cu.enabled = 0;
	cu.subscribed = false;
	cu.request = NULL;
	cu.complete = NULL;
	cu.timestamp = NULL;
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}
