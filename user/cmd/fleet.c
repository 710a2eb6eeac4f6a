// SPDX-License-Identifier: BSD-2-Clause
/* The jobs of many nodes, ranked by the GPU time that they waste. */
#include <errno.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/outfile.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "fleet/fleet.h"

static const char doc[] =
	"The jobs of a fleet, ranked by the GPU time that they waste; ranks that are "
	"slower than their peers; the mounts that reads wait for. Asks a Prometheus "
	"that scrapes the agents of the nodes (`pipetrace agent`). Exit status: 0 "
	"answered, 1 failed, 2 bad usage.";

/* It would be read by whoever is on the way. */
static void warn_of_token(const struct pt_prometheus_options *server)
{
	const char *url = server->url;

	if (server->token_file && !strncmp(url, "http://", 7) &&
	    strncmp(url + 7, "localhost", 9) && strncmp(url + 7, "127.", 4) &&
	    strncmp(url + 7, "[::1]", 5))
		pt_note("the token goes over the network unencrypted: use an https "
			"URL");
}

static int show(const struct pt_fleet *f, const struct pt_opts *o, struct pt_outfile *json)
{
	struct pt_text_opts t = { .color = pt_want_color(), .unicode = !o->ascii,
				  .width = pt_terminal_width() };
	int ret = 0;

	if (!json->f || !json->is_stdout)
		ret = pt_fleet_text(f, stdout, &t);
	if (ret)
		return pt_fail(ret, "cannot write to standard output: %s", strerror(-ret));
	return json->f ? pt_outfile_end(json, "the fleet", pt_fleet_json(f, json->f)) : 0;
}

int pt_cmd_fleet(int argc, char **argv)
{
	struct pt_outfile json = { .dir = -1 };
	struct pt_prometheus *p = NULL;
	struct pt_fleet f = { 0 };
	struct pt_err err = { "" };
	int status, ret;
	char why[512] = "";
	struct pt_opts o;

	if (pt_opts_done(&o, PT_OPTS_FLEET, doc, argc, argv, &status))
		return status;
	if (!o.server.url)
		return pt_fail(PT_EXIT_USAGE,
			       "fleet needs a server: --prometheus URL, like http://localhost:9090");
	if (pt_give_up(PT_RIGHTS_NET, 0))
		return PT_EXIT_FAILED;
	warn_of_token(&o.server);
	ret = pt_prometheus_open(&o.server, &p, why, sizeof(why));
	if (ret)
		return pt_fail(ret == -EINVAL ? PT_EXIT_USAGE : PT_EXIT_FAILED, "%s", why);
	status = PT_EXIT_FAILED;
	if (o.json && pt_outfile_open(&json, o.json, &err))
		pt_error("%s", err.msg);
	else if (pt_fleet_collect(p, &o.fleet, &f, why, sizeof(why)))
		pt_error("cannot ask %s: %s", o.server.url, why);
	else if (!show(&f, &o, &json))
		status = PT_EXIT_OK;
	pt_outfile_abandon(&json);
	pt_fleet_free(&f);
	pt_prometheus_close(p);
	return status;
}
