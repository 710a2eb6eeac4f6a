/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of /proc, as a target's.
 *
 * proc: a byte that says which file, and its text; maps: one of /proc/PID/maps;
 * mounts: one of /proc/PID/mountinfo; inject: what --cupti looks at first: the same
 * with FIRST_FILE added to the byte, or seccomp filters, where the byte says how many
 * instructions the first one has.
 */
#include "fuzz.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/owner.h"
#include "agent/ranks.h"
#include "agent/sample.h"
#include "capture/discover.h"
#include "capture/disks.h"
#include "capture/procfs.h"
#include "inject/inject_int.h"

#define PID 4194400 /* no process has it */

static void give(const char *end, const char *text)
{
	fake_file(end, text, strlen(text));
}

/* ---- proc ----------------------------------------------------------------------- */

#define STAT                                                                   \
	"4194400 (py ) (thon) S 1 7 7 0 -1 4194304 10 0 0 0 50 60 0 0 20 0 9 0 8000 " \
	"4096000 300 18446744073709551615 94000 95000 140000 0 0 0 0 0 0\n"
#define STATUS                                                                 \
	"Name:\tpython\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4194402\nPid:\t7\n" \
	"PPid:\t1\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nVmRSS:\t  2048 kB\n"        \
	"Seccomp:\t2\nx86_Thread_features:\t\n"
#define MOUNTS                                                                 \
	"cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"                       \
	"cgroup / cgroup rw,cpu,cpuacct 0 0\n"
#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void of_stat(void)
{
	struct pt_proc_stat st;

	if (!pt_proc_stat(PID, &st))
		FUZZ_HOLDS(st.pid > 0 && memchr(st.comm, 0, sizeof(st.comm)));
	if (!pt_proc_thread_stat(PID, PID + 1, &st))
		FUZZ_HOLDS(st.pid > 0 && memchr(st.comm, 0, sizeof(st.comm)));
}

static void of_status(void)
{
	static const char *const keys[] = { "Tgid", "VmRSS", "TracerPid", "" };
	char text[4096];
	struct pt_err err = { "" };
	uint64_t v;
	pid_t tgid;
	size_t i;

	if (!pt_proc_tgid(PID, &tgid))
		FUZZ_HOLDS(tgid > 0);
	if (pt_proc_read(PID, "status", text, sizeof(text)) >= 0)
		for (i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			pt_proc_field(text, keys[i], &v);
	if (pt_inj_allowed(PID, &err))
		FUZZ_HOLDS(err.msg[0]);
	pt_inj_filtered(PID);
}

static void of_cgroup(void)
{
	char buf[512], id[72];
	struct pt_owner o;

	if (!pt_proc_container(PID, id, sizeof(id)))
		FUZZ_HOLDS(strlen(id) == 64);
	pt_cgroup_dir_of(PID, "cpu", buf, sizeof(buf));
	if (pt_cgroup_dir_of(PID, "memory", buf, sizeof(buf)) > 0)
		FUZZ_HOLDS(buf[0] == '/' && !strstr(buf, "/.."));
	pt_owner_of(PID, "/proc/no/logs", &o);
}

/* A launcher, its rank, and what that started. */
static void discover(void)
{
	struct pt_process p[] = { { .pid = PID, .ppid = 1, .start_ticks = 1 },
				  { .pid = PID + 1, .ppid = PID, .start_ticks = 2 },
				  { .pid = PID + 2, .ppid = PID + 1, .start_ticks = 3 } };
	size_t by_parent[] = { 0, 1, 2 };
	struct pt_tree t = { .p = p, .by_parent = by_parent, .n = 3 };
	struct pt_err err = { "" };
	bool unreadable = false;
	struct pt_job job;
	pid_t all[2];

	give("/maps", "1000-2000 r-xp 0 0:1 6 /lib/libcudart.so.12\n");
	if (pt_discover_in(&t, PID + 2, &job, &err))
		FUZZ_HOLDS(err.msg[0]);
	else
		FUZZ_HOLDS(memchr(job.note, 0, sizeof(job.note)) &&
			   job.n_trainers <= PT_MAX_TRAINERS);
	FUZZ_HOLDS(pt_all_trainers(&t, all, 2, &unreadable) <= 2);
}

static void of_cmdline(void)
{
	char small[16], large[6000];

	discover();
	FUZZ_HOLDS(pt_proc_cmdline(PID, small, sizeof(small)) < (ssize_t)sizeof(small));
	if (pt_proc_cmdline(PID, large, sizeof(large)) >= 0)
		FUZZ_HOLDS(strlen(large) < sizeof(large));
}

static void of_environ(void)
{
	struct pt_ranks r;
	char buf[16];

	FUZZ_HOLDS(pt_rank_of(PID) >= -1);
	if (!pt_proc_getenv(PID, "RANK", buf, sizeof(buf)))
		FUZZ_HOLDS(strlen(buf) < sizeof(buf));
	pt_ranks_of(PID, "node1", &r);
	FUZZ_HOLDS(r.rank >= -1 && r.world >= -1 && r.local >= -1);
	FUZZ_HOLDS(r.slurm_job[strspn(r.slurm_job, "0123456789")] == '\0');
}

static void of_line(void)
{
	char buf[64];
	const char *s = pt_file_line("/proc/line", buf, sizeof(buf));

	FUZZ_HOLDS(!s || (*s && !strchr(s, '\n')));
}

static const struct {
	const char *file, *usual;
	void (*read)(void);
} of[] = {
	{ "/stat", STAT, of_stat },
	{ "/status", STATUS, of_status },
	{ "/cgroup", "3:cpu,cpuacct:/a\n0::/\n", of_cgroup },
	{ "/mounts", MOUNTS, of_cgroup },
	{ "/cmdline", "python", of_cmdline },
	{ "/environ", "RANK=0", of_environ },
	{ "/exe", "\177ELF\2............", of_status },
	{ "/line", "a line\n", of_line },
};
#define FILES (sizeof(of) / sizeof(*of))
#define FIRST_FILE 240

void proc_run(const uint8_t *data, size_t size)
{
	size_t i, which = size ? *data % FILES : 0;

	for (i = 0; i < FILES; i++)
		give(of[i].file, of[i].usual);
	if (size)
		fake_file(of[which].file, data + 1, size - 1);
	of[which].read();
	fake_clear();
}

static void seed(const char *name, const char *file, const char *text, size_t size)
{
	uint8_t i;

	for (i = 0; strcmp(of[i].file, file); i++)
		;
	fuzz_seed_as(name, i, text, size);
}
#define SEED(name, file, text) seed(name, file, text, sizeof(text) - 1)

void proc_seeds(void)
{
	SEED("stat", "/stat", STAT);
	SEED("stat-kernel", "/stat", "2 (kthreadd) T 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 "
	     "20 0 1 0 8 0 0 0 0 0 0 0");
	SEED("stat-cut", "/stat", "7 (a) S 1 7");
	SEED("status", "/status", STATUS);
	SEED("status-traced", "/status", "State:\tS\nTgid:\t9\nTracerPid:\t3\n");
	SEED("status-strict", "/status", "Tgid:\t9\nSeccomp:\t1\n");
	SEED("status-shadow", "/status", "Tgid:\t0\nx86_Thread_features:\tshstk \n");
	SEED("cgroup-v1", "/cgroup", "4:memory:/kubepods/besteffort/podx/" ID "\n"
	     "3:cpu,cpuacct:/\nbad\n");
	SEED("cgroup-v2", "/cgroup", "0::/../a\n0::/\n");
	SEED("mounts", "/mounts", MOUNTS);
	SEED("cmdline", "/cmdline", "python\0--token\0s3cret\0--api-key=s3cret\0X_SECRET=1\0"
	     "http://me:pw@host/\0key=1\0-\0--password\0-x\0");
	SEED("worker", "/cmdline", "python\0-c\0from multiprocessing.spawn import x\0");
	SEED("environ", "/environ", "RANK=1\0WORLD_SIZE=4\0LOCAL_RANK=1\0"
	     "MASTER_ADDR=127.0.0.1\0MASTER_PORT=29500\0TORCHELASTIC_RUN_ID=none\0");
	SEED("environ-slurm", "/environ", "SLURM_JOB_ID=4711\0SLURM_STEP_ID=0\0"
	     "SLURM_PROCID=2\0SLURM_NTASKS=8\0SLURM_LOCALID=2\0PMI_RANK=x\0HOME=/");
	SEED("exe-32", "/exe", "\177ELF\1............");
	SEED("line", "/line", "one\ntwo\n");
}

/* ---- maps ----------------------------------------------------------------------- */

void maps_run(const uint8_t *data, size_t size)
{
	const char *name[PT_GPU_POINTS];
	uint64_t addr[PT_GPU_POINTS];
	struct pt_err err = { "" };
	struct pt_gpulib libs[16];
	struct pt_maps m;
	struct pt_libc c;
	ssize_t n;
	size_t i;

	fake_library = true;
	fake_file("/maps", data, size);
	fake_file("/mem", "....\x48\xc7\xc0\x0f\0\0\0\x0f\x05....", 17);
	if (!pt_maps_read(PID, &m)) {
		for (i = 0; i < m.n; i++) {
			FUZZ_HOLDS(m.v[i].start < m.v[i].end);
			pt_maps_at(&m, m.v[i].start);
			FUZZ_HOLDS(strlen(pt_maps_path(&m, &m.v[i])) <= size);
		}
		if (pt_libc_find(PID, &m, &c, &err))
			FUZZ_HOLDS(err.msg[0]);
	}
	pt_maps_free(&m);
	n = pt_gpulibs(PID, libs, 16);
	for (i = 0; n > 0 && i < (size_t)n; i++)
		FUZZ_HOLDS(libs[i].start < libs[i].end && libs[i].kind &&
			   libs[i].path_display[0] == '/');
	pt_gpu_points(PID, addr, name);
	pt_exec_files(PID, libs, 16);
	pt_mapping_at(PID, 0x7f0000001000, libs);
	fake_clear();
	fake_library = false;
}

void maps_seeds(void)
{
	fuzz_seed_text("python",
		"55d0c0a00000-55d0c0a01000 r--p 00000000 08:01 123 /usr/bin/python3.11\n"
		"55d0c0a01000-55d0c0b01000 r-xp 00001000 08:01 123 /usr/bin/python3.11\n"
		"55d0c2000000-55d0c2100000 rw-p 00000000 00:00 0 [heap]\n"
		"7f0000000000-7f0000100000 r-xp 00001000 08:01 124 "
		"/x/libcudart-abc.so.11.0 (deleted)\n"
		"7f0000100000-7f0000200000 r-xp 00001000 08:01 125 /x/libcuda.so.1\n"
		"7f0000200000-7f0000300000 r-xp 00000000 08:01 126 /lib/libc.so.6\n"
		"7f0000300000-7f0000400000 r-xp 00000000 08:01 127 /lib/libdl-2.28.so\n"
		"7ffc0000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\n");
	fuzz_seed_text("musl", "7f00-7fff r-xp 0 0:1 5 /lib/ld-musl-x86_64.so.1\n");
	fuzz_seed_text("two", "1000-2000 r-xp 0 0:1 5 /lib/libc-2.31.so\n"
		       "2000-3000 r-xp 0 0:1 6 /a b/libc.so.6\n"
		       "5000-3000 r-xp 0 0:1 6 /a\nodd\n");
}

/* ---- mounts --------------------------------------------------------------------- */

int __wrap_pt_queue_record(struct pt_capture *c, const void *rec, size_t len);
int __wrap_pt_queue_record(struct pt_capture *c, const void *rec, size_t len)
{
	const struct pt_rec_disk *r = rec;

	(void)c;
	FUZZ_HOLDS(len == sizeof(*r));
	FUZZ_HOLDS(memchr(r->mount, 0, sizeof(r->mount)) &&
		   memchr(r->fstype, 0, sizeof(r->fstype)) &&
		   memchr(r->model, 0, sizeof(r->model)));
	return 0;
}

static void tell_disks(uint32_t dev)
{
	struct pt_rec_file f = { .hdr = { .size = sizeof(f), .kind = PT_REC_FILE,
					  .tgid = PID }, .dev = dev };
	struct pt_disks *d = pt_disks_new();

	if (!d)
		abort();
	pt_disks_see(d, &f);
	pt_disks_note(d, 8 << 20);
	pt_disks_tick(NULL, d);
	pt_disks_free(d);
}

/* Two samples' worth of the reads of a few files. */
static void name_mounts(const char *text)
{
	struct pt_r_file files[] = {
		{ .path = "/data/a.jpg" }, { .path = "/mnt/b c" }, { .path = "x" },
		{ .path = NULL }, { .path = "/data/more/b.jpg" },
	};
	struct pt_report *r = pt_report_new();
	struct pt_sample *s = calloc(1, sizeof(*s));

	if (!r || !s)
		abort();
	r->files = files;
	r->n_files = sizeof(files) / sizeof(*files);
	pt_sample_mounts(r, text, s);
	r->files = NULL;
	r->n_files = 0;
	free(s);
	pt_report_free(r);
}

void mounts_run(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	fake_file("/mountinfo", data, size);
	give("/proc/diskstats", " 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n 8 1 sda1 1\nodd\n");
	give("8:1/partition", "1\n");
	give("8:1/../dev", "8:0\n");
	give("8:0/dev", "8:0\n");
	give("8:0/device/model", "A disk   \n");
	give("8:0/queue/rotational", "0\n");
	/* by the file, too: what a text that is no number of blocks does */
	fake_file("8:0/stat", data, size);
	tell_disks(8 << 20 | 1);
	tell_disks(50);
	name_mounts(text);
	fake_clear();
	free(text);
}

void mounts_seeds(void)
{
	fuzz_seed_text("usual",
		"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
		"23 22 0:50 / /data rw - nfs4 server:/ex\\040port rw,vers=4.2\n"
		"24 22 0:51 /sub /mnt/b\\040c rw master:2 - fuse.sshfs me@host: rw\n");
	fuzz_seed_text("overlay",
		"30 1 0:50 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u/x,workdir=/w\n"
		"31 1 8:1 / /u rw - btrfs /dev/sda1 rw,space_cache\n");
	fuzz_seed_text("numbers", "1 2 3 4 5 6 7 8 9 10 11");
}

/* ---- inject --------------------------------------------------------------------- */

static void run_filters(size_t first, const uint8_t *data, size_t size)
{
	struct sock_filter *f = NULL;
	struct seccomp_data d = { .nr = 1 };
	struct pt_err err = { "" };
	size_t n = size / sizeof(*f);

	n = n < 2 * BPF_MAXINSNS ? n : 2 * BPF_MAXINSNS;
	f = malloc((n + 1) * sizeof(*f));
	if (!f)
		abort();
	memcpy(f, data, n * sizeof(*f));
	if (!first || first > n)
		first = n;
	fake_filter[0] = f;
	fake_filter_n[0] = first;
	fake_filter[1] = f + first;
	fake_filter_n[1] = n - first;
	fake_filter_n[2] = 0;
	pt_cbpf_run(f, n, &d);
	if (pt_inj_filter_allows(NULL, PID, &err))
		FUZZ_HOLDS(err.msg[0]);
	free(f);
}

void inject_run(const uint8_t *data, size_t size)
{
	struct pt_err err = { "" };
	size_t i;

	if (!size)
		return;
	if (*data < FIRST_FILE) {
		run_filters(*data, data + 1, size - 1);
		return;
	}
	for (i = 0; i < FILES; i++)
		give(of[i].file, of[i].usual);
	give("/maps", "1000-2000 r-xp 0 0:1 6 /lib/libc.so.6\n");
	fake_file(of[(*data - FIRST_FILE) % FILES].file, data + 1, size - 1);
	of_status();
	if (pt_inject_check(PID, &err))
		FUZZ_HOLDS(err.msg[0]);
	fake_clear();
}

void inject_seeds(void)
{
	static const struct sock_filter allow[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc000003e, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1000, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 38),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter all[80] = { { 0 } };
	size_t n = 0, i;
	uint16_t op;

	fuzz_seed_as("allow", 0, allow, sizeof(allow));
	memcpy(all, allow, sizeof(allow));
	memcpy(all + 7, allow, sizeof(allow));
	fuzz_seed_as("two", 7, all, 2 * sizeof(allow));
	for (op = 0; op <= BPF_XOR; op += 0x10) {
		all[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | op | BPF_K, 3);
		all[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | op | BPF_X, 0);
		all[n++] = (struct sock_filter)BPF_STMT(BPF_LDX | BPF_IMM, 40);
	}
	all[n++] = (struct sock_filter)BPF_STMT(BPF_ST, 1);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_STX, 15);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_MEM, 15);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_MISC | BPF_TAX, 0);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_MISC | BPF_TXA, 0);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 1);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
	all[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 0);
	all[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 0, 0);
	all[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	fuzz_seed_as("operations", 0, all, n * sizeof(*all));
	for (i = 0; i < FILES; i++)
		fuzz_seed_as(of[i].file + 1, (uint8_t)(FIRST_FILE + i), of[i].usual,
			     strlen(of[i].usual));
	fuzz_seed_as("kernel", FIRST_FILE, "2 (k) T 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 "
		     "1 0 8 0 0 0 0 0 0 0", 65);
	fuzz_seed_as("stopped", FIRST_FILE, "2 (k) T 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 "
		     "1 0 8 0 0 0 0 0 0 0", 59);
	fuzz_seed_as("traced", FIRST_FILE + 1, "Tgid:\t9\nTracerPid:\t3\n", 22);
	fuzz_seed_as("strict", FIRST_FILE + 1, "Tgid:\t9\nSeccomp:\t1\n", 20);
	fuzz_seed_as("shadow", FIRST_FILE + 1, "Tgid:\t9\nx86_Thread_features:\tshstk \n", 36);
	fuzz_seed_as("exe32", FIRST_FILE + 6, "\177ELF\1...........", 16);
}
