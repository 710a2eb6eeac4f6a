/* SPDX-License-Identifier: BSD-2-Clause */
/* simjob: what making a batch costs. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 4096

uint64_t job_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t job_cpu_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t mix(uint64_t x) /* splitmix64 */
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Pass over the item's bytes until `ns` of CPU time, not of wall time, are
 * spent: with too few cores a batch takes longer, as a real transform would. */
static void transform(unsigned char *p, size_t len, uint64_t ns, uint64_t key)
{
	uint64_t until = job_cpu_now() + ns;

	for (size_t at = 0; job_cpu_now() < until; at += CHUNK) {
		size_t n = len < CHUNK ? len : CHUNK;

		if (at + n > len)
			at = 0;
		for (size_t i = 0; i < n; i++) {
			key = key * 6364136223846793005ull + p[at + i];
			p[at + i] = (unsigned char)(key >> 56);
		}
	}
}

static void pause_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000ull),
			       (long)(ns % 1000000000ull) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
		;
}

static int file_path(char *out, size_t size, const struct job_opts *o,
		     unsigned i)
{
	int n = snprintf(out, size, "%s/item_%05u.bin", o->read_dir, i);

	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int read_item(const struct job_opts *o, unsigned file,
		     unsigned char *out)
{
	char path[4096];
	size_t got = 0;
	int err, fd;

	err = file_path(path, sizeof(path), o, file);
	if (err)
		return err;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (got < o->item_bytes) {
		ssize_t n = read(fd, out + got, o->item_bytes - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			err = -errno;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	if (o->cold)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return err;
}

/* 1 plus or minus the jitter, and the slow worker's factor on top. */
static double cost_factor(const struct job_opts *o, unsigned worker,
			  uint64_t random)
{
	double u = (double)(random >> 11) / 9007199254740992.0; /* 2^53 */
	double f = 1 + (2 * u - 1) * o->jitter_pct / 100.0;

	return worker == o->slow_worker ? f * o->slow_factor : f;
}

int job_batch_make(const struct job_opts *o, unsigned worker, uint64_t batch,
		   unsigned char *out, struct job_cost *cost)
{
	uint64_t cpu = job_cpu_now();

	memset(cost, 0, sizeof(*cost));
	cost->begin_ns = job_now();
	for (unsigned i = 0; i < o->items; i++) {
		uint64_t r = mix(o->seed ^ mix(batch * o->items + i));
		double f = cost_factor(o, worker, mix(r));
		unsigned char *item = out + i * o->item_bytes;

		if (o->read_dir) {
			uint64_t at = job_now(), at_cpu = job_cpu_now();
			int err = read_item(o, (unsigned)(r % o->files), item);

			if (err)
				return err;
			cost->read_cpu_ns += job_cpu_now() - at_cpu;
			cost->read_ns += job_now() - at;
		}
		if (o->item_sleep_us) {
			uint64_t at = job_now();

			pause_ns((uint64_t)(o->item_sleep_us * 1e3 * f));
			cost->sleep_ns += job_now() - at;
		}
		if (o->item_cpu_us)
			transform(item, o->item_bytes,
				  (uint64_t)(o->item_cpu_us * 1e3 * f), r);
	}
	cost->cpu_ns = job_cpu_now() - cpu;
	return 0;
}

static int file_make(const char *path, size_t len, uint64_t key)
{
	unsigned char buf[CHUNK];
	int fd, err = 0;

	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	/* a read-only place holds them already, or the first read says so */
	if (fd < 0)
		return errno == EEXIST || errno == EROFS ? 0 : -errno;
	while (len && !err) {
		size_t want = len < sizeof(buf) ? len : sizeof(buf);
		ssize_t n;

		for (size_t i = 0; i < want; i++) {
			key = key * 6364136223846793005ull + 1;
			buf[i] = (unsigned char)(key >> 56);
		}
		n = write(fd, buf, want);
		if (n < 0)
			err = errno == EINTR ? 0 : -errno;
		else
			len -= (size_t)n;
	}
	/* pages that are still dirty cannot be dropped from the cache */
	if (!err && fdatasync(fd))
		err = -errno;
	close(fd);
	return err;
}

int job_files_make(const struct job_opts *o)
{
	char path[4096];
	int err = 0;

	if (!o->read_dir)
		return 0;
	if (mkdir(o->read_dir, 0755) && errno != EEXIST && errno != EROFS)
		err = -errno;
	for (unsigned i = 0; i < o->files && !err; i++) {
		err = file_path(path, sizeof(path), o, i);
		if (!err)
			err = file_make(path, o->item_bytes, mix(i));
	}
	if (err)
		fprintf(stderr, "simjob: cannot make files in %s: %s\n",
			o->read_dir, strerror(-err));
	return err;
}
