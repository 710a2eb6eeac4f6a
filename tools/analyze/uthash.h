/* SPDX-License-Identifier: BSD-2-Clause */
/* uthash as the analyzers of tools/analyze/run see it: its tables are its own affair,
 * and whatever it is given or gives may be anything afterwards. Its macros, read in full,
 * take most of the time and say nothing of our code. */
#include_next <uthash.h>

#ifndef PT_ANALYZE_UTHASH_H
#define PT_ANALYZE_UTHASH_H

void *pt_hash_any(const void *head, const void *key, size_t len);
void pt_hash_changes(void *head, void *elt);

#undef HASH_FIND
#define HASH_FIND(hh, head, keyptr, keylen, out) \
	((out) = pt_hash_any(head, keyptr, keylen))
#undef HASH_ADD
#define HASH_ADD(hh, head, field, keylen, add) pt_hash_changes(&(head), add)
#undef HASH_ADD_KEYPTR
#define HASH_ADD_KEYPTR(hh, head, keyptr, keylen, add) pt_hash_changes(&(head), add)
#undef HASH_DELETE
#define HASH_DELETE(hh, head, del) pt_hash_changes(&(head), del)
#undef HASH_CLEAR
#define HASH_CLEAR(hh, head) pt_hash_changes(&(head), NULL)
#undef HASH_SRT
#define HASH_SRT(hh, head, cmp) pt_hash_changes(&(head), (void *)(cmp))

#endif
