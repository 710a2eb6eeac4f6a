/* SPDX-License-Identifier: BSD-2-Clause */
/* Run the fuzz target over files, without libFuzzer: one line each. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX (1u << 20)
#define HANG_S 30

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
	uint8_t *data, *exact;
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	data = malloc(INPUT_MAX);
	if (!data)
		abort();
	n = fread(data, 1, INPUT_MAX, f);
	fclose(f);
	exact = malloc(n ? n : 1); /* so that reading past the end is seen */
	if (!exact)
		abort();
	memcpy(exact, data, n);
	free(data);
	alarm(HANG_S);
	LLVMFuzzerTestOneInput(exact, n);
	alarm(0);
	free(exact);
	printf("ok %s\n", path);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	int i, failed = 0;

	for (i = 1; i < argc; i++)
		failed |= replay(argv[i]);
	return failed;
}
