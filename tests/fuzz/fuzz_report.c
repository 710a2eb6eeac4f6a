/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report: a JSON report. What is read is written, read and written again, which gives
 * the same text (report/readjson.h), told, and compared with itself.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/compare/compare.h"
#include "report/json.h"
#include "report/readjson.h"
#include "stream_case.h"
#include "view/export.h"
#include "view/text/text.h"

static const struct pt_text_opts opts = { .width = 80, .verbose = true };

static void compare(const struct pt_report *r)
{
	const struct pt_d_source src[2] = { { "a", false, r }, { "b", false, r } };
	FILE *out = fopen("/dev/null", "w");
	struct pt_diff *d;

	if (!out)
		abort();
	if (!pt_compare(src, 2, &d)) {
		FUZZ_HOLDS(!pt_diff_json(d, out, 0));
		FUZZ_HOLDS(!pt_diff_text(d, out, &opts));
		pt_diff_free(d);
	}
	fclose(out);
}

static char *again(const char *text)
{
	struct pt_report *r = pt_report_new();
	struct pt_read_error why = { "" };
	char *s;

	if (!r)
		abort();
	if (pt_report_read_json(text, strlen(text), r, &why)) {
		fprintf(stderr, "%s\n", why.text);
		FUZZ_HOLDS(!"what was written is read");
	}
	s = case_json(r);
	pt_report_free(r);
	return s;
}

void report_run(const uint8_t *data, size_t size)
{
	struct pt_report *r = pt_report_new();
	struct pt_read_error why = { "" };
	char *text = fuzz_text(data, size), *first, *second;
	FILE *out;

	if (!r)
		abort();
	if (pt_report_read_json(text, size, r, &why)) {
		FUZZ_HOLDS(why.text[0]);
		goto out;
	}
	first = case_json(r);
	second = again(first);
	FUZZ_HOLDS(!strcmp(first, second));
	free(first);
	free(second);
	if (size % 8 == 0) /* it takes longest */
		compare(r);
	out = fopen("/dev/null", "w");
	if (!out)
		abort();
	FUZZ_HOLDS(!pt_report_text(r, out, &opts));
	fclose(out);
out:
	pt_report_free(r);
	free(text);
}

static void seed(const char *name, const struct pt_report *r, size_t steps)
{
	const struct pt_json_opts o = { .steps = steps };
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f || pt_report_json(r, f, &o) || fclose(f))
		abort();
	fuzz_seed_changed(name, text, len, steps ? 0 : 200);
	free(text);
}

void report_seeds(void)
{
	static const struct pt_r_hook hooks[] = { { "gpu", "uprobe", NULL },
						  { "reads", "none", "they are not seen" } };
	static const struct pt_r_loss lost[] = { { "ring", 3 }, { "map_full", 1 } };
	struct job_opts o = job_defaults();
	struct st_case c;

	o.batch_ns = 8 * ST_MS;
	o.launches = 3;
	o.kernel_ns = 400 * ST_US;
	o.run_s_x10 = 2;
	o.mix[JOB_DISK] = 0.4;
	o.mix[JOB_LOCK] = 0.2;
	case_open(&c, &o, 20 * ST_MS, 150 * ST_MS);
	if (pt_report_label(c.r, "job", "4711\xff"))
		abort();
	c.r->host.driver = "of \xff";
	c.r->capture.hooks = hooks;
	c.r->capture.n_hooks = 2;
	c.r->capture.lost = lost;
	c.r->capture.n_lost = 2;
	seed("steps", c.r, 40);
	seed("job", c.r, 2);
	/* without what there are many of */
	c.r->capture.n_limits = c.r->n_files = 0;
	c.r->n_operations = c.r->n_phases = c.r->n_whatif = 1;
	seed("short", c.r, 0);
	case_close(&c);
	fuzz_seed_text("diff", "{\"schema\": \"pipetrace.diff/1\"}");
	fuzz_seed_text("other", "{\"schema\": \"pipetrace.report/99\"}");
	fuzz_seed_text("array", "[1, 2]");
	fuzz_seed_text("no-json", "{\"schema\": \"pipetrace");
}
