/* Failure injection, in the way of SQLite's tests: the n-th allocation, LLVM call or disk write fails, or the n-th class that a
 * recording meets has no version, so that the recording stops. Only in builds with KIN_FAULTS (the C tests; -Dfaults=true for the
 * extension), which include this header before everything else; otherwise it is empty.
 *
 *     for (uint64_t n = 1; ; n++) {
 *         kin_fail_arm(KIN_FAIL_ALLOC, n, false);
 *         ... the code under test: it succeeds or gives up, and releases what it took ...
 *         if (!kin_fail_disarm(KIN_FAIL_ALLOC)) break;      it had no n-th allocation
 *     }
 *
 * In the extension, KIN_FAIL_ALLOC=n, KIN_FAIL_LLVM=n, KIN_FAIL_WRITE=n and KIN_FAIL_CLASS=n in the environment arm it at the start; n+ makes
 * the n-th and all later ones fail.
 */
#ifndef KIN_BASE_FAULT_H
#define KIN_BASE_FAULT_H

#ifdef KIN_FAULTS

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum { KIN_FAIL_ALLOC, KIN_FAIL_LLVM, KIN_FAIL_WRITE, KIN_FAIL_CLASS, KIN_FAIL__COUNT } kin_fail;

/* The n-th from now on fails (n from 1, 0: none); all: and those after it. */
void kin_fail_arm(kin_fail what, uint64_t n, bool all);
/* Nothing fails any more. Did something? */
bool kin_fail_disarm(kin_fail what);
/* One more: does it fail? */
bool kin_fail_now(kin_fail what);

void *kin_fail_malloc(size_t size);
void *kin_fail_calloc(size_t n, size_t size);
void *kin_fail_realloc(void *at, size_t size);
void *kin_fail_aligned_alloc(size_t alignment, size_t size);
char *kin_fail_strdup(const char *text);

#undef strdup
#define malloc(size) kin_fail_malloc(size)
#define calloc(n, size) kin_fail_calloc(n, size)
#define realloc(at, size) kin_fail_realloc(at, size)
#define aligned_alloc(alignment, size) kin_fail_aligned_alloc(alignment, size)
#define strdup(text) kin_fail_strdup(text)

#else

#define kin_fail_now(what) false

#endif
#endif
