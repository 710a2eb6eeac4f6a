/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent_int.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* Not libc's syscall(): that would change the caller's errno. */
long ag_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
#ifdef __aarch64__
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#endif
}

uint64_t ag_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

int32_t ag_pid(void)
{
	return (int32_t)ag_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

bool ag_here(void)
{
	return ag.shm && ag.pid == ag_pid();
}

void ag_wait(const uint32_t *word, uint32_t was, uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	ag_syscall(SYS_futex, (long)word, FUTEX_WAIT, (long)was, (long)&ts, 0, 0);
}

void *ag_mmap(size_t size)
{
	long p = ag_syscall(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

/* ---- strings --------------------------------------------------------------- */

void ag_add(char *to, size_t size, const char *s)
{
	size_t n = 0;

	while (n < size && to[n])
		n++;
	while (n + 1 < size && *s)
		to[n++] = *s++;
	if (n < size)
		to[n] = 0;
}

void ag_say(const char *a, const char *b)
{
	char text[sizeof(ag.shm->said)] = "";

	ag_add(text, sizeof(text), a);
	if (b)
		ag_add(text, sizeof(text), b);
	for (size_t i = 0; i < sizeof(text); i++)
		__atomic_store_n(&ag.shm->said[i], text[i], __ATOMIC_RELAXED);
}

bool ag_contains(const char *s, const char *part)
{
	for (; *s; s++) {
		size_t i = 0;

		while (part[i] && s[i] == part[i])
			i++;
		if (!part[i])
			return true;
	}
	return false;
}

/* ---- mappings -------------------------------------------------------------- */

/* Lines come in pieces; one that is longer than `line` is left out. */
bool ag_each_mapping(bool (*fn)(void *ctx, const char *path), void *ctx)
{
	char buf[2048], line[1024], last[1024] = "";
	size_t n = 0;
	bool found = false, cut = false;
	long fd = ag_syscall(SYS_openat, AT_FDCWD, (long)"/proc/self/maps",
			     O_RDONLY | O_CLOEXEC, 0, 0, 0);
	long got;

	if (fd < 0)
		return false;
	while (!found &&
	       (got = ag_syscall(SYS_read, fd, (long)buf, sizeof(buf), 0, 0, 0)) > 0) {
		for (long i = 0; i < got && !found; i++) {
			const char *path;
			size_t j;

			if (buf[i] != '\n') {
				if (n + 1 < sizeof(line))
					line[n++] = buf[i];
				else
					cut = true;
				continue;
			}
			line[n] = 0;
			n = 0;
			for (path = line; *path && *path != '/'; path++)
				;
			for (j = 0; path[j] && path[j] == last[j]; j++)
				;
			if (*path && !cut && path[j] != last[j]) {
				last[0] = 0;
				ag_add(last, sizeof(last), path);
				found = fn(ctx, path);
			}
			cut = false;
		}
	}
	ag_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	return found;
}
