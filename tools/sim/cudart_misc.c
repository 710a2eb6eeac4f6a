/* SPDX-License-Identifier: BSD-2-Clause */
/* Exported entry points: the device, versions and errors. */
#include "cudart_device.h"

#ifndef SIM_CUDART_MAJOR
#define SIM_CUDART_MAJOR 13
#endif
#define VERSION (SIM_CUDART_MAJOR * 1000)

SIM_API cudaError_t cudaSetDevice(int device)
{
	cudaError_t err = sim_enter();

	if (!err && (device < 0 || (unsigned)device >= sim_cfg.devices))
		err = cudaErrorInvalidDevice;
	if (!err)
		sim_set_current((unsigned)device);
	return sim_ret(err);
}

SIM_API cudaError_t cudaGetDevice(int *device)
{
	cudaError_t err = sim_enter();

	if (!err && !device)
		err = cudaErrorInvalidValue;
	if (!err)
		*device = (int)sim_current();
	return sim_ret(err);
}

SIM_API cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t err = sim_enter();

	if (!err && !count)
		err = cudaErrorInvalidValue;
	if (!err)
		*count = (int)sim_cfg.devices;
	return sim_ret(err);
}

/* Auto keeps what PT_SIM_SYNC chose. */
SIM_API cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	cudaError_t err = sim_enter();

	if (err)
		return sim_ret(err);
	if (flags & ~(unsigned)cudaDeviceMask)
		return sim_ret(cudaErrorInvalidValue);
	switch (flags & cudaDeviceScheduleMask) {
	case cudaDeviceScheduleAuto:
		break;
	case cudaDeviceScheduleSpin:
		atomic_store(&sim_cfg.sync, SIM_SYNC_SPIN);
		break;
	case cudaDeviceScheduleYield:
		atomic_store(&sim_cfg.sync, SIM_SYNC_YIELD);
		break;
	case cudaDeviceScheduleBlockingSync:
		atomic_store(&sim_cfg.sync, SIM_SYNC_BLOCK);
		break;
	default:
		err = cudaErrorInvalidValue;
	}
	return sim_ret(err);
}

/* Waits for the device and frees its memory. Streams and events stay valid,
 * which CUDA does not promise. */
SIM_API cudaError_t cudaDeviceReset(void)
{
	cudaError_t err = sim_enter();

	if (err)
		return sim_ret(err);
	sim_lock();
	sim_wait(NULL, sim_last_seq(), atomic_load(&sim_cfg.sync));
	sim_mem_reset();
	sim_unlock();
	return cudaSuccess;
}

SIM_API cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return sim_ret(cudaErrorInvalidValue);
	*version = VERSION;
	return cudaSuccess;
}

SIM_API cudaError_t cudaDriverGetVersion(int *version)
{
	if (!version)
		return sim_ret(cudaErrorInvalidValue);
	*version = VERSION; /* a driver as new as the runtime */
	return cudaSuccess;
}

SIM_API cudaError_t cudaGetLastError(void)
{
	return sim_last_error(true);
}

SIM_API cudaError_t cudaPeekAtLastError(void)
{
	return sim_last_error(false);
}

struct error_text {
	cudaError_t code;
	const char *name, *text;
};

#define E(code, text) { code, #code, text }
static const struct error_text errors[] = {
	E(cudaSuccess, "no error"),
	E(cudaErrorInvalidValue, "invalid argument"),
	E(cudaErrorMemoryAllocation, "out of memory"),
	E(cudaErrorInitializationError, "initialization error"),
	E(cudaErrorCudartUnloading, "driver shutting down"),
	E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
	E(cudaErrorInvalidPitchValue, "invalid pitch argument"),
	E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
	E(cudaErrorInvalidDeviceFunction, "invalid device function"),
	E(cudaErrorInvalidDevice, "invalid device ordinal"),
	E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
	E(cudaErrorIllegalState,
	  "the operation cannot be performed in the present state"),
	E(cudaErrorNotReady, "device not ready"),
	E(cudaErrorHostMemoryAlreadyRegistered,
	  "part or all of the requested memory range is already mapped"),
	E(cudaErrorHostMemoryNotRegistered,
	  "pointer does not correspond to a registered memory region"),
	E(cudaErrorStreamCaptureUnsupported,
	  "operation not permitted when stream is capturing"),
	E(cudaErrorStreamCaptureInvalidated,
	  "operation failed due to a previous error during capture"),
};
#undef E

static const struct error_text *error_find(cudaError_t code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return &errors[i];
	return NULL;
}

SIM_API const char *cudaGetErrorName(cudaError_t error)
{
	const struct error_text *e = error_find(error);

	return e ? e->name : "unrecognized error code";
}

SIM_API const char *cudaGetErrorString(cudaError_t error)
{
	const struct error_text *e = error_find(error);

	return e ? e->text : "unrecognized error code";
}
