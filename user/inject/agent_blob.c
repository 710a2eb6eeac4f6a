/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/blob.h"
#include "inject/inject_int.h"

PT_BLOB(pt_agent, PT_AGENT_SO);

const void *pt_agent_blob(size_t *len)
{
	*len = (size_t)(pt_agent_end - pt_agent_begin);
	return pt_agent_begin;
}
