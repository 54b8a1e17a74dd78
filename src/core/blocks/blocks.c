/* Blocks (blocks.h): mappings of our own, so that neither malloc's limits nor its trimming matter, aligned for large pages
 * (64 MB are then 32 page faults in place of 16384). A table finds a block by its address; the free ones form a list, the
 * one given back last first: its lines may still be in the caches.
 */
#include "core/blocks/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 2 << 20,      /* a large one */
    ROUND = 64 << 10,
    HUGE_LEAST = 4 << 20, /* from here on large pages are asked for */
    SMALL_KEPT = 64 << 20, /* bytes of kept blocks without */
    OLD_SECONDS = 10
};

typedef struct block block;
struct block {
    char *at;
    size_t bytes;
    void *map;
    size_t map_bytes;
    time_t since;       /* kept: when it was given back */
    block *next;        /* in its row of the table */
    block *newer, *older; /* kept */
};

static struct {
    pthread_mutex_t lock;
    bool prepared;
    block **rows;
    size_t nrows, nblocks;
    block *newest, *oldest;
    size_t limit, kept_small;
    kin_blocks_stats stats;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = (size_t)1 << 30};

/* -- fork: nobody is halfway through a change --------------------------------------------------------------------- */

static void
before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void
after_fork(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* -- by address ---------------------------------------------------------------------------------------------------- */

static size_t
row_of(const void *at)
{
    return ((uintptr_t)at >> 16) * 0x9e3779b97f4a7c15u >> 32 & (pool.nrows - 1);
}

static bool
grow(void)
{
    size_t n = pool.nrows ? 2 * pool.nrows : 64, before = pool.nrows;
    block **rows = calloc(n, sizeof *rows), **old = pool.rows;
    if (rows == NULL)
        return pool.rows != NULL; /* longer rows */
    pool.rows = rows;
    pool.nrows = n;
    for (size_t r = 0; r < before; r++)
        while (old[r]) {
            block *b = old[r];
            old[r] = b->next;
            b->next = rows[row_of(b->at)];
            rows[row_of(b->at)] = b;
        }
    free(old);
    return true;
}

static bool
enter(block *b)
{
    if (pool.nblocks >= pool.nrows && !grow())
        return false;
    block **row = &pool.rows[row_of(b->at)];
    b->next = *row;
    *row = b;
    pool.nblocks++;
    return true;
}

static void
forget(block *b)
{
    block **at = &pool.rows[row_of(b->at)];
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    pool.nblocks--;
}

static block *
find(const void *at)
{
    block *b = pool.nrows ? pool.rows[row_of(at)] : NULL;
    while (b && b->at != at)
        b = b->next;
    return b;
}

/* -- mappings ------------------------------------------------------------------------------------------------------ */

static bool
is_huge(const block *b)
{
    return b->bytes >= HUGE_LEAST;
}

static block *
map_block(size_t bytes)
{
    bool huge = bytes >= HUGE_LEAST;
    size_t whole = huge ? bytes + PAGE : bytes;
    block *b = calloc(1, sizeof *b);
    void *map = b ? mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (map == MAP_FAILED) {
        free(b);
        return NULL;
    }
    char *at = map;
    if (huge) {
        at += -(uintptr_t)at & (PAGE - 1);
        madvise(at, bytes, MADV_HUGEPAGE); /* without, it is only slower */
    }
    *b = (block){.at = at, .bytes = bytes, .map = map, .map_bytes = whole};
    return b;
}

/* A block that is in no list any more. */
static void
unmap(block *b)
{
    munmap(b->map, b->map_bytes);
    free(b);
}

/* -- those that are kept ------------------------------------------------------------------------------------------- */

static void
unlink_kept(block *b)
{
    *(b->newer ? &b->newer->older : &pool.newest) = b->older;
    *(b->older ? &b->older->newer : &pool.oldest) = b->newer;
    b->newer = b->older = NULL;
    pool.stats.kept -= b->bytes;
    pool.stats.nkept--;
    pool.kept_small -= is_huge(b) ? 0 : b->bytes;
}

static void
link_kept(block *b)
{
    b->older = pool.newest;
    *(pool.newest ? &pool.newest->newer : &pool.oldest) = b;
    pool.newest = b;
    pool.stats.kept += b->bytes;
    pool.stats.nkept++;
    pool.kept_small += is_huge(b) ? 0 : b->bytes;
}

static void
drop(block *b, block **gone)
{
    unlink_kept(b);
    forget(b);
    pool.stats.dropped++;
    b->next = *gone;
    *gone = b;
}

static time_t
seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return t.tv_sec;
}

/* Takes out what is too much or too old; the caller unmaps it without the lock. */
static block *
excess(size_t limit, time_t now)
{
    block *gone = NULL;
    while (pool.oldest && (pool.stats.kept > limit || now - pool.oldest->since > OLD_SECONDS))
        drop(pool.oldest, &gone);
    for (block *b = pool.oldest, *newer; b && pool.kept_small > SMALL_KEPT; b = newer) {
        newer = b->newer;
        if (!is_huge(b))
            drop(b, &gone);
    }
    return gone;
}

static void
unmap_all(block *gone)
{
    while (gone) {
        block *next = gone->next;
        unmap(gone);
        gone = next;
    }
}

/* The smallest that is large enough, and not by more than an eighth. */
static block *
best_kept(size_t bytes)
{
    block *best = NULL;
    for (block *b = pool.newest; b && !(best && best->bytes == bytes); b = b->older)
        if (b->bytes >= bytes && b->bytes - bytes <= bytes / 8 && (best == NULL || b->bytes < best->bytes))
            best = b;
    return best;
}

/* -- taking and giving --------------------------------------------------------------------------------------------- */

static void
use(block *b)
{
    pool.stats.used += b->bytes;
    pool.stats.nused++;
}

static void *
take_new(size_t bytes)
{
    block *b = map_block(bytes);
    if (b == NULL) { /* memory is short: what is kept is in the way */
        kin_blocks_clear();
        b = map_block(bytes);
    }
    if (b == NULL)
        return NULL;
    pthread_mutex_lock(&pool.lock);
    bool ok = enter(b);
    if (ok)
        use(b);
    pthread_mutex_unlock(&pool.lock);
    if (!ok)
        unmap(b);
    return ok ? b->at : NULL;
}

void *
kin_block_take(size_t bytes)
{
    if (bytes < KIN_BLOCK_LEAST || bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + ROUND - 1) / ROUND * ROUND;
    pthread_mutex_lock(&pool.lock);
    if (!pool.prepared)
        pool.prepared = pthread_atfork(before_fork, after_fork, after_fork) == 0;
    bool on = pool.limit > 0 && pool.prepared;
    block *b = on ? best_kept(bytes) : NULL;
    if (b) {
        unlink_kept(b);
        use(b);
    }
    pool.stats.taken += on;
    pool.stats.reused += b != NULL;
    pthread_mutex_unlock(&pool.lock);
    return b ? b->at : on ? take_new(bytes) : NULL;
}

void
kin_block_give(void *at)
{
    pthread_mutex_lock(&pool.lock);
    block *b = find(at), *gone = NULL;
    pthread_mutex_unlock(&pool.lock);
    if (b == NULL)
        return;
    if (is_huge(b)) /* by large pages it takes 70 us for 64 MB, by small ones milliseconds */
        madvise(b->at, b->bytes, MADV_FREE);
    pthread_mutex_lock(&pool.lock);
    pool.stats.used -= b->bytes;
    pool.stats.nused--;
    b->since = seconds();
    link_kept(b);
    gone = excess(pool.limit, b->since);
    pthread_mutex_unlock(&pool.lock);
    unmap_all(gone);
}

void
kin_blocks_set_limit(size_t limit)
{
    pthread_mutex_lock(&pool.lock);
    pool.limit = limit;
    block *gone = excess(limit, seconds());
    pthread_mutex_unlock(&pool.lock);
    unmap_all(gone);
}

void
kin_blocks_clear(void)
{
    pthread_mutex_lock(&pool.lock);
    block *gone = excess(0, seconds());
    pthread_mutex_unlock(&pool.lock);
    unmap_all(gone);
}

void
kin_blocks_count(kin_blocks_stats *out)
{
    pthread_mutex_lock(&pool.lock);
    *out = pool.stats;
    pthread_mutex_unlock(&pool.lock);
}
