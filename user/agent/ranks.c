// SPDX-License-Identifier: BSD-2-Clause
#include "agent/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/schedule.h"
#include "capture/procfs.h"

#define RANK_MAX (1L << 24)

enum var {
	RANK, WORLD_SIZE, LOCAL_RANK, RUN_ID, MASTER_ADDR, MASTER_PORT,
	SLURM_JOB, SLURM_STEP, SLURM_RANK, SLURM_TASKS, SLURM_LOCAL,
	OMPI_RANK, OMPI_SIZE, OMPI_LOCAL, PMIX_RANK, PMI_RANK, PMI_SIZE,
	N_VARS
};

static const char *const names[N_VARS] = {
	[RANK] = "RANK",
	[WORLD_SIZE] = "WORLD_SIZE",
	[LOCAL_RANK] = "LOCAL_RANK",
	[RUN_ID] = "TORCHELASTIC_RUN_ID",
	[MASTER_ADDR] = "MASTER_ADDR",
	[MASTER_PORT] = "MASTER_PORT",
	[SLURM_JOB] = "SLURM_JOB_ID",
	[SLURM_STEP] = "SLURM_STEP_ID",
	[SLURM_RANK] = "SLURM_PROCID",
	[SLURM_TASKS] = "SLURM_NTASKS",
	[SLURM_LOCAL] = "SLURM_LOCALID",
	[OMPI_RANK] = "OMPI_COMM_WORLD_RANK",
	[OMPI_SIZE] = "OMPI_COMM_WORLD_SIZE",
	[OMPI_LOCAL] = "OMPI_COMM_WORLD_LOCAL_RANK",
	[PMIX_RANK] = "PMIX_RANK",
	[PMI_RANK] = "PMI_RANK",
	[PMI_SIZE] = "PMI_SIZE",
};

struct value {
	char text[254]; /* a host's name, the longest of them */
};

static void copy_printable(struct value *v, const char *s, size_t n)
{
	size_t i;

	if (n >= sizeof(v->text))
		return; /* no rank, size or host name is so long */
	for (i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return;
	memcpy(v->text, s, n);
	v->text[n] = '\0';
}

/* The first of them that is a number from 0 on. */
static long number(const struct value *v, const enum var *which, size_t n)
{
	char *end;
	size_t i;
	long x;

	for (i = 0; i < n; i++) {
		const char *s = v[which[i]].text;

		x = strtol(s, &end, 10);
		if (*s >= '0' && *s <= '9' && !*end && x < RANK_MAX)
			return x;
	}
	return -1;
}

static void take_id(char *dst, size_t cap, const struct value *v)
{
	size_t n = strspn(v->text, "0123456789");

	if (n && !v->text[n] && n < cap)
		memcpy(dst, v->text, n + 1);
}

static int own_address(const char *a)
{
	return !strcmp(a, "localhost") || !strncmp(a, "127.", 4) ||
	       !strcmp(a, "::1");
}

static void name_group(const struct value *v, const char *host,
		       struct pt_ranks *o)
{
	const char *addr = v[MASTER_ADDR].text, *port = v[MASTER_PORT].text;
	const char *id = v[RUN_ID].text;
	char text[1024];
	int n;

	if (*o->slurm_job) {
		snprintf(o->group, sizeof(o->group), "slurm:%s%s%s",
			 o->slurm_job, *o->slurm_step ? "." : "", o->slurm_step);
		return;
	}
	if (!*addr || !*port || o->world < 0)
		return;
	/* torchrun's run id is "none" where nobody gave one */
	if (!strcmp(id, "none"))
		id = "";
	n = snprintf(text, sizeof(text), "torch:%s%s%s:%s%s%s", id,
		     *id ? "@" : "", addr, port, own_address(addr) ? "@" : "",
		     own_address(addr) ? host : "");
	if (n < (int)sizeof(o->group))
		memcpy(o->group, text, (size_t)n + 1);
	else /* the same on all nodes, though nobody can read it */
		snprintf(o->group, sizeof(o->group), "torch:%016llx",
			 (unsigned long long)pt_schedule_hash(text));
}

void pt_ranks_environ(const char *env, size_t len, const char *host,
		      struct pt_ranks *o)
{
	static const enum var ranks[] = { RANK, OMPI_RANK, PMIX_RANK, PMI_RANK,
					  SLURM_RANK };
	static const enum var worlds[] = { WORLD_SIZE, OMPI_SIZE, PMI_SIZE,
					   SLURM_TASKS };
	static const enum var locals[] = { LOCAL_RANK, OMPI_LOCAL, SLURM_LOCAL };
	struct value v[N_VARS] = { 0 };
	const char *p = env, *end = env + len;
	size_t n, name, i;

	memset(o, 0, sizeof(*o));
	for (; p < end; p += n + 1) {
		n = strnlen(p, (size_t)(end - p));
		for (i = 0; i < N_VARS; i++) {
			name = strlen(names[i]);
			if (n > name && p[name] == '=' &&
			    !strncmp(p, names[i], name))
				copy_printable(&v[i], p + name + 1, n - name - 1);
		}
	}
	o->rank = number(v, ranks, sizeof(ranks) / sizeof(*ranks));
	o->world = number(v, worlds, sizeof(worlds) / sizeof(*worlds));
	o->local = number(v, locals, sizeof(locals) / sizeof(*locals));
	take_id(o->slurm_job, sizeof(o->slurm_job), &v[SLURM_JOB]);
	take_id(o->slurm_step, sizeof(o->slurm_step), &v[SLURM_STEP]);
	name_group(v, host, o);
}

int pt_ranks_of(pid_t pid, const char *host, struct pt_ranks *o)
{
	char *env = malloc(PT_RANKS_ENVIRON);
	ssize_t n = env ? pt_proc_read(pid, "environ", env, PT_RANKS_ENVIRON) :
			  -ENOMEM;

	pt_ranks_environ(n > 0 ? env : "", n > 0 ? (size_t)n : 0, host, o);
	free(env);
	return n < 0 ? (int)n : 0;
}
