/* Blocks: what is taken is memory of one's own; what is given back serves again, within the bounds, and goes when it should. */
#include "core/blocks/blocks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "core/blocks/room.h"

enum { MB = 1 << 20 };

static kin_blocks *pool;

static kin_blocks_stats
count(void)
{
    kin_blocks_stats s;
    kin_blocks_count(pool, &s);
    return s;
}

static void
test_reuse(void)
{
    CHECK(kin_block_take(pool, KIN_BLOCK_LEAST - 1) == NULL);
    CHECK(kin_block_take(pool, SIZE_MAX - 5) == NULL);
    char *a = kin_block_take(pool, 8 * MB), *b = kin_block_take(pool, 8 * MB);
    CHECK(a && b && a != b && (uintptr_t)a % (2 * MB) == 0 && (uintptr_t)b % (2 * MB) == 0);
    memset(a, 1, 8 * MB);
    memset(b, 2, 8 * MB);
    CHECK(a[0] == 1 && a[8 * MB - 1] == 1 && b[0] == 2);
    CHECK_EQ(count().used, 16 * MB);
    kin_block_give(pool, a);
    CHECK_EQ(count().used, 8 * MB);
    CHECK_EQ(count().kept, 8 * MB);
    kin_blocks_clear(pool);
    CHECK_EQ(count().kept, 0);
    kin_block_give(pool, b);
    char *c = kin_block_take(pool, 8 * MB - 100);
    CHECK(c == b && count().kept == 0);
    kin_block_give(pool, c);
    char *d = kin_block_take(pool, 4 * MB); /* too small for it */
    CHECK(d && d != c);
    kin_block_give(pool, d);
    CHECK_EQ(count().nkept, 2);
    kin_blocks_clear(pool);
    CHECK_EQ(count().nkept, 0);
}

/* Loans of different sizes use one block; what is taken for good does not get one that is much too large. */
static void
test_loans(void)
{
    char *a = kin_block_borrow(pool, 100);
    CHECK(a != NULL && kin_block_borrow(pool, SIZE_MAX - 5) == NULL);
    memset(a, 1, 100);
    kin_block_give(pool, a);
    CHECK(kin_block_borrow(pool, KIN_BLOCK_LEAST + KIN_BLOCK_LEAST / 4) == a); /* a new one is larger than it has to be */
    kin_block_give(pool, a);
    char *b = kin_block_borrow(pool, 16 * MB);
    CHECK(b != NULL && b != a);
    memset(b, 2, 16 * MB);
    char *c = kin_block_borrow(pool, 10);
    CHECK(c == a);
    kin_block_give(pool, b);
    char *d = kin_block_borrow(pool, 5 * MB);
    CHECK(d == b); /* a is in use, and too small */
    kin_block_give(pool, d);
    char *e = kin_block_take(pool, 5 * MB);
    CHECK(e != NULL && e != b);
    kin_block_give(pool, e);
    kin_block_give(pool, c);
    CHECK_EQ(count().nused, 0);
    kin_blocks_clear(pool);
}

/* What is kept stays below the limit: the oldest go first. */
static void
test_limit(void)
{
    void *all[10];
    kin_blocks_set_limit(pool, 24 * MB);
    for (int i = 0; i < 10; i++)
        all[i] = kin_block_take(pool, 8 * MB);
    for (int i = 0; i < 10; i++) {
        kin_block_give(pool, all[i]);
        CHECK(count().kept <= 24 * MB);
    }
    CHECK_EQ(count().nkept, 3);
    CHECK(kin_block_take(pool, 8 * MB) == all[9]);
    kin_block_give(pool, all[9]);
    kin_blocks_set_limit(pool, 8 * MB);
    CHECK_EQ(count().nkept, 1);
    kin_blocks_set_limit(pool, 0);
    CHECK(count().nkept == 0 && kin_block_take(pool, 8 * MB) == NULL);
    kin_blocks_set_limit(pool, (size_t)1 << 30);
    for (int i = 0; i < 10; i++) /* small ones have a bound of their own */
        all[i] = kin_block_take(pool, 3 * MB);
    CHECK_EQ(count().nused, 10);
    for (int i = 0; i < 10; i++)
        kin_block_give(pool, all[i]);
    CHECK_EQ(count().kept, 30 * MB);
    kin_blocks_clear(pool);
}

/* Switched off while blocks are in use: they still come back. */
static void
test_off_in_use(void)
{
    void *a = kin_block_take(pool, 5 * MB);
    CHECK(a != NULL);
    kin_blocks_set_limit(pool, 0);
    kin_block_give(pool, a);
    CHECK(count().nkept == 0 && count().nused == 0);
    kin_blocks_set_limit(pool, (size_t)1 << 30);
}

static void *
work(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    unsigned char *mine[8] = {0};
    for (int i = 0; i < 400; i++) {
        unsigned slot = (seed = seed * 1103515245u + 12345u) >> 16 & 7, mark = (unsigned)(uintptr_t)arg * 16 + slot;
        if (mine[slot]) {
            CHECK(mine[slot][0] == mark && mine[slot][MB - 1] == mark);
            kin_block_give(pool, mine[slot]);
            mine[slot] = NULL;
            continue;
        }
        mine[slot] = kin_block_take(pool, (size_t)(1 + slot) * MB);
        if (mine[slot])
            mine[slot][0] = mine[slot][MB - 1] = (unsigned char)mark;
    }
    for (int i = 0; i < 8; i++)
        if (mine[i])
            kin_block_give(pool, mine[i]);
    return NULL;
}

static void
test_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(count().nused, 0);
    kin_blocks_clear(pool);
}

static void
test_fork(void)
{
    char *a = kin_block_take(pool, 6 * MB), *b = kin_block_take(pool, 6 * MB);
    a[5] = 1;
    kin_block_give(pool, b);
    pid_t child = fork();
    if (child == 0) {
        char *c = kin_block_take(pool, 6 * MB);
        bool ok = c == b && a[5] == 1;
        memset(c, 9, 6 * MB);
        a[5] = 2;
        kin_block_give(pool, a);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0 && a[5] == 1);
    kin_block_give(pool, a);
    kin_blocks_clear(pool);
}

/* -- room ------------------------------------------------------------------------------------------------------- */

static char root[] = "kin_room_XXXXXX";

static void
put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    if (CHECK(f != NULL)) {
        fputs(text, f);
        fclose(f);
    }
}

static void
test_room(void)
{
    if (!CHECK(mkdtemp(root) != NULL))
        return;
    CHECK(kin_memory_room(root) == UINT64_MAX);
    put("/proc/meminfo", "MemTotal:  900 kB\nMemAvailable:     800 kB\n");
    CHECK_EQ(kin_memory_room(root), 800 << 10);
    put("/proc/self/cgroup", "12:cpu,cpuacct:/a\n4:memory:/a/b\n0::/user/me\n");
    CHECK_EQ(kin_memory_room(root), 800 << 10); /* no such groups */
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100000\n");
    CHECK_EQ(kin_memory_room(root), 400000);
    put("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 5\ntotal_inactive_file 60000\n");
    CHECK_EQ(kin_memory_room(root), 460000);
    put("/sys/fs/cgroup/user/me/memory.max", "max\n");
    put("/sys/fs/cgroup/user/me/memory.current", "7\n");
    CHECK_EQ(kin_memory_room(root), 460000);
    put("/sys/fs/cgroup/memory.max", "9000\n");
    put("/sys/fs/cgroup/memory.current", "10000\n");
    CHECK_EQ(kin_memory_room(root), 0);
    put("/sys/fs/cgroup/memory.stat", "inactive_file 20000\n");
    CHECK_EQ(kin_memory_room(root), 9000);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK_EQ(system(command), 0);
}

int
main(void)
{
    pool = kin_blocks_new((size_t)1 << 30);
    if (!CHECK(pool != NULL))
        return check_report("blocks");
    test_reuse();
    test_loans();
    test_limit();
    test_off_in_use();
    test_threads();
    test_fork();
    test_room();
    kin_blocks_free(pool);
    return check_report("blocks");
}
