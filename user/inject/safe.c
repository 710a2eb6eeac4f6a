// SPDX-License-Identifier: BSD-2-Clause
/*
 * Is a stopped thread at a point where dlopen() may be called on it? The allocator
 * and the loader must not be at work below: they are not where a GPU or waiting
 * function begins, unless a signal handler interrupted them and calls it, or the
 * allocator itself waits. And there must be stack enough, of the thread's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "inject/inject_int.h"

#define STACK_NEED (96u << 10)	 /* bytes for a dlopen() and the frame */
#define STACK_SCAN (4u << 20)	 /* deeper ones are not looked through */
#define GROW_GAP (1u << 20)	 /* between a stack that grows and its neighbour */
#define CHUNK 8192		 /* words */

/* Does the word point at a way back from a signal handler? */
static bool is_restorer(struct pt_thread_hold *h, const struct pt_maps *m,
			const struct pt_libc *libc, uint64_t word)
{
	unsigned char code[sizeof(pt_arch.restorer)];
	const struct pt_map *x;

	if (word == libc->restorer)
		return true;
	/* every program may bring its own */
	if (word < 4096 || word >> pt_arch.address_bits)
		return false;
	x = pt_maps_at(m, word);
	if (!x || !x->x || (word >= libc->begin && word < libc->end))
		return false;
	return !pt_hold_read(h, word, code, pt_arch.restorer_len) &&
	       !memcmp(code, pt_arch.restorer, pt_arch.restorer_len);
}

/* A handler of a signal is at work on this stack: what it interrupted may hold
 * the allocator's lock. Stale words make this true too often, never too rarely. */
static int in_handler(struct pt_thread_hold *h, const struct pt_maps *m,
		      const struct pt_libc *libc, const struct pt_map *stack)
{
	uint64_t at = (PT_REGS_SP(&h->regs) + 7) & ~7ull, *words;
	int ret = 0;
	size_t n, i;

	if (stack->end - at > STACK_SCAN)
		return -E2BIG;
	words = malloc(CHUNK * sizeof(*words));
	if (!words)
		return -ENOMEM;
	while (!ret && at < stack->end) {
		n = (stack->end - at) / sizeof(*words);
		if (n > CHUNK)
			n = CHUNK;
		if (!n)
			break;
		ret = pt_hold_read(h, at, words, n * sizeof(*words));
		for (i = 0; !ret && i < n; i++)
			if (is_restorer(h, m, libc, PT_ADDRESS(words[i])))
				ret = 1;
		at += n * sizeof(*words);
	}
	free(words);
	return ret;
}

/* Room below the stack pointer, on a stack that is the thread's own: the main
 * thread's, or one that holds the thread's control block at its top. */
static const char *stack_bad(struct pt_thread_hold *h, const struct pt_maps *m,
			     const struct pt_map **out)
{
	uint64_t sp = PT_REGS_SP(&h->regs), tls;
	const struct pt_map *s = pt_maps_at(m, sp);
	bool main_stack;

	if (!s || !s->r || !s->w || sp < STACK_NEED)
		return "its stack is not to be found";
	*out = s;
	main_stack = !strcmp(pt_maps_path(m, s), "[stack]");
	if (main_stack) {
		/* what is not there yet grows, where nothing is in the way */
		if (sp - s->start < PT_FRAME_MAX + 4096)
			return "its stack has not grown enough yet";
		if (s > m->v && s->start - s[-1].end < GROW_GAP + STACK_NEED)
			return "its stack is nearly full";
		return NULL;
	}
	tls = pt_arch_tls(h);
	if (tls <= sp || tls >= s->end)
		return "it runs on a stack that is not its own";
	if (sp - s->start < STACK_NEED)
		return "its stack is too small";
	return NULL;
}

/* The caller of a waiting function is an allocator (spinning on its own lock) or
 * the loader: the file of the return address says. */
static const char *caller_bad(struct pt_thread_hold *h, const struct pt_maps *m,
			      const struct pt_libc *libc, const struct pt_stop *at)
{
	static const char *const names[] = { "malloc", "_dl_signal_error",
					     "_dl_start_user" };
	const struct pt_map *x;
	uint64_t ra, a[3];

	if (pt_arch_caller(h, at->code, &ra))
		return "its stack cannot be read";
	if (ra >= libc->begin && ra < libc->end)
		return NULL; /* sleep() calls nanosleep() */
	x = pt_maps_at(m, ra);
	if (!x || !x->x)
		return NULL; /* made at run time: an interpreter's */
	if (strstr(pt_maps_path(m, x), "/ld-linux-"))
		return "the loader is at work";
	if (x->inode && pt_maps_symbols(h->pid, m, x, names, 1, a) > 0)
		return "an allocator of its own may be at work";
	return NULL;
}

int pt_safe_here(struct pt_thread_hold *h, const struct pt_maps *m,
		 const struct pt_libc *libc, const struct pt_stop *at, const char **why)
{
	const struct pt_map *stack = NULL;
	int ret;

	*why = NULL;
	ret = pt_arch_bad(h, why);
	if (ret)
		return ret;
	if (!*why)
		*why = stack_bad(h, m, &stack);
	if (!*why && at && at->libc)
		*why = caller_bad(h, m, libc, at);
	if (*why)
		return -EAGAIN;
	ret = in_handler(h, m, libc, stack);
	if (ret == -E2BIG)
		*why = "its stack is too deep to look through";
	else if (ret < 0)
		*why = "its stack cannot be read";
	else if (ret)
		*why = "a signal handler may be at work";
	return *why ? -EAGAIN : 0;
}

bool pt_safe_wait(uint64_t nr, const uint64_t arg[6])
{
	switch (nr) {
#ifdef SYS_poll
	case SYS_poll:
		return (int)arg[2] < 0;
	case SYS_select:
		return !arg[4];
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
		return (int)arg[3] < 0;
	case SYS_ppoll:
		return !arg[2];
	case SYS_pselect6:
		return !arg[4];
	case SYS_clock_nanosleep:
		return arg[1] & 1; /* TIMER_ABSTIME */
	default:
		return false;
	}
}
