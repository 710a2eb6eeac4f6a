// SPDX-License-Identifier: BSD-2-Clause
/*
 * Processes outside of the target's tree that end its waits: they are followed
 * like the target, but for GPU calls. The kernel's fork hook follows what they
 * fork from then on, its exit hook ends it.
 */
#include <bpf/bpf.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "capture/session.h"

#define PARENTS_MAX 16 /* further up nobody is a relative */

/* Names (or how they begin) of those whom many jobs have to do with and who are
 * hardly ever a supplier: shells, terminals, loggers, managers, the driver. */
static const char *const bystanders[] = {
	"bash", "sh", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "busybox",
	"login", "su", "sudo*", "sshd*", "tmux*", "screen", "script", "expect",
	"xterm", "konsole", "kitty", "alacritty", "gnome-terminal*", "agetty",
	"systemd*", "dbus-*", "(sd-pam)", "rsyslogd", "syslog*", "journald*",
	"cron", "crond", "logger", "tee", "init", "tini", "dumb-init", "runit",
	"supervisord", "dockerd", "containerd*", "runc", "crio", "conmon*",
	"kubelet", "podman", "slurmd", "slurmstepd*", "nscd", "sssd*",
	"nvidia-*", "nv-*", "nvsm*", "dcgm*", "gdb", "strace", "perf",
};

static bool is_bystander(const char *comm)
{
	size_t i, n;

	for (i = 0; i < sizeof(bystanders) / sizeof(bystanders[0]); i++) {
		n = strlen(bystanders[i]);
		if (bystanders[i][n - 1] == '*' ?
			    !strncmp(comm, bystanders[i], n - 1) :
			    !strcmp(comm, bystanders[i]))
			return true;
	}
	return false;
}

/* Is `old` a parent of `pid`, its parent's, ...? */
static bool is_ancestor(pid_t old, pid_t pid)
{
	struct pt_proc_stat st;
	int i;

	for (i = 0; i < PARENTS_MAX && pid > 1; i++) {
		if (pt_proc_stat(pid, &st))
			return false;
		pid = st.ppid;
		if (pid == old)
			return true;
	}
	return false;
}

static bool started_the_job(const struct pt_capture *c, pid_t pid)
{
	size_t i;

	for (i = 0; i < c->n_roots; i++)
		if (is_ancestor(pid, c->roots[i]))
			return true;
	return false;
}

/* The same control groups, which are not the job's as well. */
static bool same_cgroup(const struct pt_capture *c, pid_t a, pid_t b)
{
	char of[3][1024];
	const pid_t pid[3] = { a, b, c->roots[0] };
	size_t i;

	for (i = 0; i < 3; i++)
		if (pt_proc_read(pid[i], "cgroup", of[i], sizeof(of[i])) <= 0)
			return false;
	return !strcmp(of[0], of[1]) && strcmp(of[0], of[2]) != 0;
}

/* Parts of one service: those who ask it for something are none. */
static bool same_service(const struct pt_capture *c, pid_t a,
			 const struct pt_proc_stat *st, pid_t b)
{
	struct pt_proc_stat other;

	if (pt_proc_stat(b, &other))
		return false;
	return (st->session && st->session == other.session) ||
	       is_ancestor(a, b) || is_ancestor(b, a) || same_cgroup(c, a, b);
}

static bool lookup(struct pt_capture *c, pid_t pid, struct pt_target *v)
{
	uint32_t key = (uint32_t)pid;

	return !bpf_map_lookup_elem(bpf_map__fd(c->skel->maps.pt_targets), &key,
				    v);
}

static bool wanted(struct pt_capture *c, const struct pt_supplier *s)
{
	struct pt_proc_stat st;
	struct pt_target v;

	if (s->pid <= 1 || s->pid == getpid() || lookup(c, s->pid, &v) ||
	    !lookup(c, s->waiter, &v) || pt_proc_stat(s->pid, &st) ||
	    st.kthread || st.state == 'Z' || st.state == 'X' ||
	    !strcmp(st.comm, "pipetrace"))
		return false;
	if (v.outside && !same_service(c, s->pid, &st, s->waiter))
		return false;
	return s->surely ||
	       (!is_bystander(st.comm) && !started_the_job(c, s->pid));
}

/* True: it is in the set now, of which a look at the tasks has to follow. */
static bool adopt_process(struct pt_capture *c, const struct pt_supplier *s)
{
	struct pt_target v = { .since = pt_now_ns(), .outside = 1,
			       .waiter = (uint32_t)s->waiter,
			       .wakes = s->wakes, .slept_ns = s->slept_ns };
	__u32 *n = &c->skel->bss->pt_outsiders;
	uint32_t key = (uint32_t)s->pid;

	if (__atomic_fetch_add(n, 1, __ATOMIC_RELAXED) >= PT_MAX_OUTSIDE) {
		__atomic_fetch_sub(n, 1, __ATOMIC_RELAXED);
		pt_hook_set(c, "outside", "wake-ups",
			    "more than %d processes outside of the job end its "
			    "waits: the rest is not followed", PT_MAX_OUTSIDE);
		return false;
	}
	if (bpf_map_update_elem(bpf_map__fd(c->skel->maps.pt_targets), &key, &v,
				BPF_NOEXIST)) {
		__atomic_fetch_sub(n, 1, __ATOMIC_RELAXED);
		return false;
	}
	if (!c->outside)
		pt_hook_set(c, "outside", "wake-ups", "%s", "");
	c->outside = true;
	return true;
}

/* ---- a pool of them ------------------------------------------------------------- */

#define KIN_MAX 32     /* of one pool */
#define COMMAND_MAX 4096

/* The command line without its digits: those of a pool differ in a number, a port or the
 * name of a socket. */
static size_t command_of(pid_t pid, char buf[COMMAND_MAX])
{
	ssize_t n = pt_proc_read(pid, "cmdline", buf, COMMAND_MAX);
	size_t i, len = 0;

	for (i = 0; n > 0 && i < (size_t)n; i++)
		if (buf[i] < '0' || buf[i] > '9')
			buf[len++] = buf[i];
	return len;
}

/* Of one pool: one parent has started both, by the same command. */
static bool is_kin(pid_t pid, const struct pt_proc_stat *st, const char *command,
		   size_t len)
{
	struct pt_proc_stat other;
	char own[COMMAND_MAX];

	return !pt_proc_stat(pid, &other) && other.ppid == st->ppid &&
	       !strcmp(other.comm, st->comm) && command_of(pid, own) == len &&
	       !memcmp(own, command, len);
}

/*
 * Of several that make batches in turn the job may wait for the slowest alone. How slow
 * that is only the others show, who are never waited for.
 */
static void add_kin(struct pt_capture *c, const struct pt_supplier *s)
{
	struct pt_supplier other = { .waiter = s->waiter };
	struct pt_proc_stat st;
	char command[COMMAND_MAX];
	struct dirent *e;
	size_t len, n = 0;
	DIR *d;

	if (pt_proc_stat(s->pid, &st) || st.ppid <= 1)
		return;
	len = command_of(s->pid, command);
	d = len ? opendir("/proc") : NULL;
	while (d && n < KIN_MAX && (e = readdir(d))) {
		other.pid = (pid_t)strtol(e->d_name, NULL, 10);
		if (other.pid <= 1 || other.pid == s->pid ||
		    !is_kin(other.pid, &st, command, len) || !wanted(c, &other))
			continue;
		n += adopt_process(c, &other);
	}
	if (d)
		closedir(d);
}

void pt_capture_adopt(struct pt_capture *c, const struct pt_supplier *s)
{
	size_t i;

	for (i = 0; i < c->n_suppliers; i++)
		if (c->suppliers[i].pid == s->pid)
			return;
	if (!c->stopped && i < PT_MAX_OUTSIDE)
		c->suppliers[c->n_suppliers++] = *s;
}

void pt_outside_take(struct pt_capture *c)
{
	bool more = false;
	size_t i;

	for (i = 0; i < c->n_suppliers; i++) {
		if (c->stopped || !wanted(c, &c->suppliers[i]) ||
		    !adopt_process(c, &c->suppliers[i]))
			continue;
		more = true;
		add_kin(c, &c->suppliers[i]);
	}
	c->n_suppliers = 0;
	if (!more)
		return;
	pt_run_pass(c, PT_PASS_SEED, 0);
	pt_socks_pass(c, PT_PASS_SEED, 0);
	c->outside_again = true;
}

void pt_outside_tick(struct pt_capture *c)
{
	int map = bpf_map__fd(c->skel->maps.pt_targets);
	uint32_t key, next, *prev = NULL;
	struct pt_target v;
	char path[32];
	size_t steps;

	if (!c->outside)
		return;
	/* what was forked while the last look was under way */
	if (c->outside_again)
		pt_run_pass(c, PT_PASS_SEED, 0);
	c->outside_again = false;
	for (steps = 0; steps < PT_MAX_TARGETS; steps++) {
		if (bpf_map_get_next_key(map, prev, &next))
			break;
		key = next;
		prev = &key;
		snprintf(path, sizeof(path), "/proc/%u", next);
		/* it ended before it was looked at */
		if (lookup(c, (pid_t)next, &v) && v.outside &&
		    access(path, F_OK) && !bpf_map_delete_elem(map, &next))
			__atomic_fetch_sub(&c->skel->bss->pt_outsiders, 1,
					   __ATOMIC_RELAXED);
	}
}
