/* Memory: the layout of stored values, the buffers of the program, the arguments of extern calls. */
#include "core/fuse/fuse_priv.h"

/* From this size on, buffers are written past the caches. Below it the next reader still hits the cache. */
static const size_t STREAM_LEAST = 32 << 20;

/* Do these strides number the elements 0 to n - 1, each once? */
static bool
is_dense(unsigned ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t next = 1;
    for (unsigned done = 0; done < ndim; done++) {
        bool found = false;
        for (unsigned d = 0; d < ndim && !found; d++)
            if (sizes[d] > 1 && strides[d] == next) {
                next *= sizes[d];
                found = true;
            }
        if (!found)
            break;
    }
    int64_t numel = 1;
    for (unsigned d = 0; d < ndim; d++)
        numel *= sizes[d];
    return next == numel;
}

void
fuse_lay_out(fuse *f, kin_irn n, const int64_t *strides)
{
    const kin_ir_node *node = fuse_node(f, n);
    const int64_t *sizes = fuse_sizes(f, n);
    bool own = node->op != KIN_IR_INPUT && node->op != KIN_IR_RESULT;
    if (strides == NULL && own && node->strides && is_dense(node->ndim, sizes, f->ir->ints.at + node->strides))
        strides = f->ir->ints.at + node->strides;
    if (kin_vec_reserve(&f->ints, node->ndim + 1u) != KIN_OK) {
        f->failed = true;
        return;
    }
    int64_t *at = f->ints.at + f->ints.len, below = 1;
    f->nodes[n].strides = f->ints.len;
    for (unsigned d = node->ndim; d-- > 0;) {
        at[d] = strides ? strides[d] : below;
        below *= sizes[d] > 1 ? sizes[d] : 1;
    }
    f->ints.len += node->ndim + 1u;
}

/* -- views ------------------------------------------------------------------------------------------------------- */

/* Strides for a reshape of something strided; false when there are none. */
static bool
reshape_strides(unsigned from, const int64_t *sizes, const int64_t *strides, unsigned to, const int64_t *want, int64_t *out)
{
    int d = (int)from - 1, t = (int)to - 1;
    while (d >= 0 && t >= 0) {
        if (sizes[d] == 1) {
            d--;
            continue;
        }
        int64_t stride = strides[d], have = sizes[d], need = 1;
        while (d > 0 && (sizes[d - 1] == 1 || strides[d - 1] == strides[d] * sizes[d])) { /* as far as it goes on */
            if (sizes[d - 1] == 1) {
                int64_t keep = strides[d], size = sizes[d];
                int e = d - 1;
                while (e > 0 && sizes[e] == 1)
                    e--;
                if (sizes[e] == 1 || strides[e] != keep * size)
                    break;
                have *= sizes[e];
                d = e;
                continue;
            }
            have *= sizes[--d];
        }
        for (; t >= 0 && need < have; t--) {
            out[t] = stride * need;
            need *= want[t];
        }
        if (need != have)
            return false;
        d--;
    }
    for (; t >= 0; t--) {
        if (want[t] != 1)
            return false;
        out[t] = 1;
    }
    return true;
}

static bool
view_step(fuse *f, kin_irn n, const int64_t *from, int64_t *strides, int64_t *offset)
{
    const kin_ir_node *node = fuse_node(f, n);
    const int64_t *attrs = kin_ir_attrs(f->ir, n), *sizes = fuse_sizes(f, n);
    kin_irn a = kin_ir_arg(f->ir, n, 0);
    unsigned ndim = fuse_node(f, a)->ndim;
    switch (node->op) {
    case KIN_IR_EXPAND:
        for (unsigned d = 0; d < node->ndim; d++) {
            int old = (int)d + (int)ndim - (int)node->ndim;
            strides[d] = old < 0 || fuse_sizes(f, a)[old] != sizes[d] ? 0 : from[old];
        }
        return true;
    case KIN_IR_PERMUTE:
        for (unsigned d = 0; d < node->ndim; d++)
            strides[d] = from[attrs[d]];
        return true;
    case KIN_IR_SLICE:
        for (unsigned d = 0; d < node->ndim; d++) {
            if (attrs[node->ndim + d] < 0 && sizes[d] > 1)
                return false;
            *offset += attrs[d] * from[d];
            strides[d] = from[d] * attrs[node->ndim + d];
        }
        return true;
    case KIN_IR_RESHAPE: return reshape_strides(ndim, fuse_sizes(f, a), from, node->ndim, sizes, strides);
    default: return false;
    }
}

bool
fuse_view(fuse *f, kin_irn n, kin_irn *base, int64_t *strides, int64_t *offset)
{
    const kin_ir_node *node = fuse_node(f, n);
    bool empty = kin_ir_numel(f->ir, n) == 0; /* has no places to look at, but calls see how it lies */
    if (kin_ir_op_class(node->op) == KIN_IR_CLASS_VIEW && f->nodes[n].strides == 0 && (!empty || node->op == KIN_IR_PERMUTE)) {
        int64_t from[KIN_IR_MAX_DIMS];
        return fuse_view(f, kin_ir_arg(f->ir, n, 0), base, from, offset) && view_step(f, n, from, strides, offset);
    }
    if (f->nodes[n].strides == 0)
        fuse_lay_out(f, n, NULL);
    if (f->failed)
        return false;
    *base = n;
    *offset = 0;
    memcpy(strides, fuse_strides(f, n), node->ndim * sizeof *strides);
    return true;
}

/* -- buffers ----------------------------------------------------------------------------------------------------- */

static const int64_t *
keep_ints(kin_program *p, const int64_t *from, unsigned n)
{
    int64_t *at = kin_program_alloc(p, (n + 1u) * sizeof *at);
    if (at && n)
        memcpy(at, from, n * sizeof *at);
    return at;
}

static size_t
bytes_of(const kin_buf *b)
{
    int64_t last = 0;
    for (unsigned d = 0; d < b->ndim; d++) {
        if (b->sizes[d] == 0)
            return 0;
        last += (b->sizes[d] - 1) * b->strides[d];
    }
    return (size_t)(last + 1) * kin_dtype_bytes(b->dtype);
}

static kin_status
add_buffer(fuse *f, kin_program *p, kin_irn n)
{
    const kin_ir_node *node = fuse_node(f, n);
    kin_buf b = {.kind = KIN_BUF_TEMP, .dtype = node->dtype, .ndim = node->ndim};
    b.sizes = keep_ints(p, fuse_sizes(f, n), node->ndim);
    b.strides = keep_ints(p, fuse_strides(f, n), node->ndim);
    if (b.sizes == NULL || b.strides == NULL)
        return KIN_NOMEM;
    b.bytes = bytes_of(&b);
    if (node->op == KIN_IR_INPUT) {
        b.kind = KIN_BUF_INPUT;
        b.index = (uint32_t)kin_ir_attrs(f->ir, n)[0];
    } else if (node->op == KIN_IR_RESULT && !fuse_is_into(f, n)) {
        b.kind = KIN_BUF_EXTERN;
        b.index = (uint32_t)kin_ir_attrs(f->ir, n)[0];
    } else if (f->nodes[n].into) {
        b.kind = KIN_BUF_INPUT;
        b.index = f->nodes[n].into - 1;
    } else if (f->nodes[n].output != FUSE_NONE) {
        b.kind = KIN_BUF_OUTPUT;
        b.index = f->nodes[n].output;
    }
    f->nodes[n].buffer = p->buffers.len;
    return kin_vec_push(&p->buffers, b);
}

static kin_status
add_buffers(fuse *f, kin_program *p)
{
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        unsigned op = fuse_node(f, n)->op;
        bool given = op == KIN_IR_INPUT || op == KIN_IR_RESULT;
        if (given ? f->nodes[n].live : f->nodes[n].stored && f->nodes[n].needed)
            KIN_TRY(add_buffer(f, p, n));
    }
    p->noutputs = f->ir->outputs.len;
    p->outputs = kin_program_alloc(p, (p->noutputs + 1) * sizeof *p->outputs);
    if (p->outputs == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < p->noutputs; i++)
        p->outputs[i] = f->nodes[f->ir->outputs.at[i].node].buffer;
    return KIN_OK;
}

/* -- operations -------------------------------------------------------------------------------------------------- */

static kin_status
add_argument(fuse *f, kin_program *p, kin_irn n, kin_extern_arg *out)
{
    kin_irn base;
    int64_t strides[KIN_IR_MAX_DIMS], offset;
    if (!fuse_view(f, n, &base, strides, &offset))
        return KIN_BUG;
    out->buffer = f->nodes[base].buffer;
    out->ndim = fuse_node(f, n)->ndim;
    out->sizes = keep_ints(p, fuse_sizes(f, n), out->ndim);
    out->strides = keep_ints(p, strides, out->ndim);
    out->offset = offset;
    out->whole = base == n;
    if (out->buffer == FUSE_NONE)
        return KIN_BUG;
    return out->sizes && out->strides ? KIN_OK : KIN_NOMEM;
}

static uint32_t
count_results(const fuse *f, kin_irn call)
{
    uint32_t n = 0;
    for (kin_irn r = call + 1; r < f->ir->nodes.len; r++)
        if (fuse_node(f, r)->op == KIN_IR_RESULT && kin_ir_arg(f->ir, r, 0) == call && kin_ir_attrs(f->ir, r)[0] >= n)
            n = (uint32_t)kin_ir_attrs(f->ir, r)[0] + 1;
    return n;
}

static char *
name_of(fuse *f, kin_program *p, const group *g)
{
    kin_text t = {0};
    kin_text_add(&t, "fused");
    for (uint32_t i = 0; i < g->statements.len && i < 5; i++) {
        const statement *s = &g->statements.at[i];
        kin_text_addf(&t, "_%s", s->kind == ST_BASE ? "copy" : kin_ir_op_name(fuse_node(f, s->value)->op));
    }
    char *name = t.failed ? NULL : kin_program_alloc(p, t.len + 1);
    if (name)
        memcpy(name, t.at, t.len + 1);
    kin_text_deinit(&t);
    return name;
}

/* Outputs and temporary buffers that no cache holds, which the kernel itself does not read. */
static void
mark_streams(const kin_program *p, const kin_kernel *k, kin_loops *loops)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < loops->buffers.len; i++) {
        kin_loop_buffer *b = &loops->buffers.at[i];
        if (b->local)
            continue;
        const kin_buf *buf = &p->buffers.at[k->buffers[n++]];
        b->streams = b->written && buf->bytes >= STREAM_LEAST && (buf->kind == KIN_BUF_OUTPUT || buf->kind == KIN_BUF_TEMP);
        for (uint32_t a = 0; a < loops->actions.len; a++)
            b->streams &= loops->actions.at[a].buffer != i || loops->actions.at[a].kind == KIN_LA_STORE;
        for (uint32_t a = 1; a < loops->insts.len; a++)
            b->streams &= loops->insts.at[a].buffer != i || loops->insts.at[a].kind != KIN_LI_LOAD;
    }
}

/* Buffers that a kernel with a single store reads only where it writes. */
static bool
find_overwritable(const kin_program *p, kin_kernel *k, const kin_loops *loops)
{
    k->over = kin_program_alloc((kin_program *)p, (k->nbuffers + 1) * sizeof *k->over);
    if (k->over == NULL)
        return false;
    const kin_loop_action *store = &loops->actions.at[0];
    if (loops->actions.len != 1 || store->kind != KIN_LA_STORE)
        return true;
    uint32_t n = 0;
    for (uint32_t b = 0; b < loops->buffers.len; b++) {
        if (loops->buffers.at[b].local)
            continue;
        uint32_t number = k->buffers[n++];
        bool same = kin_dtype_bytes(loops->buffers.at[b].dtype) == kin_dtype_bytes(store->dtype) && b != store->buffer;
        for (uint32_t i = 1; same && i < loops->insts.len; i++)
            same = loops->insts.at[i].kind != KIN_LI_LOAD || loops->insts.at[i].buffer != b || loops->insts.at[i].index == store->index;
        if (b == store->buffer)
            k->writes = number;
        else if (same)
            k->over[k->nover++] = number;
    }
    return true;
}

static uint32_t *
numbers_of(const fuse *f, kin_program *p, const kin_loops *loops, const kin_irn_list *of, uint32_t *count)
{
    uint32_t *numbers = kin_program_alloc(p, (of->len + 1) * sizeof *numbers), n = 0;
    for (uint32_t i = 0; numbers && i < of->len; i++)
        if (!loops->buffers.at[i].local)
            numbers[n++] = f->nodes[of->at[i]].buffer;
    *count = n;
    return numbers;
}

/* Takes the loops. */
static kin_status
keep_kernel(kin_fused *out, const kin_kernel *k, kin_fused_kernel *made)
{
    bool whole = k->buffers != NULL && k->name != NULL;
    if (!whole || kin_vec_push(&out->kernels, *made) != KIN_OK) {
        kin_loops_deinit(&made->loops);
        return KIN_NOMEM;
    }
    return kin_vec_push(&out->program->kernels, *k);
}

static kin_status
add_kernel(fuse *f, kin_fused *out, const group *g)
{
    kin_program *p = out->program;
    kin_fused_kernel made = {.kernel = p->kernels.len};
    kin_irn_list of = {0};
    kin_kernel k = {.name = name_of(f, p, g)};
    kin_loops_init(&made.loops);
    const char *why = fuse_build(f, g->statements.at, g->statements.len, true, &made.loops, &of);
    made.loops.fast_math = f->ir->fast_math;
    if (why && f->notes)
        kin_text_addf(f->notes, "%s: %s\n", k.name ? k.name : "", why);
    if (why || made.loops.actions.len == 0) {
        kin_loops_deinit(&made.loops);
        kin_vec_deinit(&of);
        return why ? KIN_BREAK : KIN_OK; /* a group that nobody needs */
    }
    k.buffers = numbers_of(f, p, &made.loops, &of, &k.nbuffers);
    kin_vec_deinit(&of);
    if (k.buffers)
        mark_streams(p, &k, &made.loops);
    if (k.buffers && !find_overwritable(p, &k, &made.loops))
        k.buffers = NULL;
    KIN_TRY(keep_kernel(out, &k, &made));
    kin_program_op op = {.index = p->kernels.len - 1};
    if (g->undo) {
        kin_irn write = f->ir->updates.at[g->undo - 1].write;
        return kin_vec_push(&p->undos, ((kin_undo){.kernel = op.index, .op = f->groups.at[f->nodes[write].group].op}));
    }
    return kin_vec_push(&p->ops, op);
}

/* The kernel for the blocks of the call's result; if that is needed for nothing else, the call writes where the kernel does. */
static kin_status
add_epilogue(fuse *f, kin_fused *out, const group *g, kin_extern_call *c)
{
    kin_program *p = out->program;
    kin_fused_kernel made = {.kernel = p->kernels.len};
    kin_irn_list of = {0};
    kin_kernel k = {.name = name_of(f, p, g)};
    fuse_window window;
    kin_loops_init(&made.loops);
    if (fuse_build_epilogue(f, g, &made.loops, &of, &window) != NULL) { /* it could be built when it was placed */
        kin_loops_deinit(&made.loops);
        kin_vec_deinit(&of);
        return KIN_NOMEM;
    }
    made.loops.fast_math = f->ir->fast_math;
    node_info *result = &f->nodes[g->result];
    if (window.in_place && !result->needed && result->output == FUSE_NONE)
        c->results[0] = result->buffer = f->nodes[g->statements.at[0].node].buffer;
    k.buffers = numbers_of(f, p, &made.loops, &of, &k.nbuffers);
    kin_vec_deinit(&of);
    c->epilogue = made.kernel + 1;
    c->columns = window.columns;
    return keep_kernel(out, &k, &made);
}

static kin_status
add_extern(fuse *f, kin_fused *out, const group *g)
{
    kin_program *p = out->program;
    kin_irn n = g->call;
    const char *name = kin_ir_name(f->ir, n);
    kin_extern_call c = {.number = (uint32_t)kin_ir_attrs(f->ir, n)[0], .nargs = fuse_node(f, n)->nargs};
    char *copy = kin_program_alloc(p, strlen(name) + 1);
    c.nresults = count_results(f, n);
    c.args = kin_program_alloc(p, (c.nargs + 1) * sizeof *c.args);
    c.results = kin_program_alloc(p, (c.nresults + 1) * sizeof *c.results);
    if (copy == NULL || c.args == NULL || c.results == NULL)
        return KIN_NOMEM;
    c.name = strcpy(copy, name);
    for (uint32_t a = 0; a < c.nargs; a++)
        KIN_TRY(add_argument(f, p, kin_ir_arg(f->ir, n, a), &c.args[a]));
    memset(c.results, 0xff, c.nresults * sizeof *c.results);
    for (kin_irn r = n + 1; r < f->ir->nodes.len; r++)
        if (fuse_node(f, r)->op == KIN_IR_RESULT && kin_ir_arg(f->ir, r, 0) == n && f->nodes[r].live)
            c.results[kin_ir_attrs(f->ir, r)[0]] = f->nodes[r].buffer;
    if (g->statements.len > 0)
        KIN_TRY(add_epilogue(f, out, g, &c));
    KIN_TRY(kin_vec_push(&p->externs, c));
    kin_program_op op = {.is_extern = true, .index = p->externs.len - 1};
    return kin_vec_push(&p->ops, op);
}

kin_status
fuse_program(fuse *f, kin_fused *out)
{
    out->program = kin_program_new();
    if (out->program == NULL)
        return KIN_NOMEM;
    KIN_TRY(add_buffers(f, out->program));
    for (uint32_t g = 0; g < f->groups.len; g++) {
        group *x = &f->groups.at[g];
        uint32_t before = x->op = out->program->ops.len;
        KIN_TRY(x->is_extern ? add_extern(f, out, x) : add_kernel(f, out, x));
        out->program->nwrite_backs += x->write_back ? out->program->ops.len - before : 0;
    }
    return KIN_OK;
}
