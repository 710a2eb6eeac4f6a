/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's configuration, its rules, and what environments say of ranks. */
#include <errno.h>
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

#include "agent/config.h"
#include "agent/ranks.h"
#include "agent/rule.h"

static struct pt_config c;
static struct pt_err err;

static int parse(const char *text)
{
	err.msg[0] = '\0';
	return pt_config_parse(text, "t.conf", &c, &err);
}

static void refused(const char *text, const char *line, const char *word)
{
	assert_int_equal(parse(text), -EINVAL);
	if (!strstr(err.msg, line) || !strstr(err.msg, word) ||
	    strchr(err.msg, '\n'))
		fail_msg("%s: \"%s\" lacks %s or %s", text, err.msg, line, word);
}

static void values(void **state)
{
	(void)state;
	setenv("TEST_NODE", "n17", 1);
	assert_int_equal(parse("# a comment\n[agent]\ninterval = 2m\nsample=7500ms\n"
			       "aligned = yes\nadopt = no\nat-once = 3\nmode = light\n"
			       "[budget]\ncpu = 2.5%\nmemory = 1G\n"
			       "[evidence]\nage = 2d\nkeep = no\n"
			       "[http]\nlisten =\n[otlp]\nendpoint = http://x:4318\n"
			       "[labels]\nnode = $TEST_NODE\nnone = $TEST_NOT_SET\n"
			       "[job a b]\ncmdline = *train*\nuser = ml\n"
			       "[job c]\ncgroup = */x\nexclude = yes\n"), 0);
	assert_true(c.interval_s == 120 && c.sample_s == 7.5 && c.aligned);
	assert_false(c.adopt);
	assert_true(c.at_once == 3 && c.mode == PT_MODE_LIGHT);
	assert_true(c.cpu == 0.025 && c.memory == 1ull << 30);
	assert_true(c.evidence_age_s == 2 * 86400 && !c.evidence);
	assert_string_equal(c.listen, "");
	assert_string_equal(c.endpoint, "http://x:4318");
	assert_int_equal(c.n_labels, 2);
	assert_string_equal(c.labels[0].value, "n17");
	assert_string_equal(c.labels[1].value, "");
	assert_int_equal(c.n_rules, 2);
	assert_string_equal(c.rules[0].name, "a b");
	assert_string_equal(c.rules[0].user, "ml");
	assert_true(c.rules[1].exclude && !c.rules[0].exclude);
	/* nothing at all is the default */
	assert_int_equal(parse(""), 0);
	assert_true(c.interval_s == 60 && c.sample_s == 5 && c.cpu == 0.05);
	assert_string_equal(c.listen, "127.0.0.1:9753");
	assert_string_equal(c.socket, "");
	assert_int_equal(parse("[http]\nsocket = no\n"), 0);
	assert_string_equal(c.socket, "no");
	assert_int_equal(parse("[http]\nsocket = /run/pt/s\n"), 0);
	assert_string_equal(c.socket, "/run/pt/s");
	refused("[http]\nsocket = here\n", "t.conf:2", "here");
	refused("[http]\nkey = no\n", "t.conf:2", "path");
}

static void watches(void **state)
{
	(void)state;
	assert_int_equal(parse(""), 0);
	assert_string_equal(c.watch, "");
	assert_int_equal(parse("[watch]\nwhen = step > 3x median, worker silent > 1m\nkeep = 1m\n"
			       "jobs = 3\ncooldown = 10m\nmemory = 32M\n"), 0);
	assert_string_equal(c.watch, "step > 3x median, worker silent > 1m");
	assert_true(c.watch_keep_s == 60 && c.watch_cooldown_s == 600 && c.watch_jobs == 3 &&
		    c.watch_memory == 32 << 20);
	refused("[watch]\nwhen = step > 3\n", "t.conf:2", "step > 3");
	refused("[watch]\nwhen = step > 1s, idle\n", "t.conf:2", "idle");
	refused("[watch]\nwhen = step > 1s,step > 2s,step > 3s,step > 4s,step > 5s,step > 6s,"
		"step > 7s,step > 8s,step > 9s\n", "t.conf:2", "step > 9s");
	refused("[watch]\njobs = 17\n", "t.conf:2", "jobs");
	refused("[evidence]\nkeep = no\n[watch]\nwhen = step > 1s\n", "t.conf", "evidence");
}

/* Every label that the job's own line has is refused as a free one. */
static void own_labels(void **state)
{
	const struct pt_owner owner = { .runtime = "r", .container = "c", .pod_uid = "u",
					.pod = "p", .pod_namespace = "n",
					.container_name = "k", .slurm_job = "s",
					.slurm_step = "t" };
	const struct pt_prom_label free_label = { "team", "a" };
	const struct pt_tally tally = { .steps = 0 };
	const struct pt_prom_job job = { .job = "i", .comm = "m", .user = "a", .group = "g",
					 .rank = 0, .world = 1, .owner = &owner,
					 .labels = &free_label, .n_labels = 1, .t = &tally };
	const struct pt_prom_agent agent = { .version = "1" };
	char *text = NULL, *at, *end, conf[96];
	unsigned refusals = 0;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	(void)state;
	assert_non_null(f);
	assert_int_equal(pt_prom_write(f, &agent, &job, 1, true), 0);
	fclose(f);
	at = strstr(text, "\npipetrace_job_info{");
	assert_non_null(at);
	at = strchr(at, '{') + 1;
	*strchr(at, '}') = '\0';
	for (at = strtok_r(at, ",", &end); at; at = strtok_r(NULL, ",", &end)) {
		at[strcspn(at, "=")] = '\0';
		snprintf(conf, sizeof(conf), "[labels]\n%s = x\n", at);
		if (!strcmp(at, "team")) {
			assert_int_equal(parse(conf), 0);
			continue;
		}
		refused(conf, "t.conf:2", at);
		refusals++;
	}
	assert_int_equal(refusals, 15);
	free(text);
}

static void slips(void **state)
{
	char text[4096];
	size_t n;
	int i;

	(void)state;
	refused("[agent]\nintervall = 60s\n", "t.conf:2", "intervall");
	refused("\n[agnt]\ninterval = 60s\n", "t.conf:3", "agnt");
	refused("interval = 60s\n", "t.conf:1", "section");
	refused("[agent]\ninterval = fast\n", "t.conf:2", "fast");
	refused("[agent]\ninterval = 1s\n", "t.conf:2", "interval");
	refused("[agent]\ninterval = nan\n", "t.conf:2", "nan");
	refused("[agent]\ninterval = -5\n", "t.conf:2", "-5");
	refused("[agent]\nsample = 40s\n", "t.conf", "half of interval");
	refused("[agent]\nat-once = 99\n", "t.conf:2", "at-once");
	refused("[agent]\naligned = maybe\n", "t.conf:2", "maybe");
	refused("[agent]\nmode = turbo\n", "t.conf:2", "turbo");
	refused("[agent]\nstate = var/lib\n", "t.conf:2", "var/lib");
	refused("[agent]\nsample = 5s\nsample = 6s\n", "t.conf:3", "twice");
	refused("[budget]\ncpu = 1e999\n", "t.conf:2", "cpu");
	refused("[budget]\nmemory = 1\n", "t.conf:2", "1");
	refused("[http]\ncert = /x\n", "t.conf", "together");
	refused("[otlp]\nendpoint = ftp://x\n", "t.conf", "http");
	refused("[labels]\n1a = x\n", "t.conf:2", "1a");
	refused("[labels]\n__a = x\n", "t.conf:2", "__a");
	refused("[labels]\na-b = x\n", "t.conf:2", "a-b");
	refused("[labels]\na = x\na = y\n", "t.conf:3", "twice");
	refused("[job x]\nexclude = yes\n", "t.conf", "pattern");
	refused("[job x]\nexe = yes\n", "t.conf:2", "exe");
	refused("[job ]\ncomm = x\n", "t.conf:2", "name");
	refused("[agent]\nno key here\n", "t.conf:2", "neither");
	refused("[agent\ninterval = 5s\n", "t.conf:1", "neither");
	refused("[labels]\na = \x1b[2J\n", "t.conf:2", "control");
	/* a line, labels and rules without end */
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	refused(text, "t.conf:1", "long");
	for (i = 0, n = (size_t)sprintf(text, "[labels]\n"); i < 9; i++)
		n += (size_t)sprintf(text + n, "l%d = x\n", i);
	refused(text, "t.conf:10", "labels");
	for (i = 0, n = 0; i < 65; i++)
		n += (size_t)sprintf(text + n, "[job %d]\ncomm = x\n", i);
	refused(text, "t.conf:130", "64");
}

static void files(void **state)
{
	char path[] = "/tmp/pipetrace-conf-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "[agent]\n", 8), 8);
	assert_int_equal(pt_config_read(path, &c, &err), 0);
	if (!geteuid()) {
		assert_int_equal(fchmod(fd, 0620), 0);
		assert_int_equal(pt_config_read(path, &c, &err), -EPERM);
		assert_int_equal(fchmod(fd, 0600), 0);
		assert_int_equal(fchown(fd, 1, 0), 0);
		assert_int_equal(pt_config_read(path, &c, &err), -EPERM);
		assert_int_equal(fchown(fd, 0, 0), 0);
	}
	assert_int_equal(pwrite(fd, "\0", 1, 3), 1); /* no text */
	assert_int_equal(pt_config_read(path, &c, &err), -EINVAL);
	assert_int_equal(ftruncate(fd, PT_CONFIG_BYTES + 1), 0);
	assert_int_equal(pt_config_read(path, &c, &err), -EINVAL);
	close(fd);
	unlink(path);
	assert_int_equal(pt_config_read(path, &c, &err), -ENOENT);
	assert_int_not_equal(pt_config_read("/tmp", &c, &err), 0);
}

/* "Every line here is the default", the example says. */
static void example(void **state)
{
	static struct pt_config defaults;
	static char text[65536];
	FILE *f = fopen("tools/packaging/agent.conf", "r");
	size_t n;

	(void)state;
	if (!f) {
		/* not run from the sources' folder */
		skip();
	}
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	assert_int_equal(parse(text), 0);
	pt_config_default(&defaults);
	assert_memory_equal(&c, &defaults, sizeof(c));
}

/* Against what each pattern means, letter by letter. */
static bool slow_glob(const char *p, const char *s)
{
	if (!*p)
		return !*s;
	if (*p == '*')
		return slow_glob(p + 1, s) || (*s && slow_glob(p, s + 1));
	return *s && (*p == '?' || *p == *s) && slow_glob(p + 1, s + 1);
}

static void globs(void **state)
{
	static const char letters[] = "ab*?";
	char p[8], s[8], *evil, pattern[64];
	unsigned n = 0, x, i, len, yes = 0;

	(void)state;
	srand(7);
	for (n = 0; n < 200000; n++) {
		len = (unsigned)rand() % 7;
		for (i = 0; i < len; i++)
			p[i] = letters[rand() % 4];
		p[len] = '\0';
		len = (unsigned)rand() % 7;
		for (i = 0; i < len; i++)
			s[i] = letters[rand() % 2];
		s[len] = '\0';
		x = slow_glob(p, s);
		yes += x;
		if (pt_rule_glob(p, s) != (bool)x)
			fail_msg("\"%s\" and \"%s\"", p, s);
	}
	assert_true(yes > 10000);
	/* a command line that would take a slow one for ever */
	evil = malloc(4096);
	memset(evil, 'a', 4095);
	evil[4095] = '\0';
	for (i = 0; i + 2 < sizeof(pattern); i += 2)
		memcpy(pattern + i, "*a", 2);
	pattern[i] = 'b';
	pattern[i + 1] = '\0';
	assert_false(pt_rule_glob(pattern, evil));
	free(evil);
}

static void rules(void **state)
{
	struct pt_rule_facts f = { "python3", "python3 train.py --lr 1", "anna",
				   "12:cpu:/user.slice\n0::/kube/pod7/x\n" };

	(void)state;
	assert_int_equal(parse("[job no]\ncmdline = *train.py*\nuser = bob\n"
			       "exclude = yes\n"
			       "[job yes]\ncomm = python?\ncgroup = */pod7/*\n"
			       "[job rest]\ncomm = *\nexclude = yes\n"), 0);
	assert_int_equal(pt_rule_decide(&c, &f), PT_RULE_JOB);
	f.user = "bob";
	assert_int_equal(pt_rule_decide(&c, &f), PT_RULE_EXCLUDED);
	f.user = "anna";
	f.cgroup = "0::/kube/pod8/x\n";
	assert_int_equal(pt_rule_decide(&c, &f), PT_RULE_EXCLUDED);
	/* a pattern does not reach over lines */
	f.cgroup = "0::/a\n1:x:/pod7/b\n";
	assert_int_equal(parse("[job a]\ncgroup = /a*b\n"), 0);
	assert_int_equal(pt_rule_decide(&c, &f), PT_RULE_NONE);
	f.cgroup = "";
	assert_int_equal(pt_rule_decide(&c, &f), PT_RULE_NONE);
}

#define ENV(text) text, sizeof(text)

static void launchers(void **state)
{
	struct pt_ranks r;

	(void)state;
	pt_ranks_environ(ENV("PATH=/bin\0RANK=3\0WORLD_SIZE=16\0LOCAL_RANK=1\0"
			     "MASTER_ADDR=n0\0MASTER_PORT=29500\0"
			     "TORCHELASTIC_RUN_ID=job7"), "me", &r);
	assert_true(r.rank == 3 && r.world == 16 && r.local == 1);
	assert_string_equal(r.group, "torch:job7@n0:29500");
	/* the same address on each node is no common name */
	pt_ranks_environ(ENV("RANK=0\0WORLD_SIZE=2\0MASTER_ADDR=127.0.0.1\0"
			     "MASTER_PORT=1\0TORCHELASTIC_RUN_ID=none"), "me", &r);
	assert_string_equal(r.group, "torch:127.0.0.1:1@me");
	pt_ranks_environ(ENV("SLURM_JOB_ID=77\0SLURM_STEP_ID=0\0SLURM_PROCID=5\0"
			     "SLURM_NTASKS=8\0SLURM_LOCALID=1"), "me", &r);
	assert_true(r.rank == 5 && r.world == 8 && r.local == 1);
	assert_string_equal(r.group, "slurm:77.0");
	assert_string_equal(r.slurm_job, "77");
	pt_ranks_environ(ENV("OMPI_COMM_WORLD_RANK=2\0OMPI_COMM_WORLD_SIZE=4"),
			 "me", &r);
	assert_true(r.rank == 2 && r.world == 4 && r.local == -1);
	assert_string_equal(r.group, "");
	pt_ranks_environ(ENV("PMI_RANK=1\0PMI_SIZE=2"), "me", &r);
	assert_true(r.rank == 1 && r.world == 2);
	pt_ranks_environ("", 0, "me", &r);
	assert_true(r.rank == -1 && r.world == -1 && !*r.group);
}

static void hostile(void **state)
{
	char big[4096];
	struct pt_ranks r;
	unsigned n, i;

	(void)state;
	pt_ranks_environ(ENV("RANK=-1\0WORLD_SIZE=99999999999999999999\0"
			     "LOCAL_RANK=1x\0SLURM_JOB_ID=1\n2\0SLURM_STEP_ID=../x"),
			 "me", &r);
	assert_true(r.rank == -1 && r.world == -1 && r.local == -1);
	assert_true(!*r.slurm_job && !*r.slurm_step && !*r.group);
	/* names too long for a label: still one name for all, of other nodes, too */
	memset(big, 'x', sizeof(big));
	memcpy(big, "MASTER_ADDR=", 12);
	memcpy(big + 200, "\0MASTER_PORT=1\0WORLD_SIZE=2", 28);
	pt_ranks_environ(big, 228, "me", &r);
	assert_int_equal(strlen(r.group), 6 + 16);
	memset(big + 200, 'x', 100);
	memcpy(big + 400, "\0MASTER_PORT=1\0WORLD_SIZE=2", 28);
	pt_ranks_environ(big, 428, "me", &r);
	assert_string_equal(r.group, "");
	srand(3);
	for (n = 0; n < 20000; n++) {
		static const char *const parts[] = { "RANK=", "WORLD_SIZE=", "1",
			"MASTER_ADDR=", "MASTER_PORT=", "SLURM_JOB_ID=", "\n",
			"TORCHELASTIC_RUN_ID=", "\xff", "\"}", "9999999999" };
		size_t len = 0;

		for (i = 0; i < 20; i++) {
			const char *s = parts[(unsigned)rand() % 11];

			memcpy(big + len, s, strlen(s));
			len += strlen(s);
			if (rand() % 2)
				big[len++] = '\0';
		}
		pt_ranks_environ(big, len, "me", &r);
		assert_true(r.rank >= -1 && r.rank < 1 << 24);
		for (i = 0; r.group[i]; i++)
			assert_true(r.group[i] > ' ' && r.group[i] <= '~');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(watches), cmocka_unit_test(own_labels), cmocka_unit_test(slips),
		cmocka_unit_test(files), cmocka_unit_test(example), cmocka_unit_test(globs),
		cmocka_unit_test(rules), cmocka_unit_test(launchers),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
