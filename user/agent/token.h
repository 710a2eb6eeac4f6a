/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's own token: for what is not for everybody, where none is configured. */
#ifndef PT_AGENT_TOKEN_H
#define PT_AGENT_TOKEN_H

#include <stddef.h>

#include "capture/capture.h"

/* Puts the name of the file STATE/token into `path`, and makes it (64 digits at
 * random, for its owner alone) where there is no good one. 0, or -errno with `err`
 * filled. */
int pt_agent_token(const char *state, char *path, size_t size, struct pt_err *err);

#endif
