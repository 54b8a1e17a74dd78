/* Blocks (blocks.h): our own mappings, so that malloc's limits and trimming do not matter, aligned for large pages
 * (64 MB then cause 32 page faults instead of 16384). A table finds a block by its address. The free ones form a list,
 * most recently released first, because its lines may still be in the caches.
 */
#include "core/blocks/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/table.h"
#include "core/base/vec.h"

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
    uint32_t number;    /* in `all` */
    block *next;        /* of those that are to be unmapped */
    block *newer, *older; /* kept */
};

struct kin_blocks {
    pthread_mutex_t lock;
    KIN_VEC(block *) all;    /* used and kept, by number; NULL: none has it */
    KIN_VEC(uint32_t) holes; /* the numbers that no block has */
    kin_table index;         /* from address to number */
    block *newest, *oldest;
    size_t limit, kept_small;
    kin_blocks_stats stats;
};

kin_blocks *
kin_blocks_new(size_t limit)
{
    kin_blocks *p = calloc(1, sizeof *p);
    if (p && pthread_mutex_init(&p->lock, NULL) != 0) {
        free(p);
        p = NULL;
    }
    if (p)
        p->limit = limit;
    return p;
}

void
kin_blocks_free(kin_blocks *p)
{
    if (p == NULL)
        return;
    kin_blocks_clear(p);
    pthread_mutex_destroy(&p->lock);
    kin_vec_deinit(&p->all);
    kin_vec_deinit(&p->holes);
    kin_table_deinit(&p->index);
    free(p);
}

void
kin_blocks_lock(kin_blocks *p)
{
    pthread_mutex_lock(&p->lock);
}

void
kin_blocks_unlock(kin_blocks *p)
{
    pthread_mutex_unlock(&p->lock);
}

/* -- by address ---------------------------------------------------------------------------------------------------- */

static bool
enter(kin_blocks *p, block *b)
{
    uint32_t holes = p->holes.len;
    if (kin_vec_reserve(&p->all, 1) != KIN_OK || kin_vec_reserve(&p->holes, p->all.len + 1 - holes) != KIN_OK)
        return false;
    b->number = holes > 0 ? p->holes.at[holes - 1] : p->all.len;
    if (kin_table_add(&p->index, kin_hash_pointer(b->at), b->number) != KIN_OK)
        return false;
    if (holes > 0)
        p->holes.len--;
    else
        p->all.len++;
    p->all.at[b->number] = b;
    return true;
}

/* Cannot fail: there is room for its number. */
static void
forget(kin_blocks *p, block *b)
{
    kin_table_remove(&p->index, kin_hash_pointer(b->at), b->number);
    p->all.at[b->number] = NULL;
    p->holes.at[p->holes.len++] = b->number;
}

static block *
find(const kin_blocks *p, const void *at)
{
    uint32_t n, seen = 0;
    while ((n = kin_table_next(&p->index, kin_hash_pointer(at), &seen)) != KIN_TABLE_NONE)
        if (p->all.at[n]->at == at)
            return p->all.at[n];
    return NULL;
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
unlink_kept(kin_blocks *p, block *b)
{
    *(b->newer ? &b->newer->older : &p->newest) = b->older;
    *(b->older ? &b->older->newer : &p->oldest) = b->newer;
    b->newer = b->older = NULL;
    p->stats.kept -= b->bytes;
    p->stats.nkept--;
    p->kept_small -= is_huge(b) ? 0 : b->bytes;
}

static void
link_kept(kin_blocks *p, block *b)
{
    b->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = b;
    p->newest = b;
    p->stats.kept += b->bytes;
    p->stats.nkept++;
    p->kept_small += is_huge(b) ? 0 : b->bytes;
}

static void
drop(kin_blocks *p, block *b, block **gone)
{
    unlink_kept(p, b);
    forget(p, b);
    p->stats.dropped++;
    b->next = *gone;
    *gone = b;
}

static time_t
seconds(void)
{
    return (time_t)(kin_clock_read(CLOCK_MONOTONIC_COARSE) / 1e9);
}

/* Takes out what is too much or too old; the caller unmaps it without the lock. */
static block *
excess(kin_blocks *p, size_t limit, time_t now)
{
    block *gone = NULL;
    while (p->oldest && (p->stats.kept > limit || now - p->oldest->since > OLD_SECONDS))
        drop(p, p->oldest, &gone);
    for (block *b = p->oldest, *newer; b && p->kept_small > SMALL_KEPT; b = newer) {
        newer = b->newer;
        if (!is_huge(b))
            drop(p, b, &gone);
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

/* The smallest that is large enough, and not larger than `most`. */
static block *
best_kept(const kin_blocks *p, size_t bytes, size_t most)
{
    block *best = NULL;
    for (block *b = p->newest; b && !(best && best->bytes == bytes); b = b->older)
        if (b->bytes >= bytes && b->bytes <= most && (best == NULL || b->bytes < best->bytes))
            best = b;
    return best;
}

/* -- taking and giving --------------------------------------------------------------------------------------------- */

static void
use(kin_blocks *p, block *b)
{
    p->stats.used += b->bytes;
    p->stats.nused++;
}

static void *
take_new(kin_blocks *p, size_t bytes)
{
    block *b = map_block(bytes);
    if (b == NULL) { /* memory is short: what is kept is in the way */
        kin_blocks_clear(p);
        b = map_block(bytes);
    }
    if (b == NULL)
        return NULL;
    pthread_mutex_lock(&p->lock);
    bool ok = enter(p, b);
    if (ok)
        use(p, b);
    pthread_mutex_unlock(&p->lock);
    if (!ok)
        unmap(b);
    return ok ? b->at : NULL;
}

/* A kept one of `bytes` to `most`, or a new one of `fresh`. */
static void *
take(kin_blocks *p, size_t bytes, size_t most, size_t fresh)
{
    pthread_mutex_lock(&p->lock);
    bool on = p->limit > 0;
    block *b = on ? best_kept(p, bytes, most) : NULL;
    if (b) {
        unlink_kept(p, b);
        use(p, b);
    }
    p->stats.taken += on;
    p->stats.reused += b != NULL;
    pthread_mutex_unlock(&p->lock);
    return b ? b->at : on ? take_new(p, fresh) : NULL;
}

static size_t
rounded(size_t bytes)
{
    return (bytes + ROUND - 1) / ROUND * ROUND;
}

void *
kin_block_take(kin_blocks *p, size_t bytes)
{
    if (bytes < KIN_BLOCK_LEAST || bytes > SIZE_MAX / 4)
        return NULL;
    bytes = rounded(bytes);
    return take(p, bytes, bytes + bytes / 8, bytes);
}

/* What is not touched costs nothing, so a new one is larger than it has to be: the next loan may need a little more. */
void *
kin_block_borrow(kin_blocks *p, size_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = rounded(bytes < KIN_BLOCK_LEAST ? KIN_BLOCK_LEAST : bytes);
    return take(p, bytes, SIZE_MAX, rounded(bytes + bytes / 4));
}

void
kin_block_give(kin_blocks *p, void *at)
{
    pthread_mutex_lock(&p->lock);
    block *b = find(p, at), *gone = NULL;
    pthread_mutex_unlock(&p->lock);
    if (b == NULL)
        return;
    if (is_huge(b)) /* by large pages it takes 70 us for 64 MB, by small ones milliseconds */
        madvise(b->at, b->bytes, MADV_FREE);
    pthread_mutex_lock(&p->lock);
    p->stats.used -= b->bytes;
    p->stats.nused--;
    b->since = seconds();
    link_kept(p, b);
    gone = excess(p, p->limit, b->since);
    pthread_mutex_unlock(&p->lock);
    unmap_all(gone);
}

void
kin_blocks_set_limit(kin_blocks *p, size_t limit)
{
    pthread_mutex_lock(&p->lock);
    p->limit = limit;
    block *gone = excess(p, limit, seconds());
    pthread_mutex_unlock(&p->lock);
    unmap_all(gone);
}

void
kin_blocks_clear(kin_blocks *p)
{
    pthread_mutex_lock(&p->lock);
    block *gone = excess(p, 0, seconds());
    pthread_mutex_unlock(&p->lock);
    unmap_all(gone);
}

void
kin_blocks_count(kin_blocks *p, kin_blocks_stats *out)
{
    pthread_mutex_lock(&p->lock);
    *out = p->stats;
    pthread_mutex_unlock(&p->lock);
}
