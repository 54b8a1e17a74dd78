/* Updates parts of inputs (a key-value cache) in place: computing the whole input again and copying it at the end of the program
 * would cost more than everything else. The old content is saved, so that a program that fails can restore it. */
#include "core/ir/in_place.h"

/* Computed where it is read, not at its own place? */
static bool
is_lazy(const kin_ir *p, kin_irn n)
{
    kin_ir_class c = kin_ir_op_class((kin_ir_op)kin_ir_at(p, n)->op);
    return c == KIN_IR_CLASS_POINTWISE || c == KIN_IR_CLASS_COMPARE || c == KIN_IR_CLASS_VIEW;
}

/* Is `base` read by nobody behind node `by`, which writes over it, and by that only as what is written over? */
static bool
dies_at(const kin_ir *p, kin_irn base, kin_irn by)
{
    bool *of = calloc(p->nodes.len, sizeof *of), ok = of != NULL;
    for (kin_irn n = base; ok && n < p->nodes.len; n++) {
        bool reads = n == base;
        for (unsigned a = n == by; a < kin_ir_at(p, n)->nargs; a++)
            reads |= of[kin_ir_arg(p, n, a)];
        ok = !reads || n < by;
        of[n] = reads && (n == base || is_lazy(p, n));
    }
    for (uint32_t o = 0; ok && o < p->outputs.len; o++)
        ok = !of[p->outputs.at[o].node];
    free(of);
    return ok;
}

/* The input is in the program once. */
static bool
is_only_node(const kin_ir *p, kin_irn input)
{
    for (kin_irn n = 1; n < p->nodes.len; n++)
        if (n != input && kin_ir_at(p, n)->op == KIN_IR_INPUT && kin_ir_attrs(p, n)[0] == kin_ir_attrs(p, input)[0])
            return false;
    return true;
}

/* Can output o, which goes into an input, be written there where it is made? It is that input with elements put into it, and nobody
 * wants the input as it was once they are there. */
static bool
updates_in_place(const kin_ir *p, uint32_t o)
{
    const kin_ir_out *out = &p->outputs.at[o];
    kin_irn n = out->node;
    for (uint32_t other = 0; other < p->outputs.len; other++)
        if (other != o && p->outputs.at[other].node == n)
            return false;
    if (out->into == 0 || kin_ir_at(p, n)->op != KIN_IR_SCATTER)
        return false;
    for (; kin_ir_at(p, n)->op == KIN_IR_SCATTER; n = kin_ir_arg(p, n, 0))
        if (!dies_at(p, kin_ir_arg(p, n, 0), n))
            return false;
    return kin_ir_at(p, n)->op == KIN_IR_INPUT && kin_ir_attrs(p, n)[0] + 1 == (int64_t)out->into && is_only_node(p, n);
}

bool
kin_ir_copies_large_input(const kin_ir *p)
{
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        kin_irn n = p->outputs.at[o].node;
        if (p->outputs.at[o].into == 0 || kin_ir_numel(p, n) <= KIN_IR_LARGE_INPUT || updates_in_place(p, o))
            continue;
        while (kin_ir_at(p, n)->op == KIN_IR_RESHAPE || kin_ir_at(p, n)->op == KIN_IR_PERMUTE || kin_ir_at(p, n)->op == KIN_IR_CAST)
            n = kin_ir_arg(p, n, 0);
        if (kin_ir_at(p, n)->op == KIN_IR_CAT || kin_ir_at(p, n)->op == KIN_IR_SCATTER)
            return true;
    }
    return false;
}

/* By node: the output + 1 that it is part of. */
static bool
find_updates(const kin_ir *p, uint32_t *updated)
{
    bool any = false;
    for (uint32_t o = 0; o < p->outputs.len; o++) {
        if (p->outputs.at[o].into == 0 || !updates_in_place(p, o))
            continue;
        any = true;
        for (kin_irn n = p->outputs.at[o].node; kin_ir_at(p, n)->op == KIN_IR_SCATTER; n = kin_ir_arg(p, n, 0))
            updated[n] = o + 1;
    }
    return any;
}

/* What lies at the places that `scatter`, of p, will write to. */
static kin_irn
save(kin_ir *to, const kin_ir *p, kin_irn scatter, const kin_irn *args)
{
    kin_irn source = kin_ir_arg(p, scatter, 1);
    return kin_ir_index(to, args[0], kin_ir_attrs(p, scatter) + 1, args + 2, kin_ir_at(p, scatter)->nargs - 2u, kin_ir_at(p, source)->ndim,
                        kin_ir_sizes(p, source));
}

/* Where its memory is, not just a wish. strides: NULL = row-major. */
static void
lie_as(kin_ir *p, kin_irn n, const int64_t *strides)
{
    int64_t rows[KIN_IR_MAX_DIMS], below = 1;
    for (unsigned d = n ? kin_ir_at(p, n)->ndim : 0; d-- > 0;) {
        rows[d] = below;
        below *= kin_ir_sizes(p, n)[d];
    }
    if (n != 0)
        kin_ir_set_strides(p, n, strides ? strides : rows);
}

/* Notes the write and how it is undone. */
static void
note_write(kin_ir *to, const kin_ir *p, kin_irn scatter, const kin_ir_out *out, kin_irn written, kin_irn saved, const kin_irn *args)
{
    kin_ir_update e = {.write = written, .saved = saved, .into = out->into};
    e.undo = kin_ir_scatter_into(to, KIN_IR_SCATTER_SET, written, saved, kin_ir_attrs(p, scatter) + 1, args + 2, kin_ir_at(p, scatter)->nargs - 2u);
    lie_as(to, written, out->strides != 0 ? p->ints.at + out->strides : NULL);
    lie_as(to, e.undo, out->strides != 0 ? p->ints.at + out->strides : NULL);
    to->failed |= e.undo == 0 || kin_vec_push(&to->updates, e) != KIN_OK;
}

static void
map_args(const kin_ir *p, kin_irn n, const kin_irn *map, kin_irn *args)
{
    for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++)
        args[a] = map[kin_ir_arg(p, n, a)];
}

static void
write_program(kin_ir *to, const kin_ir *p, const uint32_t *updated, kin_irn *map, kin_irn *saved, kin_irn *args)
{
    for (kin_irn n = 1; n < p->nodes.len && !to->failed; n++) {
        map_args(p, n, map, args);
        saved[n] = updated[n] ? save(to, p, n, args) : 0;
        map[n] = kin_ir_copy(to, p, n, args);
    }
    for (kin_irn n = 1; n < p->nodes.len && !to->failed; n++)
        if (updated[n]) {
            map_args(p, n, map, args);
            note_write(to, p, n, &p->outputs.at[updated[n] - 1], map[n], saved[n], args);
        }
    for (uint32_t o = 0; o < p->outputs.len && !to->failed; o++)
        if (updated[p->outputs.at[o].node] != o + 1)
            kin_ir_output_like(to, map[p->outputs.at[o].node], p, o);
}

kin_ir *
kin_ir_update_in_place(const kin_ir *p)
{
    kin_ir *to = kin_ir_new();
    uint32_t *updated = calloc(p->nodes.len, sizeof *updated);
    kin_irn *map = calloc(p->nodes.len, sizeof *map), *saved = calloc(p->nodes.len, sizeof *saved), *args = calloc(p->args.len + 2, sizeof *args);
    bool ok = to && updated && map && saved && args;
    if (ok) {
        find_updates(p, updated);
        write_program(to, p, updated, map, saved, args);
        to->ninputs = p->ninputs;
        to->fast_math = p->fast_math;
        ok = !to->failed;
    }
    free(updated);
    free(map);
    free(saved);
    free(args);
    if (!ok) {
        kin_ir_free(to);
        to = NULL;
    }
    return to;
}
