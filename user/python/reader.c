// SPDX-License-Identifier: BSD-2-Clause
/* Threads of an interpreter, and their stacks. */
#include "python/reader.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/procfs.h"
#include "python/reader_int.h"

#define TLS_TID 720  /* struct pthread of glibc: the kernel's number */
#define OWNED_BY_C 3 /* the frame between C and Python, which has no code of its own */

static bool first_frame(const struct pt_py *p, uint64_t thread, uint64_t *out)
{
	return get_ptr(p, thread + p->at.frame, out) &&
	       (p->at.cframe_frame == NONE ||
		get_ptr(p, *out + p->at.cframe_frame, out));
}

/* Frames that were told. */
static int stack_of(struct pt_py *p, uint64_t thread, const struct pt_py_sink *to)
{
	unsigned char raw[FRAME_SIZE];
	struct pt_py_frame_at at;
	struct pt_py_frame f;
	uint64_t frame;
	int n = 0, depth;

	if (!first_frame(p, thread, &frame))
		return 0;
	for (depth = 0; frame && depth < 2 * PT_PY_DEPTH && n < PT_PY_DEPTH && p->work < WORK_MAX;
	     depth++) {
		bool c;

		p->work++;
		if (!get(p, frame, raw, p->frame_size))
			break;
		c = p->at.owner != NONE && raw[p->at.owner] == OWNED_BY_C;
		at.code = word_at(raw, p->at.code);
		at.instr = word_at(raw, p->at.instr);
		if (!c && !pt_py_frame_of(p, &at, &f))
			break;
		if (!c && ++n && to->frame)
			to->frame(to->ctx, &f);
		frame = word_at(raw, p->at.previous);
		if (frame & 7)
			break;
	}
	return n;
}

/* ---- threads ------------------------------------------------------------------------ */

static pid_t tid_of(const struct pt_py *p, uint64_t thread)
{
	uint64_t id;
	int32_t tid;

	if (p->at.native_id)
		return get(p, thread + p->at.native_id, &id, sizeof(id)) &&
		       id <= INT32_MAX ? (pid_t)id : 0;
	return get(p, thread + p->at.thread_id, &id, sizeof(id)) &&
	       get(p, id + TLS_TID, &tid, sizeof(tid)) && tid > 0 ? tid : 0;
}

/* The last number of "NSpid: 4711 12": the innermost name space's; *n: how many there are. */
static pid_t ns_pid(const char *status, int *n)
{
	const char *line = strstr(status, "\nNSpid:");
	pid_t last = 0;
	char *end;

	*n = 0;
	for (line = line ? line + 7 : NULL; line; line = end) {
		long v = strtol(line, &end, 10);

		if (end == line || v <= 0 || v > INT32_MAX)
			break;
		last = (pid_t)v;
		++*n;
		if (*end == '\n')
			break;
	}
	return last;
}

static void add_inner(struct pt_py *p, pid_t tid)
{
	char name[64], text[4096];
	struct inner *x;
	pid_t inner;
	int n;

	snprintf(name, sizeof(name), "task/%d/status", (int)tid);
	if (pt_proc_read(p->pid, name, text, sizeof(text)) <= 0)
		return;
	inner = ns_pid(text, &n);
	x = pt_hash_make(p->inner, inner, &inner);
	if (x && !x->tid)
		x->tid = tid;
}

#define LIST_NS 500000000u /* no sooner again */

static void list_threads(struct pt_py *p)
{
	char path[64];
	struct dirent *e;
	int n = 0;
	DIR *d;

	p->listed_ns = pt_now_ns();
	pt_hash_free(p->inner);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)p->pid);
	d = opendir(path);
	while (d && n < PT_PY_THREADS && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			add_inner(p, (pid_t)strtol(e->d_name, NULL, 10));
			n++;
		}
	if (d)
		closedir(d);
}

/* Its number outside. 0: there is none. */
static pid_t outer_tid(struct pt_py *p, pid_t tid)
{
	struct inner *x;

	if (!p->apart || tid <= 0)
		return tid;
	HASH_FIND(hh, p->inner, &tid, sizeof(tid), x);
	if (!x && pt_now_ns() - p->listed_ns > LIST_NS) {
		list_threads(p);
		HASH_FIND(hh, p->inner, &tid, sizeof(tid), x);
	}
	return x ? x->tid : 0;
}

static bool is_thread(pid_t pid, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	return tid > 0 && !access(path, F_OK);
}

/* Of all interpreters; *frames: of all stacks together. */
static int walk(struct pt_py *p, const struct pt_py_sink *to, int *frames)
{
	uint64_t interp, thread;
	int n = 0, guard = 0;
	pid_t tid;

	*frames = 0;
	p->work = 0;
	if (!get_ptr(p, p->runtime + p->at.interpreters, &interp))
		return -EIO;
	/* only the first's offset to the next is the same in all versions: 0 */
	if (!interp || !get_ptr(p, interp + p->at.threads, &thread))
		return -EIO;
	for (; thread && guard < PT_PY_THREADS && p->work < WORK_MAX; guard++) {
		tid = outer_tid(p, tid_of(p, thread));
		if (is_thread(p->pid, tid)) {
			n++;
			if (!to->thread || to->thread(to->ctx, tid))
				*frames += stack_of(p, thread, to);
		}
		if (!get_ptr(p, thread + p->at.thread_next, &thread))
			break;
	}
	return n;
}

int pt_py_stacks(struct pt_py *p, const struct pt_py_sink *to)
{
	int frames;

	return walk(p, to, &frames);
}

/* ---- all of it ---------------------------------------------------------------------- */

int pt_py_open_at(struct pt_py **out, pid_t pid, uint64_t runtime, int minor,
		  struct pt_err *err)
{
	struct pt_py *p = calloc(1, sizeof(*p));
	char status[4096];
	int ret, spaces;

	*out = NULL;
	if (!p)
		return pt_err_set(err, -ENOMEM, "out of memory");
	p->pid = pid;
	p->runtime = runtime;
	if (pt_proc_read(pid, "status", status, sizeof(status)) > 0 && ns_pid(status, &spaces))
		p->apart = spaces > 1;
	ret = pt_py_take_layout(p, minor, err);
	if (ret)
		pt_py_close(p);
	else
		*out = p;
	return ret;
}

int pt_py_open(struct pt_py **out, pid_t pid, struct pt_err *err)
{
	const struct pt_py_sink nobody = { 0 };
	uint64_t runtime = 0, word;
	int minor = -1, frames, i, ret;

	*out = NULL;
	ret = pt_py_find(pid, &runtime, &minor, err);
	if (ret)
		return ret;
	errno = 0;
	if (!pt_py_get_from(pid, runtime, &word, sizeof(word)))
		return pt_err_set(err, errno == EPERM ? -EPERM : -EIO,
				  "the memory of process %d cannot be read: %s", (int)pid,
				  strerror(errno ? errno : EIO));
	ret = pt_py_open_at(out, pid, runtime, minor, err);
	if (ret)
		return ret;
	/* a thread may be in between; a chain that never fits is not one */
	for (i = 0; i < 20; i++) {
		ret = walk(*out, &nobody, &frames);
		if (ret > 0 && frames)
			return 0;
		usleep(5000);
	}
	ret = pt_err_set(err, -EOPNOTSUPP, "the data structures of its Python %s do not look as expected",
			 (*out)->version);
	pt_py_close(*out);
	*out = NULL;
	return ret;
}

void pt_py_close(struct pt_py *p)
{
	if (!p)
		return;
	pt_py_forget_codes(p);
	pt_hash_free(p->inner);
	free(p);
}

const char *pt_py_version(const struct pt_py *p)
{
	return p->version;
}
