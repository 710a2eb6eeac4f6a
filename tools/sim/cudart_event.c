/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported entry points: streams and events. */
#include "cudart_device.h"

#include <stdlib.h>

#include <uthash.h>

/* Handles that are alive, so that a stale or made-up one is refused. */
struct handle {
	struct sim_event *event; /* the handle is the event's address */
	UT_hash_handle hh;
};
static struct handle *handles;

static struct sim_event *event_find(cudaEvent_t event)
{
	struct handle *h;

	HASH_FIND_PTR(handles, &event, h);
	return h ? h->event : NULL;
}

static cudaError_t event_new(cudaEvent_t *out, unsigned flags)
{
	cudaError_t err = sim_enter();
	struct sim_event *e;
	struct handle *h;

	if (err)
		return sim_ret(err);
	if (!out || (flags & ~0x7u))
		return sim_ret(cudaErrorInvalidValue);
	e = calloc(1, sizeof(*e));
	h = calloc(1, sizeof(*h));
	if (!e || !h) {
		free(e);
		free(h);
		return sim_ret(cudaErrorMemoryAllocation);
	}
	e->refs = 1;
	e->flags = flags;
	h->event = e;
	sim_lock();
	HASH_ADD_PTR(handles, event, h);
	sim_unlock();
	*out = (cudaEvent_t)e;
	return cudaSuccess;
}

SIM_API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return event_new(event, cudaEventDefault);
}

SIM_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event,
					     unsigned int flags)
{
	return event_new(event, flags);
}

SIM_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t err = sim_enter();
	struct sim_event *e;
	struct handle *h;

	if (err)
		return sim_ret(err);
	sim_lock();
	HASH_FIND_PTR(handles, &event, h);
	if (h) {
		e = h->event;
		HASH_DEL(handles, h);
		free(h);
		sim_event_put(e);
	} else {
		err = cudaErrorInvalidResourceHandle;
	}
	sim_unlock();
	return sim_ret(err);
}

static cudaError_t record(const char *api, cudaEvent_t event,
			  cudaStream_t stream, bool ptsz)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;
	struct sim_event *e;

	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, ptsz);
	e = event_find(event);
	if (!s || !e)
		err = cudaErrorInvalidResourceHandle;
	else if (s->capture)
		err = cudaErrorStreamCaptureUnsupported;
	else
		sim_submit_record(s, e, api);
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return record("cudaEventRecord", event, stream, false);
}

SIM_API cudaError_t cudaEventRecord_ptsz(cudaEvent_t event,
					 cudaStream_t stream)
{
	return record("cudaEventRecord_ptsz", event, stream, true);
}

SIM_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
					unsigned int flags)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;
	struct sim_event *e;

	(void)flags;
	if (err)
		return sim_ret(err);
	sim_lock();
	s = sim_stream_find(stream, false);
	e = event_find(event);
	if (!s || !e)
		err = cudaErrorInvalidResourceHandle;
	else if (s->capture)
		err = cudaErrorStreamCaptureUnsupported;
	else
		sim_submit_wait(s, e, "cudaStreamWaitEvent");
	sim_unlock();
	return sim_ret(err);
}

/* Under the lock: is the event's last record done? */
static bool event_done(const struct sim_event *e)
{
	sim_advance_now();
	return !e->seq || e->time;
}

SIM_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	uint64_t enter = sim_now();
	cudaError_t err = sim_enter();
	struct sim_stream *s;
	struct sim_event *e;
	enum sim_sync how;

	if (err)
		return sim_ret(err);
	sim_lock();
	e = event_find(event);
	if (!e) {
		err = cudaErrorInvalidResourceHandle;
		goto out;
	}
	atomic_fetch_add(&sim_n_sync, 1);
	s = e->stream;
	if (!event_done(e)) {
		how = (e->flags & cudaEventBlockingSync)
			      ? SIM_SYNC_BLOCK
			      : (enum sim_sync)atomic_load(&sim_cfg.sync);
		sim_wait_record(s, e->seq, how);
	}
	sim_log_host(NULL, enter, "cudaEventSynchronize");
	sim_act_sync(PTSIM_SYNC_EVENT, s, enter);
out:
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t err = sim_enter();
	struct sim_event *e;

	if (err)
		return sim_ret(err);
	sim_lock();
	e = event_find(event);
	if (!e)
		err = cudaErrorInvalidResourceHandle;
	else if (!event_done(e))
		err = cudaErrorNotReady;
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
					 cudaEvent_t end)
{
	cudaError_t err = sim_enter();
	struct sim_event *a, *b;

	if (err)
		return sim_ret(err);
	if (!ms)
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	a = event_find(start);
	b = event_find(end);
	if (!a || !b || !a->seq || !b->seq ||
	    ((a->flags | b->flags) & cudaEventDisableTiming))
		err = cudaErrorInvalidResourceHandle;
	else if (!event_done(a) || !event_done(b))
		err = cudaErrorNotReady;
	else
		*ms = (float)((double)(int64_t)(b->time - a->time) / 1e6);
	sim_unlock();
	return sim_ret(err);
}

static cudaError_t stream_new(cudaStream_t *out, unsigned flags)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	if (!out || (flags & ~(unsigned)cudaStreamNonBlocking))
		return sim_ret(cudaErrorInvalidValue);
	sim_lock();
	s = sim_stream_new(!(flags & cudaStreamNonBlocking));
	if (s)
		*out = (cudaStream_t)(uintptr_t)s->handle;
	else
		err = cudaErrorMemoryAllocation;
	sim_unlock();
	return sim_ret(err);
}

SIM_API cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
	return stream_new(stream, cudaStreamDefault);
}

SIM_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream,
					      unsigned int flags)
{
	return stream_new(stream, flags);
}

/* Priorities are accepted and ignored. */
SIM_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream,
						 unsigned int flags,
						 int priority)
{
	(void)priority;
	return stream_new(stream, flags);
}

SIM_API cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t err = sim_enter();
	struct sim_stream *s;

	if (err)
		return sim_ret(err);
	sim_lock();
	/* the default streams are nobody's to destroy */
	s = (uintptr_t)stream > 2 ? sim_stream_find(stream, false) : NULL;
	if (s)
		sim_stream_close(s); /* work that is queued still runs */
	else
		err = cudaErrorInvalidResourceHandle;
	sim_unlock();
	return sim_ret(err);
}
