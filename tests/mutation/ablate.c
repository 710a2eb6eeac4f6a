/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which answers change without a constant, or a function? VARIANT 2N is number N worth 0,
 * 2N + 1 a thousand times as much, each in an analysis of its own of every FILE. A line
 * for each that answers otherwise: "variant, what changed"; before them "# FILE N...",
 * those that were asked for at all. Built and read by tests/mutation/ablate.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/analysis.h"
#include "model/model.h"
#include "store/rawstream.h"

#define RUN_S 5 /* it may be what ends a loop */
#define MEMORY ((rlim_t)4 << 30)
#define NAMES 32
#define ROWS 24

#define IDS 8192

static int changed = -1;
static double by;
static bool met[IDS]; /* in this recording as it is */

double pt_ablate(int id);
double pt_ablate(int id)
{
	met[id] = true;
	return id == changed ? by : 1;
}

/* What a reader of the report goes by. */
struct answer {
	const char *verdict[NAMES];
	size_t n;
	int certainty;
	int64_t who, steps;
	double wait, wall;
	double gain[ROWS];
	size_t n_gains;
};

static int ask(struct pt_model *m, struct answer *out)
{
	struct pt_analysis_opts o = { 0 };
	struct pt_report *r = pt_report_new(); /* kept: the answer points into it */
	size_t i;

	memset(out, 0, sizeof(*out));
	if (!r || pt_analyze(m, &o, r))
		return -1;
	for (i = 0; i < r->n_verdicts && i < NAMES; i++)
		out->verdict[out->n++] = r->verdicts[i].id;
	out->certainty = r->n_verdicts ? (int)r->verdicts[0].certainty : -1;
	out->who = r->n_verdicts ? r->verdicts[0].subject_pid : 0;
	out->steps = r->steps.count;
	out->wait = r->breakdown.data_wait.seconds;
	out->wall = r->capture.duration;
	for (i = 0; i < r->n_whatif && i < ROWS; i++)
		out->gain[out->n_gains++] = r->whatif[i].speedup.value;
	return 0;
}

static bool same_gain(double a, double b)
{
	return isnan(a) || isnan(b) ? isnan(a) == isnan(b) :
				      fabs(a - b) <= 0.05 * fabs(a);
}

/* A letter for each kind of difference. */
static void compare(const struct answer *a, const struct answer *b, char *out)
{
	bool others = a->n != b->n, gains = a->n_gains != b->n_gains;
	size_t i;

	if (strcmp(a->n ? a->verdict[0] : "", b->n ? b->verdict[0] : ""))
		*out++ = 'R';
	for (i = 1; i < a->n && !others; i++)
		others = strcmp(a->verdict[i], b->verdict[i]) != 0;
	if (others)
		*out++ = 'v';
	if (a->certainty != b->certainty)
		*out++ = 'c';
	if (a->who != b->who)
		*out++ = 'w';
	if (llabs(a->steps - b->steps) > 1)
		*out++ = 's';
	if (fabs(a->wait - b->wait) > 0.005 * a->wall)
		*out++ = 'd';
	for (i = 0; i < a->n_gains && !gains; i++)
		gains = !same_gain(a->gain[i], b->gain[i]);
	if (gains)
		*out++ = 'g';
	*out = 0;
}

static struct pt_model *load(const char *path)
{
	struct pt_model *m = pt_model_new();
	struct pt_raw_reader r;
	FILE *f = fopen(path, "re");
	int n = -1;

	if (!m || !f || pt_raw_open(&r, f))
		goto out;
	while ((n = pt_raw_next(&r)) > 0)
		if (pt_model_feed(m, r.rec.bytes, (size_t)n))
			break;
out:
	if (f)
		fclose(f);
	if (n) {
		pt_model_free(m);
		return NULL;
	}
	pt_model_finish(m);
	return m;
}

static void try_one(struct pt_model *m, const struct answer *base, int variant)
{
	const struct rlimit memory = { MEMORY, MEMORY };
	struct answer a;
	char what[16];
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		alarm(RUN_S);
		setrlimit(RLIMIT_DATA, &memory);
		changed = variant / 2;
		by = variant % 2 ? 1000 : 0;
		if (ask(m, &a))
			_exit(1);
		compare(base, &a, what);
		if (*what)
			printf("%d %s\n", variant, what);
		fflush(stdout);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		exit(2);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		printf("%d X\n", variant);
}

/* Those of the list that are asked for in this recording; how many. */
static int ids_of(const char *list, int *out)
{
	char *end;
	int n = 0;

	for (; *list; list = *end ? end + 1 : end) {
		long id = strtol(list, &end, 10);

		if (id >= 0 && id < 2L * IDS && n < 2 * IDS && met[id / 2])
			out[n++] = (int)id;
	}
	return n;
}

/* ablate VARIANT,VARIANT... FILE... */
int main(int argc, char **argv)
{
	int ids[2 * IDS];
	int i, k, n;

	for (i = 2; i < argc; i++) {
		struct pt_model *m = load(argv[i]);
		struct answer base;

		memset(met, 0, sizeof(met));
		if (!m || ask(m, &base)) {
			fprintf(stderr, "%s: not read\n", argv[i]);
			pt_model_free(m);
			continue;
		}
		n = ids_of(argv[1], ids);
		printf("# %s", argv[i]);
		for (k = 0; k < n; k++)
			if (!k || ids[k] / 2 != ids[k - 1] / 2)
				printf(" %d", ids[k] / 2);
		printf("\n");
		for (k = 0; k < n; k++)
			try_one(m, &base, ids[k]);
		pt_model_free(m);
	}
	return 0;
}
