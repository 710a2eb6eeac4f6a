/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's network side with jobs that are made up, for agent_http.py and
 * agent_otlp.py.
 *
 *   agent_net http LISTEN [-c CERT] [-k KEY] [-t TOKENFILE] [-e DIR] [-u SOCKET]
 *	[-n JOBS] [-j FILE]
 *   agent_net otlp ENDPOINT [-H FILE] [-a CA] [-c CERT] [-k KEY] [-q BYTES] [-n JOBS] [-j FILE]
 *
 * -j: the jobs' names, one per line; \0 cannot be in one. It says "port N" or "ready",
 * then obeys lines on standard input, each answered by one line:
 *   publish        renders and publishes /metrics and two small pages
 *   metrics        queues an export of all metrics
 *   change N       queues N records of changed verdicts, numbered from 0 on
 *   stats          figures, as JSON
 *   stop S         stops (otlp: sends for at most S seconds), says figures, and ends
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/http.h"
#include "agent/otlp.h"
#include "agent/prom.h"

#define JOBS_MAX 64

static struct {
	struct pt_tally tally[JOBS_MAX];
	struct pt_prom_job job[JOBS_MAX];
	size_t n;
	unsigned long changes;
	uint64_t start_ns;
	struct pt_http *http;
	struct pt_otlp *otlp;
} g;

static uint64_t unix_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Figures that the tests know: of job i, a function of i alone. */
static void make_job(size_t i, const char *name)
{
	struct pt_tally *t = &g.tally[i];
	size_t k;

	for (k = 0; k < PT_CAUSE_NR; k++)
		t->lost_s[k] = (double)(i + 1) * (double)(k + 1) / 4;
	t->gpu_s = 100 * (double)(i + 1);
	t->busy_low_s = 25;
	t->busy_high_s = 75;
	t->covered_s = 60;
	t->observed_s = 5;
	t->read_bytes = 1e9;
	for (k = 0; k <= PT_TALLY_BUCKETS; k++)
		t->step_bucket[k] = (double)k;
	t->step_sum_s = 7.5;
	t->samples = 3;
	t->has_last = true;
	t->last.duration = 5;
	t->last.gpus = 2;
	t->last.busy_s = 5;
	t->last.busy_hard_s[0] = 2.5;
	t->last.busy_hard_s[1] = 10;
	t->last.busy_likely_s[0] = t->last.busy_likely_s[1] = NAN;
	t->last.data_wait_share = 0.5;
	t->last.slowdown = NAN;
	t->last.n_verdicts = 1;
	strcpy(t->last.verdict[0].id, "worker_starved");
	t->last.verdict[0].severity = 1;
	t->last.verdict[0].root = true;
	g.job[i] = (struct pt_prom_job){ .job = name, .comm = name, .pid = 1000 + (long)i,
					 .rank = (long)i, .world = -1, .t = t };
}

static int make_jobs(size_t n, const char *file)
{
	FILE *f = file ? fopen(file, "r") : NULL;
	char *line = NULL, name[32];
	size_t cap = 0, i;
	ssize_t len;

	if (file && !f)
		return -1;
	for (i = 0; i < n && i < JOBS_MAX; i++) {
		if (f) {
			len = getline(&line, &cap, f);
			if (len < 0)
				break;
			if (len && line[len - 1] == '\n')
				line[len - 1] = '\0';
			make_job(i, strdup(line));
		} else {
			snprintf(name, sizeof(name), "job-%zu", i);
			make_job(i, strdup(name));
		}
	}
	g.n = i;
	free(line);
	if (f)
		fclose(f);
	return 0;
}

static const struct pt_prom_agent agent = { .version = "0-test", .cpu_s = 1.25,
					    .resident_bytes = 4096, .jobs = 1,
					    .interval_s = 60, .sample_s = 5 };

static int publish(enum pt_http_page page, bool metrics, bool openmetrics,
		   const char *text)
{
	char *to = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&to, &len);

	if (!f)
		return -1;
	if (metrics)
		pt_prom_write(f, &agent, g.job, g.n, openmetrics);
	else
		fputs(text, f);
	fclose(f);
	return pt_http_publish(g.http, page, to, len);
}

static void publish_all(void)
{
	if (publish(PT_PAGE_OPENMETRICS, true, true, NULL) ||
	    publish(PT_PAGE_METRICS, true, false, NULL) ||
	    publish(PT_PAGE_JOBS, false, false, "[\"jobs\"]\n") ||
	    publish(PT_PAGE_EVIDENCE, false, false, "[\"evidence\"]\n"))
		printf("cannot publish\n");
	else
		printf("published\n");
}

static void stats(void)
{
	struct pt_http_stats h = { 0 };
	struct pt_otlp_stats o = { 0 };

	if (g.http)
		pt_http_stats(g.http, &h);
	if (g.otlp)
		pt_otlp_stats(g.otlp, &o);
	printf("{\"requests\":%lu,\"refused\":%lu,\"connections\":%u,\"sent\":%llu,"
	       "\"retries\":%llu,\"dropped\":%llu,\"dropped_points\":%llu,"
	       "\"dropped_logs\":%llu,\"queued_bytes\":%zu}\n",
	       h.requests, h.refused, h.connections, (unsigned long long)o.sent,
	       (unsigned long long)o.retries, (unsigned long long)o.dropped,
	       (unsigned long long)o.dropped_points,
	       (unsigned long long)o.dropped_logs, o.queued_bytes);
}

static void change(unsigned long n)
{
	char evidence[64], subject[32];
	int err = 0;

	for (; n && !err; n--, g.changes++) {
		struct pt_otlp_change c = {
			.job = &g.job[0],
			.id = "slow_worker",
			.severity = g.changes % 2 ? "warning" : "critical",
			.ended = g.changes % 10 == 9,
			.title = "worker 3 is slower than its peers",
			.advice = "look at its node",
			.subject = subject,
			.evidence = evidence,
			.kept = g.changes % 3 ? "20260101-abc" : NULL,
			.unix_ns = unix_ns(),
		};

		snprintf(subject, sizeof(subject), "worker %lu", g.changes);
		snprintf(evidence, sizeof(evidence), "{\"number\":%lu}", g.changes);
		err = pt_otlp_change(g.otlp, &c);
	}
	printf("%s\n", err ? "no memory" : "queued");
}

static void obey(void)
{
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "publish", 7)) {
			publish_all();
		} else if (!strncmp(line, "metrics", 7)) {
			printf("%s\n", pt_otlp_metrics(g.otlp, &agent, g.job, g.n,
						       g.start_ns, unix_ns()) ?
					       "no memory" :
					       "queued");
		} else if (!strncmp(line, "change ", 7)) {
			change(strtoul(line + 7, NULL, 10));
		} else if (!strncmp(line, "stats", 5)) {
			stats();
		} else if (!strncmp(line, "stop ", 5)) {
			pt_otlp_stop(g.otlp, strtod(line + 5, NULL));
			g.otlp = NULL;
			pt_http_stop(g.http);
			g.http = NULL;
			printf("stopped\n");
		} else {
			printf("what?\n");
		}
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	const char *names = NULL, *headers = NULL, *ca = NULL, *cert = NULL,
		   *key = NULL, *token = NULL, *own = NULL,
		   *evidence = NULL, *local = NULL;
	size_t n = 3, bytes = 4 << 20;
	char why[256] = "usage: agent_net http|otlp WHERE ...";
	int opt, err = -1;

	while ((opt = getopt(argc, argv, "c:k:t:T:e:u:n:j:H:a:q:")) != -1) {
		switch (opt) {
		case 'c': cert = optarg; break;
		case 'k': key = optarg; break;
		case 't': token = optarg; break;
		case 'T': own = optarg; break;
		case 'e': evidence = optarg; break;
		case 'u': local = optarg; break;
		case 'n': n = strtoul(optarg, NULL, 10); break;
		case 'j': names = optarg; break;
		case 'H': headers = optarg; break;
		case 'a': ca = optarg; break;
		case 'q': bytes = strtoul(optarg, NULL, 10); break;
		default: return 2;
		}
	}
	g.start_ns = unix_ns();
	if (argc - optind != 2 || make_jobs(n, names))
		goto out;
	if (!strcmp(argv[optind], "http")) {
		struct pt_http_options o = {
			.listen = argv[optind + 1], .cert = cert, .key = key,
			.token_file = token, .evidence = evidence,
			.own_token = own, .local = local,
		};

		err = pt_http_start(&o, &g.http, why, sizeof(why));
		if (!err)
			printf("port %u\n", pt_http_port(g.http));
	} else {
		struct pt_otlp_options o = { argv[optind + 1], headers, ca, cert, key,
					     bytes, "node-1", "0-test" };

		err = pt_otlp_start(&o, &g.otlp, why, sizeof(why));
		if (!err)
			printf("ready\n");
	}
	if (err)
		goto out;
	fflush(stdout);
	obey();
out:
	if (err)
		fprintf(stderr, "%s\n", why);
	pt_http_stop(g.http);
	pt_otlp_stop(g.otlp, 0);
	while (g.n)
		free((char *)g.job[--g.n].job);
	return err ? 1 : 0;
}
