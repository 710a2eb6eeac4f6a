/* SPDX-License-Identifier: BSD-2-Clause */
#include "inject/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "base/clock.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define SIZE_MAX_RING (256u << 20)
#define FLUSH_MS 200
#define FUTURE_NS 1000000000ull /* clocks agree far better than that */

struct pt_ring {
	struct pt_agent_shm *shm;
	const uint8_t *data;
	uint64_t size; /* of the mapping */
	uint32_t ring; /* read once, checked */
	uint32_t pid;
	int fd;
	uint64_t tail; /* ours: what the target writes there is not believed */
	uint64_t taken, bad;
};

#define GET(r, field) __atomic_load_n(&(r)->shm->field, __ATOMIC_ACQUIRE)
#define PUT(shm, field, x) __atomic_store_n(&(shm)->field, (x), __ATOMIC_RELEASE)

static int fill_opts(struct pt_agent_shm *shm, const struct pt_ring_opts *o)
{
	size_t n = o && o->cupti_path ? strlen(o->cupti_path) : 0;

	if (n >= sizeof(shm->cupti_path))
		return -ENAMETOOLONG;
	memset(shm->cupti_path, 0, sizeof(shm->cupti_path));
	if (n)
		memcpy(shm->cupti_path, o->cupti_path, n);
	shm->flush_ms = o && o->flush_ms ? o->flush_ms : FLUSH_MS;
	return 0;
}

static int seal(int fd)
{
	int have;

	if (!fcntl(fd, F_ADD_SEALS, SEALS))
		return 0;
	have = fcntl(fd, F_GET_SEALS);
	if (have < 0)
		return -errno;
	return have & F_SEAL_SHRINK ? 0 : -EPERM;
}

int pt_ring_setup(int fd, const struct pt_ring_opts *opts)
{
	const uint32_t size = PT_AGENT_RING_AT + PT_AGENT_RING;
	struct pt_agent_shm *shm;
	int err;

	if (ftruncate(fd, size))
		return -errno;
	err = seal(fd);
	if (err)
		return err;
	shm = mmap(NULL, PT_AGENT_RING_AT, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	if (shm == MAP_FAILED)
		return -errno;
	err = fill_opts(shm, opts);
	if (!err) {
		shm->version = PT_AGENT_VERSION;
		shm->size = size;
		shm->ring = PT_AGENT_RING;
		shm->beat_ns = pt_now_ns();
		shm->want = PT_AGENT_RUN;
		PUT(shm, magic, PT_AGENT_MAGIC);
	}
	munmap(shm, PT_AGENT_RING_AT);
	return err;
}

/* The head as the other side wrote it, checked against the file's size. */
static int check_head(struct pt_ring *r)
{
	uint32_t ring;

	if (GET(r, magic) != PT_AGENT_MAGIC || GET(r, version) != PT_AGENT_VERSION)
		return -EPROTO;
	ring = GET(r, ring);
	if (ring < 4096 || ring & (ring - 1) ||
	    (uint64_t)ring + PT_AGENT_RING_AT > r->size)
		return -EPROTO;
	r->ring = ring;
	r->data = (const uint8_t *)r->shm + PT_AGENT_RING_AT;
	r->tail = GET(r, tail);
	return 0;
}

int pt_ring_open(int fd, uint32_t pid, struct pt_ring **out)
{
	struct pt_ring *r = calloc(1, sizeof(*r));
	struct stat st;
	int err;

	*out = NULL;
	if (!r)
		return -ENOMEM;
	r->shm = MAP_FAILED;
	r->pid = pid;
	r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (r->fd < 0 || fstat(r->fd, &st)) {
		err = -errno;
		goto out;
	}
	err = -EPROTO;
	if (!S_ISREG(st.st_mode) || st.st_size < PT_AGENT_RING_AT + 4096 ||
	    st.st_size > SIZE_MAX_RING)
		goto out;
	/* Only what is sealed may be mapped: a file that shrinks is a SIGBUS. */
	if (seal(r->fd))
		goto out;
	/* of the open file description: it ends with this tracer's life */
	if (flock(r->fd, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
		goto out;
	}
	r->size = (uint64_t)st.st_size;
	r->shm = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	err = r->shm == MAP_FAILED ? -errno : check_head(r);
	if (err)
		goto out;
	*out = r;
	return 0;
out:
	pt_ring_close(r);
	return err;
}

void pt_ring_close(struct pt_ring *r)
{
	if (!r)
		return;
	if (r->shm != MAP_FAILED)
		munmap(r->shm, r->size);
	if (r->fd >= 0) {
		/* the caller's copy is of the same description */
		flock(r->fd, LOCK_UN);
		close(r->fd);
	}
	free(r);
}

void pt_ring_beat(struct pt_ring *r)
{
	PUT(r->shm, beat_ns, pt_now_ns());
}

void pt_ring_want(struct pt_ring *r, enum pt_agent_want want)
{
	if (want == PT_AGENT_RUN && GET(r, want) != PT_AGENT_RUN) {
		r->tail = GET(r, head);
		PUT(r->shm, tail, r->tail);
	}
	pt_ring_beat(r);
	PUT(r->shm, want, (uint32_t)want);
	/* the agent sleeps on it, shared between the two processes */
	syscall(SYS_futex, &r->shm->want, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- records -------------------------------------------------------------- */

static int act_ok(const struct pt_rec_act *a, uint64_t now)
{
	return a->begin <= a->end && a->end <= now + FUTURE_NS &&
	       a->what >= PT_ACT_KERNEL && a->what <= PT_ACT_LAST;
}

static int name_ok(const struct pt_rec_name *n)
{
	return n->space == PT_NAME_ACT && n->key && n->name[0] &&
	       memchr(n->name, 0, sizeof(n->name));
}

/* Whose record it is and when it was made is not the target's to say. */
static int pass(struct pt_ring *r, struct pt_hdr *h, uint64_t now,
		pt_ring_sink sink, void *ctx)
{
	union {
		struct pt_hdr *hdr;
		struct pt_rec_act *act;
		struct pt_rec_name *name;
	} u = { h };
	uint64_t ts = now;

	if (h->kind == PT_REC_ACT && h->size == sizeof(*u.act) &&
	    act_ok(u.act, now)) {
		ts = u.act->end;
	} else if (h->kind != PT_REC_NAME || h->size != sizeof(*u.name) ||
		   !name_ok(u.name)) {
		r->bad++;
		return 0;
	}
	*h = (struct pt_hdr){
		.size = h->size, .kind = h->kind, .ts = ts,
		.tid = r->pid, .tgid = r->pid,
	};
	r->taken++;
	return sink(ctx, h, h->size);
}

int pt_ring_drain(struct pt_ring *r, pt_ring_sink sink, void *ctx)
{
	union {
		struct pt_hdr hdr;
		uint64_t align;
		uint8_t bytes[PT_REC_MAX];
	} rec;
	uint64_t head = GET(r, head), now = pt_now_ns();
	int ret = 0;

	if (head - r->tail > r->ring || head & 7 || r->tail & 7) {
		r->bad++;
		r->tail = head & ~7ull;
		goto out;
	}
	while (r->tail != head && !ret) {
		uint32_t at = (uint32_t)(r->tail & (r->ring - 1));
		uint64_t room = r->ring - at, left = head - r->tail;
		uint32_t size;

		if (room < sizeof(rec.hdr)) { /* too little for a header */
			r->tail += room <= left ? room : left;
			continue;
		}
		/* sizes are read from our copy, never twice from theirs */
		memcpy(&rec.hdr, r->data + at, sizeof(rec.hdr));
		size = rec.hdr.size;
		if (!rec.hdr.kind) { /* fills up to the end */
			r->tail += room <= left ? room : left;
			continue;
		}
		if (size < sizeof(rec.hdr) || size & 7 || size > sizeof(rec) ||
		    size > room || size > left) {
			r->bad++;
			r->tail = head; /* no way to find the next one */
			break;
		}
		memcpy(rec.bytes + sizeof(rec.hdr), r->data + at + sizeof(rec.hdr),
		       size - sizeof(rec.hdr));
		r->tail += size;
		ret = pass(r, &rec.hdr, now, sink, ctx);
	}
out:
	PUT(r->shm, tail, r->tail);
	return ret;
}

/* ---- what it says ----------------------------------------------------------- */

void pt_ring_status(const struct pt_ring *r, struct pt_ring_status *out)
{
	uint32_t state = GET(r, state), why = GET(r, why);
	size_t i;

	memset(out, 0, sizeof(*out));
	out->state = state <= PT_AGENT_REFUSED ? (enum pt_agent_state)state :
						 PT_AGENT_NEW;
	out->why = why <= PT_AGENT_FORKED ? (enum pt_agent_why)why :
					    PT_AGENT_CUPTI_ERROR;
	out->cupti_error = GET(r, cupti_error);
	out->cupti_version = GET(r, cupti_version);
	out->thread = GET(r, thread);
	out->timestamp_callback = GET(r, timestamp_callback) == 1;
	out->dropped = GET(r, dropped);
	out->no_room = GET(r, no_room);
	out->unknown = GET(r, unknown);
	out->made = GET(r, made);
	out->taken = r->taken;
	out->bad = r->bad;
	for (i = 0; i + 1 < sizeof(out->said); i++) {
		char c = __atomic_load_n(&r->shm->said[i], __ATOMIC_RELAXED);

		if (!c)
			break;
		out->said[i] = c >= ' ' && c <= '~' ? c : '?';
	}
}

uint64_t pt_ring_lost(const struct pt_ring *r)
{
	const uint64_t max = 1ull << 48; /* more, no counter reaches */
	uint64_t part[4] = { GET(r, dropped), GET(r, no_room), GET(r, unknown),
			     r->bad };
	uint64_t sum = 0;

	for (size_t i = 0; i < 4; i++)
		sum += part[i] < max ? part[i] : max;
	return sum;
}

const char *pt_agent_why_text(enum pt_agent_why why)
{
	switch (why) {
	case PT_AGENT_OK:
		return "nothing is wrong";
	case PT_AGENT_NO_CUPTI:
		return "CUPTI could not be loaded in the process";
	case PT_AGENT_IN_USE:
		return "another profiler uses CUPTI in the process";
	case PT_AGENT_CUPTI_ERROR:
		return "CUPTI returned an error";
	case PT_AGENT_NO_THREAD:
		return "the process could not start another thread";
	case PT_AGENT_ORPHANED:
		return "the tracer gave no sign of life";
	case PT_AGENT_FORKED:
		return "the process is a copy that fork made";
	}
	return "unknown";
}
