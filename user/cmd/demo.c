// SPDX-License-Identifier: BSD-2-Clause
/* A training job on a simulated GPU, traced for real. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "version.h"

#define WARM_UP_MS 2000 /* attach to a job that is already under way */
#define TRACE_SECONDS 8
#define JOB_SECONDS "60" /* ends by itself should nobody end it */

static const char doc[] =
	"Run a training job on a simulated GPU, attach to it while it runs, "
	"and print the diagnosis: the whole product without a GPU. Needs root, "
	"like any trace.";

/*
 * The job lies beside this program (build tree) or in its libexec directory;
 * never looked for in PATH, because it is about to be run, perhaps by root.
 */
static int find_job(char *out, size_t size)
{
	static const char *const places[] = {
		"%s/sim/simjob",
		"%s/../libexec/pipetrace/simjob",
		PT_LIBEXECDIR "/simjob",
	};
	char self[PATH_MAX], path[PATH_MAX], *slash;
	struct stat st;
	ssize_t len;
	size_t i;
	int n;

	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (len < 0)
		return -errno;
	self[len] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	for (i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (strncmp(places[i], "%s", 2))
			n = snprintf(path, sizeof(path), "%s", places[i]);
		else
			n = snprintf(path, sizeof(path), "%s%s", self,
				     places[i] + 2);
		if (n < (int)sizeof(path) && n < (int)size &&
		    !stat(path, &st) && S_ISREG(st.st_mode)) {
			memcpy(out, path, (size_t)n + 1);
			return 0;
		}
	}
	return -ENOENT;
}

static void pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* Start it as the user behind sudo; where that one may not read the file
 * (a build in root's home), as root. */
static int start_job(struct pt_spawn *s, char *job, bool *as_root, struct pt_err *err)
{
	char opt[] = "--seconds", seconds[] = JOB_SECONDS;
	char *args[] = { job, opt, seconds, NULL };
	struct pt_spawn_opts so = { .own_group = true, .no_stdin = true };
	int ret;

	ret = pt_spawn(s, args, &so, err);
	ret = ret ?: pt_spawn_go(s, job, err);
	if (ret != -EACCES)
		return ret;
	pt_spawn_kill(s);
	so.as_root = *as_root = true;
	ret = pt_spawn(s, args, &so, err);
	return ret ? ret : pt_spawn_go(s, job, err);
}

static int run_demo(const struct pt_opts *o)
{
	struct pt_spawn job = { .go = -1, .failed = -1 };
	struct pt_err err = { "" };
	struct pt_opts t = *o;
	char path[PATH_MAX];
	bool as_root = false;
	int status = PT_EXIT_FAILED;

	if (find_job(path, sizeof(path)))
		return pt_fail(PT_EXIT_FAILED,
			       "the demo's training job is not installed beside "
			       "this program: build it with make");
	if (start_job(&job, path, &as_root, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	pause_ms(WARM_UP_MS);
	if (pt_spawn_done(&job)) {
		pt_error("the demo's training job ended at once");
		goto out;
	}
	printf("pipetrace attaches to it in mid-run, as it would to yours: "
	       "pipetrace -p %d -d %d\n\n", job.pid, TRACE_SECONDS);
	fflush(stdout);
	/* a job that runs as root can only be ended by root */
	if (pt_give_up(PT_RIGHTS_TRACE, as_root ? PT_STAY : 0))
		goto out;
	t.pids[0] = job.pid;
	t.n_pids = 1;
	t.duration = TRACE_SECONDS;
	status = pt_trace(&t, NULL, true);
out:
	pt_spawn_kill(&job);
	return status;
}

int pt_cmd_demo(int argc, char **argv)
{
	struct pt_opts o;
	int status;

	if (pt_opts_done(&o, PT_OPTS_PLAIN, doc, argc, argv, &status))
		return status;
	if (geteuid())
		return pt_fail(PT_EXIT_FAILED,
			       "the demo loads BPF programs, for which it needs "
			       "root: run it with sudo");
	if (pt_block_signals())
		return pt_fail(PT_EXIT_FAILED, "cannot block signals");
	return run_demo(&o);
}
