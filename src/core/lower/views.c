/* Functionalises memory that several values share: reading a view of what was written since, writing through a view.
 *
 * Each storage has a base value. Every other value of the storage is a view of a parent, made by view nodes only (EXPAND,
 * PERMUTE, RESHAPE, SLICE, INDEX). A write replaces the base: the chain of view nodes from parent to view is walked backward,
 * each node turned into its inverse. Other views of the storage are computed again when they are next read.
 */
#include "core/ir/in_place.h"
#include "core/lower/lower_priv.h"

/* The call that made the value; the one at hand if it is an input. */
static uint32_t
maker_of(const low *l, kin_aten_val v)
{
    for (uint32_t i = 0; i < l->g->calls.len; i++)
        if (v >= l->g->calls.at[i].results && v - l->g->calls.at[i].results < l->g->calls.at[i].nresults)
            return i;
    return l->call;
}

static kin_irn
fail(low *l, kin_aten_val v, const char *reason)
{
    if (l->why->len == 0) {
        kin_text_addf(l->why, "%%%u: %s", v, reason);
        l->stuck = maker_of(l, v);
    }
    return 0;
}

/* -- views by layout ------------------------------------------------------------------------------------------------ */

/* The value's dims from the one with the largest stride on, without those of size 1; -1 when its elements do not fill a
 * stretch of memory without gaps or overlaps. */
static int
memory_order(const kin_aten *g, kin_aten_val v, int64_t *dims)
{
    const int64_t *sizes = kin_aten_sizes(g, v), *strides = kin_aten_strides(g, v);
    int count = 0;
    for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++) {
        if (sizes[d] == 1)
            continue;
        int at = count++;
        for (; at > 0 && strides[dims[at - 1]] < strides[d]; at--)
            dims[at] = dims[at - 1];
        dims[at] = d;
    }
    int64_t expected = 1;
    for (int k = count - 1; k >= 0; k--) {
        if (strides[dims[k]] != expected)
            return -1;
        expected *= sizes[dims[k]];
    }
    return count;
}

bool
low_same_layout(const kin_aten *g, kin_aten_val a, kin_aten_val b)
{
    const kin_aten_value *x = kin_aten_at(g, a), *y = kin_aten_at(g, b);
    size_t bytes = x->ndim * sizeof(int64_t);
    return x->dtype == y->dtype && x->ndim == y->ndim && x->storage == y->storage && x->offset == y->offset
           && (bytes == 0 || (memcmp(kin_aten_sizes(g, a), kin_aten_sizes(g, b), bytes) == 0
                              && memcmp(kin_aten_strides(g, a), kin_aten_strides(g, b), bytes) == 0));
}

kin_aten_val
low_root(const low *l, kin_aten_val v)
{
    while (l->values[v].parent != 0)
        v = l->values[v].parent;
    return v;
}

bool
low_is_dense(const kin_aten *g, kin_aten_val v)
{
    int64_t dims[KIN_IR_MAX_DIMS];
    return memory_order(g, v, dims) >= 0;
}

/* The base's elements as they lie in memory; 0 when it has gaps. */
static kin_irn
flatten(low *l, kin_aten_val base, kin_irn node)
{
    int64_t order[KIN_IR_MAX_DIMS];
    unsigned ndim = kin_aten_at(l->g, base)->ndim;
    int count = memory_order(l->g, base, order);
    if (count < 0)
        return 0;
    for (unsigned d = 0; d < ndim; d++)
        if (kin_aten_sizes(l->g, base)[d] == 1)
            order[count++] = d;
    return kin_ir_reshape(l->ir, kin_ir_permute(l->ir, node, order), 1, (int64_t[]){kin_ir_numel(l->ir, node)});
}

/* Row-major without gaps? */
static bool
is_row_major(const kin_aten *g, kin_aten_val v)
{
    int64_t expected = 1;
    for (unsigned d = kin_aten_at(g, v)->ndim; d-- > 0;) {
        if (kin_aten_sizes(g, v)[d] != 1 && kin_aten_strides(g, v)[d] != expected)
            return false;
        expected *= kin_aten_sizes(g, v)[d];
    }
    return true;
}

/* The number of the element in flat memory, for each element of v. */
static kin_irn
places_of(low *l, kin_aten_val v, int64_t offset)
{
    unsigned ndim = kin_aten_at(l->g, v)->ndim;
    const int64_t *sizes = kin_aten_sizes(l->g, v);
    kin_irn place = kin_ir_const(l->ir, KIN_I64, (kin_scalar){.i = offset}, ndim, sizes);
    for (unsigned d = 0; d < ndim; d++) {
        int64_t stride = kin_aten_strides(l->g, v)[d];
        if (sizes[d] == 1 || stride == 0)
            continue;
        kin_irn step = kin_ir_const(l->ir, KIN_I64, (kin_scalar){.i = stride}, ndim, sizes);
        kin_irn far = kin_ir_binary(l->ir, KIN_IR_MUL, kin_ir_iota(l->ir, KIN_I64, d, ndim, sizes), step);
        place = kin_ir_binary(l->ir, KIN_IR_ADD, place, far);
    }
    return place;
}

static kin_irn
view_by_strides(low *l, kin_aten_val base, kin_irn node, kin_aten_val v)
{
    const kin_aten_value *from = kin_aten_at(l->g, base), *to = kin_aten_at(l->g, v);
    const int64_t *sizes = kin_aten_sizes(l->g, v);
    int64_t offset = to->offset - from->offset, last = offset, count = 1;
    if (from->dtype != to->dtype)
        return fail(l, v, "a view with another dtype");
    kin_irn flat = flatten(l, base, node);
    if (flat == 0)
        return fail(l, v, "a view of memory with gaps");
    for (unsigned d = 0; d < to->ndim; d++) {
        last += (sizes[d] - 1) * kin_aten_strides(l->g, v)[d];
        count *= sizes[d];
    }
    if (count > 0 && (offset < 0 || last >= kin_ir_numel(l->ir, flat)))
        return fail(l, v, "a view of uninitialised memory");
    if (count > 0 && is_row_major(l->g, v)) {
        kin_irn part = kin_ir_slice(l->ir, flat, &offset, (int64_t[]){1}, &count);
        return kin_ir_reshape(l->ir, part, to->ndim, sizes);
    }
    kin_irn places = places_of(l, v, offset);
    return kin_ir_index(l->ir, flat, (int64_t[]){-1}, &places, 1, to->ndim, sizes);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

/* Whether `node` is made of view nodes from `from`. */
static bool
is_view_of(const kin_ir *ir, kin_irn node, kin_irn from)
{
    while (node != from) {
        const kin_ir_node *n = kin_ir_at(ir, node);
        if (node < from || n->nargs == 0 || kin_ir_op_class((kin_ir_op)n->op) != KIN_IR_CLASS_VIEW || n->op == KIN_IR_CAT
            || n->op == KIN_IR_PAD)
            return false;
        node = kin_ir_arg(ir, node, 0);
    }
    return true;
}

/* The view that the value's call made, of what its parent holds now. */
static kin_irn
view_again(low *l, kin_aten_val v)
{
    low_value *value = &l->values[v];
    if (value->by_strides) {
        kin_irn node = low_current(l, value->parent);
        return node != 0 && !low_same_layout(l->g, v, value->parent) ? view_by_strides(l, value->parent, node, v) : node;
    }
    const kin_aten_value *a = kin_aten_at(l->g, v);
    const kin_aten_call *call = &l->g->calls.at[a->call];
    kin_irn results[64] = {0};
    low_call c = {.l = l, .ir = l->ir, .call = call, .results = results};
    if (call->nresults > 64 || !low_rule_run(&c))
        return fail(l, v, "a view that cannot be recomputed from its base");
    return results[v - call->results];
}

kin_irn
low_current(low *l, kin_aten_val v)
{
    low_value *value = &l->values[v];
    const low_storage *s = &l->storages[kin_aten_at(l->g, v)->storage];
    if (l->why->len > 0)
        return 0;
    if (value->node != 0 && ((s->of_input && s->version == 0) || s->base == v || value->version == s->version))
        return value->node;
    if (value->parent == 0)
        return fail(l, v, "a value whose contents are not known");
    kin_irn node = view_again(l, v);
    value->node = node;
    value->version = s->version;
    return node;
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

static kin_irn
constant(low *l, int64_t value, kin_irn like)
{
    return kin_ir_const(l->ir, KIN_I64, (kin_scalar){.i = value}, kin_ir_at(l->ir, like)->ndim, kin_ir_sizes(l->ir, like));
}

static kin_irn
part_of(low *l, kin_irn whole, unsigned dim, int64_t from, int64_t size)
{
    int64_t starts[KIN_IR_MAX_DIMS] = {0}, steps[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < kin_ir_at(l->ir, whole)->ndim; d++) {
        steps[d] = 1;
        sizes[d] = kin_ir_sizes(l->ir, whole)[d];
    }
    starts[dim] = from;
    sizes[dim] = size;
    return kin_ir_slice(l->ir, whole, starts, steps, sizes);
}

/* `whole` with `part` from `start` on along one dim. */
static kin_irn
replace_stretch(low *l, kin_irn whole, kin_irn part, unsigned dim, int64_t start)
{
    kin_irn parts[3];
    unsigned count = 0;
    int64_t size = kin_ir_sizes(l->ir, whole)[dim], end = start + kin_ir_sizes(l->ir, part)[dim];
    if (start > 0)
        parts[count++] = part_of(l, whole, dim, 0, start);
    parts[count++] = part;
    if (end < size)
        parts[count++] = part_of(l, whole, dim, end, size - end);
    return count > 1 ? kin_ir_cat(l->ir, parts, count, dim) : part;
}

/* `whole` with `part` at start, start + step, ... along one dim. */
static kin_irn
replace_steps(low *l, kin_irn whole, kin_irn part, unsigned dim, int64_t start, int64_t step)
{
    unsigned ndim = kin_ir_at(l->ir, part)->ndim;
    int64_t map[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < ndim; d++)
        map[d] = d;
    map[dim] = -1;
    kin_irn place = kin_ir_iota(l->ir, KIN_I64, dim, ndim, kin_ir_sizes(l->ir, part));
    place = kin_ir_binary(l->ir, KIN_IR_MUL, place, constant(l, step, part));
    place = kin_ir_binary(l->ir, KIN_IR_ADD, place, constant(l, start, part));
    return kin_ir_scatter_into(l->ir, KIN_IR_SCATTER_SET, whole, part, map, &place, 1);
}

/* A slice of several dims is taken apart: what lies between is read from `whole`. */
static kin_irn
invert_slice(low *l, kin_irn slice, kin_irn whole, kin_irn part)
{
    unsigned ndim = kin_ir_at(l->ir, slice)->ndim, todo[KIN_IR_MAX_DIMS], count = 0;
    kin_irn between[KIN_IR_MAX_DIMS + 1];
    int64_t starts[KIN_IR_MAX_DIMS], steps[KIN_IR_MAX_DIMS];
    memcpy(starts, kin_ir_attrs(l->ir, slice), ndim * sizeof *starts);
    memcpy(steps, kin_ir_attrs(l->ir, slice) + ndim, ndim * sizeof *steps);
    between[0] = whole;
    for (unsigned d = 0; d < ndim; d++) {
        int64_t size = kin_ir_sizes(l->ir, slice)[d];
        if (size == kin_ir_sizes(l->ir, whole)[d] && starts[d] == 0 && steps[d] == 1)
            continue;
        int64_t one_start[KIN_IR_MAX_DIMS] = {0}, one_step[KIN_IR_MAX_DIMS], sizes[KIN_IR_MAX_DIMS];
        for (unsigned e = 0; e < ndim; e++) {
            one_step[e] = 1;
            sizes[e] = kin_ir_sizes(l->ir, between[count])[e];
        }
        one_start[d] = starts[d];
        one_step[d] = steps[d];
        sizes[d] = size;
        between[count + 1] = kin_ir_slice(l->ir, between[count], one_start, one_step, sizes);
        todo[count++] = d;
    }
    while (count-- > 0) {
        unsigned d = todo[count];
        part = steps[d] == 1 ? replace_stretch(l, between[count], part, d, starts[d])
                             : replace_steps(l, between[count], part, d, starts[d], steps[d]);
    }
    return part;
}

static kin_irn
invert_permute(low *l, kin_irn permute, kin_irn part)
{
    int64_t back[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < kin_ir_at(l->ir, permute)->ndim; d++)
        back[kin_ir_attrs(l->ir, permute)[d]] = d;
    return kin_ir_permute(l->ir, part, back);
}

/* -- parts of large inputs: one SCATTER on the whole, however the part is looked at, which is then made in the input's memory (ir/in_place.h) -- */

/* Elements of `source` go to places in some value: maps and indices as SCATTER has them. */
typedef struct {
    kin_ir_scatter mode;
    kin_irn source, indices[KIN_IR_MAX_DIMS];
    unsigned nindices;
    int64_t map[KIN_IR_MAX_DIMS];
} put;

/* Do two nodes show the same elements of one value by the same views? */
static bool
same_view(const kin_ir *ir, kin_irn a, kin_irn b)
{
    const kin_ir_node *x = kin_ir_at(ir, a), *y = kin_ir_at(ir, b);
    if (a == b)
        return true;
    bool alike = x->op == y->op && x->nargs == 1 && y->nargs == 1 && kin_ir_op_class((kin_ir_op)x->op) == KIN_IR_CLASS_VIEW && x->ndim == y->ndim &&
                 x->nattrs == y->nattrs;
    for (unsigned d = 0; alike && d < x->ndim; d++)
        alike = kin_ir_sizes(ir, a)[d] == kin_ir_sizes(ir, b)[d];
    for (unsigned i = 0; alike && i < x->nattrs; i++)
        alike = kin_ir_attrs(ir, a)[i] == kin_ir_attrs(ir, b)[i];
    return alike && same_view(ir, kin_ir_arg(ir, a, 0), kin_ir_arg(ir, b, 0));
}

/* The part as it is, or as elements put into what the view showed before. */
static put
put_of(const low *l, kin_irn view, kin_irn part)
{
    put p = {.mode = KIN_IR_SCATTER_SET, .source = part};
    const kin_ir_node *n = kin_ir_at(l->ir, part);
    bool scatter = n->op == KIN_IR_SCATTER && same_view(l->ir, kin_ir_arg(l->ir, part, 0), view);
    for (unsigned d = 0; d < kin_ir_at(l->ir, view)->ndim; d++)
        p.map[d] = scatter ? kin_ir_attrs(l->ir, part)[1 + d] : d;
    if (!scatter)
        return p;
    p.mode = (kin_ir_scatter)kin_ir_attrs(l->ir, part)[0];
    p.source = kin_ir_arg(l->ir, part, 1);
    for (; p.nindices + 2u < n->nargs; p.nindices++)
        p.indices[p.nindices] = kin_ir_arg(l->ir, part, p.nindices + 2u);
    return p;
}

static bool
add_index(put *p, int64_t *map, kin_irn index)
{
    if (p->nindices == KIN_IR_MAX_DIMS || index == 0)
        return false;
    p->indices[p->nindices++] = index;
    *map = -(int64_t)p->nindices;
    return true;
}

/* Places in the slice, as places in what it is a slice of. Indices keep their own bounds: they must be those of the whole. */
static bool
through_slice(low *l, kin_irn slice, kin_irn whole, put *p)
{
    for (unsigned d = 0; d < kin_ir_at(l->ir, slice)->ndim; d++) {
        int64_t start = kin_ir_attrs(l->ir, slice)[d], step = kin_ir_attrs(l->ir, slice)[kin_ir_at(l->ir, slice)->ndim + d];
        if (start == 0 && step == 1 && kin_ir_sizes(l->ir, slice)[d] == kin_ir_sizes(l->ir, whole)[d])
            continue;
        if (p->map[d] < 0)
            return false;
        kin_irn place = kin_ir_iota(l->ir, KIN_I64, (unsigned)p->map[d], kin_ir_at(l->ir, p->source)->ndim, kin_ir_sizes(l->ir, p->source));
        place = kin_ir_binary(l->ir, KIN_IR_MUL, place, constant(l, step, p->source));
        if (!add_index(p, &p->map[d], kin_ir_binary(l->ir, KIN_IR_ADD, place, constant(l, start, p->source))))
            return false;
    }
    return true;
}

/* Only dims of one element come or go. */
static bool
through_ones(low *l, kin_irn view, kin_irn whole, put *p)
{
    unsigned at = 0, ndim = kin_ir_at(l->ir, view)->ndim;
    int64_t map[KIN_IR_MAX_DIMS];
    for (unsigned d = 0; d < kin_ir_at(l->ir, whole)->ndim; d++) {
        int64_t size = kin_ir_sizes(l->ir, whole)[d];
        for (; at < ndim && size != 1 && kin_ir_sizes(l->ir, view)[at] == 1; at++)
            if (p->map[at] < 0)
                return false;
        if (at < ndim && kin_ir_sizes(l->ir, view)[at] == size)
            map[d] = p->map[at++];
        else if (size != 1 || !add_index(p, &map[d], constant(l, 0, p->source)))
            return false;
    }
    for (; at < ndim; at++)
        if (kin_ir_sizes(l->ir, view)[at] != 1 || p->map[at] < 0)
            return false;
    memcpy(p->map, map, sizeof map);
    return true;
}

/* `whole` with the part where the view showed it, as one SCATTER; 0 when that cannot be said. */
static kin_irn
put_part(low *l, kin_irn view, kin_irn part)
{
    kin_irn whole = kin_ir_arg(l->ir, view, 0);
    put p = put_of(l, view, part);
    bool ok = false;
    switch (kin_ir_at(l->ir, view)->op) {
    case KIN_IR_PERMUTE: {
        int64_t map[KIN_IR_MAX_DIMS];
        ok = p.source != part; /* nothing is put anywhere otherwise */
        for (unsigned d = 0; d < kin_ir_at(l->ir, view)->ndim; d++)
            map[kin_ir_attrs(l->ir, view)[d]] = p.map[d];
        memcpy(p.map, map, sizeof map);
        break;
    }
    case KIN_IR_SLICE: ok = through_slice(l, view, whole, &p); break;
    case KIN_IR_RESHAPE:
    case KIN_IR_EXPAND: ok = p.source != part && through_ones(l, view, whole, &p); break;
    default: break;
    }
    return ok ? kin_ir_scatter_into(l->ir, p.mode, whole, p.source, p.map, p.indices, p.nindices) : 0;
}

/* What the argument of a view node holds once the view holds `part`; 0 when elements would have two values. */
static kin_irn
invert(low *l, kin_irn view, kin_irn part)
{
    kin_irn whole = kin_ir_arg(l->ir, view, 0);
    const kin_ir_node *n = kin_ir_at(l->ir, view);
    switch (n->op) {
    case KIN_IR_EXPAND:
        if (kin_ir_numel(l->ir, view) != kin_ir_numel(l->ir, whole))
            return 0;
        return kin_ir_reshape(l->ir, part, kin_ir_at(l->ir, whole)->ndim, kin_ir_sizes(l->ir, whole));
    case KIN_IR_RESHAPE:
        return kin_ir_reshape(l->ir, part, kin_ir_at(l->ir, whole)->ndim, kin_ir_sizes(l->ir, whole));
    case KIN_IR_PERMUTE:
        return invert_permute(l, view, part);
    case KIN_IR_SLICE:
        return invert_slice(l, view, whole, part);
    case KIN_IR_INDEX: {
        kin_irn indices[KIN_IR_MAX_DIMS];
        int64_t map[KIN_IR_MAX_DIMS];
        for (unsigned k = 1; k < n->nargs; k++)
            indices[k - 1] = kin_ir_arg(l->ir, view, k);
        memcpy(map, kin_ir_attrs(l->ir, view), n->nattrs * sizeof *map);
        return kin_ir_scatter_into(l->ir, KIN_IR_SCATTER_SET, whole, part, map, indices, n->nargs - 1u);
    }
    default:
        return 0;
    }
}

kin_status
low_write(low *l, kin_aten_val v, kin_irn node)
{
    const kin_aten_value *a = kin_aten_at(l->g, v);
    low_storage *s = &l->storages[a->storage];
    low_value *value = &l->values[v];
    if (s->base == v) {
        value->node = node;
        value->version = ++s->version;
        return KIN_OK;
    }
    if (kin_aten_may_overlap(a->ndim, kin_aten_sizes(l->g, v), kin_aten_strides(l->g, v))) {
        fail(l, v, "a write through a view whose elements overlap");
        return KIN_BREAK;
    }
    /* The cached node may be one that was written, not a view of the parent's. */
    kin_irn from = low_current(l, value->parent), view = from != 0 ? view_again(l, v) : 0, part = node;
    if (view == 0 || !is_view_of(l->ir, view, from)) {
        fail(l, v, "writes through a view that cannot be recomputed from its base");
        return KIN_BREAK;
    }
    kin_aten_val root = low_root(l, v);
    bool large = s->of_input && kin_ir_numel(l->ir, l->values[root].node) > KIN_IR_LARGE_INPUT;
    while (view != from && part != 0) {
        kin_irn scatter = large ? put_part(l, view, part) : 0;
        part = scatter != 0 ? scatter : invert(l, view, part);
        view = kin_ir_arg(l->ir, view, 0);
    }
    if (part == 0 || l->ir->failed) {
        fail(l, v, "a write through a view whose elements overlap");
        return KIN_BREAK;
    }
    KIN_TRY(low_write(l, value->parent, part));
    value->node = node;
    value->version = s->version;
    return KIN_OK;
}

/* -- new values --------------------------------------------------------------------------------------------------- */

kin_status
low_place(low *l, kin_aten_val v, kin_irn node, kin_aten_val parent)
{
    low_storage *s = &l->storages[kin_aten_at(l->g, v)->storage];
    low_value *value = &l->values[v];
    *value = (low_value){.node = node, .version = s->version, .used = value->used};
    if (s->base == 0) {
        s->base = v;
        if (node == 0)
            fail(l, v, "a value whose contents are not known");
        return node != 0 ? KIN_OK : KIN_BREAK;
    }
    value->parent = parent != 0 ? parent : s->base;
    kin_irn from = parent != 0 ? low_current(l, parent) : 0;
    if (node != 0 && from != 0 && is_view_of(l->ir, node, from))
        return KIN_OK;
    value->by_strides = true;
    if (!low_same_layout(l->g, v, value->parent))
        value->parent = low_root(l, value->parent);
    value->node = view_again(l, v);
    return value->node != 0 ? KIN_OK : KIN_BREAK;
}
