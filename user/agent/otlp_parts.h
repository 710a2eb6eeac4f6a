/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts that OTLP's metrics and log records have in common. Out of an arena; NULL and
 * -ENOMEM: no memory. */
#ifndef PT_AGENT_OTLP_PARTS_H
#define PT_AGENT_OTLP_PARTS_H

#include "agent/otlp_encode.h"
#include "base/arena.h"
#include "otlp.pb-c.h"

/* A message, empty; NULL: no memory. `kind`: as protobuf-c begins its functions' names. */
#define PT_OTLP_NEW(arena, kind, Type)                                         \
	({                                                                     \
		Otlp__##Type *m_ = pt_arena_alloc(arena, sizeof(*m_));         \
                                                                               \
		if (m_)                                                        \
			otlp__##kind##__init(m_);                              \
		m_;                                                            \
	})

/* A copy that is valid UTF-8 (a receiver refuses a whole request for one byte that
 * is not), of at most `most` bytes. */
char *pt_otlp_text(struct pt_arena *a, const char *s, size_t most);

Otlp__AnyValue *pt_otlp_any(struct pt_arena *a, const char *s, size_t most);
Otlp__AnyValue *pt_otlp_any_int(struct pt_arena *a, uint64_t x);

/* `value` NULL: there was no memory for it. `key` is not copied. */
Otlp__KeyValue *pt_otlp_pair(struct pt_arena *a, const char *key, Otlp__AnyValue *value);

int pt_otlp_resource(struct pt_arena *a, const struct pt_otlp_who *who,
		     Otlp__Resource *r, Otlp__Scope *scope);

#endif
