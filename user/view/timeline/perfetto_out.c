// SPDX-License-Identifier: BSD-2-Clause
/* Packets of a Perfetto trace, and texts that are sent once. */
#include "view/timeline/perfetto_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* ---- packets -------------------------------------------------------------- */

static size_t put_varint(uint8_t *to, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		to[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	to[n++] = (uint8_t)v;
	return n;
}

/* A member of Trace: its tag, its length, itself. */
int pt_pf_packet(struct perfetto *p, packet *pk)
{
	size_t n, head;

	pk->has_trusted_packet_sequence_id = 1;
	pk->trusted_packet_sequence_id = SEQUENCE;
	n = perfetto__protos__trace_packet__get_packed_size(pk);
	if (n + 16 > p->cap) {
		uint8_t *more = realloc(p->buf, (n + 16) * 2);

		if (!more)
			return -ENOMEM;
		p->buf = more;
		p->cap = (n + 16) * 2;
	}
	p->buf[0] = 1 << 3 | 2;
	head = 1 + put_varint(p->buf + 1, n);
	perfetto__protos__trace_packet__pack(pk, p->buf + head);
	errno = 0;
	if (fwrite(p->buf, head + n, 1, p->out) != 1)
		return errno ? -errno : -EIO;
	return 0;
}

/* ---- texts by number ------------------------------------------------------ */

void pt_pf_forget(struct perfetto *p)
{
	size_t i;

	for (i = 0; i < p->n_made; i++)
		free(p->made[i]);
	p->n_made = 0;
	p->fresh.n_event_names = p->fresh.n_event_categories = 0;
	p->fresh.n_debug_annotation_names = 0;
	p->fresh.n_debug_annotation_string_values = 0;
}

/* Tell of it in the next packet; each packet's arrays are long enough. */
static int tell(struct perfetto *p, enum pt_pf_space in, const char *raw,
		uint64_t iid)
{
	Perfetto__Protos__InternedData *f = &p->fresh;
	char *text = pt_str_utf8(raw, NULL);
	size_t i;

	if (!text)
		return -ENOMEM;
	p->made[p->n_made++] = text;
#define TELL(list, count)                                                      \
	i = f->count++;                                                        \
	p->list[i].has_iid = 1;                                                \
	p->list[i].iid = iid;                                                  \
	p->list[i].name = text;                                                \
	break
	switch (in) {
	case PT_PF_NAMES:
		TELL(names, n_event_names);
	case PT_PF_CATS:
		TELL(cats, n_event_categories);
	case PT_PF_KEYS:
		TELL(keys, n_debug_annotation_names);
	default:
		i = f->n_debug_annotation_string_values++;
		p->strs[i].has_iid = 1;
		p->strs[i].iid = iid;
		p->strs[i].has_str = 1;
		p->strs[i].str.data = (uint8_t *)text;
		p->strs[i].str.len = strlen(text);
		break;
	}
	return 0;
}

int pt_pf_number(struct perfetto *p, enum pt_pf_space in, const char *raw,
		 uint64_t *iid)
{
	struct seen *c = &p->cache[in][((uintptr_t)raw >> 3 ^
					(uintptr_t)raw >> 13) & (CACHE - 1)];
	size_t len;
	struct text *t;
	int err;

	if (c->at == raw) {
		*iid = c->iid;
		return 0;
	}
	len = strlen(raw);
	HASH_FIND(hh, p->texts[in], raw, len, t);
	if (!t) {
		t = malloc(sizeof(*t) + len + 1);
		if (!t)
			return -ENOMEM;
		memcpy(t->raw, raw, len + 1);
		t->iid = ++p->last_iid[in];
		HASH_ADD(hh, p->texts[in], raw[0], len, t);
		if (!PT_HASHED(t)) {
			free(t);
			return -ENOMEM;
		}
		err = tell(p, in, raw, t->iid);
		if (err)
			return err;
	}
	c->at = raw;
	c->iid = *iid = t->iid;
	return 0;
}

/* ---- events --------------------------------------------------------------- */

int pt_pf_event(struct perfetto *p, uint64_t ts, track_event *e)
{
	packet pk = PERFETTO__PROTOS__TRACE_PACKET__INIT;
	int err;

	pk.has_timestamp = 1;
	pk.timestamp = ts;
	pk.has_sequence_flags = 1;
	pk.sequence_flags = NEEDS_STATE;
	pk.track_event = e;
	if (p->n_made)
		pk.interned_data = &p->fresh;
	e->has_type = 1;
	e->has_track_uuid = 1;
	err = pt_pf_packet(p, &pk);
	pt_pf_forget(p);
	return err;
}
