/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of NVML's public C ABI that the stand-in serves: names, layouts and
 * values of nvml.h. tests/unit/test_sim_nvml.c checks them against the real
 * header where a machine has it.
 */
#ifndef PTSIM_NVML_ABI_H
#define PTSIM_NVML_ABI_H

#include <stddef.h>

typedef int nvmlReturn_t; /* an enum in NVML: same size, same registers */
#define NVML_SUCCESS 0
#define NVML_ERROR_UNINITIALIZED 1
#define NVML_ERROR_INVALID_ARGUMENT 2
#define NVML_ERROR_NOT_SUPPORTED 3
#define NVML_ERROR_NOT_FOUND 6
#define NVML_ERROR_INSUFFICIENT_SIZE 7
#define NVML_ERROR_DRIVER_NOT_LOADED 9
#define NVML_ERROR_UNKNOWN 999

#define NVML_CLOCK_GRAPHICS 0
#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEM 2
#define NVML_CLOCK_VIDEO 3
#define NVML_TEMPERATURE_GPU 0

#define nvmlClocksThrottleReasonGpuIdle 0x1ull
#define nvmlClocksThrottleReasonSwPowerCap 0x4ull
#define nvmlClocksThrottleReasonHwSlowdown 0x8ull
#define nvmlClocksThrottleReasonSwThermalSlowdown 0x20ull

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct nvmlUtilization_st {
	unsigned int gpu, memory; /* percent of the last sample period */
} nvmlUtilization_t;

typedef struct nvmlMemory_st {
	unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

/* Of nvmlDeviceGetComputeRunningProcesses_v2 and _v3. */
typedef struct nvmlProcessInfo_st {
	unsigned int pid;
	unsigned long long usedGpuMemory; /* bytes; ~0: not known */
	unsigned int gpuInstanceId, computeInstanceId; /* ~0: no MIG */
} nvmlProcessInfo_t;

typedef struct nvmlProcessUtilizationSample_st {
	unsigned int pid;
	unsigned long long timeStamp; /* microseconds */
	unsigned int smUtil, memUtil, encUtil, decUtil; /* percent */
} nvmlProcessUtilizationSample_t;

_Static_assert(sizeof(nvmlProcessInfo_t) == 24 &&
	       offsetof(nvmlProcessInfo_t, usedGpuMemory) == 8 &&
	       offsetof(nvmlProcessInfo_t, gpuInstanceId) == 16,
	       "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32 &&
	       offsetof(nvmlProcessUtilizationSample_t, smUtil) == 16,
	       "nvmlProcessUtilizationSample_t");

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
nvmlReturn_t nvmlShutdown(void);
const char *nvmlErrorString(nvmlReturn_t result);
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index,
					   nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid,
			       unsigned int length);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name,
			       unsigned int length);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
					   nvmlUtilization_t *utilization);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
						     unsigned int *count,
						     nvmlProcessInfo_t *infos);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
						     unsigned int *count,
						     nvmlProcessInfo_t *infos);
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type,
				    unsigned int *mhz);
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type,
				       unsigned int *mhz);
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(
	nvmlDevice_t device, unsigned long long *reasons);
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor,
				      unsigned int *celsius);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw);
nvmlReturn_t nvmlDeviceGetProcessUtilization(
	nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
	unsigned int *count, unsigned long long last_seen);

#endif
