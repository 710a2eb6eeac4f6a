/* SPDX-License-Identifier: BSD-2-Clause */
/* The evidence that an agent keeps: its bounds, a restart, a full disk, and files
 * that are somebody else's. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/evidence.h"

static char dir[64];
static struct pt_evidence e;
static struct pt_err err;

static int make(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/pipetrace-kept-XXXXXX");
	return mkdtemp(dir) ? pt_evidence_open(&e, dir, &err) : -1;
}

static int clean(void **state)
{
	char cmd[128];

	(void)state;
	pt_evidence_close(&e);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	return system(cmd);
}

static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static bool there(const char *id, const char *ending)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s%s", dir, id, ending);
	return !access(path, F_OK);
}

static char last_id[PT_EVIDENCE_ID];

static int keep(uint64_t when, const char *job, const char *verdict)
{
	struct pt_kept k = { .unix_s = when, .n_verdicts = 1 };
	char recording[256];
	static char json[1000];

	memset(json, 'j', sizeof(json));
	pt_evidence_id(k.id, when, job);
	snprintf(last_id, sizeof(last_id), "%s", k.id);
	snprintf(k.job, sizeof(k.job), "%s", job);
	snprintf(k.verdict[0].id, sizeof(k.verdict[0].id), "%s", verdict);
	k.verdict[0].severity = PT_CRITICAL;
	put(".sample-0", "recorded");
	snprintf(recording, sizeof(recording), "%s/.sample-0", dir);
	return pt_evidence_keep(&e, &k, json, sizeof(json), recording);
}

#define JOB1 "0123456789abcdef"
#define JOB2 "fedcba9876543210"

static void ids(void **state)
{
	char id[PT_EVIDENCE_ID];

	(void)state;
	pt_evidence_id(id, 1795269997, JOB1);
	assert_string_equal(id, "20261121t140637-" JOB1);
	assert_true(pt_evidence_id_ok(id));
	assert_false(pt_evidence_id_ok(""));
	assert_false(pt_evidence_id_ok("../etc"));
	assert_false(pt_evidence_id_ok("-x"));
	assert_false(pt_evidence_id_ok("A"));
	assert_false(pt_evidence_id_ok("a.json"));
	assert_false(pt_evidence_id_ok("0123456789012345678901234567890123456789"));
}

static void kept_and_found_again(void **state)
{
	char *text = NULL;
	size_t n;
	struct stat st;
	char path[256];
	FILE *f;

	(void)state;
	assert_int_equal(keep(1000000, JOB1, "gpu_starved"), 0);
	assert_int_equal(keep(1000060, JOB2, "io_bound"), 0);
	assert_int_equal(keep(1000060, JOB2, "io_bound"), -EEXIST);
	assert_true(there(last_id, ".json") && there(last_id, ".ptrace"));
	snprintf(path, sizeof(path), "%s/%s.json", dir, last_id);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	put("19700102t000000-" JOB1 ".html", "of an agent that was killed");
	put(".pipetrace-123.tmp", "half");
	put("notes.txt", "of somebody");
	put("UPPER.json", "of somebody");
	assert_int_equal(pt_evidence_save(&e), 0);
	pt_evidence_close(&e);
	assert_int_equal(pt_evidence_open(&e, dir, &err), 0);
	assert_int_equal(e.n, 3);
	assert_string_equal(e.v[1].job, JOB1);
	assert_true(e.v[1].unix_s == 1000000 && e.v[2].unix_s == 1000060);
	assert_string_equal(e.v[2].verdict[0].id, "io_bound");
	assert_int_equal(e.v[2].verdict[0].severity, PT_CRITICAL);
	assert_int_equal(e.v[0].n_verdicts, 3 - 3); /* nobody knows them */
	assert_int_equal(e.v[2].bytes[PT_KEPT_JSON], 1000);
	assert_int_equal(e.v[2].bytes[PT_KEPT_PTRACE], 8);
	assert_false(there(".pipetrace-123", ".tmp"));
	assert_true(there("notes", ".txt") && there("UPPER", ".json"));
	f = open_memstream(&text, &n);
	assert_int_equal(pt_evidence_list(&e, f), 0);
	fclose(f);
	assert_non_null(strstr(text, "\"io_bound\""));
	assert_true(strstr(text, "19700112t") < strstr(text, "19700102t")); /* newest first */
	free(text);
}

/* A broken or foreign index is no reason to lose anything, or to open other files. */
static void hostile_index(void **state)
{
	(void)state;
	assert_int_equal(keep(1000000, JOB1, "gpu_starved"), 0);
	pt_evidence_close(&e);
	put("index.json", "{\"evidence\": [{\"id\": \"../../etc/passwd\"}, 7, null, "
			  "{\"id\": 3}, {\"id\": \"x\", \"verdicts\": 9}]}");
	assert_int_equal(pt_evidence_open(&e, dir, &err), 0);
	assert_int_equal(e.n, 1);
	pt_evidence_close(&e);
	put("index.json", "{\"evidence\": [");
	assert_int_equal(pt_evidence_open(&e, dir, &err), 0);
	assert_int_equal(e.n, 1);
}

static void oldest_first_but_the_last_of_a_verdict(void **state)
{
	uint64_t t;

	(void)state;
	/* one of job 2, then many of job 1 */
	assert_int_equal(keep(1000000, JOB2, "io_bound"), 0);
	assert_int_equal(keep(1000001, JOB1, "slow_worker"), 0);
	for (t = 1000010; t < 1000030; t++)
		assert_int_equal(keep(t, JOB1, "gpu_starved"), 0);
	assert_int_equal(e.bytes, 22 * 1008);
	assert_true(pt_evidence_bound(&e, 4 * 1008, 1e9, 1000030));
	assert_int_equal(e.n, 4);
	assert_string_equal(e.v[0].job, JOB2);
	assert_string_equal(e.v[1].verdict[0].id, "slow_worker");
	assert_true(e.v[2].unix_s == 1000028 && e.v[3].unix_s == 1000029);
	assert_true(e.bytes <= 4 * 1008);
	assert_false(pt_evidence_bound(&e, 4 * 1008, 1e9, 1000030));
	/* nothing but last ones: the oldest */
	assert_true(pt_evidence_bound(&e, 2 * 1008, 1e9, 1000030));
	assert_int_equal(e.n, 2);
	assert_true(e.v[1].unix_s == 1000029);
	/* age spares nobody */
	assert_true(pt_evidence_bound(&e, 1 << 20, 10, 1000041));
	assert_int_equal(e.n, 0);
	assert_int_equal(e.bytes, 0);
	assert_false(there(last_id, ".json") || there(last_id, ".ptrace"));
}

/* Bounds hold whatever comes; the index agrees with the folder. */
static void random_order(void **state)
{
	static const char *const verdicts[] = { "a", "b", "c" };
	char job[20];
	unsigned i;

	(void)state;
	srand(11);
	for (i = 0; i < 2000; i++) {
		snprintf(job, sizeof(job), "%016x", (unsigned)rand() % 8);
		if (keep(2000000 + (uint64_t)(rand() % 3000), job,
			 verdicts[rand() % 3]) == 0)
			pt_evidence_bound(&e, 20 * 1008, 1000, 2001500);
		assert_true(e.bytes <= 20 * 1008 && e.n <= 20);
	}
	assert_true(e.n > 10);
	for (i = 0; i < e.n; i++)
		assert_true(there(e.v[i].id, ".json") &&
			    there(e.v[i].id, ".ptrace"));
	for (i = 1; i < e.n; i++)
		assert_true(e.v[i - 1].unix_s <= e.v[i].unix_s);
}

/* What cannot be written leaves nothing. */
static void no_room(void **state)
{
	struct pt_kept k = { .unix_s = 5 };

	(void)state;
	pt_evidence_id(k.id, 5, JOB1);
	/* as on a full disk: the second of two files fails */
	assert_int_not_equal(pt_evidence_keep(&e, &k, "{}", 2, "/nonexistent"), 0);
	assert_false(there(k.id, ".json"));
	assert_int_equal(e.n, 0);
	assert_int_equal(e.lost, 1);
}

static void folders(void **state)
{
	struct pt_evidence other;
	char path[128];

	(void)state;
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(pt_evidence_open(&other, dir, &err), -EPERM);
	assert_int_equal(chmod(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/link", dir);
	assert_int_equal(symlink("/tmp", path), 0);
	assert_int_not_equal(pt_evidence_open(&other, path, &err), 0);
	assert_int_not_equal(pt_evidence_open(&other, "/nonexistent/x", &err), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make, clean)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids), TEST(kept_and_found_again),
		TEST(hostile_index), TEST(oldest_first_but_the_last_of_a_verdict),
		TEST(random_order), TEST(no_room), TEST(folders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
