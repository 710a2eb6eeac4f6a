/* SPDX-License-Identifier: BSD-2-Clause */
/* Every BPF program that this kernel allows passes the verifier. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture/load.h"

static struct pt_features feat;

struct seen {
	char name[64];
	bool loaded;
};
static struct seen seen[128];
static size_t n_seen;

static void note(void *ctx, const char *name, bool loaded, uint32_t insns)
{
	(void)ctx;
	if (loaded)
		print_message("# %s: %u instructions\n", name, insns);
	assert_true(n_seen < sizeof(seen) / sizeof(seen[0]));
	snprintf(seen[n_seen].name, sizeof(seen[0].name), "%s", name);
	seen[n_seen++].loaded = loaded;
}

static bool is_loaded(const char *name)
{
	size_t i;

	for (i = 0; i < n_seen; i++)
		if (!strcmp(seen[i].name, name))
			return seen[i].loaded;
	fail_msg("there is no program %s", name);
	return false;
}

static void load(const struct pt_capture_opts *o)
{
	struct pt_err err = { "" };
	int r;

	if (feat.missing[0]) {
		print_message("# needs %s\n", feat.missing);
		skip();
	}
	n_seen = 0;
	r = pt_load_list(o, note, NULL, &err);
	if (r)
		fail_msg("%s", err.msg);
}

static void core_loaded(void)
{
	static const char *const core[] = { "pt_sched_switch", "pt_sched_waking",
					    "pt_fork", "pt_exec", "pt_exit",
					    "pt_rename", "pt_iter" };
	size_t i;

	for (i = 0; i < sizeof(core) / sizeof(core[0]); i++)
		if (!is_loaded(core[i]))
			fail_msg("%s is not loaded", core[i]);
}

static void standard(void **state)
{
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD, .python = true };

	(void)state;
	load(&o);
	core_loaded();
	assert_int_equal(is_loaded("pt_py_clock"), feat.py_clock);
	assert_int_equal(is_loaded("pt_gpu_enter_multi"), feat.uprobe_multi);
	assert_int_equal(is_loaded("pt_gpu_return_multi"), feat.uprobe_multi);
	assert_int_equal(is_loaded("pt_vfs_read_fexit"), feat.fentry);
	assert_int_equal(is_loaded("pt_vfs_read_kprobe"),
			 feat.kprobe && !feat.fentry);
	assert_int_equal(is_loaded("pt_get_pages"),
			 feat.pages && !feat.fentry && !feat.kprobe);
	assert_int_equal(is_loaded("pt_ring_complete"),
			 feat.io_uring &&
			 pt_reads_ladder(&feat, o.mode) != PT_DOOR_NONE);
	/* Every process would pay for these. */
	assert_false(is_loaded("pt_sys_enter"));
}

static void perf_door(void **state)
{
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD,
				     .no_uprobe_multi = true };

	(void)state;
	load(&o);
	core_loaded();
	assert_int_equal(is_loaded("pt_gpu_enter"), feat.uprobe);
	assert_int_equal(is_loaded("pt_gpu_return"), feat.uprobe);
	assert_false(is_loaded("pt_gpu_enter_multi"));
}

static void full(void **state)
{
	struct pt_capture_opts o = { .mode = PT_MODE_FULL };
	bool vfs = feat.fentry || feat.kprobe;

	(void)state;
	load(&o);
	core_loaded();
	assert_int_equal(is_loaded("pt_sys_enter"), !vfs);
	assert_int_equal(is_loaded("pt_sys_exit"), !vfs);
}

static void light(void **state)
{
	struct pt_capture_opts o = { .mode = PT_MODE_LIGHT };

	(void)state;
	load(&o);
	core_loaded();
	assert_false(is_loaded("pt_vfs_read_fexit"));
	assert_false(is_loaded("pt_get_pages"));
	assert_false(is_loaded("pt_ring_complete"));
	assert_false(is_loaded("pt_sys_enter"));
}

/* Every door that the kernel opens can be asked for; no other. */
static void each_door(void **state)
{
	static const struct {
		const char *door, *program;
	} doors[] = { { "fexit", "pt_vfs_read_fexit" },
		      { "kprobe", "pt_copy_kretprobe" },
		      { "pages", "pt_get_pages" },
		      { "syscall", "pt_sys_exit" } };
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD };
	bool there[] = { feat.fentry, feat.kprobe, feat.pages, true };
	struct pt_err err = { "" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
		assert_int_equal(pt_reads_parse(doors[i].door, &o.reads), 0);
		n_seen = 0;
		if (!there[i]) {
			assert_int_equal(pt_load_list(&o, note, NULL, &err),
					 -ENOTSUP);
			continue;
		}
		load(&o);
		core_loaded();
		assert_true(is_loaded(doors[i].program));
	}
	assert_int_equal(pt_reads_parse("window", &o.reads), -EINVAL);
}

/* Without them there is no trace. */
static bool is_core(const char *name)
{
	static const char *const core[] = { "pt_sched_switch", "pt_sched_waking", "pt_fork",
					    "pt_exec", "pt_exit", "pt_rename", "pt_iter" };
	size_t i;

	for (i = 0; i < sizeof(core) / sizeof(core[0]); i++)
		if (!strcmp(core[i], name))
			return true;
	return false;
}

/* Whichever one program the kernel refuses though a probe said yes: the trace does without
 * what that was for, or says in a sentence that it cannot. */
static void each_refused(void **state)
{
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD };
	struct seen all[128];
	struct pt_err err;
	size_t n, i;
	int r;

	(void)state;
	load(&o);
	n = n_seen;
	memcpy(all, seen, sizeof(all));
	for (i = 0; i < n; i++) {
		if (!all[i].loaded)
			continue;
		o.refused = all[i].name;
		n_seen = 0;
		err.msg[0] = 0;
		r = pt_load_list(&o, note, NULL, &err);
		if (is_core(all[i].name)) {
			assert_true(r < 0 && strstr(err.msg, all[i].name));
			continue;
		}
		if (r)
			fail_msg("without %s: %s", all[i].name, err.msg);
		assert_false(is_loaded(all[i].name));
		core_loaded();
	}
}

static const char *door_of(const struct pt_capture *c, const char *need)
{
	const struct pt_hook_state *h;
	size_t n = pt_capture_hooks(c, &h), i;

	for (i = 0; i < n; i++)
		if (!strcmp(h[i].need, need))
			return h[i].door;
	return "";
}

/* A whole capture, without one program of each kind. */
static void opens_without(void **state)
{
	static const struct {
		const char *program, *need, *door;
	} kinds[] = { { "pt_sock_state", "sockets", "sched" },
		      { "pt_block_complete", "block", "none" },
		      { "pt_page_added", "faults", "none" },
		      { "pt_ring_complete", "io_uring", "none" } };
	pid_t self = getpid();
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD, .pids = &self, .n_pids = 1,
				     .trainer = self };
	struct pt_capture *c;
	struct pt_err err;
	size_t i;

	(void)state;
	load(&o);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		o.refused = kinds[i].program;
		if (!is_loaded(o.refused))
			continue;
		if (pt_capture_open(&c, &o, &err))
			fail_msg("without %s: %s", o.refused, err.msg);
		assert_string_equal(door_of(c, kinds[i].need), kinds[i].door);
		assert_string_equal(door_of(c, "sched"), "tp_btf");
		pt_capture_close(c, NULL, NULL);
	}
	o.refused = "pt_fork";
	err.msg[0] = 0;
	assert_true(pt_capture_open(&c, &o, &err) < 0);
	assert_non_null(strstr(err.msg, "the kernel refused"));
	assert_null(strchr(err.msg, '\n'));
}

struct watch {
	int fd;
	atomic_bool stop;
	unsigned opened; /* by us */
};

/* The kernel asks us whether a file may be opened: of what it merely tells, openings
 * that are alike become one. */
static void *allow(void *arg)
{
	struct watch *w = arg;
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	struct fanotify_event_metadata m;

	while (!w->stop) {
		if (poll(&p, 1, 20) <= 0 || read(w->fd, &m, sizeof(m)) != sizeof(m))
			continue;
		struct fanotify_response yes = { .fd = m.fd, .response = FAN_ALLOW };

		w->opened += m.pid == getpid();
		if (write(w->fd, &yes, sizeof(yes)) != sizeof(yes))
			w->opened += 100;
		close(m.fd);
	}
	return NULL;
}

/* Each reading of the kernel's types costs 5 to 13 ms: a whole capture does with one. */
static void types_are_read_once(void **state)
{
	pid_t self = getpid();
	struct pt_capture_opts o = { .mode = PT_MODE_STANDARD, .pids = &self, .n_pids = 1,
				     .trainer = self };
	struct watch w = { .fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY) };
	struct pt_capture *c;
	struct pt_err err;
	pthread_t t;

	(void)state;
	if (w.fd < 0 || fanotify_mark(w.fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD,
				      "/sys/kernel/btf/vmlinux")) {
		print_message("# this kernel does not ask who may open a file\n");
		skip();
	}
	assert_int_equal(pthread_create(&t, NULL, allow, &w), 0);
	load(&o);
	if (pt_capture_open(&c, &o, &err))
		fail_msg("%s", err.msg);
	pt_capture_close(c, NULL, NULL);
	w.stop = true;
	pthread_join(t, NULL);
	close(w.fd);
	assert_int_equal(w.opened, 2); /* for the list, and the capture */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(types_are_read_once),
		cmocka_unit_test(standard),
		cmocka_unit_test(perf_door),
		cmocka_unit_test(full),
		cmocka_unit_test(light),
		cmocka_unit_test(each_door),
		cmocka_unit_test(each_refused),
		cmocka_unit_test(opens_without),
	};

	if (pt_features_probe(&feat))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
