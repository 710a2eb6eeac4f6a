/* SPDX-License-Identifier: BSD-2-Clause */
/* What the verifier says of each program, without attaching anything. */
#ifndef PT_LOAD_H
#define PT_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/capture.h"

/*
 * Load the programs that a session with these options would load, tell `fn`
 * of every program there is (insns: after the verifier's rewriting, 0 when it
 * was not loaded), and unload. `name` is valid during the call only.
 * 0, or -errno with `err` holding the verifier's or libbpf's last words.
 */
int pt_load_list(const struct pt_capture_opts *o,
		 void (*fn)(void *ctx, const char *name, bool loaded,
			    uint32_t insns),
		 void *ctx, struct pt_err *err);

#endif
