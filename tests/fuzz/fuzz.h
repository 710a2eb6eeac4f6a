/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One fuzz target for each parser of what others wrote. A target is a line in
 * targets.def and NAME_run() and NAME_seeds() in a file of this folder; main.c runs
 * it, under libFuzzer or over files.
 */
#ifndef PT_FUZZ_H
#define PT_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ(name, files)                                                      \
	void name##_run(const uint8_t *data, size_t size);                     \
	void name##_seeds(void);
#include "targets.def"
#undef FUZZ

/* What the target's inputs are, for mutate.c. */
bool fuzz_is_json(void);
bool fuzz_is_records(void);
/* One change, of at most `most` bytes; the same for a seed. How many bytes there are
 * then; 0: none could be made. */
size_t fuzz_change_json(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t fuzz_change_records(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Is it worth the time? Always where inputs are replayed, else of some inputs. */
bool fuzz_in_full(const uint8_t *data, size_t size);

/* A promise of the code under test. */
#define FUZZ_HOLDS(cond) ((cond) ? (void)0 : fuzz_broken(#cond, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *what, const char *file, int line);

/* A copy that ends with a NUL and right behind it, so that reading further is
 * seen. The caller frees it. */
char *fuzz_text(const void *data, size_t size);

/* In NAME_seeds(): an input to begin with. */
void fuzz_seed(const char *name, const void *data, size_t size);
void fuzz_seed_text(const char *name, const char *text);
/* The same, and `n` that come of it by many changes each. */
void fuzz_seed_changed(const char *name, const void *data, size_t size, unsigned n);
/* The same with a byte before it. */
void fuzz_seed_as(const char *name, uint8_t first, const void *data, size_t size);

/* ---- stand-ins (fake.c), for what a target cannot have for real ---------------- */

/* What files of /proc and /sys hold whose path ends with `end`; nothing is copied.
 * From the first one on no other file of theirs is there, until fake_clear(). */
void fake_file(const char *end, const void *data, size_t size);
void fake_clear(void);

/* Whatever is mapped can be opened, and each file has each symbol, at 0x1000 and on.
 * Of ELF files as they are is the target elf. */
extern bool fake_library;

/* A thread's seccomp filters; n is 0 behind the last. */
struct sock_filter;
extern const struct sock_filter *fake_filter[4];
extern size_t fake_filter_n[4];

struct fake_answer { /* of a server, through libcurl */
	long status;
	long retry_after;
	const uint8_t *body;
	size_t len;
	bool broken; /* the connection breaks off behind it */
};
/* The next answer; false: nobody is there. */
extern bool (*fake_server)(struct fake_answer *a);

#endif
