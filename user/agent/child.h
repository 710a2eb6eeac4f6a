/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process of the agent's own program: a sample, or a page of evidence. It runs
 * at low priority, inside limits, in a group of its own that is ended as a whole,
 * and ends with the agent, however that ends.
 */
#ifndef PT_AGENT_CHILD_H
#define PT_AGENT_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"

struct pt_child {
	pid_t pid; /* 0: none */
	int pidfd; /* readable once it has ended */
	int out, err; /* memory files: its standard output and error */
	off_t heard;  /* so much of its standard error */
	double started; /* s, monotonic */
	double soft, hard; /* monotonic: when it is asked to end, and killed */
	bool asked, killed;
};

struct pt_child_limits {
	uint64_t memory;    /* bytes of address space */
	uint64_t file_size; /* bytes of any file that it writes */
	double soft_s, hard_s;
};

struct pt_child_result {
	int status; /* of waitpid() */
	double cpu_s, resident; /* bytes, at most */
	char *out; /* what it wrote, and a NUL; freed by pt_child_result_free */
	size_t out_len;
	char last[256]; /* its last line on standard error */
};

/* `argv[0]` is only its name. 0; or -errno with a sentence. */
int pt_child_start(struct pt_child *c, char *const argv[],
		   const struct pt_child_limits *l, struct pt_err *err);

/* Asks it to end where its time is over, and kills it later. The next moment
 * (monotonic) when this is to be called again. */
double pt_child_tick(struct pt_child *c, double now);

/* Its last line on standard error, where it has said anything since it was asked last. */
bool pt_child_says(struct pt_child *c, char *out, size_t cap);

/* Has the child ended? */
bool pt_child_done(const struct pt_child *c);

/* Once it has ended: collects its output and ends every process of its group. 0 or
 * -ENOMEM; the result is filled either way, and `c` has no child any more. */
int pt_child_finish(struct pt_child *c, struct pt_child_result *r);
void pt_child_result_free(struct pt_child_result *r);

/* Asks it to end now. */
void pt_child_ask(struct pt_child *c, double now);
/* Kills it, and waits until it is gone. Harmless when there is none. */
void pt_child_kill(struct pt_child *c);


#endif
