// SPDX-License-Identifier: BSD-2-Clause
/*
 * NVTX 2's exported functions, as libnvToolsExt has them. Without a profiler the
 * real library does nothing and gives back no handles; so does this one, unless
 * PT_SIM_NVTX_TOOL=1 stands in for a profiler that hands them out.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#define NO_TOOL (-2) /* NVTX_NO_PUSH_POP_TRACKING */

typedef uint64_t nvtxRangeId_t;
typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;
typedef struct nvtxStringRegistration_st *nvtxStringHandle_t;
typedef struct nvtxEventAttributes_v2 nvtxEventAttributes_t;

int nvtxRangePushA(const char *message);
int nvtxRangePushW(const wchar_t *message);
int nvtxRangePushEx(const nvtxEventAttributes_t *a);
int nvtxRangePop(void);
nvtxRangeId_t nvtxRangeStartA(const char *message);
nvtxRangeId_t nvtxRangeStartW(const wchar_t *message);
nvtxRangeId_t nvtxRangeStartEx(const nvtxEventAttributes_t *a);
void nvtxRangeEnd(nvtxRangeId_t id);
void nvtxMarkA(const char *message);
void nvtxMarkEx(const nvtxEventAttributes_t *a);
nvtxDomainHandle_t nvtxDomainCreateA(const char *name);
void nvtxDomainDestroy(nvtxDomainHandle_t domain);
int nvtxDomainRangePushEx(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a);
int nvtxDomainRangePop(nvtxDomainHandle_t d);
nvtxRangeId_t nvtxDomainRangeStartEx(nvtxDomainHandle_t d,
				     const nvtxEventAttributes_t *a);
void nvtxDomainRangeEnd(nvtxDomainHandle_t d, nvtxRangeId_t id);
void nvtxDomainMarkEx(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a);
nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t d,
					     const char *text);

static _Thread_local int depth;

static int has_tool(void)
{
	const char *s = getenv("PT_SIM_NVTX_TOOL");

	return s && *s == '1';
}

static uint64_t handle(void)
{
	static atomic_uint_fast64_t last = 0x1000;

	return has_tool() ? atomic_fetch_add(&last, 16) : 0;
}

static int push(void)
{
	return has_tool() ? depth++ : NO_TOOL;
}

static int pop(void)
{
	return has_tool() ? --depth : NO_TOOL;
}

int nvtxRangePushA(const char *message)
{
	(void)message;
	return push();
}

int nvtxRangePushW(const wchar_t *message)
{
	(void)message;
	return push();
}

int nvtxRangePushEx(const nvtxEventAttributes_t *a)
{
	(void)a;
	return push();
}

int nvtxRangePop(void)
{
	return pop();
}

nvtxRangeId_t nvtxRangeStartA(const char *message)
{
	(void)message;
	return handle();
}

nvtxRangeId_t nvtxRangeStartW(const wchar_t *message)
{
	(void)message;
	return handle();
}

nvtxRangeId_t nvtxRangeStartEx(const nvtxEventAttributes_t *a)
{
	(void)a;
	return handle();
}

void nvtxRangeEnd(nvtxRangeId_t id)
{
	(void)id;
}

void nvtxMarkA(const char *message)
{
	(void)message;
}

void nvtxMarkEx(const nvtxEventAttributes_t *a)
{
	(void)a;
}

nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
	(void)name;
	return (nvtxDomainHandle_t)(uintptr_t)handle();
}

void nvtxDomainDestroy(nvtxDomainHandle_t domain)
{
	(void)domain;
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a)
{
	(void)d;
	(void)a;
	return push();
}

int nvtxDomainRangePop(nvtxDomainHandle_t d)
{
	(void)d;
	return pop();
}

nvtxRangeId_t nvtxDomainRangeStartEx(nvtxDomainHandle_t d,
				     const nvtxEventAttributes_t *a)
{
	(void)d;
	(void)a;
	return handle();
}

void nvtxDomainRangeEnd(nvtxDomainHandle_t d, nvtxRangeId_t id)
{
	(void)d;
	(void)id;
}

void nvtxDomainMarkEx(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a)
{
	(void)d;
	(void)a;
}

nvtxStringHandle_t nvtxDomainRegisterStringA(nvtxDomainHandle_t d,
					     const char *text)
{
	(void)d;
	(void)text;
	return (nvtxStringHandle_t)(uintptr_t)handle();
}
