/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent library's bytes, as built: to be written into a memfd. */
#ifndef PT_AGENT_BLOB_H
#define PT_AGENT_BLOB_H

#include <stddef.h>

/* Static; *len in bytes. An ELF shared object for this processor. */
const void *pt_agent_blob(size_t *len);

#endif
