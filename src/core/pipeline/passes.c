/* The table of passes, in the order in which they run, and the functions that call them. To add one: a row and a function here, a line in
 * docs/design/pipeline.md, a test; CONTRIBUTING.md has the recipe.
 */
#include "core/pipeline/pipeline_priv.h"

#include "core/ir/in_place.h"
#include "core/ir/outputs.h"
#include "core/ir/split.h"
#include "core/program/make.h"

/* Makes the compilation own a new tensor program; NULL: KIN_NOMEM. */
static kin_status
take(kin_compilation *c, kin_ir *made)
{
    if (made == NULL)
        return KIN_NOMEM;
    c->ir = c->own = made;
    return KIN_OK;
}

/* -- of the whole graph ------------------------------------------------------------------------------------------- */

/* Kernels do not compute what nothing reads, so a call whose results are not all needed must not be able to raise in eager. */
static kin_status
accept(kin_compilation *c, kin_text *why)
{
    const kin_aten *g = c->graph;
    uint32_t unseen = kin_aten_raises_unseen(g);
    if (unseen >= g->calls.len)
        return KIN_OK;
    c->out->lowered.stuck = unseen;
    kin_text_addf(why, "%s may raise although nothing uses its result", kin_aten_text(g, g->calls.at[unseen].op));
    return KIN_BREAK;
}

static kin_status
lower(kin_compilation *c, kin_text *why)
{
    kin_lower_options options = c->options->lower;
    options.channels_last = kin_prefers_channels_last(c->graph);
    KIN_TRY(kin_lower(c->graph, &options, &c->out->lowered, why));
    c->out->lowered.stuck = UINT32_MAX;
    c->ir = c->out->lowered.ir;
    return KIN_OK;
}

/* The result also stays in `lowered`: it is compiled if library calls cannot be. */
static kin_status
simplify(kin_compilation *c, kin_text *why)
{
    kin_ir *clean = kin_ir_simplify(c->ir, c->ir->fast_math);
    if (clean == NULL)
        return KIN_NOMEM;
    c->own = c->out->lowered.ir; /* freed after the comparison */
    c->ir = c->out->lowered.ir = clean;
    return KIN_OK;
}

static kin_status
allow_writes(kin_compilation *c, kin_text *why)
{
    if (!kin_ir_copies_large_input(c->ir))
        return KIN_OK;
    kin_text_add(why, "it modifies an input in place");
    return KIN_BREAK;
}

/* Does a run have effects, so that it cannot be repeated? */
static bool
acts(const kin_ir *ir)
{
    for (kin_irn n = 1; n < ir->nodes.len; n++)
        if (kin_ir_has_effect(ir, n))
            return true;
    return false;
}

static kin_status
rewrite(kin_compilation *c, kin_text *why)
{
    kin_rewrite_options options = c->options->rewrite;
    c->out->repeatable = !acts(c->ir);
    options.post = options.post && c->out->repeatable;
    options.varying = c->options->lower.varying;
    KIN_TRY(kin_rewrite(c->ir, c->graph, c->options->frozen, &options, &c->out->library));
    c->ir = c->out->library.ir;
    return KIN_OK;
}

static kin_status
channels_last(kin_compilation *c, kin_text *why)
{
    c->changed = kin_channels_last(&c->out->library);
    return c->out->library.ir->failed ? KIN_NOMEM : KIN_OK;
}

static kin_status
simplify_rewritten(kin_compilation *c, kin_text *why)
{
    return take(c, kin_ir_simplify(c->ir, c->ir->fast_math));
}

static kin_status
hoist(kin_compilation *c, kin_text *why)
{
    KIN_TRY(kin_ir_hoist(c->ir, c->options->frozen, c->options->common, &c->out->hoisted));
    c->ir = c->out->hoisted.rest;
    c->changed = c->out->hoisted.once != NULL;
    return KIN_OK;
}

/* -- of each part ------------------------------------------------------------------------------------------------- */

static kin_status
split(kin_compilation *c, kin_text *why)
{
    return kin_ir_splits(c->ir) ? take(c, kin_ir_split(c->ir)) : KIN_OK;
}

static kin_status
write_in_place(kin_compilation *c, kin_text *why)
{
    return take(c, kin_ir_update_in_place(c->ir));
}

static kin_status
own_outputs(kin_compilation *c, kin_text *why)
{
    return take(c, kin_ir_own_outputs(c->ir));
}

static kin_status
fuse(kin_compilation *c, kin_text *why)
{
    kin_status status = kin_fuse(c->ir, c->options->lower.varying, &c->fused, c->options->no_notes ? NULL : &c->notes);
    if (status == KIN_BREAK && c->options->no_notes) /* again, for the reason */
        status = kin_fuse(c->ir, c->options->lower.varying, &c->fused, &c->notes);
    if (status != KIN_OK && c->notes.len > 0)
        kin_text_addf(why, "%.150s", c->notes.at);
    return status;
}

static kin_status
plan_memory(kin_compilation *c, kin_text *why)
{
    return kin_program_plan(c->fused.program);
}

static kin_status
codegen(kin_compilation *c, kin_text *why)
{
    if (c->options->meet && c->part == KIN_PART_MAIN)
        return kin_codegen_meet(c->options->jit, &c->fused, c->options->family, &c->stats, why);
    return kin_codegen(c->options->jit, &c->fused, c->part == KIN_PART_MAIN ? c->options->family : NULL, c->options->background ? &c->out->job : NULL, &c->stats, why);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

const kin_pass kin_passes[] = {
    {"accept", KIN_FORM_ATEN, KIN_FORM_ATEN, .run = accept, .verify = pipeline_check_aten,
     .does = "is the captured graph sound, and computing only what is needed unobservable?"},
    {"lower", KIN_FORM_ATEN, KIN_FORM_LOWERED, .run = lower, .verify = pipeline_check_ir,
     .does = "each call by its rule to primitives on values, or to an extern call; functionalisation"},
    {"simplify", KIN_FORM_LOWERED, KIN_FORM_IR, .always = true, .run = simplify, .verify = pipeline_check_ir,
     .does = "nothing unused, equal nodes once, constants folded, views and casts merged"},
    {"allow-writes", KIN_FORM_IR, KIN_FORM_IR, .run = allow_writes, .verify = pipeline_check_ir,
     .does = "refuses graphs that would copy a large input to write a part of it"},
    {"rewrite", KIN_FORM_IR, KIN_FORM_IR, .of_library = true, .run = rewrite, .verify = pipeline_check_library,
     .does = "library calls replace products, attention, recurrent layers and convolutions with what follows them"},
    {"channels-last", KIN_FORM_IR, KIN_FORM_IR, .of_library = true, .run = channels_last, .verify = pipeline_check_library,
     .does = "values between convolutions lie channels last"},
    {"simplify-rewritten", KIN_FORM_IR, KIN_FORM_IR, .of_library = true, .run = simplify_rewritten, .verify = pipeline_check_library,
     .does = "as simplify"},
    {"hoist", KIN_FORM_IR, KIN_FORM_PARTS, .run = hoist, .verify = pipeline_check_parts,
     .does = "what frozen inputs alone decide becomes a program of its own, which runs once"},
    {"split", KIN_FORM_PARTS, KIN_FORM_PARTS, .run = split, .verify = pipeline_check_ir,
     .does = "long reductions to few elements in two stages"},
    {"in-place", KIN_FORM_PARTS, KIN_FORM_PARTS, .run = write_in_place, .verify = pipeline_check_in_place,
     .does = "parts of inputs that are written (caches) are written at once, and can be put back"},
    {"own-outputs", KIN_FORM_PARTS, KIN_FORM_PARTS, .run = own_outputs, .verify = pipeline_check_in_place,
     .does = "every output is a node of its own"},
    {"fuse", KIN_FORM_PARTS, KIN_FORM_LOOPS, .run = fuse, .verify = pipeline_check_loops,
     .does = "what is stored, which nodes share a kernel, loops and buffers"},
    {"memory", KIN_FORM_LOOPS, KIN_FORM_PLANNED, .run = plan_memory, .verify = pipeline_check_plan,
     .does = "places of temporary buffers in one arena"},
    {"codegen", KIN_FORM_PLANNED, KIN_FORM_CODE, .run = codegen, .verify = pipeline_check_code,
     .does = "machine code for each kernel: from memory, from disk, from LLVM"},
};
const unsigned kin_npasses = sizeof kin_passes / sizeof *kin_passes;

unsigned
kin_pass_find(const char *name)
{
    for (unsigned i = 0; i < kin_npasses; i++)
        if (strcmp(kin_passes[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}
