// SPDX-License-Identifier: BSD-2-Clause
/* The process that calls NVML. The ABI is that of nvml.h, by its documentation:
 * 64-bit returns are enums, handles opaque pointers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "gpu/nvml.h"
#include "gpu/nvml_int.h"
#include "version.h"

/* A static program cannot open libraries: there this file is also built as a
 * program of its own, which the static one carries along (nvml_blob.c). */
#if !defined(PT_STATIC) || defined(PT_NVML_HELPER)
#include <dlfcn.h>

#define CLOCK_SM 1
#define NOT_ENOUGH 7 /* NVML_ERROR_INSUFFICIENT_SIZE */
#define MAX_PROCS 1024

typedef void *device_t;
struct utilization {
	unsigned gpu, memory;
};
struct memory {
	unsigned long long total, free, used;
};
struct process { /* nvmlProcessInfo_v2_t, which _v3 of the call fills too */
	unsigned pid;
	unsigned long long used;
	unsigned gpu_instance, compute_instance;
};

static struct {
	int (*init)(void);
	int (*driver)(char *, unsigned);
	int (*count)(unsigned *);
	int (*handle)(unsigned, device_t *);
	int (*uuid)(device_t, char *, unsigned);
	int (*name)(device_t, char *, unsigned);
	int (*util)(device_t, struct utilization *);
	int (*memory)(device_t, struct memory *);
	int (*procs)(device_t, unsigned *, struct process *);
	int (*clock)(device_t, int, unsigned *);
	int (*max_clock)(device_t, int, unsigned *);
	int (*reasons)(device_t, unsigned long long *);
} api;

/* What is missing is not asked; only the first four are needed. */
static bool open_library(void)
{
	const struct {
		void **fn;
		const char *name, *older;
	} symbols[] = {
		{ (void **)&api.init, "nvmlInit_v2", NULL },
		{ (void **)&api.count, "nvmlDeviceGetCount_v2", NULL },
		{ (void **)&api.handle, "nvmlDeviceGetHandleByIndex_v2", NULL },
		{ (void **)&api.uuid, "nvmlDeviceGetUUID", NULL },
		{ (void **)&api.driver, "nvmlSystemGetDriverVersion", NULL },
		{ (void **)&api.name, "nvmlDeviceGetName", NULL },
		{ (void **)&api.util, "nvmlDeviceGetUtilizationRates", NULL },
		{ (void **)&api.memory, "nvmlDeviceGetMemoryInfo", NULL },
		{ (void **)&api.procs, "nvmlDeviceGetComputeRunningProcesses_v3",
		  "nvmlDeviceGetComputeRunningProcesses_v2" },
		{ (void **)&api.clock, "nvmlDeviceGetClockInfo", NULL },
		{ (void **)&api.max_clock, "nvmlDeviceGetMaxClockInfo", NULL },
		{ (void **)&api.reasons,
		  "nvmlDeviceGetCurrentClocksThrottleReasons",
		  "nvmlDeviceGetCurrentClocksEventReasons" },
	};
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	size_t i;

	for (i = 0; lib && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].fn = dlsym(lib, symbols[i].name);
		if (!*symbols[i].fn && symbols[i].older)
			*symbols[i].fn = dlsym(lib, symbols[i].older);
	}
	return lib && api.init && api.count && api.handle && api.uuid;
}

static void fill_processes(device_t h, struct pt_nvml_device *d)
{
	static struct process p[MAX_PROCS];
	unsigned n = MAX_PROCS, i;
	int err;

	memset(p, 0, sizeof(p));
	err = api.procs ? api.procs(h, &n, p) : -1;
	if (err && err != NOT_ENOUGH)
		return;
	d->rec.procs = n;
	for (i = 0; !err && i < n && i < MAX_PROCS && i < PT_NVML_PIDS; i++)
		d->pid[d->n_pids++] = p[i].pid;
}

static void fill_device(device_t h, unsigned index, struct pt_nvml_device *d)
{
	struct pt_rec_device *r = &d->rec;
	unsigned long long reasons;
	struct utilization u;
	struct memory m;
	struct timespec ts;
	unsigned v;

	r->hdr.size = sizeof(*r);
	r->hdr.kind = PT_REC_DEVICE;
	r->index = index;
	r->util = r->mem_util = r->sm_mhz = r->sm_max_mhz = r->procs =
		PT_DEVICE_UNKNOWN;
	r->period_ms = 1000; /* "between 1 second and 1/6 second" */
	r->mem_used = r->mem_total = r->throttle = ~(__u64)0;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	r->hdr.ts = (__u64)ts.tv_sec * 1000000000u + (__u64)ts.tv_nsec;
	if (api.uuid(h, r->uuid, sizeof(r->uuid)))
		r->uuid[0] = '\0';
	if (!api.name || api.name(h, r->name, sizeof(r->name)))
		r->name[0] = '\0';
	if (api.util && !api.util(h, &u)) {
		r->util = u.gpu;
		r->mem_util = u.memory;
	}
	if (api.memory && !api.memory(h, &m)) {
		r->mem_used = m.used;
		r->mem_total = m.total;
	}
	if (api.clock && !api.clock(h, CLOCK_SM, &v))
		r->sm_mhz = v;
	if (api.max_clock && !api.max_clock(h, CLOCK_SM, &v))
		r->sm_max_mhz = v;
	if (api.reasons && !api.reasons(h, &reasons))
		r->throttle = reasons;
	fill_processes(h, d);
}

static void look(struct pt_nvml_answer *a)
{
	static bool opened, up;
	unsigned n = 0, i;
	device_t h;

	if (!opened) {
		opened = true;
		if (!open_library()) {
			a->state = PT_NVML_NO_LIBRARY;
			return;
		}
		up = !api.init();
	}
	if (!up || api.count(&n)) {
		a->state = PT_NVML_NO_DRIVER;
		return;
	}
	if (!api.driver || api.driver(a->driver, sizeof(a->driver)))
		a->driver[0] = '\0';
	for (i = 0; i < n && a->n < PT_NVML_DEVICES; i++)
		if (!api.handle(i, &h))
			fill_device(h, i, &a->dev[a->n++]);
}
#else
static void look(struct pt_nvml_answer *a)
{
	a->state = PT_NVML_DIED; /* nobody asks this one */
}
#endif

static bool put(int fd, const void *data, size_t n)
{
	const char *p = data;
	ssize_t r;

	while (n) {
		r = write(fd, p, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

int pt_nvml_child(int in, int out)
{
	static struct pt_nvml_answer a;
	char ask;

	/* its end is ours, however it comes */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(in, &ask, 1) == 1) {
		memset(&a, 0, sizeof(a));
		a.magic = PT_NVML_MAGIC;
		look(&a);
		if (!put(out, &a, sizeof(a)) || a.state != PT_NVML_OK)
			break;
	}
	return 0;
}

#ifdef PT_NVML_HELPER
int main(void)
{
	return pt_nvml_child(STDIN_FILENO, STDOUT_FILENO);
}
#endif
