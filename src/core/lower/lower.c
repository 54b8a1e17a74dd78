/* Lowers an ATen graph: each call by its rule or as an EXTERN, then the outputs. */
#include "core/lower/lower_priv.h"

/* -- externs ------------------------------------------------------------------------------------------------------ */

typedef KIN_VEC(kin_irn) nodes;

static kin_status
collect_args(low *l, uint32_t first, uint32_t count, nodes *out)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        kin_aten_ask(l->g, a); /* operators get numbers as they were captured */
        if (a->kind == KIN_ATEN_LIST)
            KIN_TRY(collect_args(l, a->list.child, a->list.count, out));
        if (a->kind != KIN_ATEN_VALUE)
            continue;
        kin_irn node = low_current(l, a->value);
        if (node == 0)
            return KIN_BREAK;
        KIN_TRY(kin_vec_push(out, node));
    }
    return KIN_OK;
}

static bool
is_row_major(const low *l, kin_aten_val v, bool in_dims_of_one)
{
    const int64_t *sizes = kin_aten_sizes(l->g, v), *strides = kin_aten_strides(l->g, v);
    int64_t expected = 1;
    for (unsigned d = kin_aten_at(l->g, v)->ndim; d-- > 0; expected *= sizes[d])
        if ((in_dims_of_one || sizes[d] != 1) && strides[d] != expected)
            return false;
    return true;
}

/* A value that is stored lies as eager has it, where it is one of the nodes from `first` on. */
static void
wish_strides(low *l, kin_aten_val v, kin_irn node, kin_irn first)
{
    if (node >= first && !is_row_major(l, v, false)) /* one of the call's own */
        kin_ir_set_strides(l->ir, node, kin_aten_strides(l->g, v));
}

/* PyTorch's operators may lay out their results as an argument lies: views that are stored for them lie as eager has them, too. So do dims of one
 * element: a convolution of an image with one channel looks at nothing else to know if channels come last. */
static void
wish_argument_strides(low *l, const kin_aten_call *call)
{
    for (uint32_t i = 0; i < call->nargs; i++) {
        const kin_aten_arg *arg = &l->g->args.at[call->args + i];
        kin_irn node = arg->kind == KIN_ATEN_VALUE ? l->values[arg->value].node : 0;
        const kin_ir_node *n = node ? kin_ir_at(l->ir, node) : NULL;
        if (n != NULL && n->strides == 0 && n->ndim == kin_aten_at(l->g, arg->value)->ndim &&
            (kin_ir_op_class(n->op) == KIN_IR_CLASS_VIEW || is_row_major(l, arg->value, false)) && !is_row_major(l, arg->value, true))
            kin_ir_set_strides(l->ir, node, kin_aten_strides(l->g, arg->value));
    }
}

static kin_status
lower_extern(low *l, uint32_t number)
{
    const kin_aten_call *call = &l->g->calls.at[number];
    nodes args = {0};
    if (kin_aten_writes_unsaid(l->g, call)) {
        kin_text_addf(l->why, "%s updates running statistics", kin_aten_text(l->g, call->op));
        l->stuck = number;
        return KIN_BREAK;
    }
    kin_status status = collect_args(l, call->args, call->nargs, &args);
    if (status == KIN_OK)
        wish_argument_strides(l, call);
    unsigned flags = kin_aten_has_effect(l->g, call) ? KIN_IR_EXTERN_EFFECT : 0;
    kin_irn node = status == KIN_OK ? kin_ir_extern(l->ir, kin_aten_text(l->g, call->op), number, flags, args.at, args.len) : 0;
    kin_vec_deinit(&args);
    l->out->nextern++;
    for (uint32_t k = 0; k < call->nresults && status == KIN_OK; k++) {
        kin_aten_val v = call->results + k;
        const kin_aten_value *a = kin_aten_at(l->g, v);
        kin_irn result = kin_ir_result(l->ir, node, k, (kin_dtype)a->dtype, a->ndim, kin_aten_sizes(l->g, v),
                                       kin_aten_strides(l->g, v));
        status = low_place(l, v, result, 0);
    }
    return status;
}

/* -- calls -------------------------------------------------------------------------------------------------------- */

static bool
is_complex(const low *l, kin_aten_val v)
{
    return kin_aten_at(l->g, v)->dtype >= KIN_C64;
}

static bool
has_complex(const low *l, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE ? is_complex(l, a->value)
            : a->kind == KIN_ATEN_LIST ? has_complex(l, a->list.child, a->list.count) : false)
            return true;
    }
    return false;
}

/* True when the call's rule made every result (c->results). */
static bool
run_rule(low_call *c)
{
    const kin_aten_call *call = c->call;
    if (has_complex(c->l, call->args, call->nargs))
        return false;
    for (uint32_t k = 0; k < call->nresults; k++) {
        c->results[k] = 0;
        if (is_complex(c->l, call->results + k))
            return false;
    }
    if (!low_rule_run(c))
        return false;
    for (uint32_t k = 0; k < call->nresults; k++)
        if (c->results[k] == 0 && low_wanted(c, k))
            return false;
    return true;
}

/* The argument whose memory the result looks at. */
static kin_aten_val
parent_of(const low *l, const kin_aten_call *call, kin_aten_val result)
{
    for (uint32_t i = 0; i < call->nargs; i++) {
        const kin_aten_arg *a = &l->g->args.at[call->args + i];
        if (a->kind == KIN_ATEN_VALUE && kin_aten_at(l->g, a->value)->storage == kin_aten_at(l->g, result)->storage)
            return a->value;
    }
    return 0;
}

/* Of a call that writes: does it give its argument another layout only and leave its memory alone? Its result is a view. */
static bool
is_layout_only(const kin_aten_call *call)
{
    return kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_LAYOUT_ONLY);
}

/* Complex numbers outside have no places in the program: another layout of them is a call of its own. */
static kin_status
refuse_reinterpreted(low *l, uint32_t number)
{
    kin_text_addf(l->why, "%s reinterprets complex numbers", kin_aten_text(l->g, l->g->calls.at[number].op));
    l->stuck = number;
    return KIN_BREAK;
}

static kin_status
lower_write(low *l, uint32_t number, const kin_aten_arg *written)
{
    const kin_aten_call *call = &l->g->calls.at[number];
    const char *name = kin_aten_text(l->g, call->op);
    low_call c = {.l = l, .ir = l->ir, .call = call, .results = l->results};
    bool of_input = l->storages[kin_aten_at(l->g, written->value)->storage].of_input;
    if (is_layout_only(call) && call->nresults == 1 && !of_input) {
        if (is_complex(l, call->results) && !low_same_layout(l->g, call->results, written->value))
            return refuse_reinterpreted(l, number);
        l->out->nnative++;
        return low_place(l, call->results, 0, written->value);
    }
    bool plain = !is_layout_only(call) && call->nresults == 1 && call->nargs > 0 && written == &l->g->args.at[call->args]
                 && low_same_layout(l->g, written->value, call->results);
    if (!plain || !run_rule(&c)) {
        if (l->why->len == 0) {
            kin_text_addf(l->why, "%s mutates an argument", name);
            l->stuck = number;
        }
        return KIN_BREAK;
    }
    KIN_TRY(low_write(l, written->value, c.results[0]));
    l->out->nnative++;
    return low_place(l, call->results, 0, written->value);
}

/* A call on complex numbers that stay inside. */
static kin_status
lower_inside(low *l, uint32_t number)
{
    low_call c = {.l = l, .ir = l->ir, .call = &l->g->calls.at[number], .results = l->results};
    kin_irn real, first = l->ir->nodes.len;
    if (!low_complex_call(&c, &real)) {
        if (l->why->len == 0) {
            kin_text_addf(l->why, "%s on complex numbers", kin_aten_text(l->g, c.call->op));
            l->stuck = number;
        }
        return KIN_BREAK;
    }
    l->out->nnative++;
    if (real == 0)
        return KIN_OK;
    KIN_TRY(low_place(l, c.call->results, real, 0));
    wish_strides(l, c.call->results, l->values[c.call->results].node, first);
    return KIN_OK;
}

static kin_status
lower_call(low *l, uint32_t number)
{
    const kin_aten_call *call = &l->g->calls.at[number];
    const kin_aten_arg *written = kin_aten_written(l->g, call);
    if (low_is_inside(l, call))
        return lower_inside(l, number);
    if (written != NULL)
        return lower_write(l, number, written);
    low_call c = {.l = l, .ir = l->ir, .call = call, .results = l->results};
    kin_irn first = l->ir->nodes.len;
    bool covered = run_rule(&c);
    if (l->why->len > 0)
        return KIN_BREAK;
    if (!covered && (call->nresults == 0 || parent_of(l, call, call->results) == 0))
        return lower_extern(l, number);
    l->out->nnative++;
    for (uint32_t k = 0; k < call->nresults; k++) {
        kin_aten_val v = call->results + k;
        bool is_new = l->storages[kin_aten_at(l->g, v)->storage].base == 0;
        if (is_new && !l->values[v].used && covered && c.results[k] == 0)
            continue;
        kin_aten_val parent = parent_of(l, call, v);
        if (parent != 0 && is_complex(l, v) && !low_same_layout(l->g, v, parent))
            return refuse_reinterpreted(l, number);
        KIN_TRY(low_place(l, v, covered ? c.results[k] : 0, parent));
        if (is_new)
            wish_strides(l, v, l->values[v].node, first);
    }
    return KIN_OK;
}

/* -- outputs ------------------------------------------------------------------------------------------------------ */

typedef enum {
    OWNER, /* the tensor that the memory was made for */
    VIEW,  /* of it, in autograd's sense */
    DETACHED  /* shares its memory without being a view */
} standing;

/* The value as which the tensor was made: those given by calls that wrote to it are the same tensor. */
static kin_aten_val
first_of(const low *l, kin_aten_val v)
{
    for (const kin_aten_value *a = kin_aten_at(l->g, v); a->call != UINT32_MAX; a = kin_aten_at(l->g, v)) {
        const kin_aten_arg *written = kin_aten_written(l->g, &l->g->calls.at[a->call]);
        if (written == NULL || kin_aten_at(l->g, written->value)->storage != a->storage)
            break;
        v = written->value;
    }
    return v;
}

static standing
standing_of(const low *l, kin_aten_val v)
{
    v = first_of(l, v);
    if (kin_aten_at(l->g, v)->call == UINT32_MAX)
        return OWNER;
    const kin_aten_call *call = &l->g->calls.at[kin_aten_at(l->g, v)->call];
    return parent_of(l, call, v) == 0 ? OWNER : kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_NO_VIEW) ? DETACHED : VIEW;
}

/* Is it a view of a tensor that shares its memory without being a view itself (`w.detach()[:2]`)? */
static bool
views_detached(const low *l, kin_aten_val v)
{
    while (standing_of(l, v) == VIEW) {
        v = first_of(l, v);
        v = parent_of(l, &l->g->calls.at[kin_aten_at(l->g, v)->call], v);
    }
    return standing_of(l, v) == DETACHED;
}

/* Calls from this one on that write to the memory, each counted by PyTorch. */
static uint32_t
count_writes(const low *l, uint32_t storage, uint32_t from)
{
    uint32_t n = 0;
    for (uint32_t i = from; i < l->g->calls.len; i++) {
        const kin_aten_arg *written = kin_aten_written(l->g, &l->g->calls.at[i]);
        n += written != NULL && kin_aten_at(l->g, written->value)->storage == storage;
    }
    return n;
}

/* The only value of its storage among the outputs? */
static bool
is_alone(const kin_aten *g, kin_aten_val v)
{
    for (uint32_t i = 0; i < g->outputs.len; i++)
        if (g->outputs.at[i] != v && kin_aten_at(g, g->outputs.at[i])->storage == kin_aten_at(g, v)->storage)
            return false;
    return true;
}

/* The program's output for a value; made when there is none. A fresh one must have memory of its own. */
static kin_status
program_output(low *l, kin_aten_val v, uint32_t *made, bool fresh, uint32_t *index)
{
    kin_irn node = low_current(l, v);
    if (node == 0)
        return KIN_BREAK;
    if (made[v] == 0) {
        bool taken = kin_ir_at(l->ir, node)->op == KIN_IR_INPUT || kin_ir_at(l->ir, node)->op == KIN_IR_RESULT;
        for (uint32_t i = 0; i < l->ir->outputs.len; i++)
            taken |= l->ir->outputs.at[i].node == node;
        if (taken && fresh) {
            low_call c = {.l = l, .ir = l->ir};
            node = low_copy(&c, node);
        }
        kin_ir_output(l->ir, node, kin_aten_strides(l->g, v));
        made[v] = l->ir->outputs.len;
    }
    *index = made[v] - 1;
    return KIN_OK;
}

static kin_status
lower_output(low *l, kin_aten_val v, uint32_t *made)
{
    const kin_aten_value *a = kin_aten_at(l->g, v);
    const low_storage *s = &l->storages[a->storage];
    const kin_aten_value *base = kin_aten_at(l->g, low_root(l, v));
    standing stands = standing_of(l, v);
    kin_lower_out out = {.sizes = a->sizes, .strides = a->strides, .ndim = a->ndim, .offset = a->offset, .detached = stands == DETACHED};
    if (s->of_input) {
        if (a->dtype != base->dtype) {
            kin_text_addf(l->why, "output %%%u is an input with another dtype", v);
            return KIN_BREAK;
        }
        out.kind = KIN_OUT_INPUT;
        out.index = base->input;
        out.whole = a == base;
        out.of_detached = stands == VIEW && views_detached(l, v);
        uint32_t made_by = kin_aten_at(l->g, first_of(l, v))->call;
        out.late = made_by != UINT32_MAX && count_writes(l, a->storage, 0) > 0 && count_writes(l, a->storage, made_by) == 0;
        return kin_vec_push(&l->out->outs, out);
    }
    kin_irn node = low_current(l, v), whole = low_current(l, s->base);
    if (node == 0 || whole == 0)
        return KIN_BREAK;
    bool is_result = kin_ir_at(l->ir, whole)->op == KIN_IR_RESULT && s->version == 0, alone = is_alone(l->g, v);
    bool is_whole = low_same_layout(l->g, v, s->base) && (stands == OWNER || alone);
    out.offset = a->offset - base->offset;
    out.writes = count_writes(l, a->storage, 0);
    if (is_result) {
        out.kind = is_whole ? KIN_OUT_EXTERN : KIN_OUT_SHARED;
        KIN_TRY(program_output(l, s->base, made, false, &out.index));
    } else if (alone && low_is_dense(l->g, v) && kin_ir_numel(l->ir, node) == kin_ir_numel(l->ir, whole)) {
        out.kind = KIN_OUT_FRESH;
        out.offset = 0;
        KIN_TRY(program_output(l, v, made, true, &out.index));
    } else {
        out.kind = is_whole ? KIN_OUT_FRESH : KIN_OUT_SHARED;
        KIN_TRY(program_output(l, s->base, made, true, &out.index));
    }
    if (a->dtype != base->dtype) {
        kin_text_addf(l->why, "output %%%u looks at memory of another dtype", v);
        return KIN_BREAK;
    }
    out.detached = out.detached || (out.kind == KIN_OUT_SHARED && stands == OWNER); /* the tensor itself, in another shape (`squeeze_` at the end of a vector's product) */
    return kin_vec_push(&l->out->outs, out);
}

/* -- all together ------------------------------------------------------------------------------------------------- */

static void
mark_used(low *l, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &l->g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE)
            l->values[a->value].used = true;
        if (a->kind == KIN_ATEN_LIST)
            mark_used(l, a->list.child, a->list.count);
    }
}

static void
mark_all_used(low *l)
{
    for (uint32_t i = 0; i < l->g->calls.len; i++)
        mark_used(l, l->g->calls.at[i].args, l->g->calls.at[i].nargs);
    for (uint32_t i = 0; i < l->g->outputs.len; i++)
        l->values[l->g->outputs.at[i]].used = true;
}

static kin_status
lower_inputs(low *l)
{
    for (kin_aten_val v = 1; v <= l->g->ninputs; v++) {
        const kin_aten_value *a = kin_aten_at(l->g, v);
        kin_irn node = l->inside[v] ? low_complex_input(l, v)
                                    : kin_ir_input(l->ir, a->input, (kin_dtype)a->dtype, a->ndim, kin_aten_sizes(l->g, v));
        if (!l->inside[v])
            kin_ir_set_strides(l->ir, node, kin_aten_strides(l->g, v));
        low_storage *s = &l->storages[a->storage];
        s->of_input = true;
        s->shared = s->base != 0;
        if (s->base == 0)
            s->base = v;
        l->values[v].node = node;
    }
    return KIN_OK;
}

/* Does every element have a place of its own? Dims are taken from the smallest stride on. */
static bool
has_own_places(const kin_aten *g, kin_aten_val v)
{
    const int64_t *sizes = kin_aten_sizes(g, v), *strides = kin_aten_strides(g, v);
    bool done[KIN_IR_MAX_DIMS] = {false};
    int64_t reach = 0; /* of the dims done */
    for (unsigned n = 0; n < kin_aten_at(g, v)->ndim; n++) {
        int next = -1;
        for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++)
            if (!done[d] && (next < 0 || strides[d] < strides[next]))
                next = (int)d;
        done[next] = true;
        if (sizes[next] > 1 && strides[next] <= reach)
            return false;
        reach += (sizes[next] - 1) * strides[next];
    }
    return true;
}

static kin_status
lower_written_inputs(low *l)
{
    for (kin_aten_val v = 1; v <= l->g->ninputs; v++) {
        const kin_aten_value *a = kin_aten_at(l->g, v);
        const low_storage *s = &l->storages[a->storage];
        if (s->version == 0)
            continue;
        if (s->shared || !has_own_places(l->g, v) ) {
            kin_text_add(l->why, "it modifies an input in place");
            return KIN_BREAK;
        }
        kin_ir_output_into(l->ir, l->values[v].node, kin_aten_strides(l->g, v), a->input);
        kin_lower_write w = {.input = a->input, .times = s->version};
        KIN_TRY(kin_vec_push(&l->out->writes, w));
    }
    return KIN_OK;
}

static kin_status
lower_all(low *l)
{
    uint32_t *made = calloc(l->g->values.len + 1, sizeof *made);
    if (made == NULL)
        return KIN_NOMEM;
    mark_all_used(l);
    low_complex_find(l);
    kin_status status = lower_inputs(l);
    for (l->call = 0; l->call < l->g->calls.len && status == KIN_OK; l->call++)
        status = lower_call(l, l->call);
    l->call = UINT32_MAX;
    for (uint32_t i = 0; i < l->g->outputs.len && status == KIN_OK; i++)
        status = lower_output(l, l->g->outputs.at[i], made);
    if (status == KIN_OK)
        status = lower_written_inputs(l);
    free(made);
    if (status == KIN_OK && l->ir->failed)
        status = KIN_NOMEM;
    return status;
}

static bool
make_room(low *l)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < l->g->calls.len; i++)
        if (l->g->calls.at[i].nresults > most)
            most = l->g->calls.at[i].nresults;
    l->ir = kin_ir_new();
    l->values = calloc(l->g->values.len + 1, sizeof *l->values);
    l->storages = calloc((size_t)l->g->nstorages + 1, sizeof *l->storages);
    l->results = calloc(most, sizeof *l->results);
    l->inside = calloc(l->g->values.len + 1, sizeof *l->inside);
    l->parts = calloc(2 * (l->g->values.len + 1), sizeof *l->parts);
    return l->inside != NULL && l->parts != NULL && l->ir != NULL && l->values != NULL && l->storages != NULL && l->results != NULL;
}

kin_status
kin_lower(const kin_aten *g, const kin_lower_options *options, kin_lowered *out, kin_text *why)
{
    kin_text unasked = {0};
    low l = {.g = g, .options = options, .out = out, .why = why != NULL ? why : &unasked, .stuck = UINT32_MAX};
    *out = (kin_lowered){0};
    kin_text_clear(l.why);
    kin_status status = make_room(&l) ? lower_all(&l) : KIN_NOMEM;
    if (status == KIN_OK && kin_aten_is_asked(g)) {
        kin_text_add(l.why, "it depends on the value of a number among its inputs");
        status = KIN_BREAK;
    }
    if (status == KIN_OK) {
        l.ir->fast_math = options->fast_math;
        out->ir = l.ir;
        l.ir = NULL;
    }
    kin_ir_free(l.ir);
    free(l.values);
    free(l.storages);
    free(l.results);
    free(l.inside);
    free(l.parts);
    kin_text_deinit(&unasked);
    if (status != KIN_OK) {
        kin_lowered_deinit(out);
        out->stuck = status == KIN_BREAK ? l.stuck : UINT32_MAX;
    }
    return status;
}

void
kin_lowered_deinit(kin_lowered *l)
{
    kin_ir_free(l->ir);
    kin_vec_deinit(&l->outs);
    kin_vec_deinit(&l->writes);
    *l = (kin_lowered){0};
}
