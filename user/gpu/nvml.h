/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the NVIDIA driver says of its devices, through libnvidia-ml. A call of
 * it never returns when a driver is wedged, so a child process makes them: it
 * is asked over a pipe, waited for with a deadline, and killed when that has
 * passed. The library is opened at run time; without one there is nothing.
 */
#ifndef PT_GPU_NVML_H
#define PT_GPU_NVML_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

#define PT_NVML_DEVICES 16
#define PT_NVML_PIDS 64 /* of a device that are told; its count has all */
#define PT_NVML_WAIT_MS 3000 /* for an answer, nvmlInit included */

enum pt_nvml_state {
	PT_NVML_OK = 0,
	PT_NVML_NO_LIBRARY, /* libnvidia-ml.so.1 cannot be opened */
	PT_NVML_NO_DRIVER,  /* it is there, and says that it cannot work */
	PT_NVML_STUCK,	    /* no answer in time */
	PT_NVML_DIED,	    /* the child ended, or said what makes no sense */
};
/* One sentence; static. */
const char *pt_nvml_state_text(enum pt_nvml_state s);

struct pt_nvml_device {
	struct pt_rec_device rec; /* all but `traced`, `ordinal` and `pid` */
	uint32_t n_pids, pad;
	uint32_t pid[PT_NVML_PIDS];
};

struct pt_nvml_answer { /* what goes over the pipe, whole */
	uint32_t magic;
	uint32_t state; /* enum pt_nvml_state */
	uint32_t n, pad;
	char driver[80];
	struct pt_nvml_device dev[PT_NVML_DEVICES];
};

struct pt_nvml;

/* Start the child. A static program, which cannot open libraries, carries one
 * along that needs the machine's C library (glibc 2.34). 0 or -errno. */
int pt_nvml_start(struct pt_nvml **out);
/* Ask, unless an answer is still due. Never blocks. */
void pt_nvml_ask(struct pt_nvml *n);
/*
 * Look for the answer; never blocks. 1: `a` holds it, checked; 0: not yet. With
 * a state other than PT_NVML_OK it is the last one, and the child has gone.
 */
int pt_nvml_poll(struct pt_nvml *n, struct pt_nvml_answer *a);
/* Wait for it, at most `ms`. 1 or 0 as above. */
int pt_nvml_wait(struct pt_nvml *n, unsigned ms, struct pt_nvml_answer *a);
/* End the child; takes 0.1 s at most. One that is stuck in the kernel is left
 * to init. */
void pt_nvml_free(struct pt_nvml *n);

/* The child itself: `pipetrace __nvml`. Answers on `out` each byte that comes
 * on `in`, until that ends. Exit status. */
#define PT_NVML_COMMAND "__nvml"
int pt_nvml_child(int in, int out);

#endif
