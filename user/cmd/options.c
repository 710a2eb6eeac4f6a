// SPDX-License-Identifier: BSD-2-Clause
#include <argp.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/opttable.h"
#include "report/fields.h"
#include "report/rowsort.h"
#include "version.h"

static int find_name(const char *const *names, int n, const char *name)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -EINVAL;
}

/* "KEY" of the operations, or "files:KEY", "workers:KEY". */
static int parse_sort(const char *text, struct pt_opts *o)
{
	int s;

	if (!strncmp(text, "files:", 6)) {
		o->file_sort = find_name(pt_file_sorts, PT_FILE_SORTS, text + 6);
		return o->file_sort < 0 ? -EINVAL : 0;
	}
	if (!strncmp(text, "workers:", 8)) {
		o->worker_sort = find_name(pt_worker_sorts, PT_WORKER_SORTS,
					   text + 8);
		return o->worker_sort < 0 ? -EINVAL : 0;
	}
	for (s = 0; s < PT_SORT_NR; s++) {
		if (!strcmp(text, pt_op_sort_name((enum pt_op_sort)s))) {
			o->sort = (enum pt_op_sort)s;
			o->operations = true;
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
	uint64_t ns;
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
		if (parse_sort(arg, o))
			return reject("--sort", arg, "total, calls, mean, max, "
				      "gpu, cpu or name, files:KEY or "
				      "workers:KEY");
		return 0;
	case K_TOP:
		if (pt_parse_int(arg, 0, 1000000, &v))
			return reject("--top", arg, "a whole number");
		o->top = v ? (int)v : -1;
		o->operations = true;
		return 0;
	case K_FAIL:
		o->fail_on = pt_enum_find(&pt_enum_severity, arg);
		if (o->fail_on < 0)
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
	case K_INTERVAL:
		if (pt_parse_seconds(arg, &o->interval_s) || o->interval_s < 0.5)
			return reject("--interval", arg,
				      "seconds, at least 0.5");
		return 0;
	case K_LAST:
		if (pt_parse_seconds(arg, &o->last_s) || o->last_s < 1 ||
		    o->last_s > 600)
			return reject("--last", arg, "seconds from 1 to 600");
		return 0;
	case K_WHEN:
		if (o->n_when == PT_WHEN_MAX) {
			pt_error("more than %d conditions", PT_WHEN_MAX);
			return EINVAL;
		}
		if (pt_parse_when(arg, &o->when[o->n_when++]))
			return reject("--when", arg, PT_WHEN_FORMS);
		return 0;
	case K_KEEP:
		if (pt_parse_span(arg, &ns) || ns < 2000000000ull || ns > 600000000000ull)
			return reject("--keep", arg, "a time from 2s to 10m");
		o->last_s = (double)ns / 1e9;
		return 0;
	case K_COOLDOWN:
		if (pt_parse_span(arg, &o->cooldown_ns))
			return reject("--cooldown", arg, "a time like 1m or 30s");
		return 0;
	case K_WARMUP:
		if (pt_parse_int(arg, 3, 1000000, &o->warmup))
			return reject("--warmup", arg, "a whole number of steps from 3 on");
		return 0;
	case K_MAXWINDOWS:
		if (pt_parse_int(arg, 1, 100000, &o->max_windows))
			return reject("--max-windows", arg, "a whole number above 0");
		return 0;
	case K_MAXBYTES:
		if (pt_parse_size(arg, &o->max_bytes))
			return reject("--max-bytes", arg, "64K or more, like 500M or 2G");
		return 0;
	case K_MEMORY:
		if (pt_parse_size(arg, &o->memory) || o->memory < 4u << 20 ||
		    o->memory > 1ull << 36)
			return reject("--memory", arg, "4M to 64G");
		return 0;
	case K_THRESHOLD:
		return pt_opts_threshold(o, arg) ? EINVAL : 0;
	case K_REGRESSION:
		if (pt_parse_percent(arg, &o->fail_on_regression))
			return reject("--fail-on-regression", arg,
				      "percent from 0 to 100");
		return 0;
	case K_BUDGET:
		if (pt_parse_percent(arg, &o->budget) || !(o->budget > 0))
			return reject("--budget", arg, "percent above 0, like 0.5%");
		return 0;
	case K_SINCE:
		if (pt_parse_span(arg, &ns) || ns < 10000000000ull)
			return reject("--since", arg, "a time like 1h or 90s, at least 10s");
		o->fleet.window_s = (double)ns / 1e9;
		return 0;
	case K_JOBS:
		if (pt_parse_int(arg, 1, PT_FLEET_TOP_MAX, &v))
			return reject("--top", arg, "a number from 1 to 1000");
		o->fleet.top = (size_t)v;
		return 0;
	case K_RANK:
		n = find_name(pt_fleet_sorts, PT_FLEET_SORTS, arg);
		if (n < 0)
			return reject("--sort", arg, "wasted, share or gpu");
		o->fleet.sort = (enum pt_fleet_sort)n;
		return 0;
	case K_TIMEOUT:
		if (pt_parse_seconds(arg, &o->server.timeout_s))
			return reject("--timeout", arg, "seconds above 0");
		return 0;
	case K_MODE:
		if (pt_mode_parse(arg, &o->mode))
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
	bool files;  /* arguments are files */
	bool starts; /* what is behind -- is started */
};

static error_t take_argument(const struct parse *p, char *arg)
{
	if (!p->files) {
		pt_error("unexpected argument \"%s\"%s", arg,
			 p->starts ? ": to start and trace a command, write -- before it" :
				     " (see pipetrace --help)");
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
	int64_t v;

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
	case K_SUMMARY:
		return take_name("--summary", arg, &o->summary);
	case K_RAW:
		return take_name("--raw-stream", arg, &o->raw_stream);
	case K_PIECE:
		if (pt_parse_int(arg, 4096, INT64_C(1) << 40, &v))
			return reject("--piece-bytes", arg, "bytes");
		o->piece_bytes = (uint64_t)v;
		return 0;
	case 'o':
		return take_name("-o", arg, &o->output);
	case K_MARKER:
		if (pt_parse_marker(arg))
			return reject("--step-marker", arg,
				      "a function's symbol, or "
				      "LIBRARY:FUNCTION");
		o->step_marker = arg;
		return 0;
	case K_WINDOW:
		if (pt_parse_window(arg, &o->from_ns, &o->until_ns))
			return reject("--window", arg,
				      "times like 12s..20s or 500ms..");
		return 0;
	case K_RANGE:
		if (pt_parse_steps(arg, &o->first_step, &o->last_step))
			return reject("--steps", arg,
				      "steps like 100..200 or 100..");
		o->by_steps = true;
		return 0;
	case K_AT:
		if (pt_parse_at(arg, &o->at_ns, &o->at_aligned))
			return reject("--at", arg, "+30s or /10s");
		return 0;
	case K_MAXSIZE:
		if (pt_parse_size(arg, &o->max_size))
			return reject("--max-size", arg,
				      "64K or more, like 500M or 2G");
		return 0;
	case K_SCHEDULE:
		if (pt_parse_schedule(arg, &o->schedule))
			return reject("--schedule", arg,
				      "wait=10s,warmup=2s,active=10s,repeat=3");
		return 0;
	case K_CONFIG:
		return take_name("--config", arg, &o->config);
	case K_LISTEN:
		return take_name("--listen", arg, &o->listen);
	case K_CHECK:
		o->check = true;
		return 0;
	case K_URL:
		return take_name("--prometheus", arg, &o->server.url);
	case K_TOKEN:
		return take_name("--token-file", arg, &o->server.token_file);
	case K_CA:
		return take_name("--ca", arg, &o->server.ca);
	case K_FORCE:
		o->force = true;
		return 0;
	case K_EXPORT ... K_EXPORT + PT_EXPORT_NR - 1:
		return take_name("an output", arg,
				 &o->export_to[key - K_EXPORT]);
	case K_FORMAT:
		return take_name("--format", arg, &o->format);
	case K_CUPTI:
		o->cupti = true;
		return 0;
	case K_READS:
		if (pt_reads_parse(arg, &o->reads))
			return reject("--reads", arg, "auto, fexit, kprobe, "
				      "pages, syscall or none");
		return 0;
	case K_NOADOPT:
		o->no_adopt = true;
		return 0;
	case K_NOPYTHON:
		o->no_python = true;
		return 0;
	case K_NOGPU:
		o->no_gpu_probes = true;
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
	bool starts = set == PT_OPTS_TRACE || set == PT_OPTS_RECORD;
	struct argp argp = { .options = pt_opts_tables[set],
			     .parser = parse_one,
			     .args_doc = pt_opts_arguments[set],
			     .doc = doc };
	struct parse p = { .o = o, .argp = &argp, .starts = starts,
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
	o->file_sort = o->worker_sort = -1;
	o->interval_s = 2;
	o->last_s = 10;
	o->memory = 64u << 20;
	if (set == PT_OPTS_WATCH) {
		o->mode = PT_MODE_LIGHT;
		o->last_s = 30;
		o->memory = 256u << 20;
		o->warmup = 20;
		o->cooldown_ns = 60000000000ull;
		o->max_windows = 50;
		o->max_bytes = 1u << 30;
	}
	o->server.timeout_s = 60;
	o->fleet = (struct pt_fleet_ask){ .window_s = 3600, .top = 20 };
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

bool pt_opts_done(struct pt_opts *o, enum pt_optset set, const char *doc, int argc,
		  char **argv, int *status)
{
	int err = pt_opts_parse(o, set, doc, argc, argv);

	if (err || o->help || o->version)
		*status = err ? PT_EXIT_USAGE : PT_EXIT_OK;
	return err || o->help || o->version;
}

static void list_thresholds(char *out, size_t size)
{
	size_t i, at = 0;

	for (i = 0; i < pt_threshold_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "",
				       pt_threshold_defs[i].name);
}

int pt_opts_threshold(struct pt_opts *o, const char *text)
{
	const struct pt_threshold_def *d;
	char names[1024];
	int ret = pt_threshold_set(&o->thresholds, text, &d);

	if (ret == -ENOENT) {
		list_thresholds(names, sizeof(names));
		pt_error("there is no threshold \"%.*s\"; there are: %s",
			 (int)strcspn(text, "="), text, names);
	} else if (ret) {
		pt_error("--threshold %s takes a number from %g to %g (%s; the "
			 "default is %g), as in %s=%g",
			 d->name, d->low, d->high, d->unit, d->value, d->name,
			 d->value);
	}
	return ret ? -EINVAL : 0;
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
