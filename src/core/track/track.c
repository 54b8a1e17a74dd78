/* Watches memory for writes (track.h). The kernel's interface is defined here because installed headers may be older than the
 * kernel.
 *
 * A scan reports which pages were written and protects them again, so its findings are noted at once in every watch that has
 * a part of these pages: in `inner` if the whole page belongs to the watch, in `edge` if it is shared; then
 * contents are compared. Nothing is compared while no page is written.
 */
#include "core/track/track.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

/* `why` may be NULL. */
#define SAY(why, ...) ((why) != NULL ? kin_text_addf(why, __VA_ARGS__) : (void)0)

enum {
    PAGE = 4096,
    SMALL = 4 * PAGE,    /* below, contents are compared: a system call costs more, and neighbours are written to often */
    MAX_GAP = 16 * PAGE  /* pieces of memory that are not farther apart are scanned together */
};

typedef struct {
    uintptr_t start, end;
} range;

struct kin_track {
    pthread_mutex_t lock;
    int uffd, pagemap;      /* -1: contents only */
    volatile char *alive;   /* a page that the kernel wipes in children: 0 there */
    uint64_t forks;
    kin_write_watch *watches;
};

struct kin_write_watch {
    kin_track *track;
    kin_write_watch *next;
    const char *data;
    size_t bytes;
    range pages;            /* all pages that it has a part of; empty: contents are compared */
    range own;              /* those that it fills */
    size_t head, tail;      /* bytes in front of and behind `own`, kept in `copy` */
    char *copy;
    bool inner, edge;       /* written to, as far as scans found */
    uint64_t forks;
};

struct kin_watch_group {
    kin_track *track;
    kin_write_watch **watches;
    range *runs;            /* what is scanned for them */
    unsigned n, nruns;
};

#ifdef __linux__
/* -- the kernel's interface ------------------------------------------------------------------------------------ */

struct scan_region {
    uint64_t start, end, categories;
};

struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t inverted, mask, any_of, returned;
};

struct uffd_hello {
    uint64_t api, features, ioctls;
};

struct uffd_range {
    uint64_t start, len;
};

struct uffd_register {
    struct uffd_range range;
    uint64_t mode, ioctls;
};

enum {
    SCAN_WRITTEN = 1 << 1,        /* category: written since it was protected */
    SCAN_PROTECT = 1 << 0,        /* flag: protect what matched */
    SCAN_CHECK_ASYNC = 1 << 1,    /* flag: fail where pages are not registered */
    UFFD_USER_ONLY = 1,
    UFFD_MODE_WP = 2,
    UFFD_WP_UNPOPULATED = 1 << 13,
    UFFD_WP_ASYNC = 1 << 15
};
#define IOCTL_SCAN _IOWR('f', 16, struct scan)
#define IOCTL_UFFD_API _IOWR(0xAA, 0x3F, struct uffd_hello)
#define IOCTL_UFFD_REGISTER _IOWR(0xAA, 0x00, struct uffd_register)
#define IOCTL_UFFD_UNREGISTER _IOR(0xAA, 0x01, struct uffd_range)

static void
note_written(kin_track *t, uintptr_t start, uintptr_t end)
{
    for (kin_write_watch *w = t->watches; w != NULL; w = w->next) {
        if (start >= w->pages.end || end <= w->pages.start)
            continue;
        w->inner = w->inner || (start < w->own.end && end > w->own.start);
        w->edge = w->edge || start < w->own.start || end > w->own.end;
    }
}

/* Notes what was written and protects it again; false: that is not known. */
static bool
scan_pages(kin_track *t, range r)
{
    struct scan_region found[8];
    struct scan scan = {.size = sizeof scan, .flags = SCAN_PROTECT | SCAN_CHECK_ASYNC, .start = r.start, .end = r.end,
                        .vec = (uintptr_t)found, .vec_len = 8, .mask = SCAN_WRITTEN, .returned = SCAN_WRITTEN};
    while (scan.start < r.end) {
        int n = ioctl(t->pagemap, IOCTL_SCAN, &scan);
        if (n < 0)
            return false;
        for (int i = 0; i < n; i++)
            note_written(t, found[i].start, found[i].end);
        if (scan.walk_end <= scan.start)
            return true;
        scan.start = scan.walk_end;
    }
    return true;
}

static bool
register_pages(kin_track *t, range r)
{
    struct uffd_register reg = {.range = {r.start, r.end - r.start}, .mode = UFFD_MODE_WP};
    return ioctl(t->uffd, IOCTL_UFFD_REGISTER, &reg) == 0 && scan_pages(t, r);
}

static void
unregister_pages(const kin_track *t, range r)
{
    struct uffd_range u = {r.start, r.end - r.start};
    if (t->uffd >= 0)
        (void)ioctl(t->uffd, IOCTL_UFFD_UNREGISTER, &u); /* fails where the memory is gone: nothing to do then */
}

static bool
open_kernel(kin_track *t, kin_text *why)
{
    t->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_ONLY);
    if (t->uffd < 0) {
        SAY(why, "userfaultfd: %s", strerror(errno));
        return false;
    }
    struct uffd_hello hello = {.api = 0xAA, .features = UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED};
    if (ioctl(t->uffd, IOCTL_UFFD_API, &hello) != 0) {
        SAY(why, "userfaultfd without asynchronous write protection (Linux 6.7 has it): %s", strerror(errno));
        return false;
    }
    t->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (t->pagemap < 0)
        SAY(why, "/proc/self/pagemap: %s", strerror(errno));
    return t->pagemap >= 0;
}

/* Is all of it private memory without a file behind it? */
static bool
is_private(range r)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uintptr_t covered = r.start;
    bool whole_line = true, ok = maps != NULL;
    while (ok && covered < r.end && fgets(line, sizeof line, maps) != NULL) {
        bool first_part = whole_line;
        whole_line = strchr(line, '\n') != NULL; /* long names come in parts */
        uintptr_t from, to;
        char mode[5];
        unsigned long inode;
        if (!first_part || sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*s %lu", &from, &to, mode, &inode) != 4 ||
            to <= covered)
            continue;
        ok = from <= covered && mode[3] == 'p' && inode == 0;
        covered = to;
    }
    if (maps != NULL)
        fclose(maps);
    return ok && covered >= r.end;
}

static volatile char *
map_alive(void)
{
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, PAGE, 18 /* MADV_WIPEONFORK */) != 0) {
        munmap(page, PAGE);
        return NULL;
    }
    page[0] = 1;
    return page;
}

static void
unmap_alive(volatile char *page)
{
    munmap((void *)page, PAGE);
}
#else
static bool scan_pages(kin_track *t, range r) { return false; }
static bool register_pages(kin_track *t, range r) { return false; }
static void unregister_pages(const kin_track *t, range r) {}
static bool is_private(range r) { return false; }
static volatile char *map_alive(void) { return NULL; }
static void unmap_alive(volatile char *page) {}
static bool
open_kernel(kin_track *t, kin_text *why)
{
    SAY(why, "memory can be watched on Linux only");
    return false;
}
#endif

/* -- the tracker ------------------------------------------------------------------------------------------------ */

static void
close_kernel(kin_track *t)
{
    if (t->uffd >= 0)
        close(t->uffd);
    if (t->pagemap >= 0)
        close(t->pagemap);
    t->uffd = t->pagemap = -1;
}

kin_track *
kin_track_new(kin_text *why)
{
    kin_track *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->uffd = t->pagemap = -1;
    t->alive = map_alive();
    if (t->alive == NULL || !open_kernel(t, why))
        close_kernel(t);
    if (t->alive == NULL || pthread_mutex_init(&t->lock, NULL) != 0) {
        close_kernel(t);
        if (t->alive != NULL)
            unmap_alive(t->alive);
        free(t);
        return NULL;
    }
    return t;
}

void
kin_track_free(kin_track *t)
{
    if (t == NULL)
        return;
    close_kernel(t);
    unmap_alive(t->alive);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

bool
kin_track_has_kernel(const kin_track *t)
{
    return t->pagemap >= 0;
}

/* In a child the descriptors look at the parent: opened anew, everything protected again, everything counts as changed. */
static void
notice_fork(kin_track *t)
{
    if (t->alive[0])
        return;
    kin_text why = {0};
    bool had = t->pagemap >= 0;
    close_kernel(t);
    if (had && !open_kernel(t, &why))
        close_kernel(t);
    kin_text_deinit(&why);
    for (kin_write_watch *w = t->watches; w != NULL; w = w->next)
        if (t->pagemap >= 0 && w->pages.end > w->pages.start)
            (void)register_pages(t, w->pages); /* when this fails, its scans do, and that is a change each time */
    t->forks++;
    t->alive[0] = 1;
}

/* -- watches ---------------------------------------------------------------------------------------------------- */

/* Looks at pages; where that fails there is other memory than before: a change, and watched again if that can be (if
 * not, it fails and is a change the next time as well). */
static void
look(kin_track *t, range r)
{
    if (scan_pages(t, r))
        return;
    (void)register_pages(t, r);
    note_written(t, r.start, r.end);
}

static void
take_copy(kin_write_watch *w)
{
    memcpy(w->copy, w->data, w->head);
    memcpy(w->copy + w->head, w->data + w->bytes - w->tail, w->tail);
}

static bool
same_as_copy(const kin_write_watch *w)
{
    return memcmp(w->copy, w->data, w->head) == 0 && memcmp(w->copy + w->head, w->data + w->bytes - w->tail, w->tail) == 0;
}

static bool
is_paged(const kin_write_watch *w)
{
    return w->pages.end > w->pages.start;
}

/* Will the kernel watch its pages? They may be refused for a moment only, as where something else in the process watches them. */
static bool
place_in_pages(kin_track *t, kin_write_watch *w, kin_text *why)
{
    uintptr_t first = (uintptr_t)w->data, end = first + w->bytes;
    range pages = {first / PAGE * PAGE, (end + PAGE - 1) / PAGE * PAGE};
    if (t->pagemap < 0) {
        SAY(why, "the kernel does not watch memory here");
        return false;
    }
    if (!is_private(pages)) {
        SAY(why, "other processes can write to it (shared memory or a mapped file)");
        return false;
    }
    if (!register_pages(t, pages)) {
        SAY(why, "the kernel does not watch it: %s", strerror(errno));
        return false;
    }
    w->pages = pages;
    w->own = (range){(first + PAGE - 1) / PAGE * PAGE, end / PAGE * PAGE};
    w->head = w->own.start - first;
    w->tail = end - w->own.end;
    return true;
}

/* Decides between watching pages and comparing contents. */
static bool
place(kin_track *t, kin_write_watch *w, size_t most_compared, kin_text *why)
{
    w->head = w->bytes;
    if (w->bytes < SMALL || place_in_pages(t, w, why) || w->bytes <= most_compared)
        return true;
    SAY(why, ", and it is too large to be compared");
    return false;
}

kin_write_watch *
kin_watch_new(kin_track *t, const void *data, size_t bytes, size_t most_compared, kin_text *why)
{
    kin_write_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    *w = (kin_write_watch){.track = t, .data = data, .bytes = bytes};
    pthread_mutex_lock(&t->lock);
    notice_fork(t);
    bool ok = place(t, w, most_compared, why) && (w->copy = malloc(w->head + w->tail + 1)) != NULL;
    if (ok) {
        take_copy(w);
        w->forks = t->forks;
        w->next = t->watches;
        t->watches = w;
    }
    pthread_mutex_unlock(&t->lock);
    if (ok)
        return w;
    free(w);
    return NULL;
}

static bool
is_used(const kin_track *t, range r)
{
    for (const kin_write_watch *w = t->watches; w != NULL; w = w->next)
        if (w->pages.start < r.end && r.start < w->pages.end)
            return true;
    return false;
}

void
kin_watch_free(kin_write_watch *w)
{
    if (w == NULL)
        return;
    kin_track *t = w->track;
    pthread_mutex_lock(&t->lock);
    kin_write_watch **at = &t->watches;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    if (is_paged(w) && !is_used(t, w->pages))
        unregister_pages(t, w->pages);
    pthread_mutex_unlock(&t->lock);
    free(w->copy);
    free(w);
}

/* After its pages were looked at. */
static bool
take_change(kin_write_watch *w)
{
    bool changed = w->inner || w->forks != w->track->forks;
    if ((w->edge || !is_paged(w)) && !same_as_copy(w)) {
        take_copy(w);
        changed = true;
    }
    w->inner = w->edge = false;
    w->forks = w->track->forks;
    return changed;
}

bool
kin_watch_changed(kin_write_watch *w)
{
    kin_track *t = w->track;
    pthread_mutex_lock(&t->lock);
    notice_fork(t);
    if (is_paged(w))
        look(t, w->pages);
    bool changed = take_change(w);
    pthread_mutex_unlock(&t->lock);
    return changed;
}

/* -- groups ----------------------------------------------------------------------------------------------------- */

static int
by_start(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Runs of memory in which everything is registered, small gaps included. */
static void
find_runs(kin_watch_group *g)
{
    for (unsigned i = 0; i < g->n; i++)
        if (is_paged(g->watches[i]))
            g->runs[g->nruns++] = g->watches[i]->pages;
    if (g->nruns == 0)
        return;
    qsort(g->runs, g->nruns, sizeof *g->runs, by_start);
    unsigned last = 0;
    for (unsigned i = 1; i < g->nruns; i++) {
        range *run = &g->runs[last], gap = {run->end, g->runs[i].start};
        bool joined = gap.start >= gap.end ||
                      (gap.end - gap.start <= MAX_GAP && is_private(gap) && register_pages(g->track, gap));
        if (!joined)
            g->runs[++last] = g->runs[i];
        else if (g->runs[i].end > run->end)
            run->end = g->runs[i].end;
    }
    g->nruns = last + 1;
}

kin_watch_group *
kin_watch_group_new(kin_track *t, kin_write_watch *const *watches, unsigned n)
{
    kin_watch_group *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    *g = (kin_watch_group){.track = t, .n = n};
    g->watches = malloc((n + 1) * sizeof *g->watches);
    g->runs = malloc((n + 1) * sizeof *g->runs);
    if (g->watches == NULL || g->runs == NULL) {
        kin_watch_group_free(g);
        return NULL;
    }
    memcpy(g->watches, watches, n * sizeof *watches);
    pthread_mutex_lock(&t->lock);
    notice_fork(t);
    find_runs(g);
    pthread_mutex_unlock(&t->lock);
    return g;
}

void
kin_watch_group_free(kin_watch_group *g)
{
    if (g == NULL)
        return;
    free(g->watches);
    free(g->runs);
    free(g);
}

unsigned
kin_watch_group_changed(kin_watch_group *g, bool *which)
{
    unsigned changes = 0;
    pthread_mutex_lock(&g->track->lock);
    notice_fork(g->track);
    for (unsigned i = 0; i < g->nruns; i++)
        if (!scan_pages(g->track, g->runs[i]))
            for (unsigned k = 0; k < g->n; k++) /* a gap may be gone: piece by piece */
                if (is_paged(g->watches[k]))
                    look(g->track, g->watches[k]->pages);
    for (unsigned i = 0; i < g->n; i++) {
        bool changed = take_change(g->watches[i]);
        changes += changed;
        if (which != NULL)
            which[i] = changed;
    }
    pthread_mutex_unlock(&g->track->lock);
    return changes;
}
