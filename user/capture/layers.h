/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Can a process call the CUDA driver other than through the runtime? Whoever
 * does must name it: as a library that is needed, in a string for dlopen or
 * dlsym, or by asking the runtime for its entry points. Where no mapped file
 * does, and none can call what only a script names, the driver's hooks would
 * see each of the runtime's calls a second time and nothing else.
 */
#ifndef PT_LAYERS_H
#define PT_LAYERS_H

#include <stdbool.h>
#include <sys/types.h>

struct pt_layers; /* remembers files that were looked at */

struct pt_layers *pt_layers_new(void); /* NULL: out of memory */
void pt_layers_free(struct pt_layers *l);

/* True also where it cannot be told. Reads each file once, at most 48 MiB for
 * a process. */
bool pt_layers_direct(struct pt_layers *l, pid_t pid);

#endif
