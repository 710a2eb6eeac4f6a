/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Changes that leave a JSON document, or a stream of records, one: a value becomes
 * another one of it, or an odd one, goes, or comes twice. libFuzzer's own changes leave
 * few of them whole.
 */
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/records.h"

#define SLOTS 20000

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
/* libFuzzer's; not there without it. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

struct slot { /* where a value is */
	json_t *in, *value;
	const char *key; /* of an object; NULL: an array's */
	size_t at;
};

static size_t slots_of(json_t *j, struct slot *v, size_t n)
{
	const char *key;
	json_t *x;
	size_t i;

	json_object_foreach(j, key, x) {
		if (n < SLOTS)
			v[n++] = (struct slot){ j, x, key, 0 };
		n = slots_of(x, v, n);
	}
	json_array_foreach(j, i, x) {
		if (n < SLOTS)
			v[n++] = (struct slot){ j, x, NULL, i };
		n = slots_of(x, v, n);
	}
	return n;
}

static json_t *odd(unsigned r)
{
	static const json_int_t numbers[] = { 0, 1, -1, 2, 1000, INT64_MAX, INT64_MIN,
					      1ll << 32 };
	static const char *const texts[] = { "", "x", "\\x80", "\\\\", "\\", "-1",
					     "18446744073709551615", "9", "unknown" };

	switch (r % 8) {
	case 0:
		return json_null();
	case 1:
		return json_boolean(r / 8 & 1);
	case 2:
		return json_array();
	case 3:
		return json_object();
	case 4:
		return json_real(r / 8 % 2 ? 1e14 : 0.5);
	case 5:
		return json_string(texts[r / 8 % 9]);
	default:
		return json_integer(numbers[r / 8 % 8]);
	}
}

static void put(const struct slot *to, json_t *value)
{
	if (to->key)
		json_object_set_new(to->in, to->key, value);
	else
		json_array_set_new(to->in, to->at, value);
}

static void change(json_t *doc, struct slot *v, unsigned seed)
{
	size_t n = slots_of(doc, v, 0);
	struct slot *to, *from;
	char name[64];
	unsigned r;

	if (!n)
		return;
	srand(seed);
	to = &v[(size_t)rand() % n];
	from = &v[(size_t)rand() % n];
	r = (unsigned)rand();
	switch (r % 7) {
	case 0:
	case 1:
		put(to, odd(r / 8));
		break;
	case 2:
		put(to, json_deep_copy(from->value));
		break;
	case 3:
		if (to->key)
			json_object_del(to->in, to->key);
		else
			json_array_remove(to->in, to->at);
		break;
	case 4:
		snprintf(name, sizeof(name), "%.50s_escaped", to->key ? to->key : "");
		if (to->key)
			json_object_set_new(to->in, name, json_true());
		else
			json_array_insert_new(to->in, to->at, json_deep_copy(to->value));
		break;
	case 5:
		if (json_is_object(to->value))
			json_object_set_new(to->value, from->key ? from->key : "new",
					    json_deep_copy(from->value));
		else if (json_is_array(to->value))
			json_array_append_new(to->value, json_deep_copy(from->value));
		break;
	default:
		if (json_is_integer(to->value))
			put(to, json_integer((json_int_t)(
					    (uint64_t)json_integer_value(to->value) + r % 21 - 10)));
		else if (json_is_real(to->value))
			put(to, json_real(-json_real_value(to->value)));
	}
}

size_t fuzz_change_json(uint8_t *data, size_t size, size_t most, unsigned seed)
{
	static struct slot v[SLOTS];
	json_t *doc = json_loadb((const char *)data, size, 0, NULL);
	char *text = NULL;
	size_t len = 0;

	if (doc) {
		change(doc, v, seed);
		text = json_dumps(doc, JSON_COMPACT);
		len = text ? strlen(text) : 0;
	}
	if (len <= most && len)
		memcpy(data, text, len);
	else
		len = 0;
	free(text);
	json_decref(doc);
	return len;
}

/* ---- records -------------------------------------------------------------------- */

#define RECORDS 4096

struct rec {
	size_t at;
	struct pt_hdr h;
};

/* A member of `to` becomes one of `from`, or a small number. */
static void change_member(uint8_t *data, const struct rec *to, const struct rec *from)
{
	const struct pt_rec_kind *k = pt_rec_kind(to->h.kind), *other = pt_rec_kind(from->h.kind);
	const struct pt_rec_line *l, *m;
	uint64_t value = (uint64_t)rand() % 9;
	unsigned n, i;

	if (!k || !other)
		return;
	l = k->lines(&n);
	i = n ? (unsigned)rand() % n : 0;
	if (!n || l[i].says != PT_SAYS_MEMBER || l[i].off + l[i].width > to->h.size)
		return;
	l += i;
	m = other->lines(&n);
	i = n ? (unsigned)rand() % n : 0;
	if (n && m[i].says == PT_SAYS_MEMBER && rand() % 2 &&
	    m[i].off + m[i].width <= from->h.size)
		memcpy(&value, data + from->at + m[i].off, m[i].width);
	memcpy(data + to->at + l->off, &value, l->width);
}

static size_t insert(uint8_t *data, size_t size, size_t most, size_t at, const void *rec,
		     size_t len)
{
	if (size + len > most)
		return size;
	memmove(data + at + len, data + at, size - at);
	memcpy(data + at, rec, len);
	return size + len;
}

size_t fuzz_change_records(uint8_t *data, size_t size, size_t most, unsigned seed)
{
	static struct rec v[RECORDS];
	const struct pt_rec_kind *k;
	union pt_rec_any copy;
	struct rec *to, *from;
	size_t n = 0, at;

	for (at = 0; n < RECORDS && pt_rec_head(data + at, size - at, &v[n].h);
	     at += v[n++].h.size)
		v[n].at = at;
	if (!n)
		return 0;
	srand(seed);
	to = &v[(size_t)rand() % n];
	from = &v[(size_t)rand() % n];
	memset(&copy, 0, sizeof(copy));
	switch (rand() % 6) {
	case 0:
		memmove(data + to->at, data + to->at + to->h.size,
			size - to->at - to->h.size);
		return size - to->h.size;
	case 1:
		memcpy(&copy, data + from->at, from->h.size);
		copy.hdr.ts = to->h.ts;
		return insert(data, size, most, to->at, &copy, from->h.size);
	case 2: /* of another kind */
		k = pt_rec_kind((uint16_t)(rand() % PT_REC_KINDS));
		if (!k)
			return 0;
		copy.hdr = to->h;
		copy.hdr.kind = k->number;
		copy.hdr.size = k->size;
		return insert(data, size, most, to->at, &copy, k->size);
	case 3: /* of another thread */
		to->h.tid = from->h.tid;
		to->h.tgid = from->h.tgid;
		to->h.flags = from->h.flags;
		memcpy(data + to->at, &to->h, sizeof(to->h));
		return size;
	default:
		change_member(data, to, from);
		return size;
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
	size_t len = 0;

	if (seed % 8 && fuzz_is_json())
		len = fuzz_change_json(data, size, most, seed);
	else if (seed % 8 && fuzz_is_records())
		len = fuzz_change_records(data, size, most, seed);
	return len ? len : LLVMFuzzerMutate(data, size, most);
}
