/* SPDX-License-Identifier: BSD-2-Clause */
/* docs/report.schema.json says what report.def says.
 * test_report_schema --write: the file is written anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "report/fields.h"

#define FILE_NAME "docs/report.schema.json"

/* What no line of report.def says. */
static const char head[] =
	"{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\","
	"\"$id\": \"urn:pipetrace:report:1\","
	"\"title\": \"pipetrace report, version 1\","
	"\"description\": \"Seconds unless a name says _ms, _us, _ns or _per_min; shares 0..1; "
	"bytes plain. What was not observed is null, with an entry in capture.limits; never 0. "
	"Text that was not UTF-8 has \\\\xHH for each bad byte, doubled backslashes, and "
	"KEY_escaped: true beside KEY. More keys may be added. Made from "
	"user/report/report.def.\"}";
static const char base[] =
	"{\"number\": {\"type\": [\"number\", \"null\"]},"
	"\"amount\": {\"type\": [\"number\", \"null\"], \"minimum\": 0},"
	"\"share\": {\"type\": [\"number\", \"null\"], \"minimum\": 0, \"maximum\": 1},"
	"\"integer\": {\"type\": [\"integer\", \"null\"]},"
	"\"count\": {\"type\": [\"integer\", \"null\"], \"minimum\": 0},"
	"\"text\": {\"type\": [\"string\", \"null\"]},"
	"\"decimal\": {\"description\": \"a 64-bit value that a double cannot hold\","
	" \"type\": \"string\", \"pattern\": \"^(0|[1-9][0-9]{0,19})$\"},"
	"\"decimal_or_null\": {\"anyOf\": [{\"$ref\": \"#/$defs/decimal\"}, {\"type\": \"null\"}]},"
	"\"distribution\": {\"type\": [\"object\", \"null\"],"
	" \"required\": [\"mean\", \"std\", \"min\", \"p50\", \"p95\", \"p99\", \"max\", \"count\"],"
	" \"properties\": {\"mean\": {\"$ref\": \"#/$defs/number\"},"
	" \"std\": {\"$ref\": \"#/$defs/number\"}, \"min\": {\"$ref\": \"#/$defs/number\"},"
	" \"p50\": {\"$ref\": \"#/$defs/number\"}, \"p95\": {\"$ref\": \"#/$defs/number\"},"
	" \"p99\": {\"$ref\": \"#/$defs/number\"}, \"max\": {\"$ref\": \"#/$defs/number\"},"
	" \"count\": {\"type\": \"integer\", \"minimum\": 1}}},"
	"\"quantiles\": {\"type\": [\"object\", \"null\"], \"required\": [\"p50\", \"p95\"],"
	" \"properties\": {\"p50\": {\"$ref\": \"#/$defs/amount\"},"
	" \"p95\": {\"$ref\": \"#/$defs/amount\"}}},"
	"\"range\": {\"type\": \"object\", \"required\": [\"value\", \"low\", \"high\"],"
	" \"properties\": {\"value\": {\"$ref\": \"#/$defs/number\"},"
	" \"low\": {\"$ref\": \"#/$defs/number\"}, \"high\": {\"$ref\": \"#/$defs/number\"}}},"
	"\"part\": {\"type\": \"object\", \"required\": [\"seconds\", \"share\"],"
	" \"properties\": {\"seconds\": {\"$ref\": \"#/$defs/amount\"},"
	" \"share\": {\"$ref\": \"#/$defs/share\"}}},"
	"\"share_pair\": {\"description\": \"[low, high]\", \"type\": [\"array\", \"null\"],"
	" \"items\": {\"$ref\": \"#/$defs/share\"}, \"minItems\": 2, \"maxItems\": 2},"
	"\"counts\": {\"description\": \"lower and upper bound\", \"type\": [\"array\", \"null\"],"
	" \"items\": {\"$ref\": \"#/$defs/count\"}, \"minItems\": 2, \"maxItems\": 2},"
	"\"setting\": {\"type\": \"object\", \"required\": [\"value\", \"source\"],"
	" \"properties\": {\"value\": {\"type\": [\"string\", \"integer\", \"boolean\", \"null\"]},"
	" \"source\": {\"$ref\": \"#/$defs/text\"}, \"source_escaped\": {\"const\": true}}}}";
static const char *const specials[] = {
	[PT_S_hooks] = "{\"type\": \"object\", \"required\": [\"reads\", \"sched\", \"gpu\", "
		       "\"faults\"], \"additionalProperties\": {\"$ref\": \"#/$defs/text\"}}",
	[PT_S_hook_notes] = "{\"type\": \"object\","
			    " \"additionalProperties\": {\"type\": \"string\"}}",
	[PT_S_by_cause] = "{\"type\": \"object\","
			  " \"additionalProperties\": {\"$ref\": \"#/$defs/count\"}}",
	[PT_S_periods_ms] = "{\"type\": [\"array\", \"null\"], \"items\": {\"type\": \"number\","
			    " \"minimum\": 0}, \"minItems\": 1, \"maxItems\": 100000}",
	[PT_S_labels] = "{\"type\": \"object\","
			" \"additionalProperties\": {\"type\": \"string\"}}",
};

static json_t *parsed(const char *text)
{
	json_error_t e;
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);

	if (!j)
		fail_msg("%s", e.text);
	return j;
}

static json_t *ref(const char *name)
{
	return json_pack("{s:o}", "$ref", json_sprintf("#/$defs/%s", name));
}

/* The same without null. */
static json_t *never_null(const char *name)
{
	json_t *all = parsed(base), *type;
	json_t *o = json_deep_copy(json_object_get(all, name));

	type = json_array_get(json_object_get(o, "type"), 0);
	json_object_set(o, "type", type);
	if (!strcmp(name, "text"))
		json_object_set_new(o, "minLength", json_integer(1));
	json_decref(all);
	return o;
}

/* One of the names, up to n or a NULL behind the last. */
static json_t *one_of(const char *const *name, int n, bool null)
{
	json_t *a = json_array();
	int i;

	for (i = 0; n ? i < n : name[i] != NULL; i++)
		if (name[i])
			json_array_append_new(a, json_string(name[i]));
		else
			null = true;
	if (null)
		json_array_append_new(a, json_null());
	return json_pack("{s:o}", "enum", a);
}

static const struct pt_field *object(json_t *o, json_t *defs,
				     const struct pt_field *f);

static const char *row_name(json_t *defs, const struct pt_row *r)
{
	json_t *o;

	if (!json_object_get(defs, r->name)) {
		o = json_pack("{s:s}", "type", "object");
		object(o, defs, r->fields);
		json_object_set_new(defs, r->name, o);
	}
	return r->name;
}

static json_t *array(json_t *items, bool null)
{
	json_t *type = null ? json_pack("[s,s]", "array", "null") :
			      json_string("array");

	return json_pack("{s:o,s:o}", "type", type, "items", items);
}

static json_t *property(json_t *defs, const struct pt_field *f)
{
	static const char *const same[] = {
		[PT_FIELD_NUMBER64] = "decimal",   [PT_FIELD_SHARES] = "share_pair",
		[PT_FIELD_COUNTS] = "counts",	   [PT_FIELD_DIST] = "distribution",
		[PT_FIELD_QUANTILES] = "quantiles", [PT_FIELD_RANGE] = "range",
		[PT_FIELD_PART] = "part",	   [PT_FIELD_SETTING] = "setting",
		[PT_FIELD_SPECIAL] = NULL,
	};

	switch (f->cls) {
	case PT_FIELD_REAL:
	case PT_FIELD_INT:
		return f->needed ? never_null(f->measure->schema) :
				   ref(f->measure->schema);
	case PT_FIELD_NUMBER32:
		return json_pack("{s:s,s:i}", "type", "integer", "minimum", 0);
	case PT_FIELD_BOOL:
		return f->names ? one_of(f->names->name, f->names->n, false) :
				  json_pack("{s:s}", "type", "boolean");
	case PT_FIELD_TRI:
		return json_pack("{s:[s,s]}", "type", "boolean", "null");
	case PT_FIELD_TEXT:
		return f->set ? one_of(f->set, 0, !f->needed) :
		       f->needed ? never_null("text") : ref("text");
	case PT_FIELD_ENUM:
		return one_of(f->names->name, f->names->n, false);
	case PT_FIELD_OBJ:
		return f->first ? json_pack("{s:[o,{s:s}]}", "anyOf",
					    ref(row_name(defs, f->row())), "type",
					    "null") :
				  ref(row_name(defs, f->row()));
	case PT_FIELD_ROWS:
		return array(ref(row_name(defs, f->row())), f->empty_null);
	case PT_FIELD_NAMES:
		return array(one_of(f->set, 0, false), true);
	case PT_FIELD_NAMES_IN:
		return array(json_pack("{s:s}", "type", "string"), false);
	case PT_FIELD_NONE:
		return ref(f->schema);
	case PT_FIELD_SPECIAL:
		return parsed(specials[f->special]);
	default:
		return ref(same[f->cls]);
	}
}

static void describe(json_t *p, const struct pt_field *f)
{
	static const char since[] = "absent in reports of version 0.1.0 and before";

	if (*f->doc || f->later)
		json_object_set_new(p, "description",
				    json_sprintf("%s%s%s", f->doc,
						 *f->doc && f->later ? "; " : "",
						 f->later ? since : ""));
}

/* Into the object's schema: its properties, and which it must have. */
static const struct pt_field *fields(json_t *all, json_t *required, json_t *defs,
				     const struct pt_field *f)
{
	const struct pt_field *next;
	json_t *p;

	for (; f->cls != PT_FIELD_END && f->cls != PT_FIELD_CLOSE; f = next) {
		next = f + 1;
		if (f->cls == PT_FIELD_KNOWN || f->hidden)
			continue;
		if (f->cls == PT_FIELD_FLAT) {
			fields(all, required, defs, f->row()->fields);
			continue;
		}
		if (f->cls == PT_FIELD_OPEN) {
			p = f->first ? json_pack("{s:[s,s]}", "type", "object", "null") :
				       json_pack("{s:s}", "type", "object");
			next = object(p, defs, f + 1);
		} else {
			p = property(defs, f);
		}
		describe(p, f);
		assert_int_equal(json_object_set_new(all, f->key, p), 0);
		if (!f->later && !f->on_demand)
			json_array_append_new(required, json_string(f->key));
		if (f->cls == PT_FIELD_TEXT && !f->set) {
			char flag[64];

			snprintf(flag, sizeof(flag), "%s_escaped", f->key);
			json_object_set_new(all, flag,
					    json_pack("{s:b}", "const", 1));
		}
	}
	return f + 1;
}

static const struct pt_field *object(json_t *o, json_t *defs,
				     const struct pt_field *f)
{
	json_t *all = json_object(), *required = json_array();
	const struct pt_field *behind = fields(all, required, defs, f);

	json_object_set_new(o, "required", required);
	json_object_set_new(o, "properties", all);
	return behind;
}

static json_t *schema(void)
{
	json_t *o = parsed(head), *defs = parsed(base);
	json_t *all = json_pack("{s:{s:s},s:{s:s}}", "schema", "const",
				PT_REPORT_SCHEMA, "tool", "const", "pipetrace");
	json_t *required = json_pack("[s,s]", "schema", "tool");

	fields(all, required, defs, pt_row_report()->fields);
	json_object_set_new(o, "type", json_string("object"));
	json_object_set_new(o, "required", required);
	json_object_set_new(o, "properties", all);
	json_object_set_new(o, "$defs", defs);
	return o;
}

/* What fits stands on one line. */
static void print(FILE *f, const json_t *v, size_t indent)
{
	char *line = json_dumps(v, JSON_ENCODE_ANY);
	const char *key;
	json_t *sub;
	size_t i, n = 0;

	if (indent + strlen(line) <= 98 || json_is_string(v)) {
		fputs(line, f);
	} else if (json_is_array(v)) {
		fputs("[", f);
		json_array_foreach(v, i, sub) {
			fprintf(f, "%s\n%*s", i ? "," : "", (int)indent + 2, "");
			print(f, sub, indent + 2);
		}
		fprintf(f, "\n%*s]", (int)indent, "");
	} else {
		fputs("{", f);
		json_object_foreach((json_t *)v, key, sub) {
			fprintf(f, "%s\n%*s\"%s\": ", n++ ? "," : "",
				(int)indent + 2, "", key);
			print(f, sub, indent + 2);
		}
		fprintf(f, "\n%*s}", (int)indent, "");
	}
	free(line);
}

static void the_file_says_the_same(void **state)
{
	json_t *o = schema(), *is = json_load_file(FILE_NAME, 0, NULL);

	(void)state;
	if (!json_equal(o, is))
		fail_msg("%s is not what report.def says: write it anew by "
			 "build/tests/test_report_schema --write", FILE_NAME);
	json_decref(o);
	json_decref(is);
}

/* Every column has a place of its own, and none is left out. */
static void columns(const struct pt_field *f, uint64_t *taken)
{
	unsigned i, n;

	for (; f->cls != PT_FIELD_END; f++) {
		n = !f->place ? 0 :
		    f->cls == PT_FIELD_RANGE ? 3 :
		    f->cls == PT_FIELD_SHARES || f->cls == PT_FIELD_PART ? 2 :
		    f->stats ? (unsigned)__builtin_popcount(f->stats) : 1;
		for (i = 0; i < n; i++) {
			assert_false(*taken >> (f->place + i) & 1);
			*taken |= 1ull << (f->place + i);
		}
		if (f->table)
			columns(f->row()->fields, taken);
	}
}

static void columns_have_their_places(void **state)
{
	static const char *const rows[] = { "report", "step", "charge", "worker",
					    "file", "disk", "write", "peer", "rank",
					    "verdict", "evidence", "operation",
					    "gpu", "point" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t taken = 0, first = 2;

		columns(pt_row_find(rows[i])->fields, &taken);
		if (!strcmp(rows[i], "verdict") || !strcmp(rows[i], "evidence"))
			first = 4; /* behind the verdict's place */
		/* one unbroken run of bits: no carry is left over */
		if (!(taken & first) || taken & (first - 1) ||
		    taken & (taken + first))
			fail_msg("columns of %s: %#llx", rows[i],
				 (unsigned long long)taken);
	}
}

/* A new figure of a row that is made of several parts': how are they joined? */
static void joins_are_said(void **state)
{
	static const char *const rows[] = { "worker", "operation", "file", "pattern",
					    "disk", "write", "peer",
					    "alloc_failure" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct pt_field *f = pt_row_find(rows[i])->fields;

		for (; f->cls != PT_FIELD_END; f++) {
			bool figure = f->cls == PT_FIELD_REAL || f->cls == PT_FIELD_INT;
			bool sum = f->cls == PT_FIELD_DIST && f->join == PT_ROW_JOIN_SUM;
			bool last = f->cls == PT_FIELD_ENUM &&
				    (f->join == PT_ROW_JOIN_MOST || f->join == PT_ROW_JOIN_LAST);

			if (f->cls <= PT_FIELD_KNOWN || f->cls == PT_FIELD_NONE)
				continue;
			if (!f->join)
				fail_msg("%s of a %s has no JOIN", f->key, rows[i]);
			if (f->join != PT_ROW_JOIN_SAME && f->join != PT_ROW_JOIN_ANEW &&
			    !figure && !sum && !last)
				fail_msg("nobody joins %s of a %s so", f->key, rows[i]);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_file_says_the_same),
		cmocka_unit_test(joins_are_said),
		cmocka_unit_test(columns_have_their_places),
	};
	json_t *all;
	FILE *f;

	if (argc < 2 || strcmp(argv[1], "--write"))
		return cmocka_run_group_tests(tests, NULL, NULL);
	f = fopen(FILE_NAME, "w");
	if (!f)
		return 1;
	all = schema();
	print(f, all, 0);
	json_decref(all);
	return fputs("\n", f) == EOF || fclose(f);
}
