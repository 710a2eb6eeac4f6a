/* SPDX-License-Identifier: BSD-2-Clause */
/* Which libcupti: the one that the process has, else one that fits its CUDA. */
#include "agent_int.h"

#include <dlfcn.h>

#define PATH_LEN 640

static const char *base_of(const char *path)
{
	const char *b = path;

	for (; *path; path++)
		if (*path == '/')
			b = path + 1;
	return b;
}

static bool begins(const char *s, const char *with)
{
	while (*with && *s == *with)
		s++, with++;
	return !*with;
}

/* ---- already there ---------------------------------------------------------- */

static bool try_loaded(void *ctx, const char *path)
{
	void **h = ctx;

	if (begins(base_of(path), "libcupti"))
		*h = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	return *h != NULL;
}

/* ---- beside the runtime ------------------------------------------------------ */

struct beside {
	void *handle;
	char major[4]; /* of the runtime that is there; "" none */
	char dir[PATH_LEN]; /* where it lies */
};

static bool note_runtime(void *ctx, const char *path)
{
	struct beside *b = ctx;
	const char *base = base_of(path), *so;
	size_t n;

	if (!begins(base, "libcudart"))
		return false;
	for (so = base; *so && !begins(so, ".so."); so++)
		;
	if (!*so)
		return false;
	for (n = 0; n < 3 && so[4 + n] >= '0' && so[4 + n] <= '9'; n++)
		b->major[n] = so[4 + n];
	b->major[n] = 0;
	n = (size_t)(base - path);
	if (n >= sizeof(b->dir))
		return false;
	for (size_t i = 0; i < n; i++)
		b->dir[i] = path[i];
	b->dir[n] = 0;
	return b->major[0] != 0;
}

static void *open_in(const char *dir, const char *sub, const char *name)
{
	char path[PATH_LEN + 64] = "";

	ag_add(path, sizeof(path), dir);
	ag_add(path, sizeof(path), sub);
	ag_add(path, sizeof(path), name);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Toolkit and wheel layouts, then by name alone. */
static void *open_fitting(const struct beside *b)
{
	static const char *const subs[] = {
		"", "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/",
		"../../../extras/CUPTI/lib64/", "../lib64/", "../lib/",
	};
	static const char *const names[] = {
		"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8",
		"libcupti.so.11.7", "libcupti.so.11.6", "libcupti.so.11.5",
		"libcupti.so.11.4", "libcupti.so.11.3", "libcupti.so.11.2",
		"libcupti.so.11.1", "libcupti.so.11.0",
	};
	const size_t n = sizeof(names) / sizeof(*names);
	char prefix[24] = "libcupti.so.";
	void *h = NULL;

	ag_add(prefix, sizeof(prefix), b->major);
	/* first what is of the runtime's own major version */
	for (int any = 0; any < 2 && !h; any++)
		for (size_t i = 0; i < n && !h; i++) {
			if (begins(names[i], prefix) == any && b->major[0])
				continue;
			for (size_t s = 0; b->dir[0] && s < 6 && !h; s++)
				h = open_in(b->dir, subs[s], names[i]);
			if (!h)
				h = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		}
	return h;
}

void *ag_find_cupti(void)
{
	struct beside b = { 0 };
	char path[sizeof(ag.shm->cupti_path)];
	const char *err;
	void *h = NULL;

	ag_each_mapping(try_loaded, &h);
	if (h)
		return h;
	for (size_t i = 0; i < sizeof(path); i++)
		path[i] = AG_GET(cupti_path[i]);
	path[sizeof(path) - 1] = 0;
	if (path[0]) {
		h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	} else {
		ag_each_mapping(note_runtime, &b);
		h = open_fitting(&b);
	}
	if (!h) {
		err = dlerror();
		ag_say(err ? err : "libcupti was not found", NULL);
	}
	return h;
}

/* ---- who else ---------------------------------------------------------------- */

static bool is_profiler(void *ctx, const char *path)
{
	static const struct {
		const char *lib, *name;
	} known[] = {
		{ "libToolsInjection", "Nsight Systems" },
		{ "libcuda-injection", "Nsight Compute" },
		{ "libnvperf_host_injection", "Nsight Compute" },
		{ "libInterceptorInjection", "Nsight" },
		{ "libsanitizer-", "Compute Sanitizer" },
		{ "libdlprof", "DLProf" },
		{ "libscorep", "Score-P" },
		{ "libhpcrun", "HPCToolkit" },
		{ "libTAU", "TAU" },
		{ "libkineto", "PyTorch's profiler" },
	};
	const char **name = ctx;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (ag_contains(base_of(path), known[i].lib))
			*name = known[i].name;
	return *name != NULL;
}

const char *ag_other_profiler(void)
{
	const char *name = NULL;

	ag_each_mapping(is_profiler, &name);
	return name;
}
