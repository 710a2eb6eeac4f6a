/* SPDX-License-Identifier: BSD-2-Clause */
/* gpujob: options, and the loop that does what a plan says. */
#include "gpujob_lane.h"

#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull

volatile sig_atomic_t stop;
struct gj_plan plan;
struct gj_gpu gpu;
static uint64_t begin_ns, length_ns, then_ns; /* then: of the last phase */

static struct lane lanes[GJ_DEVICES];

uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

/* ---- the loop ---------------------------------------------------------------------- */

static const struct gj_phase *phase_now(void)
{
	uint64_t t = clock_ns(CLOCK_MONOTONIC) - begin_ns;

	if (t >= length_ns + then_ns)
		stop = 1;
	return &plan.phase[plan.phases > 1 && t >= length_ns / 2];
}

/* A thread with a device of its own. */
static void *lane_main(void *arg)
{
	struct lane *l = arg;

	while (!stop && !l->err) {
		l->phase = phase_now();
		if (!plan.set_once)
			l->err = gpu.set_device((int)l->device);
		gap(l);
		if (!l->err)
			l->err = submit(l);
		if (!l->err)
			l->err = synchronise(l);
		l->step++;
	}
	return NULL;
}

/* One thread for all devices: every device is given its work before the
 * first is waited for. */
static int switching(void)
{
	int err = 0;

	while (!stop && !err) {
		for (unsigned i = 0; i < plan.devices && !err; i++) {
			struct lane *l = &lanes[i];

			l->phase = phase_now();
			if (!i)
				gap(l);
			if (plan.devices > 1)
				err = gpu.set_device((int)i);
			if (!err)
				err = submit(l);
			l->step++;
		}
		for (unsigned i = 0; i < plan.devices && !err; i++) {
			if (plan.devices > 1)
				err = gpu.set_device((int)i);
			if (!err)
				err = synchronise(&lanes[i]);
		}
	}
	return err;
}

/* ---- set-up -------------------------------------------------------------------------- */

/* By the thread that will use it. */
static int open_lane(struct lane *l)
{
	int err = gpu.set_device((int)l->device);

	if (plan.kind == GJ_S_THREAD)
		l->streams[0] = cudaStreamPerThread;
	for (unsigned i = plan.kind == GJ_S_DEFAULT || plan.kind == GJ_S_THREAD;
	     i < plan.streams && !err; i++)
		err = gpu.stream_new(&l->streams[i],
				     plan.kind == GJ_S_NONBLOCKING ?
					     cudaStreamNonBlocking :
					     cudaStreamDefault);
	for (unsigned i = 0; i < plan.streams && !err; i++)
		err = gpu.event_new(&l->joined[i], cudaEventDisableTiming);
	if (!err)
		err = gpu.event_new(&l->done, cudaEventDisableTiming);
	if (!err)
		err = gpu.event_new(&l->fork, cudaEventDisableTiming);
	if (!err)
		err = gpu.malloc(&l->dev, BUFFER);
	l->host = malloc(BUFFER);
	l->item = malloc(4096);
	if (!l->host || !l->item)
		return -ENOMEM;
	if (!err && plan.pinned)
		err = gpu.pin(l->host, BUFFER, 0);
	if (!err && plan.pinned)
		err = gpu.pin(l->item, 4096, 0);
	if (!err && plan.graph)
		err = make_graphs(l);
	l->phase = &plan.phase[0];
	return err ? err : start_helper(l);
}

static void *thread_main(void *arg)
{
	struct lane *l = arg;

	l->err = open_lane(l);
	return lane_main(l);
}

static int run(void)
{
	int err = 0;

	if (plan.threads) {
		for (unsigned i = 0; i < plan.devices; i++)
			if (pthread_create(&lanes[i].thread, NULL, thread_main,
					   &lanes[i]))
				return -EAGAIN;
		for (unsigned i = 0; i < plan.devices; i++) {
			pthread_join(lanes[i].thread, NULL);
			err = err ? err : lanes[i].err;
		}
	} else {
		for (unsigned i = 0; i < plan.devices && !err; i++)
			err = open_lane(&lanes[i]);
		if (!err)
			err = switching();
	}
	for (unsigned i = 0; i < plan.devices; i++)
		stop_helper(&lanes[i]);
	return err;
}

/* What of the plan the device itself has to know, before it is opened. */
static void set_environment(void)
{
	static const char *const how[] = { "block", "spin", "yield" };
	char n[16];

	snprintf(n, sizeof(n), "%u", plan.devices);
	setenv("PT_SIM_DEVICES", n, 1);
	snprintf(n, sizeof(n), "%u", plan.queue);
	setenv("PT_SIM_QUEUE", n, 1);
	setenv("PT_SIM_CONCURRENT", plan.concurrent ? "1" : "0", 1);
	setenv("PT_SIM_SYNC", how[plan.sync_how], 1);
}

struct options {
	uint64_t seed;
	double seconds, then;
	int api;
	bool dry;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	char *end = NULL;

	switch (key) {
	case 's':
		o->seed = strtoull(arg, &end, 10);
		break;
	case 't':
		o->seconds = strtod(arg, &end);
		if (!(o->seconds > 0 && o->seconds <= 3600))
			argp_error(state, "seconds must be above 0, at most 3600");
		break;
	case 'T':
		o->then = strtod(arg, &end);
		if (!(o->then >= 0 && o->then <= 3600))
			argp_error(state, "not 0..3600 s: %s", arg);
		break;
	case 'a':
		for (o->api = 0; o->api < GJ_API_NR; o->api++)
			if (!strcmp(arg, gj_api_name((enum gj_api_kind)o->api)))
				return 0;
		argp_error(state, "no such library: %s", arg);
		break;
	case 'n':
		o->dry = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	if (end && *end)
		argp_error(state, "not a number: %s", arg);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "seed", 's', "N", 0, "decides everything (1)", 0 },
		{ "seconds", 't', "S", 0, "how long; SIGTERM ends it too (3)", 0 },
		{ "then", 'T', "S", 0, "go on with the last phase for so long (0)", 0 },
		{ "api", 'a', "NAME", 0, "runtime, over, driver or hip (drawn)", 0 },
		{ "dry-run", 'n', NULL, 0, "only say what would be done", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		options, parse, NULL,
		"A random GPU program on the simulated GPU. Prints what it drew "
		"as one JSON line, and how many steps it did as another.",
		NULL, NULL, NULL,
	};
	struct sigaction sa = { .sa_handler = on_signal };
	struct options o = { .seed = 1, .seconds = 3, .api = -1 };
	uint64_t rng;
	int err = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	gj_draw(&plan, o.seed, o.api);
	if (plan.phases == 1)
		plan.phase[1] = plan.phase[0];
	gj_print(&plan, stdout);
	fflush(stdout);
	if (o.dry)
		return 0;
	rng = ~o.seed;
	length_ns = (uint64_t)(o.seconds * 1e9);
	then_ns = (uint64_t)(o.then * 1e9);
	sigaction(SIGTERM, &sa, NULL); /* no restart: it ends a blocked read */
	sigaction(SIGINT, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < plan.devices && !err; i++) {
		lanes[i].device = i;
		lanes[i].rng = gj_rand(&rng);
		if (plan.phase[0].gap == GJ_FEEDER ||
		    plan.phase[1].gap == GJ_FEEDER)
			err = start_feeder(&lanes[i]);
	}
	set_environment();
	begin_ns = clock_ns(CLOCK_MONOTONIC);
	if (!err)
		err = gj_gpu_open(&gpu, plan.api, plan.devices);
	if (!err)
		err = run();
	if (err) {
		fprintf(stderr, "gpujob: error %d\n", err);
		return 1;
	}
	printf("{\"end\": true, \"steps\": %llu}\n",
	       (unsigned long long)lanes[0].step);
	return 0;
}
