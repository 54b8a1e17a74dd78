/* Watching memory: every way to write that a test can do is noticed, and what was not written to is quiet. Where the kernel
 * cannot watch, only comparing contents is tested, and the test says so. */
#include "core/track/track.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { LARGE = 1 << 20 };

static char *
filled(size_t bytes)
{
    char *p = malloc(bytes);
    memset(p, 7, bytes);
    return p;
}

/* One byte anywhere is noticed once. */
static void
test_places(kin_track *t, size_t bytes, size_t compared)
{
    kin_text why = {0};
    char *p = filled(bytes);
    kin_write_watch *w = kin_watch_new(t, p, bytes, compared, &why);
    CHECK(w != NULL);
    CHECK(!kin_watch_changed(w));
    size_t places[] = {0, bytes > 1, bytes / 2, bytes - 1};
    for (int i = 0; i < 4; i++) {
        p[places[i]] ^= 1;
        CHECK(kin_watch_changed(w));
        CHECK(!kin_watch_changed(w));
    }
    int sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += p[i];
    CHECK(sum != 0 && !kin_watch_changed(w)); /* reading is no change */
    kin_watch_free(w);
    p[0] ^= 1;
    free(p);
    kin_text_deinit(&why);
}

static void
test_neighbours(kin_track *t)
{
    char *p = filled(LARGE);
    kin_write_watch *w = kin_watch_new(t, p + 5000, 200000, 0, NULL);
    CHECK(w != NULL);
    p[4999] = 1;
    p[205000] = 1;
    CHECK(!kin_watch_changed(w));
    kin_watch_free(w);
    free(p);
}

/* Each of several watches, equal or overlapping, hears of a write, whoever asks first. */
static void
test_sharing(kin_track *t)
{
    char *p = filled(LARGE);
    kin_write_watch *a = kin_watch_new(t, p, LARGE, 0, NULL), *b = kin_watch_new(t, p, LARGE, 0, NULL);
    p[LARGE / 2] = 1;
    kin_write_watch *c = kin_watch_new(t, p + LARGE / 4, LARGE / 2, 0, NULL); /* begins after the write */
    CHECK(kin_watch_changed(a) && kin_watch_changed(b) && !kin_watch_changed(c));
    p[LARGE / 2] = 2;
    CHECK(kin_watch_changed(c) && kin_watch_changed(b) && kin_watch_changed(a));
    CHECK(!kin_watch_changed(a) && !kin_watch_changed(b) && !kin_watch_changed(c));
    kin_watch_free(a);
    p[LARGE / 2] = 3;
    CHECK(kin_watch_changed(c) && kin_watch_changed(b));
    kin_watch_free(b);
    kin_watch_free(c);
    free(p);
}

/* Pieces side by side: exactly those that were written to are named, also when gaps are unmapped meanwhile. */
static void
test_group(kin_track *t)
{
    enum { N = 6, PIECE = 70000 };
    char *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kin_write_watch *w[N];
    for (int i = 0; i < N; i++)
        w[i] = kin_watch_new(t, p + i * 90000 + 64, i == 3 ? 100 : PIECE, 0, NULL);
    kin_watch_group *g = kin_watch_group_new(t, w, N);
    bool which[N];
    CHECK_EQ(kin_watch_group_changed(g, which), 0);
    for (int i = 0; i < N; i++) {
        p[i * 90000 + 64] = 1;          /* on an edge */
        p[i * 90000 + 63] = 1;          /* a neighbour's */
        CHECK_EQ(kin_watch_group_changed(g, which), 1);
        CHECK(which[i]);
    }
    p[2 * 90000 + PIECE / 2] = 1;
    p[4 * 90000 + PIECE / 2] = 1;
    CHECK(kin_watch_changed(w[2]) && !kin_watch_changed(w[1]));
    CHECK_EQ(kin_watch_group_changed(g, which), 1);
    CHECK(which[4] && !which[2]);
    munmap(p + 4096 * ((90000 + 64 + PIECE + 4095) / 4096), 4096); /* between the second and third */
    kin_watch_group_changed(g, NULL);
    p[5 * 90000 + PIECE / 2] = 1;
    CHECK_EQ(kin_watch_group_changed(g, which), 1);
    CHECK(which[5]);
    kin_watch_group_free(g);
    for (int i = 0; i < N; i++)
        kin_watch_free(w[i]);
    munmap(p, LARGE);
}

static void
test_system_calls(kin_track *t)
{
    char *p = filled(LARGE);
    kin_write_watch *w = kin_watch_new(t, p, LARGE, 0, NULL);
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(read(zero, p + LARGE / 2, 8) == 8);
    CHECK(kin_watch_changed(w));
    memset(p, 3, LARGE);
    CHECK(kin_watch_changed(w) && !kin_watch_changed(w));
    close(zero);
    kin_watch_free(w);
    free(p);
}

/* The memory is replaced at the same address. */
static void
test_replaced(kin_track *t)
{
    char *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kin_write_watch *w = kin_watch_new(t, p, LARGE, 0, NULL);
    CHECK(w != NULL && !kin_watch_changed(w));
    munmap(p, LARGE);
    char *q = mmap(p, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(q == p && kin_watch_changed(w));
    CHECK(!kin_watch_changed(w));
    q[LARGE / 2] = 1;
    CHECK(kin_watch_changed(w));
    kin_watch_free(w);
    munmap(q, LARGE);
}

static void
test_shared_memory(kin_track *t)
{
    kin_text why = {0};
    char *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(kin_watch_new(t, p, LARGE, LARGE - 1, &why) == NULL);
    CHECK(why.at != NULL && strstr(why.at, "other processes") != NULL && strstr(why.at, "too large") != NULL);
    kin_write_watch *w = kin_watch_new(t, p, LARGE, LARGE, NULL);
    CHECK(w != NULL && !kin_watch_changed(w));
    p[LARGE / 3] = 1;
    CHECK(kin_watch_changed(w) && !kin_watch_changed(w));
    kin_watch_free(w);
    munmap(p, LARGE);
    kin_text_deinit(&why);
}

/* In the child: a change at first, then its own writes, not the parent's. */
static int
in_child(kin_write_watch *w, char *p)
{
    bool first = kin_watch_changed(w), quiet = !kin_watch_changed(w);
    p[LARGE / 2] = 9;
    return first && quiet && kin_watch_changed(w) && !kin_watch_changed(w) ? 0 : 1;
}

static void
test_fork(kin_track *t)
{
    char *p = filled(LARGE);
    kin_write_watch *w = kin_watch_new(t, p, LARGE, 0, NULL);
    CHECK(!kin_watch_changed(w));
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(w, p));
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!kin_watch_changed(w));
    p[LARGE / 2] = 1;
    CHECK(kin_watch_changed(w));
    kin_watch_free(w);
    free(p);
}

static void *
write_some(void *at)
{
    for (int i = 0; i < 2000; i++)
        ((volatile char *)at)[(i * 4099) % LARGE] = (char)i;
    return NULL;
}

static void
test_thread(kin_track *t)
{
    char *p = filled(LARGE);
    kin_write_watch *w = kin_watch_new(t, p, LARGE, 0, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, write_some, p) == 0);
    unsigned changes = 0;
    for (int i = 0; i < 50; i++)
        changes += kin_watch_changed(w);
    pthread_join(thread, NULL);
    CHECK(kin_watch_changed(w) || changes > 0);
    CHECK(!kin_watch_changed(w));
    kin_watch_free(w);
    free(p);
}

/* The kernel watches a page for one tracker: for others it is compared, if it is not too large. */
static void
test_pages_of_another(kin_track *t)
{
    kin_text why = {0};
    kin_track *other = kin_track_new(NULL);
    char *p = filled(LARGE);
    kin_write_watch *first = kin_watch_new(t, p, LARGE, 0, NULL);
    CHECK(kin_watch_new(other, p, LARGE, LARGE - 1, &why) == NULL && strstr(why.at, "the kernel does not watch it") != NULL);
    kin_write_watch *second = kin_watch_new(other, p, LARGE, LARGE, NULL);
    CHECK(second != NULL && !kin_watch_changed(second));
    p[LARGE / 2] ^= 1;
    CHECK(kin_watch_changed(second) && kin_watch_changed(first) && !kin_watch_changed(second) && !kin_watch_changed(first));
    kin_watch_free(second);
    kin_watch_free(first);
    free(p);
    kin_track_free(other);
    kin_text_deinit(&why);
}

int
main(void)
{
    kin_text why = {0};
    kin_track *t = kin_track_new(&why);
    CHECK(t != NULL);
    size_t sizes[] = {1, 100, 4096, 20000, 65536, LARGE, 8 * LARGE};
    for (int i = 0; i < 7; i++)
        test_places(t, sizes[i], sizes[i]);
    if (kin_track_has_kernel(t)) {
        for (int i = 0; i < 7; i++)
            test_places(t, sizes[i], 0);
        test_neighbours(t);
        test_sharing(t);
        test_group(t);
        test_system_calls(t);
        test_replaced(t);
        test_shared_memory(t);
        test_pages_of_another(t);
        test_fork(t);
        test_thread(t);
    } else
        printf("contents only: %s\n", why.at);
    kin_track_free(t);
    kin_text_deinit(&why);
    return check_report("track");
}
