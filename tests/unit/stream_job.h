/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A training job, simulated event by event, as a record stream and as the
 * truth about it: a trainer (main thread, one feeder thread per worker, perhaps
 * a pin thread and an autograd thread), loader workers (main thread, sender
 * thread, a thread that hands descriptors out), and a GPU that is a FIFO.
 * The behaviour is that of PyTorch's DataLoader, which was measured: bounded
 * prefetch, delivery in order, refill of the worker whose batch was consumed.
 */
#ifndef PT_TEST_STREAM_JOB_H
#define PT_TEST_STREAM_JOB_H

#include "stream.h"

enum job_seg {
	JOB_CPU,
	JOB_RUNQ,
	JOB_DISK,
	JOB_FAULT,
	JOB_NET,
	JOB_LOCK,
	JOB_SEND, /* the sender's part of a wait, and the trainer's own */
	JOB_IDLE, /* no work to do */
	JOB_QUOTA, /* has used up its CPU quota */
	JOB_SEG_NR
};

enum job_loop {
	JOB_PLAIN,  /* obtain, use */
	JOB_AHEAD,  /* move k, obtain k+1, use k */
	JOB_THREAD, /* half of the work is launched by a second thread */
	JOB_TWO,    /* obtain and move, obtain and move, use both */
};

#define JOB_MAX_WORKERS 8

struct job_opts {
	unsigned workers, prefetch;	/* 0 workers: loads by itself */
	unsigned cores;			/* of the host */
	uint64_t batch_ns;		/* loading of one batch */
	double jitter;			/* of it, each way */
	double mix[JOB_SEND];		/* shares of it; rest is JOB_CPU */
	double factor[JOB_MAX_WORKERS];	/* times batch_ns; 0: 1 */
	uint64_t lock_ns;  /* of a batch, at its end, with a lock that the
			    * workers share */
	uint64_t quota_ns; /* CPU time of each worker per 100 ms; 0: no limit */
	unsigned slices;		/* the mix comes round so often */
	bool no_reads; /* who loads by itself reads no files: it makes its data up */
	unsigned heavy_every;		/* worker 0: each such batch ... */
	double heavy;			/* ... takes so much longer */
	bool heavy_mix;			/* ... and only these have the mix */
	uint64_t send_ns;		/* the sender's work for a batch */
	bool direct;			/* no sender and feeder threads */
	bool pin, sockets;
	uint64_t lead_ns;   /* own work of obtaining, before it is seen */
	unsigned late_every; /* each such step: 0.7 ms more of it */
	bool awake;	    /* the first answer comes before it falls asleep */
	uint64_t piped_ns;  /* the batch comes through the pipe, piece by piece */
	unsigned epoch;	    /* batches of one; 0: no end. The workers stay */
	uint64_t start_ns;  /* the trainer's work to start an epoch's loading, which
			     * belongs to obtaining its first batch */
	unsigned train, validate; /* so many steps of each in turn; 0: no
				   * validation. It launches a third. */
	unsigned save_every; /* each such step: a checkpoint behind its sync */
	uint64_t save_ns;
	bool hogs; /* interrupts hit other processes of the target */
	enum job_loop loop;
	unsigned micro; /* JOB_PLAIN: obtains so many batches, then uses them */
	uint64_t between_ns; /* from one of them to the next; 0: 120 us */
	unsigned update_every; /* each such step launches an optimizer on top */
	bool thread_all;  /* its second thread launches everything */
	bool thread_last; /* its second thread's is the last call of a step */
	unsigned launches;
	unsigned sites;	 /* that they have; 0: as many */
	bool one_kernel;   /* all launches from one call site */
	uint64_t copy_ns;  /* how long the call that moves a batch takes; 0: 8 us */
	uint64_t kernel_ns;
	double kernel_jitter;
	uint64_t launch_gap_ns;
	unsigned sync_every; /* 0: never */
	bool loss_item;	     /* read a value back instead of the sync */
	uint64_t host_ns;    /* the loop's own work behind a step's sync */
	uint64_t wake_ns;    /* from a wake-up to the CPU */
	uint64_t run_s_x10;  /* length of the job, tenths of a second */
	uint64_t seed;
};

struct job_span {
	uint64_t begin, end;
};
struct job_piece {
	uint64_t begin, end;
	enum job_seg seg;
};

struct job_step {
	uint64_t wait_begin, wait_end;
	int worker;	       /* whose batch; -1 its own */
	uint64_t blocked;      /* slept for it */
	uint64_t made;	       /* the batch was made */
	bool early;	       /* it had come while another was waited for */
	bool joins;	       /* the same step as the batch before */
	bool unseen;	       /* it came while another was taken in */
	uint64_t ns[JOB_SEG_NR]; /* the wait by what held it up */
};

struct job_worker {
	PT_VEC(struct job_piece) pieces; /* of its main thread; in order */
	PT_VEC(uint64_t) made;
	uint64_t free_at;	 /* main thread */
	uint64_t send_free;	 /* sender thread sleeps since */
	uint64_t feed_free;	 /* trainer's feeder thread for it */
	uint64_t period, used;	 /* of its quota, in this period */
	uint64_t throttled;
};

struct job_bytes { /* that a thread read or wrote at a moment */
	uint64_t at, rchar, wchar;
	uint32_t tid;
};

struct job_batch {
	uint64_t made, written;
	bool taken; /* out of the pipe */
	uint64_t pinned; /* handed to the main thread */
};

struct job {
	struct job_opts o;
	struct stream s;
	PT_VEC(struct job_step) steps;
	PT_VEC(struct job_span) busy; /* device, in order, disjoint */
	PT_VEC(struct job_batch) batches;
	PT_VEC(struct job_bytes) bytes;
	struct job_worker worker[JOB_MAX_WORKERS];
	uint64_t t0, t1; /* the capture's window, once cut */
	/* state of the simulation */
	uint64_t now, dev_free, pin_free, grad_free, rnd;
	uint64_t lock_free; /* when ... */
	unsigned lock_had;  /* ... this worker lets go of it */
	uint64_t starting; /* an epoch, since then; 0: not */
	uint64_t synced; /* in syncs, from the job's first second on */
	size_t dispatched;
};

#define JOB_BEGIN (1000 * ST_S)
#define JOB_TRAINER 1000u
#define JOB_PIN 1001u
#define JOB_GRAD 1002u
#define JOB_FEEDER(w) (1010u + (w))
#define JOB_WORKER(w) (2000u + 100 * (w)) /* also its main thread */
#define JOB_SENDER(w) (2001u + 100 * (w))
#define JOB_ANSWERER(w) (2002u + 100 * (w))
#define JOB_HOG 3000u
#define JOB_RESULT_PIPE 501u
#define JOB_INDEX_PIPE(w) (600u + (w))
#define JOB_FILE_DEV 0x800001u
#define JOB_FILE(w) (9000u + (w))

/* Sensible values for everything: 2 workers that compute, a GPU that waits. */
struct job_opts job_defaults(void);
/* Simulate it all. job_free() afterwards. */
void job_run(struct job *j, const struct job_opts *o);
void job_free(struct job *j);
/* Cut to a capture of [t0,t1) and seal the stream. */
void job_window(struct job *j, uint64_t t0, uint64_t t1);

/* ---- truth of the window -------------------------------------------------- */
size_t job_count(const struct job *j);	    /* steps that began in it */
uint64_t job_wait_ns(const struct job *j);
uint64_t job_cause_ns(const struct job *j, enum job_seg seg); /* whole waits */
uint64_t job_busy_ns(const struct job *j);
/* Device idle while the trainer waits. */
uint64_t job_starved_ns(const struct job *j);

#endif
