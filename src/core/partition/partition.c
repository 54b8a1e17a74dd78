/* Chooses the values that are saved between forward and backward: those of the cheapest cut.
 *
 * Gradients need values of the first half (the *frontier*). Each may be saved, or computed again from others, down to the inputs. Element-wise
 * values may be computed again; reductions, extern calls and above all random numbers are saved. The network has a
 * node for each value that could be saved, with a cost by its bytes, and functions that take long cost something where they are computed again. Among the cheapest cuts the one nearest to the gradients is taken, so nothing
 * is computed again without need. Inputs that stay alive anyway cost nothing if they may be saved: if the program changes one before
 * backward, torch raises exactly where eager would have saved it.
 */
#include "core/partition/partition.h"

#include "core/partition/mincut.h"

typedef struct {
    bool back;      /* depends on a tangent */
    bool fixed;     /* depends on no input and no call */
    bool wanted;    /* by the second half */
    bool frontier;  /* ... directly */
    bool stored;    /* a call of the first half reads it: it lies in memory anyway */
    bool kept;      /* handed over, or an input that the second half reads */
    bool in_forward, in_backward;
    uint32_t vertex; /* in the network + 1 */
    uint32_t result; /* among the results + 1 */
    kin_irn forward, backward;
} node_info;

typedef struct {
    const kin_ir *p;
    const kin_ir_partition_options *o;
    node_info *info;
    kin_ir_partition *out;
    kin_text *why;
} parter;

static bool
is_input(const parter *x, kin_irn n)
{
    return kin_ir_at(x->p, n)->op == KIN_IR_INPUT;
}

static bool
is_tangent(const parter *x, kin_irn n)
{
    return is_input(x, n) && kin_ir_attrs(x->p, n)[0] >= x->o->first_tangent;
}

typedef KIN_VEC(kin_irn) kin_irn_stack;

/* -- the halves --------------------------------------------------------------------------------------------------- */

static void
find_origins(parter *x)
{
    for (kin_irn n = 1; n < x->p->nodes.len; n++) {
        node_info *i = &x->info[n];
        i->back = is_tangent(x, n);
        i->fixed = !is_input(x, n) && kin_ir_at(x->p, n)->op != KIN_IR_EXTERN;
        for (unsigned a = 0; a < kin_ir_at(x->p, n)->nargs; a++) {
            i->back = i->back || x->info[kin_ir_arg(x->p, n, a)].back;
            i->fixed = i->fixed && x->info[kin_ir_arg(x->p, n, a)].fixed;
        }
    }
}

/* May the second half compute it again? */
static bool
is_cheap(const parter *x, kin_irn n)
{
    switch (kin_ir_op_class((kin_ir_op)kin_ir_at(x->p, n)->op)) {
    case KIN_IR_CLASS_POINTWISE:
    case KIN_IR_CLASS_COMPARE:
    case KIN_IR_CLASS_VIEW:
        return true;
    default:
        return false;
    }
}

/* What cannot be cut: results that wait for what comes back, gradients that are more than a function of what they are given. */
static kin_status
check_halves(const parter *x)
{
    for (uint32_t o = 0; o < x->p->outputs.len; o++)
        if ((o < x->o->nforward || x->p->outputs.at[o].into != 0) && x->info[x->p->outputs.at[o].node].back) {
            kin_text_add(x->why, "a result depends on gradients");
            return KIN_BREAK;
        }
    for (kin_irn n = 1; n < x->p->nodes.len; n++)
        if (kin_ir_has_effect(x->p, n) && (x->info[n].back || kin_ir_attrs(x->p, n)[0] >= x->o->first_backward)) {
            kin_text_addf(x->why, "%s among its gradients", kin_ir_name(x->p, n));
            return KIN_BREAK;
        }
    return KIN_OK;
}

/* What the gradients are made of, as far as it depends on tangents; behind that the frontier, and all it is made of. */
static void
find_wanted(parter *x)
{
    for (uint32_t o = x->o->nforward; o < x->p->outputs.len; o++) {
        node_info *i = &x->info[x->p->outputs.at[o].node];
        if (x->p->outputs.at[o].into == 0) {
            i->wanted = true;
            i->frontier = i->frontier || !i->back;
        }
    }
    for (kin_irn n = x->p->nodes.len - 1; n > 0; n--) {
        if (!x->info[n].wanted)
            continue;
        for (unsigned a = 0; a < kin_ir_at(x->p, n)->nargs; a++) {
            node_info *arg = &x->info[kin_ir_arg(x->p, n, a)];
            arg->wanted = true;
            arg->frontier = arg->frontier || (x->info[n].back && !arg->back);
        }
    }
}

static void
find_results(parter *x)
{
    for (uint32_t o = 0; o < x->o->nforward && o < x->p->outputs.len; o++)
        if (x->p->outputs.at[o].into == 0 && x->info[x->p->outputs.at[o].node].result == 0)
            x->info[x->p->outputs.at[o].node].result = o + 1;
}

static bool
is_view(const parter *x, kin_irn n)
{
    return kin_ir_op_class((kin_ir_op)kin_ir_at(x->p, n)->op) == KIN_IR_CLASS_VIEW;
}

static void
find_stored(parter *x)
{
    for (kin_irn n = x->p->nodes.len - 1; n > 0; n--) {
        bool call = kin_ir_at(x->p, n)->op == KIN_IR_EXTERN && kin_ir_attrs(x->p, n)[0] < x->o->first_backward;
        for (unsigned a = 0; (call || (x->info[n].stored && is_view(x, n))) && a < kin_ir_at(x->p, n)->nargs; a++)
            x->info[kin_ir_arg(x->p, n, a)].stored = true;
    }
}

/* -- the cut ------------------------------------------------------------------------------------------------------ */

/* Does the network have a node for it? */
static bool
can_keep(const parter *x, kin_irn n)
{
    return x->info[n].wanted && !x->info[n].back && !x->info[n].fixed && kin_ir_at(x->p, n)->op != KIN_IR_EXTERN;
}

/* By bytes: what lies in memory anyway has to be read, all else to be written as well. Views are made again from what they look at. */
static int64_t
price_of(const parter *x, kin_irn n)
{
    enum { READ = 2, WRITE = 1, COPY = 4 };
    const kin_ir_node *node = kin_ir_at(x->p, n);
    int64_t bytes = kin_ir_numel(x->p, n) * kin_dtype_bytes((kin_dtype)node->dtype) + 1;
    if (node->op == KIN_IR_INPUT)
        return x->o->keeps_input[kin_ir_attrs(x->p, n)[0]] ? 1 : COPY * bytes;
    if (x->info[n].result != 0)
        return x->o->keeps_output[x->info[n].result - 1] ? 1 : COPY * bytes;
    switch (node->op) {
    case KIN_IR_EXPAND:
    case KIN_IR_PERMUTE:
    case KIN_IR_RESHAPE:
    case KIN_IR_SLICE:
        return KIN_MINCUT_NEVER;
    default:
        return (is_cheap(x, n) && !x->info[n].stored ? READ + WRITE : READ) * bytes;
    }
}

/* What it costs to compute it again: the time of so many bytes. erf or tanh of an element takes longer than to write and read the element; exp and what is
 * made of it does not. */
static int64_t
price_again(const parter *x, kin_irn n)
{
    enum { SLOW = 4 };
    const kin_ir_node *node = kin_ir_at(x->p, n);
    switch (node->op) {
    case KIN_IR_EXP:
    case KIN_IR_EXP2:
    case KIN_IR_SQRT:
    case KIN_IR_RSQRT:
    case KIN_IR_RECIPROCAL:
    case KIN_IR_SIGMOID:
        return 0;
    default:
        return kin_ir_op_is_slow(node->op) ? SLOW * kin_ir_numel(x->p, n) * kin_dtype_bytes((kin_dtype)node->dtype) : 0;
    }
}

static void
build_network(parter *x, kin_mincut *m)
{
    for (kin_irn n = 1; n < x->p->nodes.len; n++) {
        uint32_t vertex = x->info[n].vertex;
        if (vertex == 0)
            continue;
        if (x->info[n].frontier)
            kin_mincut_sink(m, vertex - 1);
        kin_mincut_source(m, vertex - 1, is_cheap(x, n) ? price_again(x, n) : KIN_MINCUT_NEVER);
        for (unsigned a = 0; is_cheap(x, n) && a < kin_ir_at(x->p, n)->nargs; a++)
            if (x->info[kin_ir_arg(x->p, n, a)].vertex != 0)
                kin_mincut_flow(m, x->info[kin_ir_arg(x->p, n, a)].vertex - 1, vertex - 1);
    }
}

static kin_status
choose_kept(parter *x)
{
    uint32_t n = 0;
    int64_t *prices = malloc(x->p->nodes.len * sizeof *prices);
    bool *cut = calloc(x->p->nodes.len, sizeof *cut);
    kin_mincut m = {0};
    kin_status status = prices == NULL || cut == NULL ? KIN_NOMEM : KIN_OK;
    for (kin_irn i = 1; status == KIN_OK && i < x->p->nodes.len; i++)
        if (can_keep(x, i)) {
            prices[n++] = price_of(x, i);
            x->info[i].vertex = n;
        }
    if (status == KIN_OK)
        status = kin_mincut_init(&m, n, prices) ? KIN_OK : KIN_NOMEM;
    if (status == KIN_OK) {
        build_network(x, &m);
        status = kin_mincut_find(&m, cut);
    }
    for (kin_irn i = 1; status == KIN_OK && i < x->p->nodes.len; i++)
        x->info[i].kept = x->info[i].vertex != 0 && cut[x->info[i].vertex - 1];
    if (status == KIN_BREAK)
        kin_text_add(x->why, "its gradients need what cannot be kept");
    kin_mincut_deinit(&m);
    free(prices);
    free(cut);
    return status;
}

/* -- copies ------------------------------------------------------------------------------------------------------- */

/* Is it read by the second half as the input that it is? */
static bool
is_plain_input(const parter *x, kin_irn n)
{
    return is_input(x, n) && (is_tangent(x, n) || x->o->keeps_input[kin_ir_attrs(x->p, n)[0]]);
}

static void
find_halves(parter *x)
{
    const kin_ir *p = x->p;
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        node_info *i = &x->info[p->outputs.at[o].node];
        if (o < x->o->nforward || p->outputs.at[o].into != 0)
            i->in_forward = true;
        else
            i->in_backward = true;
    }
    for (kin_irn n = p->nodes.len - 1; n > 0; n--) {
        node_info *i = &x->info[n];
        i->in_forward = i->in_forward || (i->kept && !is_plain_input(x, n)) || kin_ir_has_effect(p, n);
        bool goes_on = i->in_backward && !i->kept;
        for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++) {
            x->info[kin_ir_arg(p, n, a)].in_forward |= i->in_forward;
            x->info[kin_ir_arg(p, n, a)].in_backward |= goes_on;
        }
    }
}

static void
copy_forward(parter *x)
{
    const kin_ir *p = x->p;
    kin_ir *to = x->out->forward;
    for (kin_irn n = 1; n < p->nodes.len; n++)
        if (x->info[n].in_forward)
            x->info[n].forward = kin_ir_copy_mapped(to, p, n, &x->info->forward, sizeof *x->info);
    for (uint32_t o = 0; o < x->o->nforward; o++)
        kin_ir_output_like(to, x->info[p->outputs.at[o].node].forward, p, o);
}

static const int64_t *
lay_last(const kin_ir *p, kin_irn n, int64_t *strides)
{
    const int64_t *sizes = kin_ir_sizes(p, n);
    int64_t step = sizes[1];
    strides[1] = 1;
    for (unsigned d = kin_ir_at(p, n)->ndim; d-- > 2; step *= sizes[d])
        strides[d] = step;
    strides[0] = step;
    return strides;
}

/* Behind the results stand the values that are handed over; a result that may be kept is handed over itself. */
static kin_status
hand_over(parter *x)
{
    const kin_ir *p = x->p;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        node_info *i = &x->info[n];
        if (!i->kept || !i->in_backward)
            continue;
        if (is_plain_input(x, n)) {
            x->out->inputs[kin_ir_attrs(p, n)[0]] = true;
            continue;
        }
        bool own = i->result == 0 || !x->o->keeps_output[i->result - 1];
        kin_ir_handed handed = {.node = n, .output = own ? x->out->forward->outputs.len : i->result - 1,
                                .input = p->ninputs + x->out->handed.len};
        const int64_t *strides = kin_ir_at(p, n)->strides != 0 ? p->ints.at + kin_ir_at(p, n)->strides : NULL;
        int64_t channels_last[KIN_IR_MAX_DIMS];
        if (own && x->o->last != NULL && x->o->last[n])
            strides = lay_last(p, n, channels_last);
        if (own)
            kin_ir_output(x->out->forward, i->forward, strides);
        else /* it lies as the result does */
            strides = p->outputs.at[i->result - 1].strides != 0 ? p->ints.at + p->outputs.at[i->result - 1].strides : NULL;
        i->backward = kin_ir_input(x->out->backward, handed.input, (kin_dtype)kin_ir_at(p, n)->dtype, kin_ir_at(p, n)->ndim, kin_ir_sizes(p, n));
        if (strides != NULL && i->backward != 0)
            kin_ir_set_strides(x->out->backward, i->backward, strides);
        KIN_TRY(kin_vec_push(&x->out->handed, handed));
    }
    for (uint32_t o = x->o->nforward; o < p->outputs.len; o++)
        if (p->outputs.at[o].into != 0)
            kin_ir_output_like(x->out->forward, x->info[p->outputs.at[o].node].forward, p, o);
    return KIN_OK;
}

static bool
is_missing(const parter *x, kin_irn n)
{
    return x->info[n].in_backward && x->info[n].backward == 0;
}

/* The node, behind what it is made of. */
static kin_status
copy_with_arguments(parter *x, kin_irn n, kin_irn_stack *todo)
{
    todo->len = 0;
    KIN_TRY(kin_vec_push(todo, n));
    while (todo->len > 0) {
        kin_irn last = todo->at[todo->len - 1];
        uint32_t before = todo->len;
        for (unsigned a = 0; is_missing(x, last) && a < kin_ir_at(x->p, last)->nargs; a++)
            if (is_missing(x, kin_ir_arg(x->p, last, a)))
                KIN_TRY(kin_vec_push(todo, kin_ir_arg(x->p, last, a)));
        if (todo->len > before)
            continue;
        if (is_missing(x, last))
            x->info[last].backward = kin_ir_copy_mapped(x->out->backward, x->p, last, &x->info->backward, sizeof *x->info);
        todo->len--;
        if (x->out->backward->failed)
            return KIN_NOMEM;
    }
    return KIN_OK;
}

/* In the order in which torch went back; what is computed again comes where it is first needed, so that it does not lie about until then. */
static kin_status
copy_backward(parter *x)
{
    const kin_ir *p = x->p;
    kin_irn_stack todo = {0};
    kin_status status = KIN_OK;
    for (kin_irn n = 1; status == KIN_OK && n < p->nodes.len; n++)
        if (x->info[n].back && is_missing(x, n))
            status = copy_with_arguments(x, n, &todo);
    for (uint32_t o = x->o->nforward; status == KIN_OK && o < p->outputs.len; o++)
        if (p->outputs.at[o].into == 0)
            status = copy_with_arguments(x, p->outputs.at[o].node, &todo);
    kin_vec_deinit(&todo);
    KIN_TRY(status);
    for (uint32_t o = x->o->nforward; o < p->outputs.len; o++)
        if (p->outputs.at[o].into == 0)
            kin_ir_output_like(x->out->backward, x->info[p->outputs.at[o].node].backward, p, o);
    return KIN_OK;
}

static kin_status
part(parter *x)
{
    kin_ir_partition *out = x->out;
    if (out->forward == NULL || out->backward == NULL || out->inputs == NULL || x->info == NULL)
        return KIN_NOMEM;
    find_origins(x);
    KIN_TRY(check_halves(x));
    find_results(x);
    find_wanted(x);
    find_stored(x);
    KIN_TRY(choose_kept(x));
    find_halves(x);
    copy_forward(x);
    KIN_TRY(hand_over(x));
    KIN_TRY(copy_backward(x));
    out->forward->fast_math = out->backward->fast_math = x->p->fast_math;
    out->forward->ninputs = x->p->ninputs;
    out->backward->ninputs = x->p->ninputs + out->handed.len;
    return out->forward->failed || out->backward->failed ? KIN_NOMEM : KIN_OK;
}

kin_status
kin_ir_part(const kin_ir *p, const kin_ir_partition_options *options, kin_ir_partition *out, kin_text *why)
{
    *out = (kin_ir_partition){.forward = kin_ir_new(), .backward = kin_ir_new(), .inputs = calloc(p->ninputs + 1, sizeof *out->inputs), .ninputs = p->ninputs};
    parter x = {.p = p, .o = options, .info = calloc(p->nodes.len, sizeof *x.info), .out = out, .why = why};
    kin_status status = part(&x);
    free(x.info);
    if (status != KIN_OK)
        kin_ir_partition_deinit(out);
    return status;
}

void
kin_ir_partition_deinit(kin_ir_partition *parts)
{
    kin_ir_free(parts->forward);
    kin_ir_free(parts->backward);
    kin_vec_deinit(&parts->handed);
    free(parts->inputs);
    *parts = (kin_ir_partition){0};
}
