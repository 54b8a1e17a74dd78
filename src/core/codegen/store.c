/* Kernels on disk (store.h): names, files, and deleting the least recently used ones. */
#include "core/base/fault.h"
#include "core/codegen/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/vec.h"

enum { NAME = 64, MOST_BYTES = 1 << 28, TOUCH_SECONDS = 3600, KEEP_TEMPORARY_SECONDS = 3600 };

struct kin_store {
    int folder;
    uint64_t limit;
    _Atomic uint64_t unchecked; /* bytes written since the last trim; there is no lock, which a fork might find taken */
    atomic_uint temporaries;
    atomic_bool read_only, trimmed;
};

typedef struct {
    char magic[8];
    uint64_t checksum; /* of all that follows */
    uint64_t structure_len, target_len, object_len;
} file_header;

static const char MAGIC[8] = {'K', 'I', 'N', 'K', 'E', 'R', 'N', '1'};

/* -- names ------------------------------------------------------------------------------------------------------- */

typedef struct {
    char folder[NAME], file[NAME], text[NAME];
} names;

static names
names_of(const kin_store_key *key)
{
    names n;
    size_t len = strlen(key->target);
    snprintf(n.folder, sizeof n.folder, "%016llx%016llx", (unsigned long long)kin_hash_bytes(1, key->structure, key->len),
             (unsigned long long)kin_hash_bytes(2, key->structure, key->len));
    unsigned long long target = kin_hash_bytes(3, key->target, len);
    snprintf(n.file, sizeof n.file, "%.32s/%016llx.kernel", n.folder, target);
    snprintf(n.text, sizeof n.text, "%.32s/%016llx.txt", n.folder, target);
    return n;
}

/* -- the folder -------------------------------------------------------------------------------------------------- */

/* Like mkdir -p. */
static void
make_folders(const char *path)
{
    char part[4096];
    size_t len = strlen(path);
    if (len >= sizeof part)
        return;
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        mkdir(part, 0700);
    }
}

static int
open_folder(const char *path, kin_text *why)
{
    struct stat s;
    make_folders(path);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        kin_text_addf(why, "%s: %s", path, strerror(errno));
        return -1;
    }
    const char *wrong = fstat(folder, &s) != 0 ? strerror(errno)
                        : s.st_uid != geteuid() ? "it belongs to another user"
                        : s.st_mode & 022 ? "others may write to it"
                                          : NULL;
    if (wrong) {
        kin_text_addf(why, "%s: %s", path, wrong);
        close(folder);
        return -1;
    }
    return folder;
}

kin_store *
kin_store_open(const char *path, uint64_t limit, kin_text *why)
{
    kin_store *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->folder = open_folder(path, why);
    if (c->folder < 0) {
        free(c);
        return NULL;
    }
    c->limit = limit;
    return c;
}

void
kin_store_close(kin_store *c)
{
    if (c == NULL)
        return;
    close(c->folder);
    free(c);
}

/* -- reading ----------------------------------------------------------------------------------------------------- */

/* Files are read as a whole: they are small, and nobody can change what has been checked. */
static unsigned char *
read_file(kin_store *c, const char *name, size_t *len, struct stat *s, bool *there)
{
    unsigned char *bytes = NULL;
    int file = openat(c->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *there = file >= 0;
    if (file < 0)
        return NULL;
    if (fstat(file, s) == 0 && S_ISREG(s->st_mode) && s->st_uid == geteuid() && s->st_size < MOST_BYTES)
        bytes = malloc((size_t)s->st_size + 1);
    for (*len = 0; bytes && *len < (size_t)s->st_size;) {
        ssize_t n = read(file, bytes + *len, (size_t)s->st_size - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        *len += (size_t)n;
    }
    close(file);
    return bytes;
}

static bool
is_whole(const unsigned char *bytes, size_t len, file_header *h)
{
    if (bytes == NULL || len < sizeof *h)
        return false;
    memcpy(h, bytes, sizeof *h);
    size_t rest = len - sizeof *h;
    return memcmp(h->magic, MAGIC, sizeof MAGIC) == 0 && h->structure_len <= rest && h->target_len <= rest - h->structure_len
           && h->object_len == rest - h->structure_len - h->target_len && h->structure_len % 8 == 0 && h->target_len % 8 == 0
           && h->checksum == kin_hash_bytes(4, bytes + 16, len - 16);
}

static bool
is_for(const unsigned char *bytes, const file_header *h, const kin_store_key *key)
{
    size_t len = strlen(key->target), padded = (len + 8) / 8 * 8, structure = (key->len + 7) / 8 * 8;
    const unsigned char *at = bytes + sizeof *h;
    return h->structure_len == structure && memcmp(at, key->structure, key->len) == 0 && h->target_len == padded
           && memcmp(at + structure, key->target, len + 1) == 0;
}

/* The part of a target that tells processors apart is before its last line. */
static size_t
processor_len(const char *target)
{
    const char *last = strrchr(target, '\n');
    return last ? (size_t)(last - target) : strlen(target);
}

static DIR *
open_subfolder(const kin_store *c, const char *name, int flags)
{
    int folder = openat(c->folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *d = folder < 0 ? NULL : fdopendir(folder);
    if (d == NULL && folder >= 0)
        close(folder);
    return d;
}

/* The same loops are there, for other targets: which? */
static kin_store_answer
look_around(kin_store *c, const names *n, const kin_store_key *key)
{
    kin_store_answer answer = KIN_STORE_NOTHING;
    DIR *d = open_subfolder(c, n->folder, O_NOFOLLOW);
    for (struct dirent *e; d && answer != KIN_STORE_OTHER_VERSION && (e = readdir(d)) != NULL;) {
        char name[NAME + 300];
        file_header h;
        struct stat s;
        size_t len = strlen(e->d_name);
        bool there;
        if (len < 8 || strcmp(e->d_name + len - 7, ".kernel") != 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", n->folder, e->d_name);
        unsigned char *bytes = read_file(c, name, &len, &s, &there);
        if (is_whole(bytes, len, &h) && h.target_len > 0 && bytes[sizeof h + h.structure_len + h.target_len - 1] == 0) {
            const char *other = (const char *)bytes + sizeof h + h.structure_len;
            size_t mine = processor_len(key->target);
            bool same = processor_len(other) == mine && memcmp(other, key->target, mine) == 0;
            answer = same ? KIN_STORE_OTHER_VERSION : KIN_STORE_OTHER_CPU;
        }
        free(bytes);
    }
    if (d)
        closedir(d);
    return answer;
}

/* Files are as young as their last use, to the hour. */
static void
touch(kin_store *c, const char *name, const struct stat *s)
{
    if (time(NULL) - s->st_mtime > TOUCH_SECONDS)
        utimensat(c->folder, name, NULL, 0);
}

kin_store_answer
kin_store_get(kin_store *c, const kin_store_key *key, kin_store_found *out)
{
    names n = names_of(key);
    file_header h;
    struct stat s;
    size_t len = 0;
    bool there;
    *out = (kin_store_found){0};
    unsigned char *bytes = read_file(c, n.file, &len, &s, &there);
    if (!there)
        return look_around(c, &n, key);
    if (!is_whole(bytes, len, &h) || !is_for(bytes, &h, key)) {
        free(bytes);
        kin_store_remove(c, key);
        return KIN_STORE_DAMAGED;
    }
    touch(c, n.file, &s);
    *out = (kin_store_found){.memory = bytes, .object = bytes + (len - h.object_len), .len = h.object_len};
    return KIN_STORE_HIT;
}

void
kin_store_remove(kin_store *c, const kin_store_key *key)
{
    names n = names_of(key);
    unlinkat(c->folder, n.file, 0);
    unlinkat(c->folder, n.text, 0);
}

/* -- writing ----------------------------------------------------------------------------------------------------- */

static bool
write_all(int file, const void *bytes, size_t len)
{
    for (const char *at = bytes; len > 0;) {
        if (kin_fail_now(KIN_FAIL_WRITE)) {
            errno = ENOSPC;
            return false;
        }
        ssize_t n = write(file, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool
write_file(kin_store *c, const char *folder, const char *name, const void *bytes, size_t len)
{
    char temporary[2 * NAME];
    unsigned number = atomic_fetch_add(&c->temporaries, 1);
    snprintf(temporary, sizeof temporary, "%s/.%ld.%u", folder, (long)getpid(), number);
    int file = openat(c->folder, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return false;
    bool ok = write_all(file, bytes, len);
    int error = errno;
    ok = close(file) == 0 && ok && !kin_fail_now(KIN_FAIL_WRITE) && renameat(c->folder, temporary, c->folder, name) == 0;
    if (!ok) {
        error = error ? error : errno;
        unlinkat(c->folder, temporary, 0);
        errno = error;
    }
    return ok;
}

/* The whole file in memory; *total its length. */
static unsigned char *
pack(const kin_store_key *key, const void *object, size_t len, size_t *total)
{
    size_t target = strlen(key->target), structure = (key->len + 7) / 8 * 8, padded = (target + 8) / 8 * 8;
    *total = sizeof(file_header) + structure + padded + len;
    unsigned char *bytes = calloc(1, *total);
    if (bytes == NULL)
        return NULL;
    file_header h = {.structure_len = structure, .target_len = padded, .object_len = len};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(bytes + sizeof h, key->structure, key->len);
    memcpy(bytes + sizeof h + structure, key->target, target);
    memcpy(bytes + sizeof h + structure + padded, object, len);
    memcpy(bytes, &h, sizeof h);
    h.checksum = kin_hash_bytes(4, bytes + 16, *total - 16);
    memcpy(bytes, &h, sizeof h);
    return bytes;
}

/* Looking through a folder of many thousand files takes a second: of processes that write little, one in sixteen does. */
static bool
is_chosen(void)
{
    return kin_hash_word(0, (uint64_t)getpid()) >> 60 == 0;
}

/* Sees to the limit before much has been written since the last time. */
static void
account(kin_store *c, size_t bytes)
{
    uint64_t written = atomic_fetch_add(&c->unchecked, bytes) + bytes;
    if (c->limit == 0 || (written <= c->limit / 16 && (atomic_exchange(&c->trimmed, true) || !is_chosen())))
        return;
    atomic_store(&c->unchecked, 0);
    kin_store_trim(c);
}

bool
kin_store_put(kin_store *c, const kin_store_key *key, const void *object, size_t len, kin_text *why)
{
    names n = names_of(key);
    size_t total;
    if (c->read_only)
        return true;
    unsigned char *bytes = pack(key, object, len, &total);
    if (bytes == NULL)
        return true; /* the kernel works without its file */
    errno = 0;
    bool ok = !kin_fail_now(KIN_FAIL_WRITE) && (mkdirat(c->folder, n.folder, 0700) == 0 || errno == EEXIST)
              && write_file(c, n.folder, n.text, key->about, strlen(key->about))
              && write_file(c, n.folder, n.file, bytes, total);
    free(bytes);
    if (!ok) {
        kin_text_addf(why, "kernels cannot be written: %s", strerror(errno));
        c->read_only = true;
        return false;
    }
    account(c, total + strlen(key->about));
    return true;
}

/* -- the limit --------------------------------------------------------------------------------------------------- */

typedef struct {
    char name[2 * NAME]; /* without .kernel, .txt */
    int64_t used; /* when, in nanoseconds: many kernels are made within a second */
    uint64_t bytes;
} entry;

typedef struct {
    KIN_VEC(entry) all;
    uint64_t bytes;
} listing;

static void
list_file(kin_store *c, listing *l, const char *folder, const char *name)
{
    char path[NAME + 300];
    struct stat s;
    size_t len = strlen(name);
    snprintf(path, sizeof path, "%.32s/%s", folder, name);
    if (fstatat(c->folder, path, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
        return;
    l->bytes += (uint64_t)s.st_size;
    if (name[0] == '.' && time(NULL) - s.st_mtime > KEEP_TEMPORARY_SECONDS)
        unlinkat(c->folder, path, 0); /* somebody died while writing it */
    if (len != 16 + 7 || strcmp(name + 16, ".kernel") != 0)
        return;
    entry e = {.used = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec, .bytes = (uint64_t)s.st_size};
    snprintf(e.name, sizeof e.name, "%.32s/%.16s", folder, name);
    (void)!kin_vec_push(&l->all, e);
}

static void
list_folder(kin_store *c, listing *l, const char *name)
{
    DIR *d = open_subfolder(c, name, O_NOFOLLOW);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            list_file(c, l, name, e->d_name);
    closedir(d);
}

static void
list_all(kin_store *c, listing *l)
{
    DIR *d = open_subfolder(c, ".", 0);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strlen(e->d_name) == 32)
            list_folder(c, l, e->d_name);
    closedir(d);
}

static int
by_use(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->used < y->used ? -1 : x->used > y->used;
}

static uint64_t
unlink_entry(kin_store *c, const entry *e)
{
    char path[3 * NAME];
    struct stat s;
    snprintf(path, sizeof path, "%s.txt", e->name);
    uint64_t bytes = fstatat(c->folder, path, &s, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)s.st_size : 0;
    unlinkat(c->folder, path, 0);
    snprintf(path, sizeof path, "%s.kernel", e->name);
    unlinkat(c->folder, path, 0);
    snprintf(path, sizeof path, "%.32s", e->name);
    unlinkat(c->folder, path, AT_REMOVEDIR); /* when it is empty */
    return e->bytes + bytes;
}

uint32_t
kin_store_trim(kin_store *c)
{
    listing l = {0};
    uint32_t removed = 0;
    if (c->limit == 0)
        return 0;
    list_all(c, &l);
    if (l.bytes > c->limit) {
        qsort(l.all.at, l.all.len, sizeof *l.all.at, by_use);
        for (; removed < l.all.len && l.bytes > c->limit / 4 * 3; removed++) {
            uint64_t gone = unlink_entry(c, &l.all.at[removed]);
            l.bytes -= gone < l.bytes ? gone : l.bytes;
        }
    }
    kin_vec_deinit(&l.all);
    return removed;
}
