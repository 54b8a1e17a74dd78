/* The process's JIT: created for the first kernel and kept until the process ends, because its machine code may be running at any
 * time. Also its settings and counters.
 */
#include <stdlib.h>
#include <string.h>

#include "py/aten/block.h"
#include "py/compat/imports.h"
#include "py/launch/launch_priv.h"

static struct {
    kin_jit *jit;
    char *folder; /* the cache's folder; NULL: none */
    uint64_t limit;
    bool moved;   /* the folder has changed and the jit has not been told yet */
    uint32_t threads; /* 0: as many as torch uses */
} process;

static void
say_trouble(kin_event_log *log, const char *reason)
{
    kin_event_begin(log, KIN_EVENT_CACHE);
    kin_event_str(log, "path", process.folder == NULL ? "" : process.folder);
    kin_event_str(log, "reason", reason);
    kin_event_end(log);
}

static void
open_cache(kin_event_log *log)
{
    kin_text why = {0};
    if (!kin_jit_set_cache(process.jit, process.folder, process.limit, &why))
        say_trouble(log, why.len > 0 ? why.at : "out of memory");
    kin_text_deinit(&why);
}

unsigned
kin_launch_torch_threads(void)
{
    PyObject *number = kin_import_call("torch", "get_num_threads", NULL);
    long n = number == NULL ? -1 : PyLong_AsLong(number);
    PyErr_Clear();
    Py_XDECREF(number);
    return n > 0 && n < 1024 ? (unsigned)n : 1;
}

kin_jit *
launch_jit(kin_event_log *log, kin_text *why)
{
    if (process.jit == NULL)
        process.jit = kin_jit_new(NULL, why);
    if (process.jit == NULL)
        return NULL;
    if (process.moved)
        open_cache(log);
    process.moved = false;
    kin_jit_set_threads(process.jit, process.threads != 0 ? process.threads : kin_launch_torch_threads());
    return process.jit;
}

void
launch_jit_cancel(void)
{
    if (process.jit != NULL)
        kin_jit_cancel(process.jit);
}

void
launch_jit_lock(bool lock)
{
    if (process.jit != NULL && lock)
        kin_jit_lock(process.jit);
    else if (process.jit != NULL)
        kin_jit_unlock(process.jit);
}

void
launch_say_cache(kin_event_log *log, const kin_compile_stats *stats)
{
    if (stats->trouble[0] != 0)
        say_trouble(log, stats->trouble);
    if (stats->disk[KIN_STORE_DAMAGED] != 0)
        say_trouble(log, "damaged kernel files were removed; their kernels are compiled again");
}

bool
kin_launch_set_cache(const char *folder, uint64_t limit)
{
    char *copy = folder == NULL ? NULL : strdup(folder);
    if (copy == NULL && folder != NULL)
        return false;
    free(process.folder);
    process.folder = copy;
    process.limit = limit;
    process.moved = true;
    return true;
}

void
kin_launch_set_threads(uint32_t threads)
{
    process.threads = threads;
}

PyObject *
kin_launch_memory(void)
{
    kin_blocks_stats s = {0};
    if (kin_process_blocks() != NULL)
        kin_blocks_count(kin_process_blocks(), &s);
    return Py_BuildValue("{s:n,s:I,s:n,s:I,s:K,s:K,s:K}", "kept_bytes", (Py_ssize_t)s.kept, "kept", s.nkept, "used_bytes",
                         (Py_ssize_t)s.used, "used", s.nused, "taken", (unsigned long long)s.taken, "reused",
                         (unsigned long long)s.reused, "given_back", (unsigned long long)s.dropped);
}

PyObject *
kin_launch_totals(void)
{
    kin_compile_stats s = {0};
    kin_text cache = {0};
    if (process.jit != NULL)
        kin_jit_totals(process.jit, &s);
    kin_compile_stats_say(&s, &cache);
    PyObject *dict = Py_BuildValue(
        "{s:z,s:z,s:I,s:I,s:I,s:I,s:s,s:K,s:d,s:d,s:d,s:d,s:d,s:d,s:d}", "folder", process.folder, "target",
        process.jit == NULL ? NULL : kin_jit_target(process.jit), "kernels", s.kernels, "compiled", s.compiled, "from_memory",
        s.from_memory, "from_disk", s.from_disk, "missed", cache.len > 0 ? cache.at : "", "code_bytes",
        (unsigned long long)s.code_bytes, "fuse_ns", s.fuse_ns, "key_ns",
        s.key_ns, "disk_ns", s.disk_ns, "codegen_ns", s.codegen_ns, "llvm_ns", s.llvm_ns, "load_ns", s.load_ns, "slowest_ns",
        s.slowest_ns);
    kin_text_deinit(&cache);
    return dict;
}

bool
kin_launch_set_fault(const char *name)
{
    static const char *const names[] = {"", "llvm", "memory", "fatal", "llvm memory"}; /* as kin_jit_fault */
    kin_text why = {0};
    unsigned fault = 0;
    if (launch_set_plant(name))
        return true;
    while (strcmp(names[fault], name) != 0)
        if (++fault == sizeof names / sizeof *names)
            return false;
    kin_jit *jit = launch_jit(NULL, &why);
    if (jit != NULL)
        kin_jit_set_fault(jit, (kin_jit_fault)fault);
    kin_text_deinit(&why);
    return jit != NULL;
}
