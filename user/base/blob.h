/* SPDX-License-Identifier: BSD-2-Clause */
/* A file of the build in the program, as NAME_begin[] up to NAME_end[]. */
#ifndef PT_BLOB_H
#define PT_BLOB_H

/* Hidden: they are reached without a table, in which the linker of arm64 mixes local names up. */
#define PT_BLOB(name, file)                                                    \
	__asm__(".pushsection .rodata\n"                                       \
		".balign 16\n"                                                 \
		".local " #name "_begin, " #name "_end\n"                      \
		#name "_begin:\n"                                              \
		".incbin \"" file "\"\n"                                       \
		#name "_end:\n"                                                \
		".popsection\n");                                              \
	extern const char name##_begin[] __attribute__((visibility("hidden"))); \
	extern const char name##_end[] __attribute__((visibility("hidden")))

#endif
