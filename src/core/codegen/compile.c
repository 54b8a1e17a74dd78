/* From fused kernels to a program that runs (codegen.h). A kernel comes from memory, else from the cache on disk, else from
 * LLVM (wants.c); all that is new in a program is then loaded at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/codegen/jit_priv.h"
#include "core/base/clock.h"
#include "core/fuse/key.h"
#include "core/program/make.h"
#include "core/codegen/rescue.h"

#ifdef KIN_LLVM

typedef struct {
    kin_jit *jit;
    kin_fused *fused;
    kin_store *cache;
    kin_wants wants;
    uint32_t *want_of;          /* by kernel; UINT32_MAX: in memory */
    kin_family *family;         /* of the same graph for other sizes; NULL: sizes are in the code */
    kin_compile_stats *stats;
    kin_text *why;
    bool job;                   /* nobody waits: may be cancelled */
} batch;

static void
free_want(kin_want *w)
{
    kin_text_deinit(&w->key);
    kin_numbers_deinit(&w->numbers);
    free(w->open);
    free(w->found.memory);
    free(w->object);
}

/* -- what is there ----------------------------------------------------------------------------------------------- */

static bool
needs_f16(const kin_loops *k)
{
    for (uint32_t i = 1; i < k->insts.len; i++)
        if (k->insts.at[i].dtype == KIN_F16)
            return true;
    return false;
}

/* The shape and the numbers of a kernel as code for any size sees them. */
static bool
read_numbers(const batch *b, const kin_loops *k, kin_want *w, kin_text *shape)
{
    w->run = kin_emit_plan(k, &b->jit->target, true);
    uint32_t head[3] = {UINT32_MAX /* no other key begins so */, 0, w->run.kind};
    kin_text_add_len(shape, (const char *)head, sizeof head);
    return kin_numbers_of(k, kin_emit_open_var(k, &w->run, true), &w->numbers, shape);
}

/* What the kernel is given when it runs. */
static kin_status
give_numbers(batch *b, const kin_want *w, kin_kernel *out)
{
    int64_t *given = kin_program_alloc(b->fused->program, (w->numbers.at.len + 1) * sizeof *given);
    uint32_t n = 0;
    if (given == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < w->numbers.at.len; i++)
        if (w->open[i])
            given[n++] = w->numbers.at.at[i];
    out->numbers = given;
    out->nnumbers = n;
    return KIN_OK;
}

/* Code that leaves numbers open: its key is the shape, which of them, and the others. False without memory. */
static bool
leave_open(const batch *b, kin_want *w, const bool *open, kin_text *key)
{
    uint32_t n = w->numbers.at.len, along = w->loops->vector_var;
    w->open = malloc(n + 1);
    if (w->open == NULL)
        return false;
    if (along != KIN_LOOP_NO_VAR && w->run.kind != KIN_RUN_LINEAR && (w->numbers.of_var[along] == KIN_NUMBER_NONE || !open[w->numbers.of_var[along] - 1]))
        w->run = kin_emit_plan(w->loops, &b->jit->target, false); /* steps as they suit the size that the vectors go along */
    memcpy(w->open, open, n);
    kin_text_add_len(key, (const char *)&w->run.lanes, sizeof w->run.lanes);
    kin_text_add_len(key, (const char *)open, n);
    for (uint32_t i = 0; i < n; i++)
        if (!open[i])
            kin_text_add_len(key, (const char *)&w->numbers.at.at[i], sizeof(int64_t));
    return !key->failed;
}

/* Is anything open, or the length of its only loop? */
static bool
leaves_any(const kin_want *w, const bool *open)
{
    return w->run.kind == KIN_RUN_LINEAR || (w->numbers.at.len > 0 && memchr(open, true, w->numbers.at.len) != NULL);
}

/* How kernel i is to run, and the key of its code: for its sizes, or for any. */
static kin_status
choose_code(batch *b, uint32_t i, kin_want *w, kin_text *key)
{
    const kin_loops *k = w->loops = &b->fused->kernels.at[i].loops;
    const bool *open = NULL;
    if (b->family != NULL) {
        if (!read_numbers(b, k, w, key))
            return KIN_NOMEM;
        KIN_TRY(kin_family_match(b->family, key, &w->numbers, &open));
        if (open != NULL && leaves_any(w, open))
            return leave_open(b, w, open, key) ? give_numbers(b, w, &b->fused->program->kernels.at[b->fused->kernels.at[i].kernel]) : KIN_NOMEM;
    }
    kin_text_clear(key);
    w->run = kin_emit_plan(k, &b->jit->target, false);
    return kin_loops_key(k, kin_emit_open_var(k, &w->run, false), key) ? KIN_OK : KIN_NOMEM;
}

/* Kernel i of the program: in memory, the same as one before, or a new want. */
static kin_status
look_up(batch *b, uint32_t i, kin_want *w)
{
    kin_jit *jit = b->jit;
    const kin_loops *k = &b->fused->kernels.at[i].loops;
    kin_kernel *out = &b->fused->program->kernels.at[b->fused->kernels.at[i].kernel];
    kin_text *key = &w->key;
    bool fresh;
    if (needs_f16(k) && !jit->target.f16) {
        kin_text_add(b->why, "half precision on a processor without F16C");
        return KIN_BREAK;
    }
    KIN_TRY(choose_code(b, i, w, key));
    kin_kernel_plan run = w->run;
    uint32_t number = kin_intern_put(&jit->keys, key->at, key->len, &fresh);
    if (jit->keys.failed || (fresh && kin_vec_push(&jit->entries, NULL) != KIN_OK))
        return KIN_NOMEM;
    out->work = run.work;
    kin_kernel_spread(out);
    out->window = k->window;
    for (uint32_t n = 0; n < k->buffers.len; n++)
        out->streams |= k->buffers.at[n].streams;
    b->want_of[i] = UINT32_MAX;
    if (jit->entries.at[number]) {
        memcpy(&out->fn, &jit->entries.at[number], sizeof out->fn);
        b->stats->from_memory++;
        return KIN_OK;
    }
    for (uint32_t n = 0; n < b->wants.len; n++)
        if (b->wants.at[n].number == number)
            b->want_of[i] = n;
    if (b->want_of[i] != UINT32_MAX) {
        b->stats->from_memory++;
        return KIN_OK;
    }
    b->want_of[i] = b->wants.len;
    w->number = number;
    KIN_TRY(kin_vec_push(&b->wants, *w));
    *w = (kin_want){0};
    return KIN_OK;
}

/* All numbers of the program, before any of its kernels is looked up. */
static kin_status
meet_program(batch *b)
{
    kin_status s = kin_family_begin(b->family);
    for (uint32_t i = 0; s == KIN_OK && i < b->fused->kernels.len; i++) {
        kin_want w = {0};
        s = read_numbers(b, &b->fused->kernels.at[i].loops, &w, &w.key) ? kin_family_add(b->family, &w.numbers) : KIN_NOMEM;
        free_want(&w);
    }
    return s == KIN_OK ? kin_family_settle(b->family) : s;
}

static kin_status
look_up_all(batch *b)
{
    double start = kin_clock_ns();
    kin_status s = b->family != NULL ? meet_program(b) : KIN_OK;
    b->stats->kernels = b->fused->kernels.len;
    kin_jit_lock(b->jit);
    b->cache = b->jit->cache;
    for (uint32_t i = 0; s == KIN_OK && i < b->fused->kernels.len; i++) {
        kin_want w = {0};
        s = look_up(b, i, &w);
        free_want(&w);
    }
    kin_jit_unlock(b->jit);
    b->stats->key_ns = kin_clock_ns() - start;
    return s;
}

static kin_store_key
disk_key(const batch *b, const kin_want *w, const char *about)
{
    return (kin_store_key){.structure = w->key.at, .len = w->key.len, .target = b->jit->text.at, .about = about};
}

/* How many are not there. */
static uint32_t
read_disk(batch *b)
{
    uint32_t missing = 0;
    double start = kin_clock_ns();
    for (uint32_t i = 0; i < b->wants.len; i++) {
        kin_store_key key = disk_key(b, &b->wants.at[i], NULL);
        kin_store_answer answer = b->cache ? kin_store_get(b->cache, &key, &b->wants.at[i].found) : KIN_STORE_NOTHING;
        b->stats->disk[answer] += b->cache != NULL;
        b->stats->from_disk += answer == KIN_STORE_HIT;
        missing += answer != KIN_STORE_HIT;
    }
    b->stats->disk_ns += kin_clock_ns() - start;
    return missing;
}

static void
write_disk(batch *b)
{
    double start = kin_clock_ns();
    kin_text trouble = {0};
    for (uint32_t i = 0; b->cache && i < b->wants.len; i++) {
        const kin_want *w = &b->wants.at[i];
        kin_text about = {0};
        if (w->object == NULL)
            continue;
        kin_text_addf(&about, "%s\ncompiled in %.1f ms to %zu bytes\n\n", b->jit->text.at, (w->codegen_ns + w->llvm_ns) / 1e6,
                      w->len);
        kin_loops_print(w->loops, &about);
        kin_store_key key = disk_key(b, w, about.failed ? "" : about.at);
        kin_store_put(b->cache, &key, w->object, w->len, &trouble);
        kin_text_deinit(&about);
    }
    if (trouble.len)
        snprintf(b->stats->trouble, sizeof b->stats->trouble, "%s", trouble.at);
    kin_text_deinit(&trouble);
    b->stats->disk_ns += kin_clock_ns() - start;
}

/* -- loading ----------------------------------------------------------------------------------------------------- */

static kin_status
load_wants(batch *b, kin_object_part *parts, kin_object *object, kin_text *why)
{
    for (uint32_t i = 0; i < b->wants.len; i++) {
        const kin_want *w = &b->wants.at[i];
        parts[i] = w->object ? (kin_object_part){.bytes = w->object, .len = w->len}
                             : (kin_object_part){.bytes = w->found.object, .len = w->found.len};
    }
    return kin_object_load(parts, b->wants.len, object, why);
}

/* What came from disk was whole and yet cannot be loaded: as if it had not been there. How many. */
static uint32_t
disown_disk(batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->wants.len; i++) {
        kin_want *w = &b->wants.at[i];
        if (w->found.memory == NULL)
            continue;
        kin_store_key key = disk_key(b, w, NULL);
        kin_store_remove(b->cache, &key);
        free(w->found.memory);
        w->found = (kin_store_found){0};
        b->stats->disk[KIN_STORE_HIT]--;
        b->stats->disk[KIN_STORE_DAMAGED]++;
        b->stats->from_disk--;
        n++;
    }
    return n;
}

/* Enters what is new; somebody else may have been faster, then our copy only takes room. */
static kin_status
enter(batch *b, const kin_object_part *parts, kin_object object)
{
    kin_jit *jit = b->jit;
    kin_jit_lock(jit);
    kin_status s = kin_vec_push(&jit->objects, object);
    for (uint32_t i = 0; s == KIN_OK && i < b->wants.len; i++)
        if (jit->entries.at[b->wants.at[i].number] == NULL)
            jit->entries.at[b->wants.at[i].number] = parts[i].entry;
    for (uint32_t i = 0; s == KIN_OK && i < b->fused->kernels.len; i++)
        if (b->want_of[i] != UINT32_MAX)
            memcpy(&b->fused->program->kernels.at[b->fused->kernels.at[i].kernel].fn,
                   &jit->entries.at[b->wants.at[b->want_of[i]].number], sizeof(void *));
    kin_jit_unlock(jit);
    if (s != KIN_OK)
        kin_object_unload(&object);
    return s;
}

static kin_status
load_all(batch *b)
{
    double start = kin_clock_ns();
    kin_object object;
    kin_text why = {0};
    kin_object_part *parts = malloc((b->wants.len + 1) * sizeof *parts);
    kin_status s = parts ? load_wants(b, parts, &object, &why) : KIN_NOMEM;
    b->stats->load_ns = kin_clock_ns() - start;
    uint32_t missing = s == KIN_BREAK ? disown_disk(b) : 0;
    if (missing) {
        kin_text_clear(&why);
        s = kin_wants_compile(b->jit, &b->wants, b->job, missing, b->stats, b->why);
        if (s == KIN_OK)
            s = load_wants(b, parts, &object, &why);
    }
    if (s == KIN_OK) {
        b->stats->code_bytes = object.bytes;
        s = enter(b, parts, object);
    }
    if (why.len)
        kin_text_add(b->why, why.at);
    kin_text_deinit(&why);
    free(parts);
    return s;
}

/* -- all of it --------------------------------------------------------------------------------------------------- */

static kin_status
fault_of(const kin_jit *jit, kin_text *why)
{
    if (jit->fault == KIN_FAULT_LLVM)
        kin_text_add(why, "LLVM: failed for a test");
    return jit->fault == KIN_FAULT_LLVM ? KIN_BREAK : jit->fault == KIN_FAULT_MEMORY ? KIN_NOMEM : KIN_OK;
}

/* How many kernels are neither in memory nor on disk. */
static kin_status
begin(batch *b, uint32_t *missing)
{
    b->want_of = malloc((b->fused->kernels.len + 1) * sizeof *b->want_of);
    *missing = 0;
    if (b->want_of == NULL)
        return KIN_NOMEM;
    KIN_TRY(look_up_all(b));
    if (b->wants.len > 0)
        *missing = read_disk(b);
    return KIN_OK;
}

static kin_status
end(batch *b, uint32_t missing)
{
    if (b->wants.len == 0)
        return KIN_OK;
    if (missing) {
        KIN_TRY(fault_of(b->jit, b->why));
        KIN_TRY(kin_wants_compile(b->jit, &b->wants, b->job, missing, b->stats, b->why));
        write_disk(b);
    }
    return load_all(b);
}

static void
count(batch *b)
{
    kin_jit_lock(b->jit);
    kin_compile_stats_add(&b->jit->totals, b->stats);
    kin_jit_unlock(b->jit);
}

static void
free_batch(batch *b)
{
    for (uint32_t i = 0; i < b->wants.len; i++)
        free_want(&b->wants.at[i]);
    kin_vec_deinit(&b->wants);
    free(b->want_of);
}

struct kin_jit_job {
    batch batch;
    kin_fused fused;
    kin_compile_stats stats;
    kin_text why;
    uint32_t missing;
    kin_jit_job *next; /* of another program, done by the same run */
};

static kin_jit_job *
drop_first(kin_jit_job *job)
{
    kin_jit_job *next = job->next;
    free_batch(&job->batch);
    kin_program_free(job->fused.program);
    kin_fused_deinit(&job->fused);
    kin_text_deinit(&job->why);
    free(job);
    return next;
}

void
kin_jit_job_drop(kin_jit_job *job)
{
    while (job != NULL)
        job = drop_first(job);
}

/* What goes wrong is reported by whoever compiles the program after it. */
void
kin_jit_job_run(kin_jit_job *job, kin_compile_stats *stats)
{
    *stats = (kin_compile_stats){0};
    while (job != NULL) {
        if (end(&job->batch, job->missing) == KIN_OK)
            count(&job->batch);
        kin_compile_stats_add(stats, &job->stats);
        job = drop_first(job);
    }
}

/* Hands over what has been looked up so far; false without memory: nothing has changed then. */
static bool
add_job(kin_jit_job **jobs, batch *b, uint32_t missing)
{
    kin_jit_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return false;
    *job = (kin_jit_job){.batch = *b, .fused = *b->fused, .stats = *b->stats, .missing = missing, .next = *jobs};
    *b->fused = (kin_fused){0};
    job->batch.fused = &job->fused;
    job->batch.stats = &job->stats;
    job->batch.why = &job->why;
    job->batch.job = true;
    *jobs = job;
    return true;
}

kin_status
kin_codegen(kin_jit *jit, kin_fused *f, kin_family *family, kin_jit_job **job, kin_compile_stats *stats, kin_text *why)
{
    batch b = {.jit = jit, .fused = f, .family = family, .stats = stats, .why = why};
    uint32_t missing;
    kin_status s = begin(&b, &missing);
    if (family != NULL && missing > 0)
        family->made++;
    if (s == KIN_OK && job != NULL && missing > 0 && add_job(job, &b, missing))
        return KIN_BREAK;
    if (s == KIN_OK)
        s = end(&b, missing);
    free_batch(&b);
    count(&b);
    return s;
}

kin_status
kin_codegen_meet(kin_jit *jit, kin_fused *f, kin_family *family, kin_compile_stats *stats, kin_text *why)
{
    batch b = {.jit = jit, .fused = f, .family = family, .stats = stats, .why = why};
    b.want_of = malloc((f->kernels.len + 1) * sizeof *b.want_of);
    kin_status s = b.want_of == NULL ? KIN_NOMEM : family == NULL ? KIN_OK : look_up_all(&b);
    free_batch(&b);
    kin_text_add(why, "its sizes were only noted");
    return s == KIN_OK ? KIN_BREAK : s;
}

/* -- for people -------------------------------------------------------------------------------------------------- */

static void
list_module(const kin_jit *jit, const kin_loops *loops, kin_text *out)
{
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernel", context);
    kin_kernel_plan run = kin_emit_plan(loops, &jit->target, false);
    if (kin_emit(loops, &jit->target, &run, &(kin_open){0}, module, out)) {
        char *text = LLVMPrintModuleToString(module);
        kin_text_add(out, text);
        LLVMDisposeMessage(text);
    }
    LLVMDisposeModule(module);
    LLVMContextDispose(context);
}

typedef struct {
    const kin_jit *jit;
    const kin_fused *fused;
    bool llvm;
    kin_text *out;
} listing;

static void
list_kernels(void *arg)
{
    const listing *l = arg;
    kin_program_print(l->fused->program, l->out);
    for (uint32_t i = 0; i < l->fused->kernels.len; i++) {
        const kin_loops *loops = &l->fused->kernels.at[i].loops;
        kin_text_addf(l->out, "\n%s:\n", l->fused->program->kernels.at[l->fused->kernels.at[i].kernel].name);
        kin_loops_print(loops, l->out);
        if (l->llvm)
            list_module(l->jit, loops, l->out);
    }
}

bool
kin_codegen_print(kin_jit *jit, const kin_fused *f, bool llvm, kin_text *out)
{
    listing l = {.jit = jit, .fused = f, .llvm = llvm, .out = out};
    if (llvm)
        kin_rescue_run(list_kernels, &l, out);
    else
        list_kernels(&l);
    return !out->failed;
}

#else

kin_status
kin_codegen(kin_jit *jit, kin_fused *f, kin_family *family, kin_jit_job **job, kin_compile_stats *stats, kin_text *why)
{
    kin_text_add(why, "built without LLVM");
    return KIN_BREAK;
}

kin_status
kin_codegen_meet(kin_jit *jit, kin_fused *f, kin_family *family, kin_compile_stats *stats, kin_text *why)
{
    return KIN_BREAK;
}

bool
kin_codegen_print(kin_jit *jit, const kin_fused *f, bool llvm, kin_text *out)
{
    return false;
}

void
kin_jit_job_run(kin_jit_job *job, kin_compile_stats *stats)
{
}

void
kin_jit_job_drop(kin_jit_job *job)
{
}

#endif
