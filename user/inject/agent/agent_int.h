/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside the agent. It runs in somebody else's process: no allocation but mmap,
 * no stdio, no constructor, no lock that a fork could leave held, and nothing
 * of libc that glibc 2.17 does not have (tests/unit/test_agent_symbols.py).
 */
#ifndef PT_AGENT_INT_H
#define PT_AGENT_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "inject/agent/agent.h"
#include "inject/agent/cupti_abi.h"

/* Their newest versions came with glibc 2.34, the oldest are in all. */
#ifdef __aarch64__
#define OLDEST(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#else
#define OLDEST(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#endif
OLDEST(pthread_create);
OLDEST(pthread_join);
OLDEST(pthread_detach);
OLDEST(pthread_attr_setstacksize);
OLDEST(dlopen);
OLDEST(dlsym);
OLDEST(dlerror);
OLDEST(memcpy);

#define AGENT_EXPORT __attribute__((visibility("default")))
#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

struct agent {
	struct pt_agent_shm *shm; /* NULL: not mapped */
	uint8_t *ring;		  /* its data */
	uint32_t ring_size;	  /* read once, checked */
	size_t map_size;
	int fd;
	int32_t pid; /* of the process that started it */
	uint64_t head;
	bool dormant_after; /* started by CUDA: sleeps between two uses */
	bool ends;	    /* pt_agent_stop() wants the thread gone */
	pthread_t thread;
	bool thread_made, detached;
	int32_t tid;
};
extern struct agent ag;

/* ---- sys.c: system calls and strings without libc's state ----------------- */
long ag_syscall(long nr, long a, long b, long c, long d, long e, long f);
uint64_t ag_now(void); /* CLOCK_MONOTONIC */
int32_t ag_pid(void);
/* Is this process the one that the agent was started in? Not so after fork. */
bool ag_here(void);
/* Until *word is no longer `was`, or `ns` have passed. */
void ag_wait(const uint32_t *word, uint32_t was, uint64_t ns);
void *ag_mmap(size_t size); /* NULL: none */
/* Append `s` to the NUL-terminated `to` of `size` bytes, as much as fits. */
void ag_add(char *to, size_t size, const char *s);
/* For people, in the shared memory. */
void ag_say(const char *a, const char *b);
/* Call `fn` for each file name of /proc/self/maps until it returns true. */
bool ag_each_mapping(bool (*fn)(void *ctx, const char *path), void *ctx);
bool ag_contains(const char *s, const char *part);

#define AG_GET(field) __atomic_load_n(&ag.shm->field, __ATOMIC_ACQUIRE)
#define AG_PUT(field, x) __atomic_store_n(&ag.shm->field, (x), __ATOMIC_RELEASE)
#define AG_COUNT(field, n) __atomic_fetch_add(&ag.shm->field, (n), __ATOMIC_RELAXED)

/* ---- put.c: the ring, from any thread -------------------------------------- */
/* False: no room, counted. `rec` begins with a header whose size and kind are
 * set; ts is. */
bool ag_put(const void *rec);
/* The key of a kernel's name; tells the name the first time. 0: none. */
uint64_t ag_name(const char *name);
void ag_names_forget(void); /* another tracer, who knows none of them */

/* ---- find.c: which CUPTI --------------------------------------------------- */
/* A handle for dlsym, or NULL: `said` tells why. */
void *ag_find_cupti(void);
/* Name of a profiler's library in the process, or NULL. Static memory. */
const char *ag_other_profiler(void);

/* ---- cupti.c: on the agent's thread ---------------------------------------- */
/* Everything on: PT_AGENT_OK, or why not (then all is off again). */
enum pt_agent_why ag_cupti_begin(void);
void ag_cupti_flush(void);
void ag_cupti_end(void);
/* Has CUPTI been given pointers into this library? */
bool ag_cupti_holds_us(void);

/* ---- convert.c: CUPTI's records to ours ------------------------------------ */
struct ag_clock { /* mono = stamp + offset, linear between two measurements */
	bool same;	/* stamps are CLOCK_MONOTONIC already */
	uint64_t stamp[2], mono[2]; /* older and latest; equal at first */
};
extern struct ag_clock ag_clock;
extern uint32_t ag_cupti_version;
extern uint64_t ag_last_end; /* of what was delivered, CLOCK_MONOTONIC */
extern bool ag_finishing;    /* the last flush is under way */
/* One record, at most `len` bytes of it are there. */
void ag_convert(const uint8_t *rec, size_t len);
/* Measure the offset again; `get` is cuptiGetTimestamp. */
void ag_clock_measure(CUptiResult (*get)(uint64_t *));

#endif
