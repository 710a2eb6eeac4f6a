/* SPDX-License-Identifier: BSD-2-Clause */
/* CUDA_INJECTION64_PATH, as the driver honours it. */
#include "cudart_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	int (*begin)(void);
	void *h;

	/* two libraries of this kind may be in one process: the first does it */
	if (!path || !*path || dlopen(path, RTLD_NOW | RTLD_NOLOAD))
		return;
	h = dlopen(path, RTLD_NOW);
	if (!h) {
		fprintf(stderr, "simulated GPU: %s\n", dlerror());
		return;
	}
	*(void **)&begin = dlsym(h, "InitializeInjection");
	if (begin)
		begin();
}

void sim_inject(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, inject);
}
