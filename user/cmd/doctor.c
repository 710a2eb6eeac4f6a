// SPDX-License-Identifier: BSD-2-Clause
/* What this kernel, these privileges and this target allow, and what is lost
 * without. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "capture/capture.h"
#include "capture/discover.h"
#include "capture/points.h"
#include "capture/selftest.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/sudo.h"
#include "gpu/api.h"
#include "gpu/nvml.h"
#include "inject/cupti.h"

#define MAX_LIBS 16
#define MAX_NAMED 3
#define NVML_WAIT_MS 1000

static const char doc[] =
	"Say what this kernel, these privileges, this GPU stack and the job "
	"allow, how each thing would be traced, and what is lost where that "
	"is not possible. Exit status: 0 if a trace would work.";

static void row(const char *what, const char *door, const char *lost)
{
	printf("  %-22s %-22s %s\n", what, door, lost);
}

static const char *yes(bool b)
{
	return b ? "yes" : "no";
}

static bool show_needs(const struct pt_features *f)
{
	bool allowed = f->cap_bpf && f->cap_perfmon;

	printf("Needed\n");
	row("privileges", allowed ? "yes" : "no",
	    allowed ? "" : "run with sudo, or with CAP_BPF, CAP_PERFMON and "
			   "CAP_SYS_PTRACE");
	row("kernel BTF", yes(f->btf),
	    f->btf ? "" : "boot a kernel with CONFIG_DEBUG_INFO_BTF");
	/* what cannot be tried without privileges is not known to be missing */
	if (!allowed) {
		row("BPF programs", "unknown", "run as root to find out");
		return false;
	}
	row("scheduler events", f->tp_btf ? "tp_btf" : "none",
	    f->tp_btf ? "" : "no waits at all: Linux 5.15 or later");
	row("ring buffer", yes(f->ringbuf), f->ringbuf ? "" : "Linux 5.8");
	row("per-thread storage", yes(f->task_storage),
	    f->task_storage ? "" : "Linux 5.11");
	row("threads that run now", f->task_iter ? "iter/task" : "none",
	    f->task_iter ? "" : "a blocked worker would not be seen");
	row("blocking system calls", yes(f->task_pt_regs),
	    f->task_pt_regs ? "" : "waits could not be told apart");
	return !f->missing[0];
}

static void show_reads(const struct pt_features *f)
{
	unsigned door = pt_reads_ladder(f, PT_MODE_STANDARD);

	row("reads", pt_door_name(door),
	    door == PT_DOOR_PAGES ?
		    "calls are not timed; O_DIRECT and tmpfs are not seen, but "
		    "in --mode full (by system calls, which every process pays)" :
	    door == PT_DOOR_NONE ?
		    "single reads in --mode full only; blocked reads and bytes "
		    "always" : "");
	row("reads by io_uring", f->io_uring ? "tp_btf" : "none",
	    f->io_uring ? "" : "not counted: Linux 5.19");
	row("reads by libaio", f->libaio ? "fexit" : "none",
	    f->libaio ? "of those with O_DIRECT the bytes are an upper bound" :
			"not counted");
	row("block requests", f->block ? "tp_btf" : "none",
	    !f->block ? "disks show no latency" :
	    f->block_start ? "" : "those that a disk's scheduler issues from "
				  "another thread count when they are inserted");
}

static void show_sockets(const struct pt_features *f)
{
	row("network peers", f->sock_state ? "tp_btf" :
			     f->sockets ? "sched" : "none",
	    f->sock_state && f->sock_iter ? "" :
	    f->sockets ? "connections are seen when a thread waits on them" :
			 "waits for the network have no peer");
	row("epoll waits", f->epoll ? "first ready socket" : "none",
	    f->epoll ? "" : "what an epoll wait was for is not seen");
	row("lines of Python", f->py_clock ? "perf_event" : "process_vm_readv",
	    f->py_clock ? "" : "threads that run are looked at seldom, and may be seen torn");
}

static void show_faults(const struct pt_features *f)
{
	unsigned door = pt_faults_ladder(f, PT_MODE_STANDARD);

	row("page faults", pt_fault_door_name(door),
	    door == PT_FAULT_DOOR_NONE ?
		    "mapped files that are waited for have no name" :
	    door == PT_FAULT_DOOR_ADDS ?
		    "only those that bring pages in outside of a system call" :
		    "");
}

/* Of multi-uprobe links, and of perf events where those do not work. */
static bool show_selftest(const struct pt_features *f)
{
	const struct pt_selftest *t = pt_selftest(true);
	char found[120], line[240];

	if (t->opened && !t->works) {
		pt_selftest_text(t, found, sizeof(found));
		row("self-test of links", "FAILED", found);
	}
	if (!f->uprobe_multi)
		t = pt_selftest(false);
	pt_selftest_text(t, found, sizeof(found));
	if (t->works && isfinite(t->stepped.ns))
		snprintf(line, sizeof(line), "%s; a probe costs %.1f us a call, at a dear place %.1f",
			 found, t->emulated.ns / 1e3, t->stepped.ns / 1e3);
	else if (t->works)
		snprintf(line, sizeof(line), "%s; a probe costs %.1f us a call", found,
			 t->emulated.ns / 1e3);
	else
		snprintf(line, sizeof(line), "%s", found);
	row("self-test of probes", t->works ? "passed" : "FAILED", line);
	return t->works;
}

static void show_doors(const struct pt_features *f)
{
	bool uprobes = f->uprobe && f->attach_cookie;

	printf("\nDoors\n");
	if (uprobes)
		uprobes = show_selftest(f);
	row("GPU calls",
	    !uprobes ? "none" : f->uprobe_multi ? "multi-uprobe link" :
						 "uprobes through perf",
	    !uprobes ? "GPU work is not seen: only waits" :
	    f->uprobe_multi ? "" : "detaching takes about 0.1 s per entry "
				   "point");
	show_reads(f);
	show_sockets(f);
	show_faults(f);
	row("file names", f->probe_read_kernel ? "probe_read_kernel" : "none",
	    f->probe_read_kernel ? "" : "files show by inode only");
	row("lockdown", f->lockdown, "");
}

/* What the driver says, within a second. */
static void show_nvml(unsigned flags)
{
	struct pt_nvml_answer *a = calloc(1, sizeof(*a));
	struct pt_nvml *n = NULL;
	char safe[512], line[600];
	uint32_t i;
	int err = a ? pt_nvml_start(&n) : -ENOMEM;

	if (!err) {
		pt_nvml_ask(n);
		if (!pt_nvml_wait(n, NVML_WAIT_MS, a))
			a->state = PT_NVML_STUCK;
	} else if (a) {
		a->state = PT_NVML_DIED;
	}
	if (a && a->state != PT_NVML_OK) {
		row("NVML", "none", pt_nvml_state_text(a->state));
	} else if (a) {
		pt_str_term(safe, sizeof(safe), a->driver, flags, 40);
		snprintf(line, sizeof(line), "driver %s", safe);
		row("NVML", line, a->n ? "" : "no device");
		for (i = 0; i < a->n; i++) {
			pt_str_term(safe, sizeof(safe), a->dev[i].rec.name,
				    flags, 40);
			printf("    GPU %u: %s\n", a->dev[i].rec.index, safe);
		}
	}
	pt_nvml_free(n);
	free(a);
}

/* Those whose first instructions are all of the kind that the kernel steps: see
 * docs/performance.md. */
static void show_dear(const struct pt_point *p, int n)
{
	int i, dear = 0;

	for (i = 0; i < n; i++)
		dear += p[i].stepped;
	if (!dear)
		return;
	printf("      %d of them cost 3 to 16 times what others do (0.3 to 0.9 us a call):",
	       dear);
	for (i = 0, dear = 0; i < n; i++)
		if (p[i].stepped && dear++ < MAX_NAMED)
			printf("\n        %s", pt_apis[PT_COOKIE_API(p[i].cookie)].symbol);
	printf("%s\n", dear > MAX_NAMED ? ", ..." : "");
}

static void show_lib(const struct pt_gpulib *g, unsigned flags)
{
	struct pt_point points[PT_MAX_POINTS];
	char safe[2048];
	struct pt_err err = { "" };
	int found, fd;

	pt_str_term(safe, sizeof(safe), g->path_display,
		    flags | PT_TERM_TAIL, 60);
	printf("    %s%s\n", safe,
	       g->deleted ? " (replaced on disk: taken from memory)" : "");
	fd = pt_gpulib_open(g);
	found = fd < 0 ? pt_err_set(&err, fd, "it cannot be opened: %s",
				    strerror(-fd)) :
			 pt_points_find(fd, g->kind, 0, points, &err);
	if (fd >= 0)
		close(fd);
	if (found < 0) {
		pt_str_term(safe, sizeof(safe), err.msg, flags, 0);
		printf("      %s\n", safe);
	} else {
		printf("      %d entry points to watch\n", found);
		show_dear(points, found);
	}
}

static void show_exact(pid_t pid, unsigned flags)
{
	char text[600], safe[1200];

	pt_cupti_check(pid, text, sizeof(text));
	pt_str_term(safe, sizeof(safe), text, flags, 0);
	printf("    exact GPU times (--cupti): %s\n", safe);
}

static bool show_target(pid_t given, unsigned flags)
{
	struct pt_gpulib libs[MAX_LIBS];
	struct pt_err err = { "" };
	struct pt_job job;
	ssize_t n, k;
	size_t i;

	if (pt_discover(given, &job, &err))
		return pt_fail(false, "%s", err.msg);
	printf("\nTarget %d\n", given);
	if (job.note[0])
		printf("  %s\n", job.note);
	if (!job.n_trainers)
		printf("  no GPU library is mapped%s\n",
		       job.unreadable ? ", as far as these privileges show" :
					": only waits would be seen until one "
					"is loaded");
	for (i = 0; i < job.n_trainers; i++) {
		printf("  trainer %d\n", job.trainers[i]);
		n = pt_gpulibs(job.trainers[i], libs, MAX_LIBS);
		for (k = 0; k < n; k++)
			show_lib(&libs[k], flags);
		show_exact(job.trainers[i], flags);
	}
	return true;
}

int pt_cmd_doctor(int argc, char **argv)
{
	struct pt_features f = { 0 };
	struct pt_opts o;
	bool works;
	size_t i;
	int ret;

	if (pt_opts_done(&o, PT_OPTS_TARGET, doc, argc, argv, &ret))
		return ret;
	if (pt_give_up(PT_RIGHTS_TRACE, 0))
		return PT_EXIT_FAILED;
	ret = pt_features_probe(&f);
	if (ret)
		return pt_fail(PT_EXIT_FAILED, "cannot find out what this kernel allows: %s",
			       strerror(-ret));
	printf("Linux %s\n\n", f.kernel);
	works = show_needs(&f);
	if (f.cap_bpf && f.cap_perfmon)
		show_doors(&f);
	show_nvml(o.ascii ? 0 : PT_TERM_UNICODE);
	for (i = 0; i < o.n_pids; i++)
		works &= show_target(o.pids[i],
				     o.ascii ? 0 : PT_TERM_UNICODE);
	if (works)
		printf("\nA trace would work here.\n");
	else if (f.missing[0])
		printf("\nA trace would not work here: pipetrace needs %s.\n",
		       f.missing);
	else
		printf("\nA trace would not work here.\n");
	return works ? PT_EXIT_OK : PT_EXIT_FAILED;
}
