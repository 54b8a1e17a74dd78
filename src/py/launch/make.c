/* From a captured graph to code that can run (run.h): runs core/pipeline and connects the result to the objects of the program. */
#include <stdlib.h>
#include <string.h>

#include "core/tiles/tile.h"
#include "core/program/make.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/launch/launch_priv.h"

/* -- outputs of the subgraph ---------------------------------------------------------------------------------------- */

typedef struct {
    kernel_launcher *self;
    const kin_entry *v;
    const kin_capture *capture;
    const kin_subgraph *subgraph;
    PyObject *const *in;
    launch_version *version;
    launch_code *code;
    bool backward;        /* the second half */
    bool exact;           /* no NaN may be lost, and no input is assumed frozen */
    KIN_VEC(kin_aten_val) outs; /* values that are outputs of the graph, each fake tensor once */
} maker;

/* What a fake tensor among the results is: an input, or an output of the graph (which is added). */
static kin_status
place_fake(maker *m, uint32_t number)
{
    launch_give *g = &m->code->by_fake[number];
    if (g->shape != NULL || g->kind == LAUNCH_GIVE_OUT)
        return KIN_OK;
    g->kind = LAUNCH_GIVE_OUT;
    g->index = m->outs.len;
    return kin_vec_push(&m->outs, m->capture->values[number]);
}

static kin_status
place_inside(maker *m, PyObject *obj)
{
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX)
        return number < m->capture->ninputs ? KIN_OK : place_fake(m, number);
    if (PyTuple_Check(obj) || PyList_CheckExact(obj))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(obj); i++)
            KIN_TRY(place_inside(m, PySequence_Fast_GET_ITEM(obj, i)));
    return KIN_OK;
}

static kin_status
plan_gives(maker *m)
{
    launch_code *code = m->code;
    m->capture->graph->outputs.len = 0; /* a capture may have been held */
    code->nfakes = (uint32_t)PyList_GET_SIZE(m->capture->fakes);
    code->by_fake = calloc(code->nfakes + 1, sizeof *code->by_fake);
    code->give = calloc(m->capture->nout + 1, sizeof *code->give);
    code->input_of = calloc(m->subgraph->nin + 1, sizeof *code->input_of);
    if (code->by_fake == NULL || code->give == NULL || code->input_of == NULL)
        return KIN_NOMEM;
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < m->subgraph->nin; i++)
        if (kin_is_tensor(m->in[i])) {
            code->by_fake[tensor] = (launch_give){.kind = LAUNCH_GIVE_INPUT, .index = i};
            code->input_of[tensor++] = i;
        }
    code->ninputs = tensor;
    for (uint32_t i = 0; i < m->capture->nout; i++) {
        PyObject *obj = m->capture->out[i];
        uint32_t number = kin_capture_number(obj);
        KIN_TRY(place_inside(m, obj));
        code->give[i] = number != UINT32_MAX ? code->by_fake[number]
                                             : (launch_give){.kind = LAUNCH_GIVE_OTHER, .shape = Py_NewRef(obj)};
        code->ngive = i + 1;
    }
    for (uint32_t i = 0; i < m->outs.len; i++)
        kin_aten_output(m->capture->graph, m->outs.at[i]);
    return m->capture->graph->failed ? KIN_NOMEM : KIN_OK;
}

/* -- outputs of the graph --------------------------------------------------------------------------------------- */

/* The next one: how it is made, and how it lies in memory. */
static kin_status
add_out(const maker *m, launch_out out)
{
    const kin_aten *g = m->capture->graph;
    kin_aten_val v = m->outs.at[m->code->nouts];
    unsigned ndim = kin_aten_at(g, v)->ndim;
    out.dtype = kin_aten_at(g, v)->dtype;
    out.sizes = kin_tuple_of_ints(kin_aten_sizes(g, v), ndim);
    out.strides = kin_tuple_of_ints(kin_aten_strides(g, v), ndim);
    m->code->outs[m->code->nouts++] = out;
    if (out.sizes != NULL && out.strides != NULL)
        return KIN_OK;
    PyErr_Clear();
    return KIN_NOMEM;
}

static kin_status
plan_outs(maker *m, const kin_lowered *lowered)
{
    launch_code *code = m->code;
    if (lowered->outs.len != m->outs.len)
        return KIN_BUG;
    code->outs = calloc(m->outs.len + 1, sizeof *code->outs);
    for (uint32_t i = 0; code->outs != NULL && i < m->outs.len; i++) {
        const kin_lower_out *o = &lowered->outs.at[i];
        uint32_t index = o->kind == KIN_OUT_INPUT ? code->input_of[o->index] : o->index;
        KIN_TRY(add_out(m, (launch_out){.kind = o->kind, .whole = o->whole, .detached = o->detached, .of_detached = o->of_detached, .late = o->late, .writes = o->writes, .index = index, .offset = o->offset}));
    }
    return code->outs == NULL ? KIN_NOMEM : KIN_OK;
}

/* Where there is no code yet: which of them share memory, with inputs or each other. */
static kin_status
plan_captured_outs(maker *m)
{
    launch_code *code = m->code;
    const kin_capture *c = m->capture;
    code->outs = calloc(m->outs.len + 1, sizeof *code->outs);
    for (uint32_t k = 0; code->outs != NULL && k < m->outs.len; k++) {
        uint32_t storage = kin_aten_at(c->graph, m->outs.at[k])->storage, i = 0;
        while (i < c->ninputs && kin_aten_at(c->graph, c->values[i])->storage != storage)
            i++;
        KIN_TRY(add_out(m, i == c->ninputs ? (launch_out){.kind = KIN_OUT_SHARED, .index = storage}
                                           : (launch_out){.kind = KIN_OUT_INPUT, .whole = m->outs.at[k] == c->values[i], .index = code->input_of[i]}));
    }
    return code->outs == NULL ? KIN_NOMEM : KIN_OK;
}

bool
launch_capture_gives_the_same(const kin_capture *capture, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out)
{
    maker m = {.capture = capture, .subgraph = subgraph, .in = in, .code = calloc(1, sizeof *m.code)};
    bool same = m.code != NULL && plan_gives(&m) == KIN_OK && m.code->ninputs == capture->ninputs && plan_captured_outs(&m) == KIN_OK &&
                launch_gives_the_same(m.code, subgraph->nin, in, out);
    kin_vec_deinit(&m.outs);
    launch_code_free(m.code);
    return same;
}

static kin_status
plan_writes(maker *m, const kin_lowered *lowered)
{
    launch_code *code = m->code;
    code->writes = calloc(lowered->writes.len + 1, sizeof *code->writes);
    if (code->writes == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < lowered->writes.len; i++) {
        code->writes[i] = lowered->writes.at[i];
        for (uint32_t q = 0; q < m->capture->uncounted.len; q++)
            code->writes[i].times -= m->capture->uncounted.at[q] == kin_aten_at(m->capture->graph, lowered->writes.at[i].input + 1)->storage;
        code->writes[i].input = code->input_of[lowered->writes.at[i].input];
    }
    code->nwrites = lowered->writes.len;
    return KIN_OK;
}

/* -- the program ------------------------------------------------------------------------------------------------ */

static bool
has_effect(const kin_ir *ir, uint32_t number)
{
    for (kin_irn n = 1; n < ir->nodes.len; n++)
        if (ir->nodes.at[n].op == KIN_IR_EXTERN && kin_ir_attrs(ir, n)[0] == number)
            return (kin_ir_attrs(ir, n)[1] & KIN_IR_EXTERN_EFFECT) != 0;
    return true;
}

static kin_matrix
shape_of(const kin_program *p, const kin_extern_arg *arg)
{
    return (kin_matrix){NULL, arg->sizes[0], arg->sizes[1], arg->strides[0], arg->strides[1], launch_matrix_form(p->buffers.at[arg->buffer].dtype)};
}

/* How is the second argument kept? It can be packed if it is frozen and there before the program runs. */
static launch_packs
packs_second(const maker *m, const kin_program *p, const kin_extern_call *c, const kin_library_call *call)
{
    if (!call->frozen || p->buffers.at[c->args[1].buffer].kind != KIN_BUF_INPUT)
        return LAUNCH_PACKS_NOT;
    kin_matrix a = shape_of(p, &c->args[0]), b = shape_of(p, &c->args[1]);
    return call->kind == KIN_LIBRARY_CONV ? LAUNCH_PACKS_ITS_ROWS : launch_matmul_packs(&a, &b, launch_sizes_vary(m->self));
}

static kin_status
tie_extern(const maker *m, const kin_rewritten *library, const kin_ir *ir, const kin_program *p, uint32_t i, launch_extern *out)
{
    const kin_extern_call *c = &p->externs.at[i];
    if (library != NULL && c->number >= library->first) {
        const kin_library_call *call = &library->calls.at[c->number - library->first];
        *out = (launch_extern){.library = launch_library_new(call), .packs = packs_second(m, p, c, call), .effect = has_effect(ir, c->number)};
        return out->library == NULL ? KIN_NOMEM : KIN_OK;
    }
    if (c->number >= m->capture->calls.len)
        return KIN_BUG;
    const kin_capture_call *call = &m->capture->calls.at[c->number];
    *out = (launch_extern){.op = Py_NewRef(call->op), .args = Py_NewRef(call->args), .kwargs = Py_XNewRef(call->kwargs),
                           .effect = has_effect(ir, c->number)};
    return KIN_OK;
}

/* Operators read the strides of their arguments, even of dims of size 1, to lay out their results: the next tensor of the
 * arguments gets those it has in eager. */
static kin_status
lay_as_in_eager(const maker *m, kin_program *p, kin_extern_arg *arg, kin_aten_val v)
{
    const kin_aten *g = m->capture->graph;
    const int64_t *sizes = kin_aten_sizes(g, v), *strides = kin_aten_strides(g, v);
    unsigned ndim = kin_aten_at(g, v)->ndim;
    if (arg->whole || arg->ndim != ndim || ndim == 0 || memcmp(arg->sizes, sizes, ndim * sizeof *sizes) != 0)
        return KIN_OK;
    int64_t *own = kin_program_alloc(p, ndim * sizeof *own);
    if (own == NULL)
        return KIN_NOMEM;
    for (unsigned d = 0; d < ndim; d++)
        own[d] = sizes[d] == 1 ? strides[d] : arg->strides[d];
    arg->strides = own;
    return KIN_OK;
}

static kin_status
lay_arguments(const maker *m, kin_program *p, kin_extern_call *c, uint32_t first, uint32_t count, uint32_t *next)
{
    const kin_aten *g = m->capture->graph;
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_LIST)
            KIN_TRY(lay_arguments(m, p, c, a->list.child, a->list.count, next));
        if (a->kind == KIN_ATEN_VALUE && *next < c->nargs)
            KIN_TRY(lay_as_in_eager(m, p, &c->args[(*next)++], a->value));
    }
    return KIN_OK;
}

/* By op: the buffers whose tensors can be released after it. */
static kin_status
plan_deaths(launch_program *lp)
{
    const kin_program *p = lp->program;
    lp->dies = calloc(p->ops.len + 1, sizeof *lp->dies);
    lp->ndies = calloc(p->ops.len + 1, sizeof *lp->ndies);
    if (lp->dies == NULL || lp->ndies == NULL)
        return KIN_NOMEM;
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        uint32_t op = p->last_use[b];
        if (op >= p->ops.len || p->buffers.at[b].kind != KIN_BUF_EXTERN)
            continue;
        uint32_t *grown = realloc(lp->dies[op], (lp->ndies[op] + 1) * sizeof *grown);
        if (grown == NULL)
            return KIN_NOMEM;
        lp->dies[op] = grown;
        grown[lp->ndies[op]++] = b;
    }
    return KIN_OK;
}

/* Reports what could not be fused. */
static void
keep_notes(const maker *m, const char *notes)
{
    kin_text text = {0};
    kin_text_addf(&text, "%s%s", m->version->not_fused == NULL ? "" : m->version->not_fused, notes);
    free(m->version->not_fused);
    m->version->not_fused = text.failed ? NULL : text.at;
    if (text.failed)
        kin_text_deinit(&text);
    launch_say_fusion(m->self, notes);
}

/* Connects a part that the pipeline has made to the objects of the program. */
static kin_status
tie_program(const maker *m, const kin_pipeline_result *made, kin_pipeline_part *part, launch_program *out)
{
    const kin_rewritten *library = made->library.ir != NULL ? &made->library : NULL;
    out->program = part->program;
    part->program = NULL;
    if (part->notes != NULL)
        keep_notes(m, part->notes);
    out->externs = calloc(out->program->externs.len + 1, sizeof *out->externs);
    if (out->externs == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < out->program->externs.len; i++)
        KIN_TRY(tie_extern(m, library, part->ir, out->program, i, &out->externs[i]));
    for (uint32_t i = 0; i < out->program->externs.len; i++) {
        kin_extern_call *c = &out->program->externs.at[i];
        uint32_t next = 0;
        if (out->externs[i].op != NULL && c->number < m->capture->graph->calls.len)
            KIN_TRY(lay_arguments(m, out->program, c, m->capture->graph->calls.at[c->number].args,
                                  m->capture->graph->calls.at[c->number].nargs, &next));
    }
    return plan_deaths(out);
}

/* -- frozen weights and library calls ---------------------------------------------------------------------------- */

/* Buffers that are read as second argument of packing calls and by nothing else. */
static kin_status
find_only_packed(launch_code *code)
{
    const kin_program *p = code->main.program;
    code->only_packed = calloc(p->buffers.len + 1, sizeof *code->only_packed);
    if (code->only_packed == NULL)
        return KIN_NOMEM;
    for (uint32_t b = 0; b < p->buffers.len; b++)
        code->only_packed[b] = p->buffers.at[b].kind == KIN_BUF_INPUT;
    for (uint32_t k = 0; k < p->kernels.len; k++)
        for (uint32_t b = 0; b < p->kernels.at[k].nbuffers; b++)
            code->only_packed[p->kernels.at[k].buffers[b]] = false;
    for (uint32_t i = 0; i < p->externs.len; i++)
        for (uint32_t a = 0; a < p->externs.at[i].nargs; a++)
            if (a != 1 || !code->main.externs[i].packs)
                code->only_packed[p->externs.at[i].args[a].buffer] = false;
    for (uint32_t o = 0; o < p->noutputs; o++)
        code->only_packed[p->outputs[o]] = false;
    return KIN_OK;
}

static bool
loses_nan(const launch_program *p)
{
    for (uint32_t i = 0; i < p->program->externs.len; i++)
        if (p->externs[i].library != NULL && p->externs[i].library->call.post == KIN_POST_RELU)
            return true;
    return false;
}

/* What is kept of weights, and how it is computed: code with equal descriptions can share it. False: out of memory. */
static bool
say_kept(const launch_code *code, const kin_ir *once, kin_text *out)
{
    const kin_program *p = code->main.program;
    kin_text_addf(out, "%u inputs, %u calls\n", code->ninputs, p->externs.len);
    if (once != NULL && !kin_ir_print(once, out))
        return false;
    for (uint32_t b = 0; b < p->buffers.len; b++)
        if (p->buffers.at[b].kind == KIN_BUF_INPUT && p->buffers.at[b].index >= code->ninputs)
            kin_text_addf(out, "value %u%s\n", p->buffers.at[b].index, code->only_packed[b] ? " packed" : "");
    for (uint32_t i = 0; i < p->externs.len; i++)
        if (code->main.externs[i].packs)
            launch_say_packing(&code->main, i, out);
    return !out->failed;
}

/* Programs of the same graph for other sizes mostly keep the same values, and so do those of other recordings of the function. (Other functions do not share them: whether their weights
 * change too often is a question of its own.) */
static kin_status
take_frozen(maker *m, const kin_ir *once)
{
    kin_text key = {0};
    kin_text_addf(&key, "of %p\n", (void *)PyFunction_GetCode(m->v->func));
    kin_status status = say_kept(m->code, once, &key) ? KIN_OK : KIN_NOMEM;
    if (status == KIN_OK)
        status = launch_frozen_new(m->code, &key, launch_sizes_are_on(m->self), &m->code->frozen);
    kin_text_deinit(&key);
    return status;
}

static kin_status
tie_library(maker *m, const kin_ir *once)
{
    launch_code *code = m->code;
    for (uint32_t i = 0; code->once.program != NULL && i < code->once.program->externs.len; i++)
        code->once.externs[i].packs = LAUNCH_PACKS_NOT; /* it runs once */
    KIN_TRY(find_only_packed(code));
    code->loses_nan = loses_nan(&code->main);
    return take_frozen(m, once);
}

static kin_status
tie_all(maker *m, kin_pipeline_result *made)
{
    KIN_TRY(tie_program(m, made, &made->parts[KIN_PART_MAIN], &m->code->main));
    if (made->parts[KIN_PART_ONCE].program != NULL)
        KIN_TRY(tie_program(m, made, &made->parts[KIN_PART_ONCE], &m->code->once));
    if (made->library.ir != NULL)
        KIN_TRY(tie_library(m, made->parts[KIN_PART_ONCE].ir));
    KIN_TRY(plan_writes(m, &made->lowered));
    return plan_outs(m, &made->lowered);
}

/* -- the pipeline ------------------------------------------------------------------------------------------------ */

static kin_pipeline_options
options_of(const maker *m, const bool *frozen, kin_jit *jit)
{
    const kin_launch_context *context = &m->self->context;
    return (kin_pipeline_options){
        .lower = {.default_f64 = kin_default_is_f64(), .fast_math = context->fast_math, .varying = launch_sizes_vary(m->self)},
        .rewrite = {.post = !m->exact && !m->self->exact_nan, .own = launch_library_has(KIN_LIBRARY_ATTENTION), .products = launch_products_are_own(),
                    .random = launch_library_has(KIN_LIBRARY_BERNOULLI), .pairs = kin_tile_has_pairs()},
        .frozen = frozen, .libraries = launch_library_has(KIN_LIBRARY_MATMUL), .jit = jit, .family = launch_sizes_family(m->self, m->backward),
        .common = launch_sizes_are_on(m->self) && !m->backward ? &m->self->sizes.common : NULL, .meet = m->self->meeting,
        .background = !m->self->checking && ((context->async && m->version->waits < KIN_TIER_BACKGROUND_TRIES) || launch_sizes_go_behind(m->self)), .no_notes = !launch_tells(m->self), .print = (uint8_t)launch_listing(), .verify = launch_verifies(),
        .plant = launch_plant()};
}

/* Missing kernels are compiled in the background; the version then has a ticket. */
static bool
put_off(const maker *m, kin_pipeline_result *made)
{
    m->version->ticket = launch_in_background(made->job);
    if (m->version->ticket == NULL)
        return false;
    made->job = NULL;
    m->version->waits++;
    if (launch_sizes_are_on(m->self))
        launch_sizes_begin_wait(m->self, m->version->ticket, launch_signature_class(m->in, m->subgraph->nin, m->self->open));
    return true;
}

/* For reports: the code, the time of each pass, and what is needed to run the passes again. */
static void
keep_reports(launch_version *version, kin_pipeline_result *made, const kin_pipeline_options *options)
{
    kin_pipeline_part *main = &made->parts[KIN_PART_MAIN], *once = &made->parts[KIN_PART_ONCE];
    version->nnative = made->lowered.nnative;
    version->nextern = made->lowered.nextern;
    version->stats = made->stats;
    kin_vec_deinit(&version->passes);
    memcpy(&version->passes, &made->passes, sizeof version->passes);
    memset(&made->passes, 0, sizeof made->passes);
    free(version->frozen);
    version->frozen = (bool *)options->frozen;
    version->lower = options->lower;
    version->rewrite = options->rewrite;
    version->libraries = made->library.ir != NULL;
    version->repeatable = made->repeatable;
    if (main->text == NULL)
        return;
    kin_text text = {0};
    kin_text_add(&text, main->text);
    if (once->text != NULL)
        kin_text_addf(&text, "\n-- made of frozen weights, once:\n%s", once->text);
    free(version->listing);
    version->listing = text.failed ? NULL : text.at;
    if (text.failed)
        kin_text_deinit(&text);
}

/* Reports of forward and backward as one. */
static void
join_reports(launch_version *version, char *listing, const kin_compile_stats *stats)
{
    kin_compile_stats_add(&version->stats, stats);
    kin_text text = {0};
    if (listing != NULL)
        kin_text_addf(&text, "%s\n-- backward:\n%s", listing, version->listing == NULL ? "" : version->listing);
    free(version->listing);
    free(listing);
    version->listing = text.failed ? NULL : text.at;
}

/* lowered: the lowered graph to start from (ownership is taken); NULL: start from the captured graph. */
static kin_status
run_pipeline(maker *m, bool *frozen, kin_lowered *lowered, kin_pipeline_result *made, kin_text *why)
{
    kin_jit *jit = launch_jit(m->self->context.log, why);
    if (jit == NULL) {
        *made = (kin_pipeline_result){0};
        free(frozen);
        return KIN_BREAK;
    }
    kin_pipeline_options options = options_of(m, frozen, jit);
    options.background = options.background && lowered == NULL;
    kin_status status = lowered != NULL ? kin_pipeline_run_lowered(m->capture->graph, lowered, &options, made, why)
                                        : kin_pipeline_run(m->capture->graph, &options, made, why);
    if (made->job != NULL && !put_off(m, made)) {
        kin_pipeline_result_deinit(made);
        options.background = false;
        status = kin_pipeline_run(m->capture->graph, &options, made, why);
    }
    launch_say_cache(m->self->context.log, &made->stats);
    if (status == KIN_BUG)
        launch_say_bug(m->self, kin_passes[made->failed].name, why->len > 0 ? why->at : "");
    if (status == KIN_BREAK && made->lowered.stuck < m->capture->calls.len)
        m->version->stuck = m->capture->calls.at[made->lowered.stuck].step;
    keep_reports(m->version, made, &options);
    return status;
}

static kin_status
compile_and_tie(maker *m, bool *frozen, kin_lowered *lowered, kin_text *why)
{
    kin_pipeline_result made;
    kin_status status = run_pipeline(m, frozen, lowered, &made, why);
    if (status == KIN_OK)
        status = tie_all(m, &made);
    kin_pipeline_result_deinit(&made);
    return status;
}

static kin_status
make_code(maker *m, kin_text *why)
{
    KIN_TRY(plan_gives(m));
    bool *frozen = calloc(m->code->ninputs + 1, sizeof *frozen);
    if (frozen == NULL)
        return KIN_NOMEM;
    if (m->self->context.freezing && launch_library_has(KIN_LIBRARY_CONV))
        launch_find_frozen(m->v, m->subgraph, m->in, m->capture->graph, &m->self->unfrozen, frozen);
    return compile_and_tie(m, frozen, NULL, why);
}

/* Is there a call that may raise but whose results are not read? Compiled, it would no longer raise. */
static kin_status
look_for_unseen(const maker *m, uint32_t ncalls, launch_version *version, kin_text *why)
{
    uint32_t unseen = kin_aten_raises_unseen(m->capture->graph);
    if (unseen >= ncalls)
        return KIN_OK;
    version->stuck = m->capture->calls.at[unseen].step;
    kin_text_addf(why, "%s may raise for what nothing else reads", kin_aten_text(m->capture->graph, m->capture->graph->calls.at[unseen].op));
    return KIN_BREAK;
}

/* -- forward and backward ------------------------------------------------------------------------------------------ */

/* The second half has all inputs of the graph, under their original numbers. */
static kin_status
begin_backward(const maker *m, maker *back)
{
    const kin_aten *g = m->capture->graph;
    const kin_capture_joint *j = &m->capture->joint;
    *back = (maker){.self = m->self, .v = m->v, .capture = m->capture, .subgraph = m->subgraph, .in = m->in, .version = m->version, .exact = true, .backward = true,
                    .code = calloc(1, sizeof *back->code)};
    if (back->code == NULL || (back->code->input_of = calloc(g->ninputs + 1, sizeof *back->code->input_of)) == NULL)
        return KIN_NOMEM;
    back->code->copes = true;
    back->code->ninputs = g->ninputs;
    for (uint32_t i = 0; i < g->ninputs; i++)
        back->code->input_of[i] = i;
    for (uint32_t i = 0; i < j->gradients.len; i++)
        if (j->gradients.at[i] != UINT32_MAX)
            KIN_TRY(kin_vec_push(&back->outs, m->capture->values[j->gradients.at[i]]));
    return KIN_OK;
}

/* One half, connected to the objects that run it. */
static kin_status
compile_half(maker *m, kin_lowered *lowered, kin_text *why)
{
    kin_text text = {0};
    if (launch_listing() > 0 && kin_ir_print(lowered->ir, &text))
        m->version->halves[m->backward] = text.at;
    else
        kin_text_deinit(&text);
    bool *frozen = calloc((size_t)lowered->ir->ninputs + 1, sizeof *frozen);
    return frozen == NULL ? KIN_NOMEM : compile_and_tie(m, frozen, lowered, why);
}

/* By storage of the graph; NULL: it is not known (or there is no memory). */
static bool *
find_saved(const kin_capture *c)
{
    bool *saved = c->joint.knows_saved ? calloc(c->graph->nstorages + 1, sizeof *saved) : NULL;
    for (uint32_t i = 0; saved != NULL && i < c->joint.saved.len; i++)
        saved[kin_aten_at(c->graph, c->values[c->joint.saved.at[i].number])->storage] = true;
    return saved;
}

static kin_status
compile_halves(maker *m, maker *back, kin_halves *halves, launch_version *version, kin_text *why)
{
    kin_lowered lowered = {0};
    kin_lower_options options = {.default_f64 = kin_default_is_f64(), .fast_math = m->self->context.fast_math};
    kin_status status = kin_pipeline_lower(m->capture->graph, &options, &lowered, why);
    if (status == KIN_BREAK && lowered.stuck < m->capture->calls.len)
        version->stuck = m->capture->calls.at[lowered.stuck].step;
    KIN_TRY(status);
    uint32_t nnative = lowered.nnative, nextern = lowered.nextern;
    bool *last = calloc(lowered.ir->nodes.len, sizeof *last);
    kin_pipeline_options all = options_of(m, NULL, NULL);
    status = last == NULL ? KIN_NOMEM : all.libraries ? kin_rewrite_prefer_last(lowered.ir, m->capture->graph, &all.rewrite, last) : KIN_OK;
    const kin_capture *c = m->capture;
    bool *saved = find_saved(c);
    kin_joint_graph joint = {m->outs.len, c->joint.ncalls, c->joint.results.len, last, c->numbers.at, c->numbers.len, saved};
    if (status == KIN_OK)
        status = kin_halves_make(m->capture->graph, &joint, &lowered, halves, why);
    free(saved);
    free(last);
    kin_lowered_deinit(&lowered);
    KIN_TRY(status);
    status = compile_half(m, &halves->forward, why);
    if (status != KIN_OK && !(status == KIN_BREAK && m->self->meeting)) /* there is no code if numbers are only noted */
        return status;
    char *listing = version->listing;
    kin_compile_stats stats = version->stats;
    version->listing = NULL;
    status = compile_half(back, &halves->backward, why);
    join_reports(version, listing, &stats);
    version->nnative = nnative;
    version->nextern = nextern;
    return status;
}

/* Torch goes back through a view by strides of an input whose elements share memory as if these were one: each gets the mean of what flows to all of them, while the program's own
 * views (expanded, then indexed) know each apart. */
static bool
goes_back_through_shared_memory(const maker *m)
{
    const kin_aten *g = m->capture->graph;
    for (uint32_t i = 0; i < m->code->ninputs; i++) {
        kin_aten_val input = m->capture->values[i];
        const kin_aten_value *x = kin_aten_at(g, input);
        if (!kin_tensor_requires_grad(m->in[m->code->input_of[i]]) || !kin_aten_may_overlap(x->ndim, kin_aten_sizes(g, input), kin_aten_strides(g, input)))
            continue;
        for (uint32_t o = 0; o < m->outs.len; o++)
            if (m->outs.at[o] != input && kin_aten_at(g, m->outs.at[o])->storage == x->storage)
                return true;
    }
    return false;
}

static kin_status
make_both(maker *m, launch_version *version, kin_text *why)
{
    maker back;
    kin_halves halves = {0};
    m->exact = true;
    KIN_TRY(plan_gives(m));
    if (goes_back_through_shared_memory(m)) {
        kin_text_add(why, "gradients flow through a view of an input whose elements share memory");
        return KIN_BREAK;
    }
    for (uint32_t i = 0; i < m->capture->joint.results.len; i++) {
        uint32_t number = m->capture->joint.results.at[i];
        uint32_t before = m->outs.len;
        KIN_TRY(place_fake(m, number));
        if (m->outs.len > before) /* only views of it are results */
            kin_aten_output(m->capture->graph, m->outs.at[before]);
    }
    KIN_TRY(look_for_unseen(m, m->capture->joint.ncalls, version, why));
    kin_status status = begin_backward(m, &back);
    for (uint32_t i = 0; status == KIN_OK && i < back.outs.len; i++)
        kin_aten_output(m->capture->graph, back.outs.at[i]);
    if (status == KIN_OK)
        status = compile_halves(m, &back, &halves, version, why);
    if (status == KIN_OK)
        status = launch_training_new(m->capture, m->code, back.code, &halves);
    if (status != KIN_OK)
        launch_code_free(back.code);
    kin_halves_deinit(&halves);
    kin_vec_deinit(&back.outs);
    return status;
}

kin_status
launch_code_make(kernel_launcher *self, const kin_entry *v, const kin_capture *capture, const kin_subgraph *subgraph,
                 PyObject *const *in, launch_version *version, kin_text *why)
{
    maker m = {.self = self, .v = v, .capture = capture, .subgraph = subgraph, .in = in, .version = version, .code = calloc(1, sizeof *m.code)};
    kin_status status = m.code == NULL ? KIN_NOMEM : capture->joint.results.len > 0 ? make_both(&m, version, why) : make_code(&m, why);
    kin_vec_deinit(&m.outs);
    if (status != KIN_OK) {
        launch_code_free(m.code);
        return status;
    }
    version->code = m.code;
    return KIN_OK;
}
