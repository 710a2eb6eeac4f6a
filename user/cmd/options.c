// SPDX-License-Identifier: BSD-2-Clause
#include <argp.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/options.h"
#include "report/report.h"
#include "version.h"

enum { /* options without a letter */
	K_JSON = 0x100,
	K_BATCH,
	K_STEPS,
	K_FAIL,
	K_MODE,
	K_NOMULTI,
	K_CUPTI,
	K_READS,
	K_MARKER,
	K_RAW,
	K_ASCII,
	K_LABEL,
	K_REGRESSION,
	K_THRESHOLD,
	K_SORT,
	K_TOP,
	K_FORCE,
	K_EXPORT, /* and one for each format */
};

#define COMMON                                                                 \
	{ "quiet", 'q', NULL, 0, "Say only what went wrong", 20 },             \
	{ "verbose", 'v', NULL, 0, "Say more", 20 },                           \
	{ "ascii", K_ASCII, NULL, 0, "Draw with ASCII only", 20 },             \
	{ "help", 'h', NULL, 0, "Show this help", 21 },                        \
	{ "version", 'V', NULL, 0, "Show the version", 21 },                   \
	{ NULL, 0, NULL, 0, NULL, 0 }
#define TARGET(text) { "pid", 'p', "PID[,PID]", 0, text, 1 }
#define LABEL                                                                  \
	{ "label", K_LABEL, "KEY=VALUE", 0,                                    \
	  "Store what this run is called in the report, for diff; may be "     \
	  "given several times", 3 }
#define RENDER                                                                 \
	{ "json", K_JSON, "FILE", 0,                                           \
	  "Write the report as JSON to FILE; - is standard output, with no "   \
	  "text there", 3 },                                                   \
	{ "batch-size", K_BATCH, "N", 0, "Samples per batch, for samples/s", 3 }, \
	{ "print-steps", K_STEPS, "N", 0, "Print the first N steps", 3 },      \
	{ "sort", K_SORT, "KEY", 0,                                            \
	  "List the operations by total (default), calls, mean, max, gpu, "    \
	  "cpu or name", 3 },                                                  \
	{ "top", K_TOP, "N", 0,                                                \
	  "List the first N operations (default 10); 0: all", 3 },             \
	{ "threshold", K_THRESHOLD, "NAME=VALUE", 0,                           \
	  "Decide a verdict by another value than the default; may be given "  \
	  "several times (names: pipetrace(8))", 3 },                          \
	{ "fail-on", K_FAIL, "SEVERITY", 0,                                    \
	  "Exit with 3 when a verdict is info, warning or critical", 3 }

#define OUTPUT                                                                 \
	{ "output", 'o', "FILE", 0,                                            \
	  "Record the capture in FILE, for `pipetrace report FILE`", 3 }
#define MODE                                                                   \
	{ "mode", K_MODE, "MODE", 0, "light, standard (default) or full", 2 }
#define CUPTI                                                                  \
	{ "cupti", K_CUPTI, NULL, 0,                                           \
	  "Exact GPU times: load an agent into the job for the time of the "   \
	  "trace, which asks CUPTI; without it they are bounded", 2 }
#define MARKER                                                                 \
	{ "step-marker", K_MARKER, "[LIBRARY:]FUNCTION", 0,                    \
	  "Each call of this function of the job begins a step; by default "   \
	  "steps are found without a marker", 2 }

static const struct argp_option trace_options[] = {
	TARGET("Trace these processes and all their descendants"),
	{ "duration", 'd', "SEC|auto", 0,
	  "Stop after SEC seconds; auto: after 20 steps or 120 s (default: at "
	  "Ctrl-C or when the job ends)", 2 },
	MODE,
	CUPTI,
	MARKER,
	OUTPUT,
	RENDER,
	LABEL,
	{ NULL, 0, NULL, 0, "For developers of pipetrace:", 10 },
	{ "raw-stream", K_RAW, "FILE", 0,
	  "Also store the record stream; its format may change at any time",
	  10 },
	{ "no-uprobe-multi", K_NOMULTI, NULL, 0,
	  "Attach through perf events even where multi-uprobe links work", 10 },
	{ "reads", K_READS, "DOOR", 0,
	  "Take this door to read calls: fexit, kprobe, pages, syscall, none; "
	  "auto (default) takes the first that opens", 10 },
	COMMON
};

static const struct argp_option record_options[] = {
	TARGET("Record these processes and all their descendants"),
	{ "duration", 'd', "SEC", 0,
	  "Stop after SEC seconds (default: at Ctrl-C or when the job ends)",
	  2 },
	MODE,
	CUPTI,
	MARKER,
	OUTPUT,
	LABEL,
	COMMON
};

static const struct argp_option report_options[] = {
	{ "raw-stream", K_RAW, "FILE", 0,
	  "Replay a record stream that a trace stored; for developers, its "
	  "format may change at any time", 1 },
	RENDER,
	LABEL,
	COMMON
};

static const struct argp_option diff_options[] = {
	{ "json", K_JSON, "FILE", 0,
	  "Write the comparison as JSON to FILE; - is standard output, with no "
	  "text there", 1 },
	{ "batch-size", K_BATCH, "N", 0,
	  "Samples per batch of every capture that does not say it", 1 },
	{ "fail-on-regression", K_REGRESSION, "PCT", 0,
	  "Exit with 3 when a later capture has PCT percent less throughput "
	  "than the first, and that is more than noise", 1 },
	COMMON
};

#define FORMAT(name, format, out, text)                                        \
	{ name, K_EXPORT + PT_EXPORT_##format, out, 0, text, 1 }
static const struct argp_option export_options[] = {
	FORMAT("perfetto", PERFETTO, "FILE", "A trace for ui.perfetto.dev"),
	FORMAT("chrome", CHROME, "FILE",
	       "Chrome's trace events (JSON), as torch.profiler writes them"),
	FORMAT("csv", CSV, "DIR", "A new folder with a CSV file for each table"),
	FORMAT("sqlite", SQLITE, "FILE", "A database of the same tables"),
	FORMAT("folded", FOLDED, "FILE",
	       "Time off the CPU as folded stacks, for flame graphs"),
	{ "force", K_FORCE, NULL, 0, "Replace files that exist", 2 },
	{ "batch-size", K_BATCH, "N", 0, "Samples per batch, for samples/s", 2 },
	COMMON
};

static const struct argp_option target_options[] = {
	TARGET("Also look at this job"), COMMON
};

static const struct argp_option plain_options[] = { COMMON };

int pt_parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;
	long long v;

	/* strtoll would take blanks and signs that nobody means */
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*out = v;
	return 0;
}

int pt_parse_seconds(const char *text, double *out)
{
	char *end;
	double v;

	if (text[strspn(text, "0123456789.")] || !*text)
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || *end || !isfinite(v) || v <= 0 ||
	    v > 366.0 * 24 * 3600)
		return -EINVAL;
	*out = v;
	return 0;
}

int pt_parse_pids(const char *text, pid_t *out, size_t max)
{
	char one[16];
	size_t len, n = 0, i;
	int64_t v;

	for (;; text += len + 1) {
		len = strcspn(text, ",");
		if (!len || len >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, len);
		one[len] = '\0';
		/* the kernel's largest pid_max is 2^22 */
		if (pt_parse_int(one, 1, 1 << 22, &v))
			return -EINVAL;
		for (i = 0; i < n && out[i] != (pid_t)v; i++)
			;
		if (i == n) {
			if (n == max)
				return -EINVAL;
			out[n++] = (pid_t)v;
		}
		if (!text[len])
			return (int)n;
	}
}

int pt_parse_percent(const char *text, double *out)
{
	char *end;
	double v;

	if (text[strspn(text, "0123456789.%")] || !*text)
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || (*end && strcmp(end, "%")) || !(v <= 100))
		return -EINVAL;
	*out = v / 100;
	return 0;
}

int pt_parse_label(const char *text)
{
	size_t key = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "abcdefghijklmnopqrstuvwxyz0123456789_-./");
	const char *c = text + key;

	if (!key || key > 64 || *c++ != '=' || strlen(c) > 256)
		return -EINVAL;
	for (; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return -EINVAL;
	return 0;
}

int pt_parse_marker(const char *text)
{
	const char *colon = strchr(text, ':');
	const char *name = colon ? colon + 1 : text;
	size_t i, n = strlen(text);

	if (!*name || colon == text || strchr(name, ':') || n > 512)
		return -EINVAL;
	for (i = 0; i < n; i++)
		if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f)
			return -EINVAL;
	return 0;
}

int pt_opts_label(const struct pt_opts *o, struct pt_report *r)
{
	char key[65];
	size_t i, n;
	int ret = 0;

	for (i = 0; i < o->n_labels && !ret; i++) {
		n = strcspn(o->labels[i], "=");
		memcpy(key, o->labels[i], n);
		key[n] = '\0';
		ret = pt_report_label(r, key, o->labels[i] + n + 1);
	}
	return ret;
}

static int parse_mode(const char *text, enum pt_mode *out)
{
	enum pt_mode m;

	for (m = PT_MODE_LIGHT; m <= PT_MODE_FULL; m++) {
		if (!strcmp(text, pt_mode_name(m))) {
			*out = m;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_severity(const char *text, int *out)
{
	int s;

	for (s = PT_INFO; s <= PT_CRITICAL; s++) {
		if (!strcmp(text, pt_severity_name((enum pt_severity)s))) {
			*out = s;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_sort(const char *text, enum pt_op_sort *out)
{
	int s;

	for (s = 0; s < PT_SORT_NR; s++) {
		if (!strcmp(text, pt_op_sort_name((enum pt_op_sort)s))) {
			*out = (enum pt_op_sort)s;
			return 0;
		}
	}
	return -EINVAL;
}

static error_t reject(const char *what, const char *arg, const char *want)
{
	pt_error("%s takes %s, not \"%s\" (see pipetrace --help)", what, want,
		 arg);
	return EINVAL;
}

static error_t parse_value(int key, char *arg, struct pt_opts *o)
{
	int64_t v;
	int n;

	switch (key) {
	case 'p':
		n = pt_parse_pids(arg, o->pids, PT_MAX_PIDS);
		if (n < 0)
			return reject("-p", arg, "process ids like 1234 or "
						 "1234,1235");
		o->n_pids = (size_t)n;
		return 0;
	case 'd':
		o->auto_duration = !strcmp(arg, "auto");
		if (!o->auto_duration && pt_parse_seconds(arg, &o->duration))
			return reject("-d", arg, "seconds above 0, or auto");
		return 0;
	case K_BATCH:
		if (pt_parse_int(arg, 1, 1000000000, &o->batch_size))
			return reject("--batch-size", arg, "a whole number "
							   "above 0");
		return 0;
	case K_STEPS:
		if (pt_parse_int(arg, 0, 1000000, &v))
			return reject("--print-steps", arg, "a whole number");
		o->print_steps = (int)v;
		return 0;
	case K_SORT:
		if (parse_sort(arg, &o->sort))
			return reject("--sort", arg, "total, calls, mean, max, "
						     "gpu, cpu or name");
		o->operations = true;
		return 0;
	case K_TOP:
		if (pt_parse_int(arg, 0, 1000000, &v))
			return reject("--top", arg, "a whole number");
		o->top = v ? (int)v : -1;
		o->operations = true;
		return 0;
	case K_FAIL:
		if (parse_severity(arg, &o->fail_on))
			return reject("--fail-on", arg, "info, warning or "
							"critical");
		return 0;
	case K_LABEL:
		if (pt_parse_label(arg))
			return reject("--label", arg,
				      "KEY=VALUE, the key of letters, digits "
				      "and _-./");
		if (o->n_labels == PT_LABELS_MAX) {
			pt_error("more than %d labels", PT_LABELS_MAX);
			return EINVAL;
		}
		o->labels[o->n_labels++] = arg;
		return 0;
	case K_THRESHOLD:
		return pt_opts_threshold(o, arg) ? EINVAL : 0;
	case K_REGRESSION:
		if (pt_parse_percent(arg, &o->fail_on_regression))
			return reject("--fail-on-regression", arg,
				      "percent from 0 to 100");
		return 0;
	case K_MODE:
		if (parse_mode(arg, &o->mode))
			return reject("--mode", arg, "light, standard or full");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* What argp itself would print goes nowhere: a second line, after getopt's
 * sentence or ours. */
static FILE *hush(struct argp_state *state)
{
	FILE *null = fopen("/dev/null", "we");

	if (null)
		state->err_stream = null;
	return null;
}

struct parse {
	struct pt_opts *o;
	FILE *null;
	const struct argp *argp;
	bool files; /* arguments are files */
};

static error_t take_argument(const struct parse *p, char *arg)
{
	if (!p->files) {
		pt_error("unexpected argument \"%s\": to start and trace a "
			 "command, write -- before it",
			 arg);
		return EINVAL;
	}
	if (p->o->n_files == PT_MAX_FILES) {
		pt_error("more than %d files", PT_MAX_FILES);
		return EINVAL;
	}
	p->o->files[p->o->n_files++] = arg;
	return 0;
}

static error_t take_name(const char *option, char *arg, const char **to)
{
	if (!*arg)
		return reject(option, arg, "the name of a file");
	*to = arg;
	return 0;
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;
	struct pt_opts *o = p->o;

	switch (key) {
	case ARGP_KEY_INIT:
		p->null = hush(state);
		return 0;
	case ARGP_KEY_ARG:
		return take_argument(p, arg);
	case 'h':
		o->help = true;
		argp_help(p->argp, stdout,
			  ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG |
				  ARGP_HELP_DOC,
			  (char *)"pipetrace");
		return ECANCELED;
	case 'V':
		o->version = true;
		printf("pipetrace %s\n", PT_VERSION);
		return ECANCELED;
	case 'q':
		o->loud = PT_QUIET;
		return 0;
	case 'v':
		o->loud = PT_VERBOSE;
		return 0;
	case K_ASCII:
		o->ascii = true;
		return 0;
	case K_JSON:
		return take_name("--json", arg, &o->json);
	case K_RAW:
		return take_name("--raw-stream", arg, &o->raw_stream);
	case 'o':
		return take_name("-o", arg, &o->output);
	case K_MARKER:
		if (pt_parse_marker(arg))
			return reject("--step-marker", arg,
				      "a function's symbol, or "
				      "LIBRARY:FUNCTION");
		o->step_marker = arg;
		return 0;
	case K_FORCE:
		o->force = true;
		return 0;
	case K_EXPORT ... K_EXPORT + PT_EXPORT_NR - 1:
		return take_name("an output", arg,
				 &o->export_to[key - K_EXPORT]);
	case K_CUPTI:
		o->cupti = true;
		return 0;
	case K_READS:
		if (pt_reads_parse(arg, &o->reads))
			return reject("--reads", arg, "auto, fexit, kprobe, "
				      "pages, syscall or none");
		return 0;
	case K_NOMULTI:
		o->no_uprobe_multi = true;
		return 0;
	default:
		return parse_value(key, arg, o);
	}
}

bool pt_locale_is_utf8(void)
{
	return setlocale(LC_CTYPE, "") &&
	       !strcmp(nl_langinfo(CODESET), "UTF-8");
}

int pt_opts_parse(struct pt_opts *o, enum pt_optset set, const char *doc,
		  int argc, char **argv)
{
	static const struct argp_option *const sets[] = {
		[PT_OPTS_TRACE] = trace_options,
		[PT_OPTS_RECORD] = record_options,
		[PT_OPTS_REPORT] = report_options,
		[PT_OPTS_DIFF] = diff_options,
		[PT_OPTS_EXPORT] = export_options,
		[PT_OPTS_TARGET] = target_options,
		[PT_OPTS_PLAIN] = plain_options,
	};
	static const char *const args[] = {
		[PT_OPTS_TRACE] = "-p PID[,PID]\n-- CMD [ARG...]",
		[PT_OPTS_RECORD] = "record -p PID[,PID] -o FILE\n"
				   "record -o FILE -- CMD [ARG...]",
		[PT_OPTS_REPORT] = "report FILE",
		[PT_OPTS_DIFF] = "diff BEFORE AFTER [MORE...]",
		[PT_OPTS_EXPORT] = "export --FORMAT OUT... FILE",
		[PT_OPTS_PLAIN] = NULL,
	};
	bool starts = set == PT_OPTS_TRACE || set == PT_OPTS_RECORD;
	struct argp argp = { .options = sets[set],
			     .parser = parse_one,
			     .args_doc = args[set],
			     .doc = doc };
	struct parse p = { .o = o, .argp = &argp,
			   .files = set == PT_OPTS_DIFF ||
				    set == PT_OPTS_REPORT ||
				    set == PT_OPTS_EXPORT };
	bool utf8 = pt_locale_is_utf8();
	error_t err;
	int i, n = argc;

	memset(o, 0, sizeof(*o));
	o->mode = PT_MODE_STANDARD;
	o->fail_on = -1;
	o->fail_on_regression = NAN;
	o->thresholds = pt_thresholds_default;
	pt_log_init(PT_NORMAL, utf8);
	/* a command to start is not ours to look into */
	for (i = 1; starts && i < argc; i++) {
		if (!strcmp(argv[i], "--")) {
			o->cmd = argv + i + 1;
			n = i;
			break;
		}
	}
	err = argp_parse(&argp, n, argv,
			 ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER, NULL, &p);
	if (p.null)
		fclose(p.null);
	if (o->ascii)
		utf8 = false;
	pt_log_init(o->loud, utf8);
	o->ascii = !utf8;
	return err && err != ECANCELED ? -EINVAL : 0;
}
