/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libnvidia-ml.so.1 without a GPU: what the simulated devices of other
 * processes publish in the file PT_SIM_NVML, under NVML's names. The program
 * that asks needs no CUDA and starts no thread.
 *
 *   PT_SIM_NVML_FAIL      init (no driver), util (utilisation is not
 *                         supported) or hang (utilisation never returns)
 *   PT_SIM_NVML_THROTTLE  bit mask of throttle reasons; the clocks fall to half
 */
#include "nvml_abi.h"
#include "nvml_state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define DEVICES SIM_NVML_DEVICES
#define MEMORY (16ull << 30)

/* Of an A100: what the clocks and the power are made up from. */
#define SM_MHZ 1410
#define MEM_MHZ 1215
#define IDLE_MW 50000
#define BUSY_MW 250000 /* on top, at full utilisation */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users; /* nvmlInit calls without their nvmlShutdown */
static const struct sim_nvml_state *state; /* NULL: nobody has published */
static char handles[DEVICES];

/* ---- the file -------------------------------------------------------------- */

/* The jobs may come after the reader: looked for again until it is there. */
static void map_state(void)
{
	const char *path = getenv("PT_SIM_NVML");
	struct stat st;
	void *p;
	int fd;

	if (state || !path || !*path)
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return;
	if (!fstat(fd, &st) && st.st_size == (off_t)sizeof(*state)) {
		p = mmap(NULL, sizeof(*state), PROT_READ, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED)
			state = p;
	}
	close(fd);
}

static uint64_t now_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* A copy of a slot that a live process wrote; false: there is none. */
static bool slot_read(unsigned i, struct sim_nvml_slot *out)
{
	const struct sim_nvml_slot *s = &state->slot[i];

	for (int try = 0; try < 100; try++) {
		int64_t pid = atomic_load(&s->pid);
		uint32_t seq = atomic_load(&s->seq);

		if (pid <= 0 || pid > INT32_MAX ||
		    (kill((pid_t)pid, 0) && errno == ESRCH))
			return false;
		if (seq & 1)
			continue;
		out->devices = s->devices;
		out->updated = s->updated;
		memcpy(out->dev, s->dev, sizeof(out->dev));
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load(&s->seq) != seq || atomic_load(&s->pid) != pid)
			continue;
		atomic_init(&out->pid, pid);
		return out->devices >= 1 && out->devices <= DEVICES;
	}
	return false;
}

/* Per cent of the last period in which a process's work ran. */
static unsigned percent(const struct sim_nvml_device *d)
{
	if (!d->period_ns || d->period_busy_ns >= d->period_ns)
		return d->period_ns ? 100 : 0;
	return (unsigned)((double)d->period_busy_ns * 100 /
				  (double)d->period_ns + 0.5);
}

/* All processes of a device together. */
struct sum {
	unsigned devices, percent;
	unsigned long long used, total;
};

static struct sum sum_of(unsigned device)
{
	struct sum v = { 1, 0, 0, MEMORY };
	struct sim_nvml_slot s;

	pthread_mutex_lock(&lock);
	map_state();
	for (unsigned i = 0; state && i < SIM_NVML_SLOTS; i++) {
		if (!slot_read(i, &s))
			continue;
		if (s.devices > v.devices)
			v.devices = s.devices;
		if (device >= s.devices)
			continue;
		v.percent += percent(&s.dev[device]);
		v.used += s.dev[device].mem_used;
		if (s.dev[device].mem_total)
			v.total = s.dev[device].mem_total;
	}
	pthread_mutex_unlock(&lock);
	if (v.percent > 100)
		v.percent = 100;
	if (v.used > v.total)
		v.used = v.total;
	return v;
}

/* ---- handles and faults ------------------------------------------------------ */

static bool fault(const char *which)
{
	const char *want = getenv("PT_SIM_NVML_FAIL");

	return want && !strcmp(want, which);
}

static bool up(void)
{
	bool yes;

	pthread_mutex_lock(&lock);
	yes = users > 0;
	pthread_mutex_unlock(&lock);
	return yes;
}

/* NVML_SUCCESS and the index, or what the call must return. */
static nvmlReturn_t index_of(nvmlDevice_t device, const void *out, unsigned *at)
{
	const char *p = (const char *)device;

	*at = 0;
	if (!up())
		return NVML_ERROR_UNINITIALIZED;
	for (*at = 0; *at < DEVICES; ++*at)
		if (p == &handles[*at])
			return out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t text(char *out, unsigned length, const char *s)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length <= strlen(s))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, s);
	return NVML_SUCCESS;
}

static unsigned long long throttle(void)
{
	const char *s = getenv("PT_SIM_NVML_THROTTLE");

	return s ? strtoull(s, NULL, 0) : 0;
}

/* ---- entry points ------------------------------------------------------------ */

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	if (fault("init"))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	pthread_mutex_lock(&lock);
	users++;
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t err = NVML_SUCCESS;

	pthread_mutex_lock(&lock);
	if (users)
		users--;
	else
		err = NVML_ERROR_UNINITIALIZED;
	if (!users && state) {
		munmap((void *)(uintptr_t)state, sizeof(*state));
		state = NULL;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "The operation was successful";
	case NVML_ERROR_UNINITIALIZED:
		return "NVML was not first initialized with nvmlInit()";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "A supplied argument is invalid";
	case NVML_ERROR_NOT_SUPPORTED:
		return "The requested operation is not available on target device";
	case NVML_ERROR_NOT_FOUND:
		return "A query to find an object was unsuccessful";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "An input argument is not large enough";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "NVIDIA driver is not loaded";
	default:
		return "An internal driver error occurred";
	}
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return up() ? text(version, length, "000.00.00-simulated") :
		      NVML_ERROR_UNINITIALIZED;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	if (!up())
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = sum_of(0).devices;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index,
					       nvmlDevice_t *device)
{
	if (!up())
		return NVML_ERROR_UNINITIALIZED;
	if (!device || index >= DEVICES || index >= sum_of(0).devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = (nvmlDevice_t)(void *)&handles[index];
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, index, &at);

	if (!err)
		*index = at;
	return err;
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid,
				   unsigned int length)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, uuid, &at);
	char s[64];

	snprintf(s, sizeof(s), "GPU-51d00000-0000-0000-0000-00000000000%u", at);
	return err ? err : text(uuid, length, s);
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name,
				   unsigned int length)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, name, &at);

	return err ? err : text(name, length, "Simulated GPU");
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
					       nvmlUtilization_t *utilization)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, utilization, &at);

	if (err)
		return err;
	if (fault("util"))
		return NVML_ERROR_NOT_SUPPORTED;
	while (fault("hang"))
		sleep(3600);
	utilization->gpu = sum_of(at).percent;
	utilization->memory = utilization->gpu / 2; /* made up */
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device,
					 nvmlMemory_t *memory)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, memory, &at);
	struct sum v;

	if (err)
		return err;
	v = sum_of(at);
	memory->total = v.total;
	memory->used = v.used;
	memory->free = v.total - v.used;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
	nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	unsigned at, room, n = 0;
	nvmlReturn_t err = index_of(device, count, &at);
	struct sim_nvml_slot s;

	if (err)
		return err;
	room = infos ? *count : 0;
	pthread_mutex_lock(&lock);
	map_state();
	for (unsigned i = 0; state && i < SIM_NVML_SLOTS; i++) {
		if (!slot_read(i, &s) || at >= s.devices || !s.dev[at].used)
			continue;
		if (n < room)
			infos[n] = (nvmlProcessInfo_t){
				.pid = (unsigned)atomic_load(&s.pid),
				.usedGpuMemory = s.dev[at].mem_used,
				.gpuInstanceId = ~0u,
				.computeInstanceId = ~0u,
			};
		n++;
	}
	pthread_mutex_unlock(&lock);
	*count = n;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(
	nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type,
					   unsigned int *mhz)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, mhz, &at);

	if (err)
		return err;
	if (type < NVML_CLOCK_GRAPHICS || type > NVML_CLOCK_VIDEO)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mhz = type == NVML_CLOCK_MEM ? MEM_MHZ : SM_MHZ;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type,
					unsigned int *mhz)
{
	nvmlReturn_t err = nvmlDeviceGetMaxClockInfo(device, type, mhz);

	if (!err && type != NVML_CLOCK_MEM && throttle())
		*mhz /= 2;
	return err;
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(
	nvmlDevice_t device, unsigned long long *reasons)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, reasons, &at);

	if (err)
		return err;
	*reasons = throttle();
	if (!*reasons && !sum_of(at).percent)
		*reasons = nvmlClocksThrottleReasonGpuIdle;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor,
					  unsigned int *celsius)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, celsius, &at);

	if (err)
		return err;
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = 35 + sum_of(at).percent * 40 / 100;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw)
{
	unsigned at;
	nvmlReturn_t err = index_of(device, mw, &at);

	if (!err)
		*mw = IDLE_MW + sum_of(at).percent * (BUSY_MW / 100);
	return err;
}

/* One sample for each process, of its last period. The real one's times are
 * those of the day. */
API nvmlReturn_t nvmlDeviceGetProcessUtilization(
	nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
	unsigned int *count, unsigned long long last_seen)
{
	unsigned at, room, n = 0;
	nvmlReturn_t err = index_of(device, count, &at);
	uint64_t offset = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
	struct sim_nvml_slot s;

	if (err)
		return err;
	room = samples ? *count : 0;
	pthread_mutex_lock(&lock);
	map_state();
	for (unsigned i = 0; state && i < SIM_NVML_SLOTS; i++) {
		uint64_t us;

		if (!slot_read(i, &s) || at >= s.devices || !s.dev[at].period_end)
			continue;
		us = (s.dev[at].period_end + offset) / 1000;
		if (us <= last_seen)
			continue;
		if (n < room)
			samples[n] = (nvmlProcessUtilizationSample_t){
				.pid = (unsigned)atomic_load(&s.pid),
				.timeStamp = us,
				.smUtil = percent(&s.dev[at]),
				.memUtil = percent(&s.dev[at]) / 2,
			};
		n++;
	}
	pthread_mutex_unlock(&lock);
	*count = n;
	if (!n)
		return NVML_ERROR_NOT_FOUND;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
