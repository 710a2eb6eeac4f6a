/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: the input is records back to back, as in a recorded stream
 * without its head. Fed to a model, analysed, rendered; the report must keep
 * what every report promises (case_trouble()).
 *
 * With libFuzzer: tests/fuzz/fuzz. With replay.c instead: tests/fuzz/run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analysis.h"
#include "stream_case.h"

#define SERIES_MAX 1000 /* a longer one only takes time to render */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(struct pt_model *m, const uint8_t *data, size_t size)
{
	struct pt_hdr h;

	while (size >= sizeof(h)) {
		memcpy(&h, data, sizeof(h));
		if (h.size < sizeof(h) || h.size > PT_REC_MAX) {
			pt_model_feed(m, data, size);
			return;
		}
		/* the last one may be cut off */
		pt_model_feed(m, data, size);
		if (h.size > size)
			return;
		data += h.size;
		size -= h.size;
	}
	pt_model_feed(m, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pt_analysis_opts o = { .batch_size = 32 };
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	struct pt_provisional live;
	const char *trouble;
	char buf[160];

	if (!m || !r)
		abort();
	feed(m, data, size / 2); /* a live look in the middle */
	pt_analyze_live(m, &o, UINT64_MAX, 500 * ST_MS, &live);
	feed(m, data + size / 2, size - size / 2);
	pt_model_trim(m, 1 << 20);
	if (pt_model_finish(m) || pt_analyze(m, &o, r)) {
		fprintf(stderr, "out of memory?\n");
		abort();
	}
	trouble = case_trouble(r, buf, sizeof(buf));
	if (trouble) {
		fprintf(stderr, "promise broken: %s\n", trouble);
		abort();
	}
	if (r->n_series < SERIES_MAX)
		free(case_json(r));
	pt_report_free(r);
	pt_model_free(m);
	return 0;
}
