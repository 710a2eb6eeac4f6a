// SPDX-License-Identifier: BSD-2-Clause
#include <argp.h>
#include <errno.h>
#include <float.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stddef.h>
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

/* ---- what an option sets -------------------------------------------------------- */

enum kind { FLAG, NAME, WHOLE, SECONDS, PERCENT, SIZE, SPAN, OWN };

struct value {
	int key;
	enum kind kind;
	size_t at; /* in struct pt_opts; of OWN, see take_own() */
	double low, high; /* of a figure */
	const char *want;
};

#define AT(member) offsetof(struct pt_opts, member)
#define A_FLAG(key, member) { key, FLAG, AT(member), 0, 0, NULL }
#define A_NAME(key, member) { key, NAME, AT(member), 0, 0, "the name of a file" }
#define AN_OWN(key, want) { key, OWN, 0, 0, 0, want }

static const struct value values[] = {
	A_FLAG(K_ASCII, ascii),
	A_FLAG(K_CHECK, check),
	A_FLAG(K_FORCE, force),
	A_FLAG(K_CUPTI, cupti),
	A_FLAG(K_NOADOPT, no_adopt),
	A_FLAG(K_NOPYTHON, no_python),
	A_FLAG(K_NOGPU, no_gpu_probes),
	A_FLAG(K_NOMULTI, no_uprobe_multi),
	A_NAME(K_JSON, json),
	A_NAME(K_SUMMARY, summary),
	A_NAME(K_RAW, raw_stream),
	A_NAME('o', output),
	A_NAME(K_FORMAT, format),
	A_NAME(K_CONFIG, config),
	A_NAME(K_LISTEN, listen),
	A_NAME(K_URL, server.url),
	A_NAME(K_TOKEN, server.token_file),
	A_NAME(K_CA, server.ca),
	{ K_BATCH, WHOLE, AT(batch_size), 1, 1e9, "a whole number above 0" },
	{ K_STEPS, WHOLE, AT(print_steps), 0, 1e6, "a whole number" },
	{ K_WARMUP, WHOLE, AT(warmup), 3, 1e6, "a whole number of steps from 3 on" },
	{ K_MAXWINDOWS, WHOLE, AT(max_windows), 1, 1e5, "a whole number above 0" },
	{ K_JOBS, WHOLE, AT(fleet.top), 1, PT_FLEET_TOP_MAX, "a number from 1 to 1000" },
	{ K_PIECE, WHOLE, AT(piece_bytes), 4096, 0x1p40, "bytes" },
	{ K_INTERVAL, SECONDS, AT(interval_s), 0.5, INFINITY, "seconds, at least 0.5" },
	{ K_LAST, SECONDS, AT(last_s), 1, 600, "seconds from 1 to 600" },
	{ K_TIMEOUT, SECONDS, AT(server.timeout_s), 0, INFINITY, "seconds above 0" },
	{ K_REGRESSION, PERCENT, AT(fail_on_regression), 0, 1, "percent from 0 to 100" },
	{ K_BUDGET, PERCENT, AT(budget), DBL_MIN, 1, "percent above 0, like 0.5%" },
	{ K_MAXSIZE, SIZE, AT(max_size), 0, INFINITY, "64K or more, like 500M or 2G" },
	{ K_MAXBYTES, SIZE, AT(max_bytes), 0, INFINITY, "64K or more, like 500M or 2G" },
	{ K_MEMORY, SIZE, AT(memory), 0x1p22, 0x1p36, "4M to 64G" },
	{ K_COOLDOWN, SPAN, AT(cooldown_s), 0, INFINITY, "a time like 1m or 30s" },
	{ K_KEEP, SPAN, AT(last_s), 2, 600, "a time from 2s to 10m" },
	{ K_SINCE, SPAN, AT(fleet.window_s), 10, INFINITY,
	  "a time like 1h or 90s, at least 10s" },
	AN_OWN('p', "process ids like 1234 or 1234,1235"),
	AN_OWN('d', "seconds above 0, or auto"),
	AN_OWN(K_SORT, "total, calls, mean, max, gpu, cpu or name, files:KEY or workers:KEY"),
	AN_OWN(K_TOP, "a whole number"),
	AN_OWN(K_FAIL, "info, warning or critical"),
	AN_OWN(K_LABEL, "KEY=VALUE, the key of letters, digits and _-./"),
	AN_OWN(K_WHEN, PT_WHEN_FORMS),
	AN_OWN(K_THRESHOLD, NULL),
	AN_OWN(K_RANK, "wasted, share or gpu"),
	AN_OWN(K_MODE, "light, standard or full"),
	AN_OWN(K_READS, "auto, fexit, kprobe, pages, syscall or none"),
	AN_OWN(K_MARKER, "a function's symbol, or LIBRARY:FUNCTION"),
	AN_OWN(K_WINDOW, "times like 12s..20s or 500ms.."),
	AN_OWN(K_RANGE, "steps like 100..200 or 100.."),
	AN_OWN(K_AT, "+30s or /10s"),
	AN_OWN(K_SCHEDULE, "wait=10s,warmup=2s,active=10s,repeat=3"),
};

enum { TOLD = 1 }; /* it is wrong, and that was said */

static int too_many(int n, const char *what)
{
	return pt_fail(TOLD, "more than %d %s", n, what);
}

static int take_figure(const struct value *v, const char *arg, void *at)
{
	uint64_t ns;
	double x;
	int err;

	switch (v->kind) {
	case WHOLE:
		return pt_parse_int(arg, (int64_t)v->low, (int64_t)v->high, at);
	case SIZE:
		err = pt_parse_size(arg, at);
		x = err ? NAN : (double)*(uint64_t *)at;
		break;
	case SPAN:
		err = pt_parse_span(arg, &ns);
		x = err ? NAN : (double)ns / 1e9;
		*(double *)at = x;
		break;
	default:
		err = v->kind == SECONDS ? pt_parse_seconds(arg, at) : pt_parse_percent(arg, at);
		x = err ? NAN : *(double *)at;
		break;
	}
	return x >= v->low && x <= v->high ? 0 : -EINVAL;
}

static void list_thresholds(char *out, size_t size)
{
	size_t i, at = 0;

	for (i = 0; i < pt_threshold_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%s", i ? " " : "",
				       pt_threshold_defs[i].name);
}

/* "NAME=VALUE". 0 or TOLD. */
static int take_threshold(struct pt_opts *o, const char *text)
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
	return ret ? TOLD : 0;
}

/* 0, -EINVAL or TOLD. */
static int take_own(int key, char *arg, struct pt_opts *o)
{
	int64_t v = 0;
	int n;

	switch (key) {
	case 'p':
		n = pt_parse_pids(arg, o->pids, PT_MAX_PIDS);
		o->n_pids = n < 0 ? 0 : (size_t)n;
		return n < 0 ? n : 0;
	case 'd':
		o->auto_duration = !strcmp(arg, "auto");
		return o->auto_duration ? 0 : pt_parse_seconds(arg, &o->duration);
	case K_SORT:
		return parse_sort(arg, o);
	case K_TOP:
		n = pt_parse_int(arg, 0, 1000000, &v);
		o->top = v ? (int)v : -1;
		o->operations = true;
		return n;
	case K_FAIL:
		o->fail_on = pt_enum_find(&pt_enum_severity, arg);
		return o->fail_on < 0 ? -EINVAL : 0;
	case K_LABEL:
		if (pt_parse_label(arg))
			return -EINVAL;
		if (o->n_labels == PT_LABELS_MAX)
			return too_many(PT_LABELS_MAX, "labels");
		o->labels[o->n_labels++] = arg;
		return 0;
	case K_WHEN:
		if (o->n_when == PT_WHEN_MAX)
			return too_many(PT_WHEN_MAX, "conditions");
		return pt_parse_when(arg, &o->when[o->n_when++]);
	case K_THRESHOLD:
		return take_threshold(o, arg);
	case K_RANK:
		n = find_name(pt_fleet_sorts, PT_FLEET_SORTS, arg);
		o->fleet.sort = (enum pt_fleet_sort)n;
		return n < 0 ? n : 0;
	case K_MODE:
		return pt_mode_parse(arg, &o->mode);
	case K_READS:
		return pt_reads_parse(arg, &o->reads);
	case K_MARKER:
		o->step_marker = arg;
		return pt_parse_marker(arg);
	case K_WINDOW:
		return pt_parse_window(arg, &o->from_ns, &o->until_ns);
	case K_RANGE:
		o->by_steps = true;
		return pt_parse_steps(arg, &o->first_step, &o->last_step);
	case K_AT:
		return pt_parse_at(arg, &o->at_ns, &o->at_aligned);
	default:
		return pt_parse_schedule(arg, &o->schedule);
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
	if (!p->files)
		return pt_fail(EINVAL, "unexpected argument \"%s\"%s", arg,
			       p->starts ? ": to start and trace a command, write -- before it" :
			       " (see pipetrace --help)");
	if (p->o->n_files == PT_MAX_FILES)
		return pt_fail(EINVAL, "more than %d files", PT_MAX_FILES);
	p->o->files[p->o->n_files++] = arg;
	return 0;
}

/* As the command's user writes it. */
static const char *option_name(const struct argp *argp, int key, char out[32])
{
	const struct argp_option *o;

	if (key < K_JSON) {
		snprintf(out, 32, "-%c", key);
		return out;
	}
	for (o = argp->options; o->key != key; o++)
		;
	snprintf(out, 32, "--%s", o->name);
	return out;
}

static error_t take_value(const struct parse *p, int key, char *arg)
{
	static const struct value output = A_NAME(0, export_to);
	bool exported = key >= K_EXPORT && key < K_EXPORT + PT_EXPORT_NR;
	const struct value *v = exported ? &output : values;
	char *at, name[32];
	int err = 0;

	for (; !exported && v->key != key; v++)
		if (v == &values[sizeof(values) / sizeof(*values) - 1])
			return ARGP_ERR_UNKNOWN;
	at = (char *)p->o + v->at;
	if (v->kind == OWN)
		err = take_own(key, arg, p->o);
	else if (v->kind == FLAG)
		*(bool *)at = true;
	else if (v->kind == NAME)
		err = *arg ? 0 : -EINVAL;
	else
		err = take_figure(v, arg, at);
	if (v->kind == NAME)
		((const char **)(void *)at)[exported ? key - K_EXPORT : 0] = arg;
	if (err < 0)
		pt_error("%s takes %s, not \"%s\" (see pipetrace --help)",
			 exported ? "an output" : option_name(p->argp, key, name), v->want, arg);
	return err ? EINVAL : 0;
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		p->null = hush(state);
		return 0;
	case ARGP_KEY_ARG:
		return take_argument(p, arg);
	case 'h':
		p->o->help = true;
		argp_help(p->argp, stdout,
			  ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG |
				  ARGP_HELP_DOC,
			  (char *)"pipetrace");
		return ECANCELED;
	case 'V':
		p->o->version = true;
		printf("pipetrace %s\n", PT_VERSION);
		return ECANCELED;
	case 'q':
	case 'v':
		p->o->loud = key == 'q' ? PT_QUIET : PT_VERBOSE;
		return 0;
	default:
		return take_value(p, key, arg);
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
		o->cooldown_s = 60;
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
