/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What simulated processes say of their devices (PT_SIM_NVML), for the NVML
 * stand-in in another process. One writer per slot; a slot's words are whole
 * while `seq` is even and did not change meanwhile.
 */
#ifndef PTSIM_NVML_STATE_H
#define PTSIM_NVML_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_NVML_MAGIC 0x316c6d766e737470ull /* "ptsnvml1" */
#define SIM_NVML_SLOTS 16
#define SIM_NVML_DEVICES 8
/* Utilisation is that of a period; the real one's is 1/6 s to 1 s. */
#define SIM_NVML_PERIOD_NS 166666667ull

struct sim_nvml_device {
	uint64_t busy_ns;   /* since the process began */
	uint64_t mem_used, mem_total;	  /* bytes */
	uint64_t period_end, period_ns;	  /* the last whole period, and how */
	uint64_t period_busy_ns;	  /* long something ran in it */
	uint64_t used;	/* 1: the process has used the device */
};

struct sim_nvml_slot {
	_Atomic int64_t pid; /* 0: free */
	_Atomic uint32_t seq;
	uint32_t devices;
	uint64_t updated; /* CLOCK_MONOTONIC, ns */
	struct sim_nvml_device dev[SIM_NVML_DEVICES];
};

struct sim_nvml_state {
	uint64_t magic;
	struct sim_nvml_slot slot[SIM_NVML_SLOTS];
};

#endif
