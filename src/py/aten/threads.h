/* PyTorch's thread pool, for code that does not touch Python. */
#ifndef KIN_ATEN_THREADS_H
#define KIN_ATEN_THREADS_H

#include <stdint.h>

/* Where this build of PyTorch offers no way to its threads, everything runs on the calling one. `cpu`: its library for the CPU. */
void kin_threads_init(void *cpu);

/* So many of them at most, for what this thread asks for from now on; 0: all. Returns what it was. */
uint32_t kin_parallel_limit(uint32_t threads);

/* Splits [0, n) over torch's threads: at least `grain` each. `fn` must not touch Python. */
void kin_parallel_for(int64_t n, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg);

#endif
