/* Runs the passes (pipeline.h): first on the graph as a whole, then on each part separately. If library calls cannot be compiled, the graph
 * is compiled as it was captured.
 */
#include "core/pipeline/pipeline_priv.h"
#include "core/base/clock.h"

#include <stdio.h>

/* -- one pass ----------------------------------------------------------------------------------------------------- */

static kin_status
do_pass(kin_compilation *c, const kin_pass *pass, kin_plant_kind plant, kin_text *why)
{
    if (plant == KIN_PLANT_MEMORY)
        return KIN_NOMEM;
    if (plant == KIN_PLANT_BREAK) {
        kin_text_addf(why, "pass %s failed for a test", pass->name);
        return KIN_BREAK;
    }
    return pass->run(c, why);
}

static kin_status
verify_pass(const kin_compilation *c, const kin_pass *pass, kin_text *why)
{
    kin_text found = {0};
    bool ok = pass->verify(c, &found);
    if (!ok)
        kin_text_addf(why, "after pass %s: %.160s", pass->name, found.len > 0 ? found.at : "not what it should be");
    kin_text_deinit(&found);
    return ok ? KIN_OK : KIN_BUG;
}

static kin_status
note_pass(kin_compilation *c, unsigned number, double ns)
{
    const kin_pass *pass = &kin_passes[number];
    bool same_form = pass->takes == pass->leaves || (pass->takes >= KIN_FORM_LOWERED && pass->leaves <= KIN_FORM_PARTS);
    bool changed = c->changed || !same_form || (c->before != NULL && c->before != c->ir && !kin_ir_equal(c->before, c->ir));
    if (pass->takes >= KIN_FORM_PARTS && pass->leaves <= KIN_FORM_PLANNED)
        c->stats.fuse_ns += ns;
    kin_pass_note note = {.pass = (uint8_t)number, .part = (uint8_t)c->part, .changed = changed, .ns = ns};
    return kin_vec_push(&c->out->passes, note);
}

static kin_status
run_pass(kin_compilation *c, unsigned number, kin_text *why)
{
    const kin_pass *pass = &kin_passes[number];
    const kin_pipeline_options *o = c->options;
    kin_plant_kind plant = o->plant.kind != KIN_PLANT_NONE && o->plant.pass == number ? o->plant.kind : KIN_PLANT_NONE;
    kin_ir *mine = c->own; /* the pass's input, if nothing else needs it afterwards */
    c->before = c->ir;
    c->changed = false;
    double start = kin_clock_ns();
    kin_status status = do_pass(c, pass, plant, why);
    double ns = kin_clock_ns() - start;
    if (status == KIN_OK) {
        c->form = pass->leaves;
        if (plant > KIN_PLANT_BREAK)
            pipeline_plant(c, plant);
        status = note_pass(c, number, ns);
    }
    if (status == KIN_OK && (o->verify || pass->always))
        status = verify_pass(c, pass, why);
    if (status == KIN_OK && o->watch != NULL)
        o->watch(o->arg, c, pass);
    if (mine != NULL && mine != c->ir && mine != c->own)
        kin_ir_free(mine);
    if (c->own != NULL && c->own != c->ir) { /* the pass has put its input there */
        kin_ir_free(c->own);
        c->own = NULL;
    }
    c->before = NULL;
    if (status != KIN_OK)
        c->out->failed = number;
    return status;
}

/* Runs the passes that take forms in [first, last], in order. */
static kin_status
run_passes(kin_compilation *c, kin_form first, kin_form last, bool library, kin_text *why)
{
    for (unsigned i = 0; i < kin_npasses; i++)
        if (kin_passes[i].takes >= first && kin_passes[i].takes <= last && (library || !kin_passes[i].of_library))
            KIN_TRY(run_pass(c, i, why));
    return KIN_OK;
}

/* -- parts -------------------------------------------------------------------------------------------------------- */

static void
drop_ir(kin_compilation *c)
{
    kin_ir_free(c->own);
    c->own = NULL;
    c->ir = NULL;
}

static void
end_part(kin_compilation *c, kin_status status)
{
    kin_pipeline_part *part = &c->out->parts[c->part];
    kin_text text = {0};
    if (status == KIN_OK && c->options->print && kin_codegen_print(c->options->jit, &c->fused, c->options->print > 1, &text))
        part->text = text.at;
    else
        kin_text_deinit(&text);
    if (status == KIN_OK) {
        part->program = c->fused.program;
        part->notes = c->notes.failed ? NULL : c->notes.at;
        kin_compile_stats_add(&c->out->stats, &c->stats);
    } else {
        kin_program_free(c->fused.program);
    }
    if (part->notes == NULL)
        kin_text_deinit(&c->notes);
    kin_fused_deinit(&c->fused);
    drop_ir(c);
    c->notes = (kin_text){0};
    c->fused = (kin_fused){0};
    c->stats = (kin_compile_stats){0};
}

static kin_status
run_part(kin_compilation *c, kin_part_name name, const kin_ir *ir, kin_text *why)
{
    if (ir == NULL)
        return KIN_OK;
    c->part = name;
    c->ir = c->out->parts[name].ir = ir;
    c->form = KIN_FORM_PARTS;
    kin_status status = run_passes(c, KIN_FORM_PARTS, c->options->jit != NULL ? KIN_FORM_PLANNED : KIN_FORM_LOOPS, true, why);
    end_part(c, status);
    return status;
}

/* From one tensor program to two compiled ones. */
static kin_status
run_parts(kin_compilation *c, kin_text *why)
{
    KIN_TRY(run_pass(c, kin_pass_find("hoist"), why));
    drop_ir(c);
    kin_status status = run_part(c, KIN_PART_MAIN, c->out->hoisted.rest, why);
    if (status != KIN_OK && c->out->job == NULL)
        return status;
    kin_status once = run_part(c, KIN_PART_ONCE, c->out->hoisted.once, why); /* its kernels join the others that are compiled in the background */
    return status != KIN_OK ? status : once;
}

static void
free_parts(kin_pipeline_result *out)
{
    for (int i = 0; i < KIN_PARTS; i++) {
        kin_program_free(out->parts[i].program);
        free(out->parts[i].text);
        free(out->parts[i].notes);
        out->parts[i] = (kin_pipeline_part){0};
    }
    kin_ir_hoisted_deinit(&out->hoisted);
    kin_rewritten_deinit(&out->library);
}

/* -- the whole ---------------------------------------------------------------------------------------------------- */

/* From the first pass that replaces operators by library calls on; library: with these. */
static kin_status
run_rest(kin_compilation *c, bool library, kin_text *why)
{
    bool behind = false;
    for (unsigned i = 0; i < kin_npasses; i++) {
        behind = behind || kin_passes[i].of_library;
        if (behind && kin_passes[i].leaves == KIN_FORM_IR && (library || !kin_passes[i].of_library))
            KIN_TRY(run_pass(c, i, why));
    }
    return run_parts(c, why);
}

/* Without library calls, and with nothing precomputed. */
static kin_status
run_as_captured(kin_compilation *c, uint32_t notes, kin_text *why)
{
    kin_pipeline_options options = *c->options;
    bool *none = calloc((size_t)c->out->lowered.ir->ninputs + 1, sizeof *none);
    if (none == NULL)
        return KIN_NOMEM;
    drop_ir(c);
    free_parts(c->out);
    kin_text_clear(why);
    c->out->stats = (kin_compile_stats){0};
    c->out->failed = UINT32_MAX;
    c->out->passes.len = notes;
    options.frozen = none;
    options.common = NULL;
    const kin_pipeline_options *given = c->options;
    c->options = &options;
    c->part = KIN_PART_MAIN;
    c->form = KIN_FORM_IR;
    c->ir = c->out->lowered.ir;
    kin_status status = run_rest(c, false, why);
    c->options = given;
    free(none);
    return status;
}

static kin_status
run_lowered(kin_compilation *c, kin_text *why)
{
    uint32_t notes = c->out->passes.len;
    kin_status status = c->options->libraries && c->options->frozen != NULL ? run_rest(c, true, why) : KIN_BREAK;
    if (status == KIN_BREAK && c->out->job == NULL && !c->options->meet)
        status = run_as_captured(c, notes, why);
    return status;
}

kin_status
kin_pipeline_run_lowered(const kin_aten *graph, kin_lowered *lowered, const kin_pipeline_options *options, kin_pipeline_result *out, kin_text *why)
{
    kin_compilation c = {.graph = graph, .options = options, .out = out, .form = KIN_FORM_IR, .ir = lowered->ir};
    *out = (kin_pipeline_result){.failed = UINT32_MAX, .lowered = *lowered};
    *lowered = (kin_lowered){0};
    kin_status status = run_lowered(&c, why);
    drop_ir(&c);
    return status;
}

kin_status
kin_pipeline_run(const kin_aten *graph, const kin_pipeline_options *options, kin_pipeline_result *out, kin_text *why)
{
    kin_compilation c = {.graph = graph, .options = options, .out = out, .form = KIN_FORM_ATEN};
    *out = (kin_pipeline_result){.failed = UINT32_MAX, .lowered = {.stuck = UINT32_MAX}};
    KIN_TRY(run_pass(&c, 0, why));
    kin_status status = KIN_OK;
    unsigned next = 1;
    for (; status == KIN_OK && !kin_passes[next].of_library; next++)
        status = run_pass(&c, next, why);
    if (status == KIN_OK)
        status = run_lowered(&c, why);
    drop_ir(&c);
    return status;
}

void
kin_pipeline_result_deinit(kin_pipeline_result *c)
{
    free_parts(c);
    kin_lowered_deinit(&c->lowered);
    kin_vec_deinit(&c->passes);
    if (c->job != NULL)
        kin_jit_job_drop(c->job);
    c->job = NULL;
}

/* -- parts of it, for tests and tools ------------------------------------------------------------------------------- */

kin_status
kin_pipeline_lower(const kin_aten *graph, const kin_lower_options *options, kin_lowered *out, kin_text *why)
{
    kin_pipeline_result made = {.failed = UINT32_MAX, .lowered = {.stuck = UINT32_MAX}};
    kin_pipeline_options all = {.lower = *options, .verify = true};
    kin_compilation c = {.graph = graph, .options = &all, .out = &made};
    kin_text unasked = {0};
    kin_status status = KIN_OK;
    for (unsigned i = kin_pass_find("lower"); status == KIN_OK && !kin_passes[i].of_library; i++)
        status = run_pass(&c, i, why != NULL ? why : &unasked);
    drop_ir(&c);
    *out = made.lowered;
    made.lowered = (kin_lowered){0};
    if (status != KIN_OK) {
        uint32_t stuck = out->stuck;
        kin_lowered_deinit(out);
        out->stuck = stuck;
    }
    kin_pipeline_result_deinit(&made);
    kin_text_deinit(&unasked);
    return status;
}

kin_status
kin_pipeline_compile(kin_jit *jit, kin_family *family, const kin_ir *ir, kin_program **out, kin_compile_stats *stats, kin_text *notes)
{
    kin_pipeline_result made = {.failed = UINT32_MAX};
    kin_pipeline_options options = {.jit = jit, .family = family, .lower.varying = family != NULL, .verify = true};
    kin_compilation c = {.options = &options, .out = &made};
    kin_text why = {0};
    kin_status status = run_part(&c, KIN_PART_MAIN, ir, &why);
    const char *said = status == KIN_OK ? made.parts[0].notes : why.at;
    if (notes != NULL && said != NULL)
        kin_text_add(notes, said);
    if (stats != NULL)
        *stats = made.stats;
    *out = made.parts[0].program;
    made.parts[0].program = NULL;
    kin_pipeline_result_deinit(&made);
    kin_text_deinit(&why);
    return status;
}

kin_status
kin_pipeline_fuse(const kin_ir *ir, kin_fused *out, kin_text *notes)
{
    kin_pipeline_result made = {.failed = UINT32_MAX};
    kin_pipeline_options options = {.verify = true};
    kin_compilation c = {.options = &options, .out = &made, .ir = ir, .form = KIN_FORM_PARTS};
    kin_text why = {0};
    kin_status status = run_passes(&c, KIN_FORM_PARTS, KIN_FORM_LOOPS, true, &why);
    *out = c.fused;
    if (notes != NULL && c.notes.at != NULL)
        kin_text_add(notes, c.notes.at);
    kin_text_deinit(&c.notes);
    kin_text_deinit(&why);
    drop_ir(&c);
    kin_pipeline_result_deinit(&made);
    return status;
}

/* -- for people ----------------------------------------------------------------------------------------------------- */

kin_part_name
kin_compilation_part(const kin_compilation *c)
{
    return c->part;
}

static bool
print_parts(const kin_compilation *c, kin_text *out)
{
    if (c->ir != c->out->hoisted.rest || c->out->hoisted.once == NULL)
        return kin_ir_print(c->ir, out);
    kin_text_add(out, "once:\n");
    bool ok = kin_ir_print(c->out->hoisted.once, out);
    kin_text_add(out, "in each call:\n");
    return kin_ir_print(c->ir, out) && ok;
}

bool
kin_compilation_print(const kin_compilation *c, kin_text *out)
{
    switch (c->form) {
    case KIN_FORM_ATEN: return kin_aten_print(c->graph, out);
    case KIN_FORM_LOWERED: case KIN_FORM_IR: return kin_ir_print(c->ir, out);
    case KIN_FORM_PARTS: return print_parts(c, out);
    case KIN_FORM_LOOPS: case KIN_FORM_PLANNED: case KIN_FORM_CODE: return kin_fused_print(&c->fused, out);
    case KIN_FORM__COUNT: break;
    }
    return false;
}
