// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Block requests that the target causes: who, at which disk, how long, how
 * many at once. A request is made in the context of the thread that submits
 * it, and completes in an interrupt on any CPU: who it was is remembered by the
 * request's address. Sums stay here; user space fetches them.
 *
 * Buffered writes go out from the kernel's own threads later: they are nobody's.
 * So are direct reads that a throttle (blkio, io.max) holds back; of buffered
 * ones the file tells whose they are, see held_back().
 */
#include "block.bpf.h"

#define PT_MAX_BLOCK_RQS 8192
#define PT_MAX_BLOCK_SUMS 4096
#define PT_MAX_BLOCK_DISKS 256
#define PT_REQ_OP_MASK 0xff /* include/linux/blk_types.h */
#define PT_REQ_OP_READ 0
#define PT_REQ_OP_WRITE 1

struct pt_block_rq {
	struct pt_block_key who;
	__u64 begin;
	__u32 bytes, depth;
	__u32 size, pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_BLOCK_RQS);
	__type(key, __u64); /* the request's address */
	__type(value, struct pt_block_rq);
} pt_block_rqs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_BLOCK_SUMS);
	__type(key, struct pt_block_key);
	__type(value, struct pt_block_sum);
} pt_block_sums SEC(".maps");

/* Requests of the target in flight, by disk. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PT_MAX_BLOCK_DISKS);
	__type(key, __u32);
	__type(value, __s32);
} pt_block_depth SEC(".maps");

static const struct pt_block_sum no_sum = {};
__u64 pt_block_missed = 0; /* more than that many at once, or no room */

/* The whole disk, or 0. */
static __always_inline __u32 rq_disk(struct request *rq)
{
	struct gendisk *disk;

	if (!bpf_core_field_exists(rq->q->disk)) /* Linux 5.15 */
		return 0;
	disk = BPF_CORE_READ(rq, q, disk);
	if (!disk)
		return 0;
	return (__u32)BPF_CORE_READ(disk, major) << 20 |
	       (__u32)BPF_CORE_READ(disk, first_minor);
}

static __always_inline struct pt_block_sum *sum_of(struct pt_block_key *who)
{
	struct pt_block_sum *s = bpf_map_lookup_elem(&pt_block_sums, who);

	if (s)
		return s;
	bpf_map_update_elem(&pt_block_sums, who, &no_sum, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&pt_block_sums, who);
	if (s)
		return s;
	/* Full: without the thread. */
	who->tid = who->tgid = who->start = 0;
	bpf_map_update_elem(&pt_block_sums, who, &no_sum, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pt_block_sums, who);
}

static __always_inline __s32 *depth_of(__u32 dev)
{
	__s32 *d = bpf_map_lookup_elem(&pt_block_depth, &dev), zero = 0;

	if (d)
		return d;
	bpf_map_update_elem(&pt_block_depth, &dev, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pt_block_depth, &dev);
}

static __always_inline void forget(__u64 key, const struct pt_block_rq *r)
{
	__u32 dev = r->who.dev;
	__s32 *d = bpf_map_lookup_elem(&pt_block_depth, &dev);

	if (d)
		__sync_fetch_and_add(d, -1);
	bpf_map_delete_elem(&pt_block_rqs, &key);
}

/*
 * A kernel thread makes the request. If a throttle held it back, its pages are
 * of a file that a thread of the target blocks on: that thread's, then. True
 * with `who` filled.
 */
static __always_inline bool held_back(struct request *rq,
				      struct pt_block_key *who)
{
	struct pt_block_reader *r;
	struct pt_file_key key = {};
	struct inode *inode;
	struct page *page;
	__u64 mapping;

	page = BPF_CORE_READ(rq, bio, bi_io_vec, bv_page);
	if (!page)
		return false;
	mapping = (__u64)BPF_CORE_READ(page, mapping);
	if (!mapping || mapping & 3) /* anonymous memory: a direct read */
		return false;
	inode = BPF_CORE_READ((struct address_space *)mapping, host);
	if (!inode)
		return false;
	key.inode = BPF_CORE_READ(inode, i_ino);
	key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	r = bpf_map_lookup_elem(&pt_block_readers, &key);
	if (!r)
		return false;
	who->tid = r->tid;
	who->tgid = r->tgid;
	who->start = r->start;
	return true;
}

/* The address is another request's now, so this one has ended, unseen: there are
 * sandboxes whose kernel runs no program in the time of some tasks, interrupts
 * included. It counts; how long it took is not known, so that `hist` has fewer. */
static __always_inline void unseen(const struct pt_block_rq *r)
{
	struct pt_block_key who = r->who;
	struct pt_block_sum *s = bpf_map_lookup_elem(&pt_block_sums, &who);

	if (!s)
		return;
	__sync_fetch_and_add(&s->count, 1);
	__sync_fetch_and_add(&s->bytes, r->size);
	__sync_fetch_and_add(&s->depth_sum, r->depth);
}

static __always_inline int made(struct request *rq, bool once)
{
	struct task_struct *task;
	struct pt_block_rq r = {}, *old;
	__u64 key = (__u64)rq;
	struct pt_thread *th;
	__u32 op, depth = 1;
	__s32 *d;

	if (!pt_is_armed())
		return 0;
	task = bpf_get_current_task_btf();
	th = pt_thread_of(task);
	if (!th && !(task->flags & PT_PF_KTHREAD))
		return 0;
	op = BPF_CORE_READ(rq, cmd_flags) & PT_REQ_OP_MASK;
	if (op != PT_REQ_OP_READ && op != PT_REQ_OP_WRITE)
		return 0;
	if (th) {
		th->hits[PT_HIT_BLOCK]++; /* the rest of it is in interrupts: not timed */
		r.who.tid = task->pid;
		r.who.tgid = task->tgid;
		r.who.start = th->start;
	} else if (op != PT_REQ_OP_READ || !held_back(rq, &r.who)) {
		return 0;
	}
	old = bpf_map_lookup_elem(&pt_block_rqs, &key);
	if (old) {
		if (once) /* inserted first, issued now */
			return 0;
		unseen(old);
		forget(key, old);
	}
	r.who.dev = rq_disk(rq);
	r.who.op = op == PT_REQ_OP_WRITE ? PT_BLOCK_WRITE : PT_BLOCK_READ;
	if (!r.who.dev || !sum_of(&r.who)) {
		__sync_fetch_and_add(&pt_block_missed, 1);
		return 0;
	}
	d = depth_of(r.who.dev);
	if (d)
		depth = __sync_fetch_and_add(d, 1) + 1;
	r.depth = depth;
	r.size = BPF_CORE_READ(rq, __data_len);
	r.begin = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&pt_block_rqs, &key, &r, BPF_ANY)) {
		__sync_fetch_and_add(&pt_block_missed, 1);
		if (d)
			__sync_fetch_and_add(d, -1);
	}
	return 0;
}

/* Linux 6.5: in the submitter's context, before any scheduler of the disk. */
SEC("tp_btf/block_io_start")
int BPF_PROG(pt_block_start, struct request *rq)
{
	return made(rq, false);
}

/* Before that: whichever comes first. A scheduler's own thread may issue. */
SEC("tp_btf/block_rq_insert")
int BPF_PROG(pt_block_insert, struct request *rq)
{
	return made(rq, true);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(pt_block_issue, struct request *rq)
{
	return made(rq, true);
}

/* Its data became part of another request, which completes for both. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(pt_block_merge, struct request *rq)
{
	__u64 key = (__u64)rq;
	struct pt_block_rq *r = bpf_map_lookup_elem(&pt_block_rqs, &key);

	if (r)
		forget(key, r);
	return 0;
}

static __always_inline __u32 log2_of(__u64 v)
{
	__u32 n = 0;

	if (v >> 32) { n += 32; v >>= 32; }
	if (v >> 16) { n += 16; v >>= 16; }
	if (v >> 8) { n += 8; v >>= 8; }
	if (v >> 4) { n += 4; v >>= 4; }
	if (v >> 2) { n += 2; v >>= 2; }
	return n + (v >> 1 ? 1 : 0);
}

static __always_inline __u32 slot_of(__u64 ns)
{
	__u64 v = ns >> PT_BLOCK_UNIT_SHIFT;
	__u32 e, s;

	if (!v)
		return 0;
	e = log2_of(v);
	/* the half of the octave: the bit below the highest, of full precision */
	s = 1 + 2 * e + ((ns >> (e + PT_BLOCK_UNIT_SHIFT - 1)) & 1);
	return s < PT_BLOCK_SLOTS ? s : PT_BLOCK_SLOTS - 1;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(pt_block_complete, struct request *rq, int error,
	     unsigned int bytes)
{
	struct pt_block_key who = {};
	__u64 key = (__u64)rq, ns, now;
	struct pt_block_sum *s;
	struct pt_block_rq *r;
	__u32 slot;

	r = bpf_map_lookup_elem(&pt_block_rqs, &key);
	if (!r)
		return 0;
	if (!(error & 0xff))
		r->bytes += bytes;
	/* A part of it: the rest completes later. */
	if (bytes < BPF_CORE_READ(rq, __data_len))
		return 0;
	now = bpf_ktime_get_ns();
	ns = now > r->begin ? now - r->begin : 0;
	who = r->who;
	s = bpf_map_lookup_elem(&pt_block_sums, &who);
	if (s && pt_is_armed()) {
		__sync_fetch_and_add(&s->count, 1);
		__sync_fetch_and_add(&s->bytes, r->bytes);
		__sync_fetch_and_add(&s->lat_ns, ns);
		__sync_fetch_and_add(&s->depth_sum, r->depth);
		if (error & 0xff)
			__sync_fetch_and_add(&s->failed, 1);
		if (ns > s->max_ns) /* a race may lose the second longest */
			s->max_ns = ns;
		if (r->depth > s->depth_max)
			s->depth_max = r->depth;
		slot = slot_of(ns);
		if (slot < PT_BLOCK_SLOTS)
			__sync_fetch_and_add(&s->hist[slot], 1);
	}
	forget(key, r);
	return 0;
}
