/* PyTorch's thread pool (threads.h). torch_parallel_for is part of its C interface from torch 2.10 on. Before that, at::parallel_for is inline
 * code over OpenMP; here the same is done with the OpenMP library that torch itself was linked with, so that there is only one thread pool.
 */
#include "py/aten/threads.h"

#include <stdlib.h>

#include "py/aten/tensor_priv.h"

typedef void (*work_fn)(int64_t begin, int64_t end, void *arg);

static struct {
    int (*torch)(int64_t begin, int64_t end, int64_t grain, work_fn fn, void *arg);
    /* OpenMP, and what torch says of it; NULL: not there. */
    void (*region)(void (*fn)(void *), void *arg, unsigned threads, unsigned flags);
    int (*number)(void), (*count)(void);
    int (*wanted)(void);
    bool (*inside)(void);
} threads;

static _Thread_local uint32_t most_threads;

void
kin_threads_init(void *cpu)
{
    bool old = getenv("KIN_SIMULATE_OLD_THREADS") != NULL; /* tests: what is done before torch 2.10 */
    if (!old && kin_aten_symbol(cpu, "torch_parallel_for", &threads.torch))
        return;
    bool all = kin_aten_symbol(cpu, "omp_get_thread_num", &threads.number) && kin_aten_symbol(cpu, "omp_get_num_threads", &threads.count) &&
               kin_aten_symbol(cpu, "_ZN2at15get_num_threadsEv", &threads.wanted) &&
               kin_aten_symbol(cpu, "_ZN2at18in_parallel_regionEv", &threads.inside);
    if (!all || !kin_aten_symbol(cpu, "GOMP_parallel", &threads.region))
        threads.region = NULL;
}

uint32_t
kin_parallel_limit(uint32_t limit)
{
    uint32_t was = most_threads;
    most_threads = limit;
    return was;
}

typedef struct {
    int64_t n, grain;
    work_fn fn;
    void *arg;
} region_work;

/* What one thread of the region does: an equal share, as at::parallel_for cuts it. */
static void
run_part(void *arg)
{
    const region_work *w = arg;
    int64_t parts = threads.count(), most = (w->n + w->grain - 1) / w->grain;
    parts = parts < most ? parts : most;
    int64_t chunk = (w->n + parts - 1) / parts, begin = threads.number() * chunk;
    if (begin < w->n)
        w->fn(begin, begin + chunk < w->n ? begin + chunk : w->n, w->arg);
}

void
kin_parallel_for(int64_t n, int64_t grain, work_fn fn, void *arg)
{
    int64_t share = most_threads == 0 ? 0 : (n + most_threads - 1) / most_threads;
    grain = grain > share ? grain : share;
    if (threads.torch) {
        if (threads.torch(0, n, grain, fn, arg) != 0)
            fn(0, n, arg);
        return;
    }
    region_work w = {.n = n, .grain = grain > 0 ? grain : 1, .fn = fn, .arg = arg};
    int wanted = threads.region && n > w.grain && !threads.inside() ? threads.wanted() : 1;
    if (wanted > 1)
        threads.region(run_part, &w, (unsigned)wanted, 0);
    else
        fn(0, n, arg);
}
