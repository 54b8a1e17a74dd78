/* How much memory is available (room.h), from /proc/meminfo and the files of control groups. Missing files impose no limit: in a
 * container the path of the group often does not exist, and the limit is in the top mounted folder.
 */
#include "core/blocks/room.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_ROOM = 4096 };

typedef struct {
    const char *folder, *limit, *usage, *cache; /* cache: the row of memory.stat that counts what is only a copy of a file */
} group_files;

static const group_files VERSION_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const group_files VERSION_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

/* The number behind `name` at the beginning of a line ("": of the first line). False: there is none, or it is no number. */
static bool
read_number(const char *path, const char *name, uint64_t *out)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    char line[256];
    bool found = false;
    size_t n = strlen(name);
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, name, n) == 0 && sscanf(line + n, "%" SCNu64, out) == 1;
    fclose(f);
    return found;
}

static bool
read_in(const char *folder, const char *file, const char *name, uint64_t *out)
{
    char path[2 * PATH_ROOM];
    return snprintf(path, sizeof path, "%s/%s", folder, file) < (int)sizeof path && read_number(path, name, out);
}

/* What the limit of one group leaves. */
static uint64_t
room_of_group(const char *folder, const group_files *files)
{
    uint64_t limit, usage, cache;
    if (!read_in(folder, files->limit, "", &limit) || !read_in(folder, files->usage, "", &usage))
        return UINT64_MAX;
    if (!read_in(folder, "memory.stat", files->cache, &cache))
        cache = 0;
    usage -= cache < usage ? cache : usage;
    return limit > usage ? limit - usage : 0;
}

/* The least of a group and all above it. */
static uint64_t
room_of_groups(const char *root, const group_files *files, const char *group)
{
    char folder[PATH_ROOM];
    int top = snprintf(folder, sizeof folder, "%s%s", root, files->folder);
    if (snprintf(folder, sizeof folder, "%s%s%s", root, files->folder, group) >= (int)sizeof folder)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t room = room_of_group(folder, files);
        least = room < least ? room : least;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash - folder < top)
            return least;
        *slash = '\0';
    }
}

/* Lines are "number:controllers:path"; version 2 has number 0 and no controllers. */
static uint64_t
room_of_line(const char *root, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL)
        return UINT64_MAX;
    *path++ = '\0';
    controllers++;
    if (strcmp(controllers, "memory") == 0)
        return room_of_groups(root, &VERSION_1, path);
    return *controllers == '\0' ? room_of_groups(root, &VERSION_2, path) : UINT64_MAX;
}

uint64_t
kin_memory_room(const char *root)
{
    char path[PATH_ROOM], line[PATH_ROOM];
    uint64_t least = UINT64_MAX, kib;
    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) < (int)sizeof path && read_number(path, "MemAvailable:", &kib))
        least = kib << 10;
    FILE *f = snprintf(path, sizeof path, "%s/proc/self/cgroup", root) < (int)sizeof path ? fopen(path, "re") : NULL;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        uint64_t room = room_of_line(root, line);
        least = room < least ? room : least;
    }
    if (f != NULL)
        fclose(f);
    return least;
}
