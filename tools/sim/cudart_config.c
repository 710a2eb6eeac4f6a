/* SPDX-License-Identifier: BSD-2-Clause */
/* PT_SIM_* environment variables. Nonsense is named and replaced by the default. */
#include "cudart_device.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_cfg sim_cfg;

static uint64_t env_u64(const char *name, uint64_t dflt, uint64_t min,
			uint64_t max)
{
	const char *s = getenv(name);
	unsigned long long v;
	char *end;

	if (!s || !*s)
		return dflt;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || *end || *s == '-' || v < min || v > max) {
		fprintf(stderr,
			"simulated GPU: %s must be %llu..%llu; using %llu\n",
			name, (unsigned long long)min, (unsigned long long)max,
			(unsigned long long)dflt);
		return dflt;
	}
	return v;
}

static double env_gbps(const char *name, double dflt)
{
	const char *s = getenv(name);
	double v;
	char *end;

	if (!s || !*s)
		return dflt;
	v = strtod(s, &end);
	if (*end || !isfinite(v) || v < 0.001 || v > 10000) {
		fprintf(stderr,
			"simulated GPU: %s must be 0.001..10000; using %g\n",
			name, dflt);
		return dflt;
	}
	return v; /* 1 GB/s is one byte per nanosecond */
}

static enum sim_sync env_sync(void)
{
	const char *s = getenv("PT_SIM_SYNC");

	if (!s || !*s || !strcmp(s, "block"))
		return SIM_SYNC_BLOCK;
	if (!strcmp(s, "spin"))
		return SIM_SYNC_SPIN;
	if (!strcmp(s, "yield"))
		return SIM_SYNC_YIELD;
	fprintf(stderr, "simulated GPU: PT_SIM_SYNC must be block, spin or "
			"yield; using block\n");
	return SIM_SYNC_BLOCK;
}

void sim_config_read(void)
{
	sim_cfg.kernel_ns = env_u64("PT_SIM_KERNEL_NS", 10000, 1,
				    SIM_OP_NS_MAX);
	sim_cfg.h2d_bytes_per_ns = env_gbps("PT_SIM_H2D_GBPS", 12);
	sim_cfg.d2h_bytes_per_ns = env_gbps("PT_SIM_D2H_GBPS", 12);
	sim_cfg.mem_bytes = env_u64("PT_SIM_MEM", 16ull << 30, 1 << 20,
				    1ull << 40);
	sim_cfg.queue = (unsigned)env_u64("PT_SIM_QUEUE", 1024, 1, 65536);
	sim_cfg.devices = (unsigned)env_u64("PT_SIM_DEVICES", 1, 1, SIM_DEVICES);
	sim_cfg.concurrent = env_u64("PT_SIM_CONCURRENT", 0, 0, 1);
	atomic_store(&sim_cfg.sync, env_sync());
}
