/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's metrics as text. */
#include "agent/prom.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/series.h"

struct out {
	FILE *f;
	bool openmetrics;
};

static void escaped(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '\\' || *s == '"')
			fprintf(f, "\\%c", *s);
		else if (*s == '\n')
			fputs("\\n", f);
		else
			fputc(*s, f);
	}
}

static void family(void *ctx, const struct pt_series_family *s)
{
	static const char *const type[] = {
		[PT_SERIES_GAUGE] = "gauge",
		[PT_SERIES_COUNTER] = "counter",
		[PT_SERIES_HISTOGRAM] = "histogram",
		[PT_SERIES_INFO] = "info",
	};
	const struct out *o = ctx;
	/* OpenMetrics names a family without the suffix of its samples; the older
	 * format knows neither that nor the type info. */
	const char *more = o->openmetrics		 ? "" :
			   s->type == PT_SERIES_COUNTER ? "_total" :
			   s->type == PT_SERIES_INFO	 ? "_info" :
							   "";

	fprintf(o->f, "# TYPE %s%s %s\n", s->name, more,
		s->type == PT_SERIES_INFO && !o->openmetrics ? "gauge" :
							      type[s->type]);
	if (s->unit && o->openmetrics)
		fprintf(o->f, "# UNIT %s %s\n", s->name, s->unit);
	fprintf(o->f, "# HELP %s%s %s\n", s->name, more, s->help);
}

static void sample(FILE *f, const char *name, const char *suffix,
		   const struct pt_series_point *p, const char *le, double x)
{
	const char *sep = "{";
	size_t i;

	fprintf(f, "%s%s", name, suffix);
	for (i = 0; i < p->n_labels; i++) {
		fprintf(f, "%s%s=\"", sep, p->label[i].name);
		escaped(f, p->label[i].value);
		fputc('"', f);
		sep = ",";
	}
	if (le) {
		fprintf(f, "%sle=\"%s\"", sep, le);
		sep = ",";
	}
	fprintf(f, "%s %.17g\n", *sep == ',' ? "}" : "", x);
}

static void histogram(FILE *f, const char *name, const struct pt_series_point *p)
{
	double sum = 0;
	size_t k;

	for (k = 0; k <= p->n_bounds; k++) {
		char le[24] = "+Inf";

		sum += p->count[k];
		if (k < p->n_bounds)
			snprintf(le, sizeof(le), "%.15g", p->bound[k]);
		sample(f, name, "_bucket", p, le, sum);
	}
	sample(f, name, "_sum", p, NULL, p->value);
	sample(f, name, "_count", p, NULL, sum);
}

static void point(void *ctx, const struct pt_series_family *s,
		  const struct pt_series_point *p)
{
	const struct out *o = ctx;

	if (s->type == PT_SERIES_HISTOGRAM)
		histogram(o->f, s->name, p);
	else
		sample(o->f, s->name,
		       s->type == PT_SERIES_COUNTER ? "_total" :
		       s->type == PT_SERIES_INFO    ? "_info" :
						      "",
		       p, NULL, p->value);
}

int pt_prom_write(FILE *f, const struct pt_prom_agent *a,
		  const struct pt_prom_job *jobs, size_t n, bool openmetrics)
{
	struct out o = { .f = f, .openmetrics = openmetrics };
	const struct pt_series_visitor v = { &o, family, point };
	int err = pt_series_visit(a, jobs, n, &v);

	if (err)
		return err;
	if (openmetrics)
		fputs("# EOF\n", f);
	return ferror(f) ? -EIO : 0;
}
