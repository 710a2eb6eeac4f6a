/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Changes to a JSON document that leave it one: a value becomes another one of it, or
 * an odd one, goes, or comes twice. libFuzzer's own changes leave few documents whole.
 */
#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
			put(to, json_integer(json_integer_value(to->value) + r % 21 - 10));
		else if (json_is_real(to->value))
			put(to, json_real(-json_real_value(to->value)));
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
	static struct slot *v;
	json_t *doc = NULL;
	char *text = NULL;
	size_t len = 0;

	if (!v)
		v = malloc(SLOTS * sizeof(*v));
	if (v && fuzz_is_json() && seed % 8)
		doc = json_loadb((const char *)data, size, 0, NULL);
	if (doc) {
		change(doc, v, seed);
		text = json_dumps(doc, JSON_COMPACT);
		len = text ? strlen(text) : 0;
	}
	if (len && len <= most)
		memcpy(data, text, len);
	else
		len = LLVMFuzzerMutate(data, size, most);
	free(text);
	json_decref(doc);
	return len;
}
