/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways in which the job of reads.c reads a file. */
#ifndef PT_TESTS_WAYS_H
#define PT_TESTS_WAYS_H

#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define KINDS 12
#define KIND_RING 5
#define KIND_DIRECT 9
#define KIND_AIO 10
#define KIND_FIFO 11
#define BUF 65536
#define RING 4

extern const char *const kinds[KINDS];
extern bool cold, fail;
extern atomic_long left; /* calls still to do */
extern atomic_int lacks[KINDS]; /* errno of a way that is not there */

struct file {
	char path[512];
	size_t size;
	struct stat st;
	atomic_ullong calls, bytes, empty, failed;
	pthread_mutex_t lock; /* a FIFO's: who writes into it reads it; and
			       * that of files in a cold cache */
};

struct ring {
	int fd; /* -1: none */
	uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

struct worker {
	pthread_t thread;
	uint64_t seed;
	unsigned number;
	int null, out, pipe[2];
	unsigned char *buf;
	aio_context_t aio;
	struct ring ring;
	volatile unsigned sum; /* so that mapped pages are looked at */
};

/* Ends the program with errno's text. */
void die(const char *what);
/* A number below `below`, from the worker's own sequence. */
uint64_t draw(struct worker *w, uint64_t below);
/* The worker's rings for asynchronous reads; lacks[] says what is not there. */
void ways_setup(struct worker *w);
/* Open the file, read it in this way, close it. */
void visit(struct worker *w, struct file *f, unsigned kind);

#endif
