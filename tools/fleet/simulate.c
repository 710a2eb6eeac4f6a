/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agents of many nodes in one process, for tests of what scrapes and asks them:
 *
 *     simulate NODES JOBS INTERVAL [SEED]
 *
 * listens on a port of 127.0.0.1, which it prints. /N/metrics is node N's page, made
 * by the agent's own code out of made-up samples: INTERVAL seconds from one sample of
 * a job to its next. Jobs come and go. /truth is JSON: what was made up, by job.
 */
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/prom.h"
#include "agent/schedule.h"

#define GROUP_NODES 4
#define STRAGGLERS 100 /* one node in so many has one */
#define LIFE_S 7200.0

enum kind { HEALTHY, DISK, NETWORK, SLOW_WORKER, SERVER, KINDS };

struct job {
	struct pt_tally t;
	enum kind kind;
	bool straggles;
	uint64_t id;
	double born, next; /* s of the realtime clock */
	double wasted; /* GPU-seconds, by what the agent's code made of its samples */
};

static struct sim {
	size_t nodes, jobs;
	double interval;
	uint64_t seed;
	struct job *job;
	pthread_mutex_t lock;
} sim;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* [0, 1), of what is told apart by a, b and c. */
static double chance(uint64_t a, uint64_t b, uint64_t c)
{
	char text[96];

	snprintf(text, sizeof(text), "%llx.%llx.%llx.%llx", (unsigned long long)a,
		 (unsigned long long)b, (unsigned long long)c,
		 (unsigned long long)sim.seed);
	return (double)(pt_schedule_hash(text) >> 11) / 9007199254740992.0;
}

static void begin_job(struct job *j, size_t node, size_t slot, double at)
{
	double epoch = floor((at + LIFE_S * chance(node / GROUP_NODES, slot, 0)) / LIFE_S);
	double x;

	memset(j, 0, sizeof(*j));
	j->id = (uint64_t)epoch;
	x = chance(node / GROUP_NODES, slot, 1000 + j->id);
	j->kind = x < 0.6 ? HEALTHY : x < 0.75 ? DISK : x < 0.87 ? NETWORK :
		  x < 0.95 ? SLOW_WORKER : SERVER;
	j->straggles = !slot && node % STRAGGLERS == 7;
	j->born = at;
	j->next = at;
}

static void verdict(struct pt_sample *s, const char *id, enum pt_severity v, bool root)
{
	struct pt_sample_verdict *x = &s->verdict[s->n_verdicts++];

	snprintf(x->id, sizeof(x->id), "%s", id);
	x->severity = (uint8_t)v;
	x->root = root;
}

/* One sample of 5 s of a GPU: steps of 0.2 s. */
static void make(const struct job *j, struct pt_sample *s, double x)
{
	static const double idle[KINDS] = { 0.03, 0.45, 0.30, 0.20, 0.60 };
	double share = fmin(1, idle[j->kind] * (0.7 + 0.6 * x)), data = 0.02;
	size_t i;

	memset(s, 0, sizeof(*s));
	s->duration = 5;
	s->gpus = 1;
	s->busy_s = 5 * (1 - share);
	for (i = 0; i < 2; i++) {
		s->busy_likely_s[i] = fmin(5, s->busy_s * (i ? 1.02 : 0.98));
		s->busy_hard_s[i] = fmin(5, s->busy_s * (i ? 1.1 : 0.7));
		s->starved_s[i] = j->kind == HEALTHY || j->kind == SERVER ? 0 :
				  5 * share * (i ? 1 : 0.8);
	}
	s->idle_s[j->kind == DISK ? PT_CAUSE_DISK : j->kind == NETWORK ?
		  PT_CAUSE_NETWORK : j->kind == SLOW_WORKER ? PT_CAUSE_CPU :
		  j->kind == SERVER ? PT_CAUSE_NO_DEMAND : PT_CAUSE_LAUNCH] = 5 * share * 0.9;
	s->idle_s[PT_CAUSE_UNKNOWN] = 5 * share * 0.1;
	s->steps = 25;
	s->n_step_s = 25;
	for (i = 0; i < 25; i++)
		s->step_s[i] = (float)(0.2 * (0.9 + 0.2 * chance((uint64_t)(x * 1e9), i, 3)));
	if (j->kind == DISK || j->kind == NETWORK || j->kind == SLOW_WORKER)
		data = share;
	if (j->straggles)
		data += 0.3;
	s->data_wait_share = fmin(1, data);
	s->phase_s[PT_PHASE_DATA_WAIT] = 5 * s->data_wait_share;
	s->phase_s[PT_PHASE_HOST] = 5 * 0.05;
	s->phase_s[PT_PHASE_COLLECTIVE] = j->straggles ? 0 : 0.5;
	s->phase_s[PT_PHASE_GPU_WAIT] = fmax(0, 4.25 - s->phase_s[PT_PHASE_DATA_WAIT]);
	s->slowdown = j->kind == SLOW_WORKER ? 2.5 + x : 1.02;
	s->read_bytes = 5e8 * (1 - share);
	s->reads = 5000;
	s->read_s = j->kind == DISK || j->kind == NETWORK ? 8 : 0.2;
	s->n_mounts = 2;
	snprintf(s->mount[0].name, PT_SAMPLE_MOUNT, "%s", j->kind == NETWORK ?
		 "store:/datasets" : "/mnt/nvme");
	s->mount[0].read_s = s->read_s * 0.9;
	s->mount[0].bytes = s->read_bytes;
	snprintf(s->mount[1].name, PT_SAMPLE_MOUNT, "/");
	s->mount[1].read_s = s->read_s * 0.1;
	s->mount[1].bytes = 1e6;
	s->events = 40000;
	s->tracer_cpu_s = 0.05;
	s->complete = true;
	switch (j->kind) {
	case DISK:
		verdict(s, "io_bound", PT_CRITICAL, true);
		verdict(s, "gpu_starved", PT_CRITICAL, false);
		break;
	case NETWORK:
		verdict(s, "network_bound", PT_WARNING, true);
		verdict(s, "gpu_starved", PT_WARNING, false);
		break;
	case SLOW_WORKER:
		verdict(s, "slow_worker", PT_WARNING, true);
		break;
	case SERVER:
		verdict(s, "no_demand", PT_INFO, true);
		break;
	default:
		verdict(s, "balanced", PT_INFO, true);
	}
}

static void advance(struct job *j, size_t node, size_t slot, double at)
{
	const struct pt_schedule s = { .interval = sim.interval, .sample = 5,
				       .node = node + sim.seed };
	double epoch = floor((at + LIFE_S * chance(node / GROUP_NODES, slot, 0)) / LIFE_S);
	struct pt_sample x;
	int c;

	if (!j->born) /* it was there before */
		begin_job(j, node, slot, at - 6 * sim.interval);
	if ((uint64_t)epoch != j->id)
		begin_job(j, node, slot, at);
	for (j->next = pt_schedule_next(&s, slot, fmax(j->next, at - 10 * sim.interval));
	     j->next <= at; j->next = pt_schedule_next(&s, slot, j->next)) {
		/* ranks of a group have much in common */
		make(j, &x, 0.95 * chance(node / GROUP_NODES, slot,
					 (uint64_t)(j->next / sim.interval / 20)) +
			    0.05 * chance(node, slot, (uint64_t)j->next));
		pt_tally_add(&j->t, &x, j->born, j->next, 2 * sim.interval);
	}
	j->next = at;
	j->wasted = 0;
	for (c = 0; c < PT_CAUSE_NR; c++)
		j->wasted += c == PT_CAUSE_NO_DEMAND ? 0 : j->t.lost_s[c];
}

static void page_of(FILE *f, size_t node)
{
	static const char *const user[] = { "ada", "grace", "edsger", "barbara" };
	struct pt_prom_job job[64];
	char id[64][40], group[64][40], host[24];
	struct pt_owner owner[64];
	struct pt_prom_agent a = { .version = "0.1.0", .cpu_s = 3, .jobs = (double)sim.jobs,
				   .resident_bytes = 3e7, .interval_s = sim.interval,
				   .sample_s = 5, .interval_wanted_s = sim.interval,
				   .cpu_budget = 0.02, .memory_budget = 1e8, .host = host };
	size_t i;

	snprintf(host, sizeof(host), "node%zu", node);
	for (i = 0; i < sim.jobs; i++) {
		struct job *j = &sim.job[node * sim.jobs + i];

		advance(j, node, i, now());
		snprintf(id[i], sizeof(id[i]), "%04zx%zu-%llx", node, i,
			 (unsigned long long)j->id);
		snprintf(group[i], sizeof(group[i]), "train-%zu-%zu-%llx",
			 node / GROUP_NODES, i, (unsigned long long)j->id);
		memset(&owner[i], 0, sizeof(owner[i]));
		snprintf(owner[i].slurm_job, sizeof(owner[i].slurm_job), "%zu",
			 node / GROUP_NODES * 8 + i);
		job[i] = (struct pt_prom_job){
			.job = id[i], .comm = "python3", .user = user[(node + i) % 4],
			.group = group[i], .pid = (long)(1000 + i),
			.rank = (long)(node % GROUP_NODES), .world = GROUP_NODES,
			.owner = &owner[i], .since_unix = j->born, .t = &j->t };
	}
	pt_prom_write(f, &a, job, sim.jobs, true);
}

static void truth(FILE *f)
{
	size_t n, i;

	fputc('[', f);
	for (n = 0; n < sim.nodes; n++) {
		for (i = 0; i < sim.jobs; i++) {
			const struct job *j = &sim.job[n * sim.jobs + i];

			fprintf(f, "%s{\"node\":%zu,\"job_id\":\"%04zx%zu-%llx\",\"kind\":%d,"
				"\"straggles\":%s,\"wasted\":%.9g,\"gpu\":%.9g}", n || i ? ",\n" : "",
				n, n, i, (unsigned long long)j->id, (int)j->kind,
				j->straggles ? "true" : "false", j->wasted, j->t.gpu_s);
		}
	}
	fputs("]\n", f);
}

static enum MHD_Result answer(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *body,
			      size_t *len, void **state)
{
	char *text = NULL, *end;
	size_t size = 0, node;
	struct MHD_Response *r;
	enum MHD_Result ok;
	FILE *f;

	(void)cls, (void)version, (void)body, (void)state;
	if (*len || strcmp(method, "GET"))
		return MHD_NO;
	f = open_memstream(&text, &size);
	if (!f)
		return MHD_NO;
	node = strtoul(url + 1, &end, 10);
	pthread_mutex_lock(&sim.lock);
	if (!strcmp(url, "/truth"))
		truth(f);
	else if (end > url + 1 && !strcmp(end, "/metrics") && node < sim.nodes)
		page_of(f, node);
	pthread_mutex_unlock(&sim.lock);
	fclose(f);
	r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
	MHD_add_response_header(r, "Content-Type",
				"application/openmetrics-text; version=1.0.0; charset=utf-8");
	ok = MHD_queue_response(c, size ? 200 : 404, r);
	MHD_destroy_response(r);
	return ok;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct MHD_Daemon *d;

	if (argc < 4) {
		fprintf(stderr, "simulate NODES JOBS INTERVAL [SEED]\n");
		return 2;
	}
	sim.nodes = strtoul(argv[1], NULL, 10);
	sim.jobs = strtoul(argv[2], NULL, 10);
	sim.interval = strtod(argv[3], NULL);
	sim.seed = argc > 4 ? strtoul(argv[4], NULL, 10) : 1;
	pthread_mutex_init(&sim.lock, NULL);
	if (!sim.nodes || sim.nodes > 100000 || !sim.jobs || sim.jobs > 64 ||
	    !(sim.interval > 5))
		return 2;
	sim.job = calloc(sim.nodes * sim.jobs, sizeof(*sim.job));
	d = sim.job ? MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer,
				       NULL, MHD_OPTION_SOCK_ADDR, &at,
				       MHD_OPTION_CONNECTION_LIMIT, 60000u,
				       MHD_OPTION_END) : NULL;
	if (!d) {
		fprintf(stderr, "simulate: %s\n", strerror(errno));
		return 1;
	}
	printf("%u\n", MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
	fflush(stdout);
	/* until whoever started it closes its input or ends it */
	while (getchar() != EOF)
		;
	MHD_stop_daemon(d);
	free(sim.job);
	return 0;
}
