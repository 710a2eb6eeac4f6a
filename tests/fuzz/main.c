/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The targets' program. Linked with libFuzzer it fuzzes the target of the variable
 * FUZZ_TARGET; for the rest it needs none:
 *
 *     --list                     the targets, and their parsers' files
 *     --seeds TARGET DIR         write the inputs to begin with
 *     --replay TARGET PATH...    run files, and all files of folders
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define INPUT_MAX (1u << 20)
#define HANG_S 30

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct target {
	const char *name, *files;
	void (*run)(const uint8_t *data, size_t size);
	void (*seeds)(void);
} targets[] = {
#define FUZZ(name, files) { #name, files, name##_run, name##_seeds },
#include "targets.def"
#undef FUZZ
};
#define TARGETS (sizeof(targets) / sizeof(*targets))

static const struct target *chosen;
static bool fuzzing;
static const char *seed_dir;

static const struct target *find(const char *name)
{
	size_t i;

	for (i = 0; name && i < TARGETS; i++)
		if (!strcmp(targets[i].name, name))
			return &targets[i];
	fprintf(stderr, "no fuzz target is called \"%s\"; --list names them\n",
		name ? name : "");
	exit(2);
}

bool fuzz_is_json(void)
{
	return chosen->run == report_run;
}

bool fuzz_is_records(void)
{
	return chosen->run == model_run;
}

bool fuzz_in_full(const uint8_t *data, size_t size)
{
	unsigned sum = 0;
	size_t i;

	for (i = 0; fuzzing && i < size; i++)
		sum += data[i];
	return sum % 4 == 0;
}

void fuzz_broken(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: promise broken: %s\n", file, line, what);
	abort();
}

char *fuzz_text(const void *data, size_t size)
{
	char *s = malloc(size + 1);

	if (!s)
		abort();
	if (size)
		memcpy(s, data, size);
	s[size] = '\0';
	return s;
}

/* ---- seeds ------------------------------------------------------------------ */

void fuzz_seed(const char *name, const void *data, size_t size)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", seed_dir, name);
	f = fopen(path, "wb");
	if (!f || (size && fwrite(data, size, 1, f) != 1) || fclose(f)) {
		perror(path);
		exit(1);
	}
}

void fuzz_seed_text(const char *name, const char *text)
{
	fuzz_seed(name, text, strlen(text));
}

void fuzz_seed_changed(const char *name, const void *data, size_t size, unsigned n)
{
	const size_t most = 2 * size;
	uint8_t *copy = malloc(most);
	size_t len, now;
	unsigned i, k;
	char path[64];

	if (!copy)
		abort();
	fuzz_seed(name, data, size);
	for (i = 1; i <= n; i++) {
		memcpy(copy, data, size);
		for (k = 0, len = size; k < 8; k++) {
			now = (fuzz_is_json() ? fuzz_change_json : fuzz_change_records)(
				copy, len, most, i * 8 + k);
			len = now ? now : len;
		}
		snprintf(path, sizeof(path), "%s-%u", name, i);
		fuzz_seed(path, copy, len);
	}
	free(copy);
}

void fuzz_seed_as(const char *name, uint8_t first, const void *data, size_t size)
{
	uint8_t *all = malloc(size + 1);

	if (!all)
		abort();
	memcpy(all + 1, data, size);
	all[0] = first;
	fuzz_seed(name, all, size + 1);
	free(all);
}

/* ---- replay ----------------------------------------------------------------- */

struct paths {
	char **v;
	size_t n;
};

static void add(struct paths *p, const char *path)
{
	p->v = realloc(p->v, (p->n + 1) * sizeof(*p->v));
	if (!p->v || !(p->v[p->n++] = strdup(path)))
		abort();
}

static void add_all(struct paths *p, const char *path)
{
	struct dirent **e;
	char one[4096];
	int n = scandir(path, &e, NULL, alphasort), i;

	if (n < 0)
		add(p, path);
	for (i = 0; i < n; i++) {
		snprintf(one, sizeof(one), "%s/%s", path, e[i]->d_name);
		if (e[i]->d_name[0] != '.')
			add(p, one);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
}

static int run_file(const char *path)
{
	uint8_t *data = malloc(INPUT_MAX), *exact;
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f || !data) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		free(data);
		return 1;
	}
	n = fread(data, 1, INPUT_MAX, f);
	fclose(f);
	exact = malloc(n ? n : 1); /* so that reading past the end is seen */
	if (!exact)
		abort();
	memcpy(exact, data, n);
	free(data);
	alarm(HANG_S);
	chosen->run(exact, n);
	alarm(0);
	free(exact);
	return 0;
}

/* In children: one that an input breaks does not hide what comes behind it. */
static int replay(const struct paths *p)
{
	size_t *at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, failed = 0, bad;
	size_t i;

	if (at == MAP_FAILED)
		abort();
	for (*at = 0; *at < p->n || !p->n;) {
		fflush(NULL);
		switch (fork()) {
		case -1:
			abort();
		case 0:
			for (bad = 0, i = *at; i < p->n; i++) {
				*at = i;
				bad |= run_file(p->v[i]);
			}
			*at = p->n;
			exit(bad); /* looks for leaks */
		}
		if (wait(&status) < 0)
			abort();
		if (!status)
			break;
		failed++;
		printf("not ok %s: %s\n", chosen->name,
		       *at < p->n ? p->v[(*at)++] : "some of them");
	}
	munmap(at, sizeof(*at));
	if (!failed)
		printf("ok %s: %zu inputs\n", chosen->name, p->n);
	return failed != 0;
}

/* ---- commands ----------------------------------------------------------------- */

static int command(int argc, char **argv)
{
	struct paths p = { NULL, 0 };
	size_t i;
	int ret;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (i = 0; i < TARGETS; i++)
			printf("%s %s\n", targets[i].name, targets[i].files);
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "--seeds")) {
		seed_dir = argv[3];
		chosen = find(argv[2]);
		chosen->seeds();
		return 0;
	}
	if (argc < 4 || strcmp(argv[1], "--replay")) {
		fprintf(stderr, "usage: --list | --seeds TARGET DIR | "
			"--replay TARGET PATH...\n");
		return 2;
	}
	chosen = find(argv[2]);
	for (i = 3; i < (size_t)argc; i++)
		add_all(&p, argv[i]);
	ret = replay(&p);
	for (i = 0; i < p.n; i++)
		free(p.v[i]);
	free(p.v);
	return ret;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *first = *argc > 1 ? (*argv)[1] : "";
	int i;

	if (!strcmp(first, "--list") || !strcmp(first, "--seeds") ||
	    !strcmp(first, "--replay"))
		exit(command(*argc, *argv));
	chosen = find(getenv("FUZZ_TARGET"));
	for (i = 1; i < *argc; i++)
		fuzzing |= !strncmp((*argv)[i], "-max_total_time=", 16);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	chosen->run(data, size);
	return 0;
}

/* libFuzzer has one of its own. */
__attribute__((weak)) int main(int argc, char **argv)
{
	return command(argc, argv);
}
