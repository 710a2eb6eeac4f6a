/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's life: begin, its thread, and leaving again. */
#include "agent_int.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define STACK (512u << 10)
#define FLUSH_MS_MIN 20
#define FLUSH_MS_MAX 1000
#define JOIN_NS (NS_PER_S)
#define RING_MAX (256u << 20)

struct agent ag = { .fd = -1 };

/* ---- the thread -------------------------------------------------------------- */

static bool wanted(void)
{
	return AG_GET(want) == PT_AGENT_RUN && !__atomic_load_n(&ag.ends, __ATOMIC_ACQUIRE);
}

static bool tracer_gone(void)
{
	uint64_t beat = AG_GET(beat_ns), now = ag_now();

	return beat < now && now - beat > PT_AGENT_ORPHAN_NS;
}

/* One use, from RUN to QUIET or to the tracer's end. */
static void run_once(void)
{
	enum pt_agent_why why;
	uint32_t ms = AG_GET(flush_ms), run = PT_AGENT_RUN;

	AG_PUT(state, PT_AGENT_STARTING);
	AG_PUT(why, PT_AGENT_OK);
	AG_PUT(cupti_error, 0);
	AG_PUT(dropped, 0);
	AG_PUT(no_room, 0);
	AG_PUT(unknown, 0);
	AG_PUT(made, 0);
	ag_say("", NULL);
	ag_names_forget();
	ms = ms < FLUSH_MS_MIN ? FLUSH_MS_MIN : ms > FLUSH_MS_MAX ? FLUSH_MS_MAX : ms;
	why = ag_cupti_begin();
	if (why) {
		AG_PUT(why, why);
		AG_PUT(state, PT_AGENT_REFUSED);
		goto out;
	}
	AG_PUT(state, PT_AGENT_RUNNING);
	while (wanted() && !tracer_gone()) {
		ag_wait(&ag.shm->want, PT_AGENT_RUN, ms * NS_PER_MS);
		if (wanted())
			ag_cupti_flush();
	}
	ag_cupti_end();
	if (wanted()) {
		AG_PUT(why, PT_AGENT_ORPHANED);
		ag.detached = !ag.dormant_after; /* nobody comes to join it */
	}
	AG_PUT(state, PT_AGENT_STOPPED);
out:
	/* the tracer that wanted it is done, or gone */
	__atomic_compare_exchange_n(&ag.shm->want, &run, PT_AGENT_QUIET, false,
				    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void *thread_main(void *arg)
{
	(void)arg;
	ag.tid = (int32_t)ag_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
	ag_syscall(SYS_prctl, PR_SET_NAME, (long)"pt-agent", 0, 0, 0, 0);
	AG_PUT(thread, ag.tid);
	if (!ag.dormant_after)
		run_once();
	while (ag.dormant_after && !__atomic_load_n(&ag.ends, __ATOMIC_ACQUIRE)) {
		uint32_t want = AG_GET(want);

		if (want == PT_AGENT_RUN && !tracer_gone())
			run_once();
		else
			ag_wait(&ag.shm->want, want, 3600 * NS_PER_S);
	}
	if (ag.detached)
		pthread_detach(ag.thread);
	AG_PUT(thread, 0);
	return NULL;
}

/* With every signal blocked but those that a fault makes, and the two by which
 * libc stops threads and changes ids. */
static int start_thread(void)
{
	const uint64_t blocked = ~0ull & ~(1ull << 31) & ~(1ull << 32) &
				 ~(1ull << 3 | 1ull << 6 | 1ull << 7 | 1ull << 10);
	pthread_attr_t attr;
	uint64_t old = 0;
	int err;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, STACK);
	ag_syscall(SYS_rt_sigprocmask, 2, (long)&blocked, (long)&old, 8, 0, 0);
	err = pthread_create(&ag.thread, &attr, thread_main, NULL);
	ag_syscall(SYS_rt_sigprocmask, 2, (long)&old, 0, 8, 0, 0);
	pthread_attr_destroy(&attr);
	ag.thread_made = !err;
	return -err;
}

/* ---- memory ------------------------------------------------------------------- */

static void drop_memory(void)
{
	if (ag.shm)
		ag_syscall(SYS_munmap, (long)ag.shm, (long)ag.map_size, 0, 0, 0, 0);
	if (ag.fd >= 0)
		ag_syscall(SYS_close, ag.fd, 0, 0, 0, 0, 0);
	ag.shm = NULL;
	ag.fd = -1;
}

/* What the tracer made there is checked as the tracer checks us. */
static int map_memory(int fd)
{
	uint64_t size;
	struct stat st;
	long p, seals;

	if (ag_syscall(SYS_fstat, fd, (long)&st, 0, 0, 0, 0))
		return -EBADF;
	size = (uint64_t)st.st_size;
	seals = ag_syscall(SYS_fcntl, fd, F_GET_SEALS, 0, 0, 0, 0);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPERM; /* it could shrink under us */
	if (size < PT_AGENT_RING_AT + 4096 || size > RING_MAX)
		return -EINVAL;
	p = ag_syscall(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);
	if (p < 0 && p > -4096)
		return (int)p;
	/* a child has nothing to write there */
	ag_syscall(SYS_madvise, p, (long)size, MADV_DONTFORK, 0, 0, 0);
	ag.shm = (void *)p;
	ag.map_size = size;
	ag.ring = (uint8_t *)p + PT_AGENT_RING_AT;
	ag.ring_size = AG_GET(ring);
	if (AG_GET(magic) != PT_AGENT_MAGIC ||
	    AG_GET(version) != PT_AGENT_VERSION || ag.ring_size < 4096 ||
	    ag.ring_size & (ag.ring_size - 1) ||
	    (uint64_t)ag.ring_size + PT_AGENT_RING_AT > size) {
		ag_syscall(SYS_munmap, p, (long)size, 0, 0, 0, 0);
		ag.shm = NULL;
		return -EPROTO;
	}
	ag.head = AG_GET(head);
	ag.fd = fd;
	return 0;
}

/* This process is a copy of the one that started the agent: the mapping and the
 * thread are not in it. What libc keeps of the thread is lost. */
static void forget_parent(void)
{
	ag.shm = NULL;
	ag.fd = -1;
	ag.thread_made = ag.detached = ag.dormant_after = ag.ends = false;
}

/* Join, or wait for a thread that has let go of itself. */
static int end_thread(void)
{
	uint64_t give_up = ag_now() + JOIN_NS;

	if (!ag.thread_made)
		return 0;
	if (!ag.detached) {
		pthread_join(ag.thread, NULL);
	} else {
		while (!ag_syscall(SYS_tgkill, ag.pid, ag.tid, 0, 0, 0, 0)) {
			if (ag_now() > give_up)
				return -EBUSY;
			ag_wait(&ag.shm->why, UINT32_MAX, NS_PER_MS);
		}
	}
	ag.thread_made = ag.detached = false;
	return 0;
}

static int start(int fd, bool dormant)
{
	int err;

	if (ag.shm && ag.pid != ag_pid())
		forget_parent();
	if (ag.shm) {
		err = pt_agent_stop(); /* of a use whose tracer was killed */
		if (err < 0)
			return err;
	}
	err = map_memory(fd);
	if (err)
		return err;
	ag.pid = ag_pid();
	ag.dormant_after = dormant;
	ag.ends = false;
	AG_PUT(pid, (uint32_t)ag.pid);
	if (!dormant)
		AG_PUT(state, PT_AGENT_STARTING);
	err = start_thread();
	if (err) {
		AG_PUT(why, PT_AGENT_NO_THREAD);
		AG_PUT(state, PT_AGENT_REFUSED);
		ag.fd = -1; /* the caller's, where this fails */
		drop_memory();
	}
	return err;
}

/* ---- entry points ---------------------------------------------------------------- */

AGENT_EXPORT int pt_agent_start(int fd)
{
	return start(fd, false);
}

AGENT_EXPORT int pt_agent_stop(void)
{
	uint32_t state;
	int err;

	if (!ag.shm)
		return ag_cupti_holds_us();
	if (ag.pid != ag_pid())
		return -ECHILD;
	state = AG_GET(state);
	if ((state != PT_AGENT_STOPPED && state != PT_AGENT_REFUSED) ||
	    ag.dormant_after)
		return -EBUSY;
	err = end_thread();
	if (err)
		return err;
	drop_memory();
	return ag_cupti_holds_us();
}

/* Called by CUDA when it is initialized: 1 is success to it. A failure costs
 * the traces of later tracers, never the program. */
AGENT_EXPORT int InitializeInjection(void)
{
	const uint32_t size = PT_AGENT_RING_AT + PT_AGENT_RING;
	struct pt_agent_shm *shm;
	long fd, p;

	if (ag.shm && ag.pid == ag_pid())
		return 1;
	fd = ag_syscall(SYS_memfd_create, (long)PT_AGENT_MEMFD,
			MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0);
	if (fd < 0)
		return 1;
	if (ag_syscall(SYS_ftruncate, fd, size, 0, 0, 0, 0) ||
	    ag_syscall(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW,
		       0, 0, 0))
		goto fail;
	p = ag_syscall(SYS_mmap, 0, PT_AGENT_RING_AT, PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);
	if (p < 0 && p > -4096)
		goto fail;
	shm = (void *)p;
	shm->version = PT_AGENT_VERSION;
	shm->size = size;
	shm->ring = PT_AGENT_RING;
	shm->flush_ms = 200;
	shm->magic = PT_AGENT_MAGIC;
	ag_syscall(SYS_munmap, p, PT_AGENT_RING_AT, 0, 0, 0, 0);
	if (!start((int)fd, true))
		return 1;
fail:
	ag_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	return 1;
}
