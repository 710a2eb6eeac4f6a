// SPDX-License-Identifier: BSD-2-Clause
/* The jobs of many nodes, ranked by the GPU time that they waste. Its options have
 * nothing to do with those of a trace, so they are read here. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/outfile.h"
#include "cmd/session.h"
#include "fleet/fleet.h"
#include "version.h"

static const char doc[] =
	"The jobs of a fleet, ranked by the GPU time that they waste; ranks that are "
	"slower than their peers; the mounts that reads wait for. Asks a Prometheus "
	"that scrapes the agents of the nodes (`pipetrace agent`). Exit status: 0 "
	"answered, 1 failed, 2 bad usage.";

enum { K_URL = 0x100, K_SINCE, K_JSON, K_TOP, K_TOKEN, K_CA, K_SORT, K_TIMEOUT, K_ASCII };

static const struct argp_option options[] = {
	{ "prometheus", K_URL, "URL", 0, "The server, like http://localhost:9090", 1 },
	{ "since", K_SINCE, "TIME", 0, "Look at the last TIME (1h by default), at "
	  "least 10s", 2 },
	{ "top", K_TOP, "N", 0, "List the first N jobs (20 by default)", 2 },
	{ "sort", K_SORT, "KEY", 0, "By wasted (default), share of the job's own GPU "
	  "time, or gpu: GPU time", 2 },
	{ "json", K_JSON, "FILE", 0, "Write it as JSON to FILE; - is standard output, "
	  "with no text there", 3 },
	{ "token-file", K_TOKEN, "FILE", 0, "Send the bearer token in FILE", 4 },
	{ "ca", K_CA, "FILE", 0, "Trust the certificates in FILE (PEM)", 4 },
	{ "timeout", K_TIMEOUT, "SEC", 0, "Give up after SEC seconds (60 by default)", 4 },
	{ "ascii", K_ASCII, NULL, 0, "Draw with ASCII only", 20 },
	{ "help", 'h', NULL, 0, "Show this help", 21 },
	{ "version", 'V', NULL, 0, "Show the version", 21 },
	{ NULL, 0, NULL, 0, NULL, 0 }
};

struct asked {
	struct pt_prometheus_options server;
	struct pt_fleet_ask fleet;
	const char *json;
	bool ascii, done; /* done: help or version */
	const struct argp *argp;
	FILE *null;
};

static error_t reject(const char *what, const char *arg, const char *want)
{
	pt_error("%s takes %s, not \"%s\" (see pipetrace fleet --help)", what, want, arg);
	return EINVAL;
}

static error_t take_sort(struct asked *a, const char *arg)
{
	int i;

	for (i = 0; i < PT_FLEET_SORTS; i++) {
		if (strcmp(arg, pt_fleet_sorts[i]))
			continue;
		a->fleet.sort = (enum pt_fleet_sort)i;
		return 0;
	}
	return reject("--sort", arg, "wasted, share or gpu");
}

static error_t take_value(struct asked *a, int key, char *arg)
{
	uint64_t ns;
	int64_t v;

	switch (key) {
	case K_SINCE:
		if (pt_parse_span(arg, &ns) || ns < 10000000000ull)
			return reject("--since", arg, "a time like 1h or 90s, at least 10s");
		a->fleet.window_s = (double)ns / 1e9;
		return 0;
	case K_TOP:
		if (pt_parse_int(arg, 1, PT_FLEET_TOP_MAX, &v))
			return reject("--top", arg, "a number from 1 to 1000");
		a->fleet.top = (size_t)v;
		return 0;
	case K_TIMEOUT:
		if (pt_parse_seconds(arg, &a->server.timeout_s))
			return reject("--timeout", arg, "seconds above 0");
		return 0;
	case K_SORT:
		return take_sort(a, arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct asked *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT: /* getopt's sentence is enough */
		a->null = fopen("/dev/null", "we");
		if (a->null)
			state->err_stream = a->null;
		return 0;
	case ARGP_KEY_ARG:
		pt_error("unexpected argument \"%s\" (see pipetrace fleet --help)", arg);
		return EINVAL;
	case 'h':
		argp_help(a->argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG |
			  ARGP_HELP_DOC, (char *)"pipetrace");
		a->done = true;
		return ECANCELED;
	case 'V':
		printf("pipetrace %s\n", PT_VERSION);
		a->done = true;
		return ECANCELED;
	case K_URL:
		a->server.url = arg;
		return 0;
	case K_JSON:
		a->json = arg;
		return *arg ? 0 : reject("--json", arg, "the name of a file");
	case K_TOKEN:
		a->server.token_file = arg;
		return 0;
	case K_CA:
		a->server.ca = arg;
		return 0;
	case K_ASCII:
		a->ascii = true;
		return 0;
	default:
		return take_value(a, key, arg);
	}
}

/* It would be read by whoever is on the way. */
static void warn_of_token(const struct asked *a)
{
	const char *url = a->server.url;

	if (a->server.token_file && !strncmp(url, "http://", 7) &&
	    strncmp(url + 7, "localhost", 9) && strncmp(url + 7, "127.", 4) &&
	    strncmp(url + 7, "[::1]", 5))
		pt_note("the token goes over the network unencrypted: https is there "
			"for that");
}

static int show(const struct pt_fleet *f, const struct asked *a,
		struct pt_outfile *json)
{
	struct pt_text_opts t = { .color = pt_want_color(), .unicode = !a->ascii,
				  .width = pt_terminal_width() };
	int ret = 0;

	if (!json->f || !json->is_stdout)
		ret = pt_fleet_text(f, stdout, &t);
	if (ret) {
		pt_error("cannot write to standard output: %s", strerror(-ret));
		return ret;
	}
	return json->f ? pt_outfile_end(json, "the fleet", pt_fleet_json(f, json->f)) : 0;
}

int pt_cmd_fleet(int argc, char **argv)
{
	struct argp argp = { .options = options, .parser = parse_one, .doc = doc,
			     .args_doc = "fleet --prometheus URL" };
	struct asked a = { .argp = &argp, .server.timeout_s = 60,
			   .fleet = { .window_s = 3600, .top = 20 } };
	struct pt_outfile json = { .dir = -1 };
	struct pt_prometheus *p = NULL;
	struct pt_err err = { "" };
	int status = PT_EXIT_FAILED;
	struct pt_fleet f = { 0 };
	bool utf8 = pt_locale_is_utf8();
	char why[512] = "";
	error_t bad;

	pt_log_init(PT_NORMAL, utf8);
	bad = argp_parse(&argp, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP | ARGP_IN_ORDER,
			 NULL, &a);
	if (a.null)
		fclose(a.null);
	a.ascii |= !utf8;
	pt_log_init(PT_NORMAL, !a.ascii);
	if (bad)
		return a.done ? PT_EXIT_OK : PT_EXIT_USAGE;
	if (!a.server.url) {
		pt_error("which server? --prometheus URL, like http://localhost:9090");
		return PT_EXIT_USAGE;
	}
	warn_of_token(&a);
	bad = pt_prometheus_open(&a.server, &p, why, sizeof(why));
	if (bad) {
		pt_error("%s", why);
		return bad == -EINVAL ? PT_EXIT_USAGE : PT_EXIT_FAILED;
	}
	if (a.json && pt_outfile_open(&json, a.json, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	if (pt_fleet_collect(p, &a.fleet, &f, why, sizeof(why)))
		pt_error("cannot ask %s: %s", a.server.url, why);
	else if (!show(&f, &a, &json))
		status = PT_EXIT_OK;
out:
	pt_outfile_abandon(&json);
	pt_fleet_free(&f);
	pt_prometheus_close(p);
	return status;
}
