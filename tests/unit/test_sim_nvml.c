/* SPDX-License-Identifier: BSD-2-Clause */
/* The NVML stand-in: what a watching process is told of simulated devices. */
#include <libgen.h>
#include <limits.h>
#include <signal.h>

#include "../../tools/sim/nvml_abi.h"
#include "test_sim_child.h"

static char state_path[64];
static void *lib;

static struct {
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*shutdown)(void);
	nvmlReturn_t (*count)(unsigned *);
	nvmlReturn_t (*handle)(unsigned, nvmlDevice_t *);
	nvmlReturn_t (*uuid)(nvmlDevice_t, char *, unsigned);
	nvmlReturn_t (*util)(nvmlDevice_t, nvmlUtilization_t *);
	nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t *);
	nvmlReturn_t (*procs)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
	nvmlReturn_t (*clock)(nvmlDevice_t, int, unsigned *);
	nvmlReturn_t (*max_clock)(nvmlDevice_t, int, unsigned *);
	nvmlReturn_t (*throttle)(nvmlDevice_t, unsigned long long *);
	nvmlReturn_t (*proc_util)(nvmlDevice_t,
				  nvmlProcessUtilizationSample_t *, unsigned *,
				  unsigned long long);
} n;

static int open_lib(void **state)
{
	static const struct { void *at; const char *name; } v[] = {
		{ &n.init, "nvmlInit_v2" },
		{ &n.shutdown, "nvmlShutdown" },
		{ &n.count, "nvmlDeviceGetCount_v2" },
		{ &n.handle, "nvmlDeviceGetHandleByIndex_v2" },
		{ &n.uuid, "nvmlDeviceGetUUID" },
		{ &n.util, "nvmlDeviceGetUtilizationRates" },
		{ &n.memory, "nvmlDeviceGetMemoryInfo" },
		{ &n.procs, "nvmlDeviceGetComputeRunningProcesses_v3" },
		{ &n.clock, "nvmlDeviceGetClockInfo" },
		{ &n.max_clock, "nvmlDeviceGetMaxClockInfo" },
		{ &n.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons" },
		{ &n.proc_util, "nvmlDeviceGetProcessUtilization" },
	};
	char exe[PATH_MAX] = "", path[PATH_MAX + 64];

	(void)state;
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/../sim/cuda/libnvidia-ml.so.1",
		 dirname(exe));
	lib = dlopen(path, RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		void *p = dlsym(lib, v[i].name);

		if (!p) {
			fprintf(stderr, "no %s\n", v[i].name);
			return -1;
		}
		memcpy(v[i].at, &p, sizeof(p));
	}
	return setenv("PT_SIM_NVML", state_path, 1);
}

/* Device 0 of two is busy all the time and has a GiB. */
static pid_t busy_job(void)
{
	pid_t pid;
	void *p;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);
		setenv("PT_SIM_DEVICES", "2", 1);
		OK(cudaMalloc(&p, 1 << 30));
		ptsim_set_kernel_ns(30000 * MS);
		OK(launch(NULL));
		OK(cudaDeviceSynchronize());
		exit(0);
	}
	return pid;
}

static void test_busy(void **state)
{
	nvmlProcessUtilizationSample_t sample[4];
	nvmlProcessInfo_t info[4];
	nvmlUtilization_t u = { 0, 0 };
	unsigned count, mhz, max;
	unsigned long long why;
	nvmlDevice_t d[2];
	nvmlMemory_t m;
	char uuid[96];
	int status;
	pid_t pid;

	(void)state;
	unlink(state_path);
	assert_int_equal(n.count(&count), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(n.init(), NVML_SUCCESS);
	assert_int_equal(n.count(&count), NVML_SUCCESS);
	assert_int_equal(count, 1); /* a machine has one before any job */
	pid = busy_job();
	for (int i = 0; i < 1000 && count != 2; i++) {
		usleep(20000);
		assert_int_equal(n.count(&count), NVML_SUCCESS);
	}
	assert_int_equal(count, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(n.handle(i, &d[i]), NVML_SUCCESS);
	assert_int_equal(n.handle(2, &d[0]), NVML_ERROR_INVALID_ARGUMENT);
	/* the period in which the kernel began is not full */
	for (int i = 0; i < 1000 && u.gpu < 100; i++) {
		usleep(20000);
		assert_int_equal(n.util(d[0], &u), NVML_SUCCESS);
	}
	assert_int_equal(u.gpu, 100);
	assert_int_equal(n.util(d[1], &u), NVML_SUCCESS);
	assert_int_equal(u.gpu, 0);
	assert_int_equal(n.memory(d[0], &m), NVML_SUCCESS);
	assert_true(m.used >= 1u << 30 && m.used + m.free == m.total);
	count = 0;
	assert_int_equal(n.procs(d[0], &count, NULL),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(count, 1);
	count = 4;
	assert_int_equal(n.procs(d[0], &count, info), NVML_SUCCESS);
	assert_int_equal(info[0].pid, pid);
	assert_true(info[0].usedGpuMemory >= 1u << 30);
	count = 4;
	assert_int_equal(n.proc_util(d[0], sample, &count, 0), NVML_SUCCESS);
	assert_int_equal(count, 1);
	assert_int_equal(sample[0].pid, pid);
	assert_int_equal(sample[0].smUtil, 100);
	assert_int_equal(n.proc_util(d[0], sample, &count, ~0ull),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(n.uuid(d[1], uuid, 96), NVML_SUCCESS);
	assert_int_equal(strlen(uuid), 40);
	assert_memory_equal(uuid, "GPU-", 4);
	assert_int_equal(n.uuid(d[1], uuid, 40), NVML_ERROR_INSUFFICIENT_SIZE);

	assert_int_equal(n.throttle(d[0], &why), NVML_SUCCESS);
	assert_true(why == 0);
	setenv("PT_SIM_NVML_THROTTLE", "0x20", 1);
	assert_int_equal(n.throttle(d[0], &why), NVML_SUCCESS);
	assert_true(why == nvmlClocksThrottleReasonSwThermalSlowdown);
	assert_int_equal(n.clock(d[0], NVML_CLOCK_SM, &mhz), NVML_SUCCESS);
	assert_int_equal(n.max_clock(d[0], NVML_CLOCK_SM, &max), NVML_SUCCESS);
	assert_true(mhz < max);
	unsetenv("PT_SIM_NVML_THROTTLE");

	/* a process that is gone, however it went, is nobody's work */
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(n.util(d[0], &u), NVML_SUCCESS);
	assert_int_equal(u.gpu, 0);
	count = 4;
	assert_int_equal(n.procs(d[0], &count, info), NVML_SUCCESS);
	assert_int_equal(count, 0);
	assert_int_equal(n.shutdown(), NVML_SUCCESS);
	assert_int_equal(n.shutdown(), NVML_ERROR_UNINITIALIZED);
	unlink(state_path);
}

static void test_faults(void **state)
{
	nvmlUtilization_t u;
	nvmlDevice_t d;
	int status;
	pid_t pid;

	(void)state;
	setenv("PT_SIM_NVML_FAIL", "init", 1);
	assert_int_equal(n.init(), NVML_ERROR_DRIVER_NOT_LOADED);
	unsetenv("PT_SIM_NVML_FAIL");
	assert_int_equal(n.init(), NVML_SUCCESS);
	assert_int_equal(n.handle(0, &d), NVML_SUCCESS);
	assert_int_equal(n.util(d, &u), NVML_SUCCESS);
	assert_int_equal(u.gpu, 0); /* no file */
	setenv("PT_SIM_NVML_FAIL", "util", 1);
	assert_int_equal(n.util(d, &u), NVML_ERROR_NOT_SUPPORTED);
	setenv("PT_SIM_NVML_FAIL", "hang", 1);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		n.util(d, &u);
		_exit(0);
	}
	usleep(300000);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unsetenv("PT_SIM_NVML_FAIL");
	assert_int_equal(n.shutdown(), NVML_SUCCESS);
}

/* The real header's layouts and values, where a machine has it. */
static void test_abi_against_header(void **state)
{
	const char *home = getenv("CUDA_HOME");
	char path[4096], cmd[8704];
	FILE *cc;

	(void)state;
	snprintf(path, sizeof(path), "%s/include/nvml.h",
		 home ? home : "/usr/local/cuda");
	if (strchr(path, '\'') || access(path, R_OK)) {
		print_message("skipped: no NVML header (%s)\n", path);
		skip();
	}
	snprintf(cmd, sizeof(cmd), "cc -x c -fsyntax-only -include '%s' -", path);
	cc = popen(cmd, "w");
	assert_non_null(cc);
#define SIZE(t) fprintf(cc, "_Static_assert(sizeof(" #t ") == %zu, \"\");\n", sizeof(t))
#define AT(t, f) \
	fprintf(cc, "_Static_assert(__builtin_offsetof(" #t ", " #f ") == %zu, \"\");\n", \
		offsetof(t, f))
#define VALUE(x) fprintf(cc, "_Static_assert(" #x " == %lld, \"\");\n", (long long)x)
	SIZE(nvmlUtilization_t);
	SIZE(nvmlMemory_t);
	SIZE(nvmlProcessInfo_t);
	SIZE(nvmlProcessUtilizationSample_t);
	AT(nvmlMemory_t, used);
	AT(nvmlProcessInfo_t, usedGpuMemory);
	AT(nvmlProcessInfo_t, gpuInstanceId);
	AT(nvmlProcessUtilizationSample_t, timeStamp);
	AT(nvmlProcessUtilizationSample_t, smUtil);
	VALUE(NVML_SUCCESS);
	VALUE(NVML_ERROR_UNINITIALIZED);
	VALUE(NVML_ERROR_INVALID_ARGUMENT);
	VALUE(NVML_ERROR_NOT_SUPPORTED);
	VALUE(NVML_ERROR_NOT_FOUND);
	VALUE(NVML_ERROR_INSUFFICIENT_SIZE);
	VALUE(NVML_ERROR_DRIVER_NOT_LOADED);
	VALUE(NVML_CLOCK_SM);
	VALUE(NVML_CLOCK_MEM);
	VALUE(NVML_TEMPERATURE_GPU);
	VALUE(nvmlClocksThrottleReasonSwThermalSlowdown);
	assert_int_equal(pclose(cc), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_busy),
	cmocka_unit_test(test_faults),
	cmocka_unit_test(test_abi_against_header),
};

int main(void)
{
	int rc;

	snprintf(state_path, sizeof(state_path), "/dev/shm/test_sim_nvml.%d",
		 (int)getpid());
	rc = cmocka_run_group_tests(tests, open_lib, NULL);
	unlink(state_path);
	return rc;
}
