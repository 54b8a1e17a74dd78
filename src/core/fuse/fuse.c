/* Decides which statements share a kernel. Groups are kept in the order in which they will run; a statement may
 * join any group from the last one that it reads from onwards, so no cycle can arise. Among the groups that fit, the one
 * it reads from comes first, then later ones that read the same memory.
 */
#include "core/fuse/fuse_priv.h"

enum { MOST_TRIES = 6 };

/* -- groups ------------------------------------------------------------------------------------------------------ */

static void
note(fuse *f, const char *what, kin_irn n, const char *why)
{
    if (f->notes == NULL)
        return;
    const kin_ir_node *node = fuse_node(f, n);
    kin_text_addf(f->notes, "%s[", kin_dtype_name((kin_dtype)node->dtype));
    for (unsigned d = 0; d < node->ndim; d++)
        kin_text_addf(f->notes, "%s%lld", d > 0 ? ", " : "", (long long)kin_ir_sizes(f->ir, n)[d]);
    kin_text_addf(f->notes, "] %s: %s: %s\n", kin_ir_op_name(node->op), what, why);
}

static uint32_t
new_group(fuse *f, bool is_extern, kin_irn call)
{
    group g = {.is_extern = is_extern, .closed = is_extern, .call = call};
    if (kin_vec_push(&f->groups, g) != KIN_OK)
        f->failed = true;
    return f->groups.len - 1;
}

/* What a value is computed from: the latest group among those, and the memory itself. */
typedef struct {
    uint32_t latest; /* group + 1, 0 = none */
    kin_irn_list reads;
} sources;

static void
find_sources(fuse *f, kin_irn n, sources *s)
{
    if (f->visited[n] == f->visit)
        return;
    f->visited[n] = f->visit;
    if (fuse_in_memory(f, n)) {
        if (f->nodes[n].group != FUSE_NONE && f->nodes[n].group + 1 > s->latest)
            s->latest = f->nodes[n].group + 1;
        f->failed |= kin_vec_push(&s->reads, n) != KIN_OK;
        return;
    }
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++)
        find_sources(f, kin_ir_arg(f->ir, n, a), s);
}

static void
sources_of(fuse *f, const statement *s, sources *out)
{
    *out = (sources){0};
    f->visit++;
    if (s->kind == ST_VALUE && s->value == s->node) {
        f->visited[s->node] = f->visit;
        for (unsigned a = 0; a < fuse_node(f, s->node)->nargs; a++)
            find_sources(f, kin_ir_arg(f->ir, s->node, a), out);
    } else if (s->kind == ST_UPDATE) {
        find_sources(f, s->node, out); /* after its base */
        for (unsigned a = 1; a < fuse_node(f, s->node)->nargs; a++)
            find_sources(f, kin_ir_arg(f->ir, s->node, a), out);
    } else if (s->kind == ST_REDUCE || s->kind == ST_SCAN) {
        find_sources(f, kin_ir_arg(f->ir, s->node, 0), out);
    } else {
        find_sources(f, s->value, out);
    }
}

static bool
shares(const group *g, const sources *s)
{
    for (uint32_t i = 0; i < s->reads.len; i++)
        for (uint32_t j = 0; j < g->reads.len; j++)
            if (g->reads.at[j] == s->reads.at[i])
                return true;
    return false;
}

static bool
writes(const group *g, const sources *s)
{
    for (uint32_t i = 0; i < s->reads.len; i++)
        for (uint32_t j = 0; j < g->statements.len; j++)
            if (g->statements.at[j].node == s->reads.at[i])
                return true;
    return false;
}

static bool
is_heavy(const kin_loop_inst *in)
{
    return in->kind == KIN_LI_OP && kin_ir_op_is_slow(in->op);
}

/* Does a store of one element for each row need such a function of what the row was reduced to? */
static bool
is_heavy_by_row(const kin_loops *k)
{
    bool *wanted = calloc(k->insts.len + 1, sizeof *wanted), heavy = false;
    for (uint32_t a = 0; wanted && a < k->actions.len; a++)
        wanted[k->actions.at[a].value] |= k->actions.at[a].row && k->actions.at[a].kind == KIN_LA_STORE;
    for (uint32_t i = k->insts.len; wanted && i-- > 1;) {
        const kin_loop_inst *in = &k->insts.at[i];
        heavy |= wanted[i] && is_heavy(in);
        for (int n = 0; n < 3 && wanted[i]; n++)
            wanted[in->args[n]] = true;
    }
    free(wanted);
    return heavy;
}

/* Does it compute functions of each row's result, one by one, and hardly anything else? As a kernel of its own that would be done
 * for many rows at once. Where sizes vary there are taken to be many, so that few rows do not need other kernels. Arranges the loops. */
static bool
is_better_apart(kin_loops *k)
{
    enum { SHORT = 256, ROWS = 32 };
    int64_t ninner = 1, nouter = 1;
    for (uint32_t v = 0; v < k->vars.len; v++)
        *(k->vars.at[v].inner ? &ninner : &nouter) *= k->vars.at[v].size;
    if (!is_heavy_by_row(k) || ninner >= SHORT || (!k->varying && nouter < ROWS) || !kin_loops_arrange(k))
        return false;
    return k->vector_var != KIN_LOOP_NO_VAR && k->vars.at[k->vector_var].inner;
}

/* NULL when s became part of group g. */
static const char *
try_join(fuse *f, uint32_t g, const statement *s)
{
    group *to = &f->groups.at[g];
    kin_loops *k = &f->scratch.trial;
    if (kin_vec_push(&to->statements, *s) != KIN_OK)
        return "memory";
    const char *why = fuse_build(f, to->statements.at, to->statements.len, false, k, &f->scratch.trial_of);
    if (why == NULL && is_better_apart(k))
        why = "faster apart";
    if (why)
        to->statements.len--;
    return why;
}

static void
joined(fuse *f, uint32_t g, const statement *s, const sources *from)
{
    group *to = &f->groups.at[g];
    for (uint32_t i = 0; i < from->reads.len; i++)
        f->failed |= kin_vec_push(&to->reads, from->reads.at[i]) != KIN_OK;
    uint32_t *of = &f->nodes[s->node].group;
    if (*of == FUSE_NONE || *of < g)
        *of = g;
    if (s->kind == ST_SCAN || s->kind == ST_UPDATE)
        to->closed = true;
}

/* On the blocks of the product that it reads, if everything else is there by then. */
static bool
follows_product(fuse *f, const statement *s, const sources *from)
{
    if (!f->nodes[s->node].exits || from->latest == 0)
        return false;
    const char *why = fuse_try_epilogue(f, from->latest - 1, s, &from->reads);
    if (why)
        note(f, "not done with the product", s->node, why);
    else
        joined(f, from->latest - 1, s, from);
    return why == NULL;
}

static const char apart_from_read[] = "not fused with what it reads", apart_from_same[] = "not fused with what reads the same";

/* Kernels that read the same and run before what else it reads is there; and what library calls give it. */
static void
note_out_of_reach(fuse *f, const statement *s, const sources *from, uint32_t first)
{
    if (f->notes == NULL || from->latest == 0)
        return;
    for (uint32_t g = 0; g < first; g++)
        if (!f->groups.at[g].is_extern && shares(&f->groups.at[g], from)) {
            note(f, apart_from_same, s->node, "that kernel runs before something it reads is made");
            break;
        }
    if (f->groups.at[first].is_extern)
        note(f, apart_from_read, s->node, "a library call makes it");
}

/* The group that takes it in, or FUSE_NONE. */
static uint32_t
find_group(fuse *f, const statement *s, const sources *from)
{
    uint32_t first = from->latest ? from->latest - 1 : 0, tries = 0;
    if (s->kind == ST_SCAN || s->kind == ST_UPDATE) {
        if (from->latest)
            note(f, apart_from_read, s->node, "a scan or a scatter has a kernel of its own");
        return FUSE_NONE;
    }
    for (uint32_t i = 0; i < f->groups.len - first && f->groups.len && tries < MOST_TRIES; i++) {
        uint32_t g = i == 0 ? first : f->groups.len - i; /* the one it reads from, then from the end */
        const group *to = &f->groups.at[g];
        bool reads = writes(to, from);
        if (to->closed && !to->is_extern && reads)
            note(f, apart_from_read, s->node, "that kernel ends with a scan or a scatter");
        if (to->closed || g < first || (!reads && !shares(to, from)))
            continue;
        tries++;
        const char *why = try_join(f, g, s);
        if (why == NULL)
            return g;
        note(f, reads ? apart_from_read : apart_from_same, s->node, why);
    }
    if (tries == MOST_TRIES)
        note(f, apart_from_read, s->node, "enough other kernels were tried");
    note_out_of_reach(f, s, from, first);
    return FUSE_NONE;
}

/* A group of its own. Whether there is code for it shows when all are made programs (layout.c). */
static uint32_t
alone(fuse *f, const statement *s)
{
    uint32_t g = new_group(f, false, 0);
    f->failed = f->failed || kin_vec_push(&f->groups.at[g].statements, *s) != KIN_OK;
    return g;
}

static kin_status
place(fuse *f, statement s)
{
    sources from;
    sources_of(f, &s, &from);
    if (follows_product(f, &s, &from)) {
        kin_vec_deinit(&from.reads);
        return f->failed ? KIN_NOMEM : KIN_OK;
    }
    uint32_t g = find_group(f, &s, &from);
    if (g == FUSE_NONE)
        g = alone(f, &s);
    if (!f->failed)
        joined(f, g, &s, &from);
    kin_vec_deinit(&from.reads);
    return f->failed ? KIN_NOMEM : KIN_OK;
}

/* Parts of `cat` into the memory of n, which is it or a reshape of it. */
static kin_status
place_cat(fuse *f, kin_irn n, kin_irn cat)
{
    unsigned dim = (unsigned)kin_ir_attrs(f->ir, cat)[0];
    int64_t offset = 0;
    for (unsigned a = 0; a < fuse_node(f, cat)->nargs; a++) {
        kin_irn part = kin_ir_arg(f->ir, cat, a);
        statement s = {.kind = ST_PART, .node = n, .cat = cat, .value = part, .dim = dim, .offset = offset};
        offset += fuse_sizes(f, part)[dim];
        if (kin_ir_numel(f->ir, part))
            KIN_TRY(place(f, s));
    }
    return KIN_OK;
}

static kin_status
place_scatter(fuse *f, kin_irn n)
{
    statement base = {.kind = ST_BASE, .node = n, .value = kin_ir_arg(f->ir, n, 0)};
    statement update = {.kind = ST_UPDATE, .node = n, .value = n};
    if (!f->nodes[n].in_place)
        KIN_TRY(place(f, base));
    if (kin_ir_numel(f->ir, kin_ir_arg(f->ir, n, 1)) == 0)
        return KIN_OK;
    return place(f, update);
}

/* Reductions and scans over dimensions of one element: their argument, then. */
static bool
keeps_all(const fuse *f, kin_irn n)
{
    const kin_ir_node *node = fuse_node(f, n);
    for (unsigned i = 0; i < node->nattrs; i++)
        if (fuse_sizes(f, kin_ir_arg(f->ir, n, 0))[kin_ir_attrs(f->ir, n)[i]] != 1)
            return false;
    return node->op != KIN_IR_ARGMAX && node->op != KIN_IR_ARGMIN;
}

/* Do the two parts of a CAT take turns in memory: 0, 1, 0, 1? */
static bool
takes_turns(const fuse *f, kin_irn cat)
{
    unsigned dim = (unsigned)kin_ir_attrs(f->ir, cat)[0];
    for (unsigned a = 0; a < fuse_node(f, cat)->nargs; a++)
        if (fuse_sizes(f, kin_ir_arg(f->ir, cat, a))[dim] != 1)
            return false;
    return fuse_node(f, cat)->nargs == 2 && dim + 1u == fuse_node(f, cat)->ndim;
}

/* The CAT that n puts into other sizes, where it is better made part by part: element by element, each would have to find out which part it is
 * of, or all parts would be computed for each. 0: there is none. */
static kin_irn
behind_reshape(const fuse *f, kin_irn n)
{
    kin_irn cat = fuse_node(f, n)->op == KIN_IR_RESHAPE ? kin_ir_arg(f->ir, n, 0) : 0;
    if (cat == 0 || fuse_node(f, cat)->op != KIN_IR_CAT || fuse_in_memory(f, cat))
        return 0;
    return takes_turns(f, cat) || fuse_is_better_by_parts(f, cat) ? cat : 0;
}

static kin_status
place_node(fuse *f, kin_irn n)
{
    kin_ir_class c = kin_ir_op_class(fuse_node(f, n)->op);
    statement s = {.kind = c == KIN_IR_CLASS_REDUCE ? ST_REDUCE : c == KIN_IR_CLASS_SCAN ? ST_SCAN : ST_VALUE, .node = n, .value = n};
    if (kin_ir_numel(f->ir, n) == 0)
        return KIN_OK;
    if (c == KIN_IR_CLASS_REDUCE && kin_ir_numel(f->ir, kin_ir_arg(f->ir, n, 0)) == 0) {
        note(f, "no code", n, "reduces nothing");
        return KIN_BREAK;
    }
    if (s.kind != ST_VALUE && keeps_all(f, n))
        s = (statement){.kind = ST_VALUE, .node = n, .value = kin_ir_arg(f->ir, n, 0)};
    if (fuse_node(f, n)->op == KIN_IR_CAT && fuse_node(f, n)->nargs > 1)
        return place_cat(f, n, n);
    if (behind_reshape(f, n) != 0)
        return place_cat(f, n, behind_reshape(f, n));
    return c == KIN_IR_CLASS_SCATTER ? place_scatter(f, n) : place(f, s);
}

static kin_status
place_extern(fuse *f, kin_irn n)
{
    uint32_t g = new_group(f, true, n);
    f->nodes[n].group = g;
    return f->failed ? KIN_NOMEM : KIN_OK;
}

static kin_status
place_all(fuse *f)
{
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        unsigned op = fuse_node(f, n)->op;
        if (!f->nodes[n].live || (f->nodes[n].into && !f->nodes[n].in_place))
            continue;
        if (op == KIN_IR_EXTERN)
            KIN_TRY(place_extern(f, n));
        else if (op == KIN_IR_RESULT)
            f->nodes[n].group = f->nodes[kin_ir_arg(f->ir, n, 0)].group;
        else if (f->nodes[n].stored && op != KIN_IR_INPUT)
            KIN_TRY(place_node(f, n));
    }
    return KIN_OK;
}

/* -- writing into inputs: last, when nothing can go wrong any more. Whoever reads such an input comes before it is written, or
 * is in the same kernel and reads where that writes; what goes in a circle is made before the first of them. ------------ */

typedef struct {
    kin_irn node;
    KIN_VEC(uint32_t) reads; /* others whose inputs it reads, not its own */
    uint32_t readers;        /* that are not placed */
    bool placed;
} write_back;

typedef KIN_VEC(write_back) write_backs;

static statement
write_back_of(kin_irn n)
{
    return (statement){.kind = ST_VALUE, .node = n, .value = n};
}

/* The write-back into the input that n is, or FUSE_NONE. */
static uint32_t
writer_of(const fuse *f, const write_backs *all, kin_irn n)
{
    for (uint32_t c = 0; fuse_node(f, n)->op == KIN_IR_INPUT && c < all->len; c++)
        if (f->nodes[all->at[c].node].into == (uint32_t)kin_ir_attrs(f->ir, n)[0] + 1)
            return c;
    return FUSE_NONE;
}

/* Are the inputs that the kernel writes to read where it writes? */
static bool
reads_where_it_writes(const fuse *f, const kin_loops *k, const kin_irn_list *of)
{
    for (uint32_t i = 1; i < k->insts.len; i++) {
        const kin_loop_inst *in = &k->insts.at[i];
        if (in->kind != KIN_LI_LOAD || fuse_node(f, of->at[in->buffer])->op != KIN_IR_INPUT)
            continue;
        for (uint32_t a = 0; a < k->actions.len; a++)
            if (f->nodes[of->at[k->actions.at[a].buffer]].into == (uint32_t)kin_ir_attrs(f->ir, of->at[in->buffer])[0] + 1 &&
                k->actions.at[a].index != in->index)
                return false;
    }
    return true;
}

static bool
may_compute_in_place(fuse *f, const statement *s, uint32_t n)
{
    const kin_loops *k = &f->scratch.trial;
    bool ok = fuse_build(f, s, n, false, &f->scratch.trial, &f->scratch.trial_of) == NULL && !k->checks && k->actions.len == n;
    for (uint32_t a = 0; ok && a < k->actions.len; a++)
        ok = k->actions.at[a].kind == KIN_LA_STORE;
    return ok && reads_where_it_writes(f, k, &f->scratch.trial_of);
}

static void
find_reads(fuse *f, write_backs *all, uint32_t c)
{
    statement s = write_back_of(all->at[c].node);
    sources from;
    sources_of(f, &s, &from);
    for (uint32_t i = 0; i < from.reads.len; i++) {
        uint32_t other = writer_of(f, all, from.reads.at[i]);
        if (other == FUSE_NONE || other == c)
            continue;
        f->failed |= kin_vec_push(&all->at[c].reads, other) != KIN_OK;
        all->at[other].readers++;
    }
    kin_vec_deinit(&from.reads);
}

/* Its new contents are made now: it only copies them. */
static kin_status
make_before(fuse *f, write_backs *all, uint32_t c)
{
    kin_irn copy = kin_ir_arg(f->ir, all->at[c].node, 0);
    note(f, "not computed where it is written", all->at[c].node, all->at[c].reads.len ? "another input that is written to needs it as it was"
                                                                                     : "it reads it at other places");
    for (uint32_t i = 0; i < all->at[c].reads.len; i++)
        all->at[all->at[c].reads.at[i]].readers--;
    all->at[c].reads.len = 0;
    fuse_store(f, copy);
    return place_node(f, copy);
}

/* Puts them into `order`; circles are cut. */
static kin_status
order_write_backs(fuse *f, write_backs *all, uint32_t *order)
{
    for (uint32_t n = 0; n < all->len;) {
        uint32_t next = FUSE_NONE, cut = FUSE_NONE;
        if (n > 0) /* those that only the last one still read go well with it */
            for (uint32_t i = 0; i < all->at[order[n - 1]].reads.len && next == FUSE_NONE; i++)
                if (all->at[all->at[order[n - 1]].reads.at[i]].readers == 0 && !all->at[all->at[order[n - 1]].reads.at[i]].placed)
                    next = all->at[order[n - 1]].reads.at[i];
        for (uint32_t c = 0; c < all->len && next == FUSE_NONE; c++) {
            if (all->at[c].placed)
                continue;
            next = all->at[c].readers == 0 ? c : FUSE_NONE;
            cut = cut == FUSE_NONE && all->at[c].reads.len > 0 ? c : cut;
        }
        if (next == FUSE_NONE) {
            KIN_TRY(make_before(f, all, cut));
            continue;
        }
        all->at[next].placed = true;
        for (uint32_t i = 0; i < all->at[next].reads.len; i++)
            all->at[all->at[next].reads.at[i]].readers--;
        order[n++] = next;
    }
    return f->failed ? KIN_NOMEM : KIN_OK;
}

/* Into the last group, if it reads the same things and all may be done in one go. */
static bool
joins_last_write_back(fuse *f, const statement *s, const sources *from)
{
    group *last = f->groups.len ? &f->groups.at[f->groups.len - 1] : NULL;
    if (last == NULL || !last->write_back || !shares(last, from) || kin_vec_push(&last->statements, *s) != KIN_OK)
        return false;
    if (may_compute_in_place(f, last->statements.at, last->statements.len))
        return true;
    note(f, "not written with the input before it", s->node, "both cannot be computed in one go, in place");
    last->statements.len--;
    return false;
}

static kin_status
place_write_back(fuse *f, kin_irn n)
{
    statement s = write_back_of(n);
    sources from;
    sources_of(f, &s, &from);
    uint32_t g = joins_last_write_back(f, &s, &from) ? f->groups.len - 1 : alone(f, &s);
    if (!f->failed) {
        joined(f, g, &s, &from);
        f->groups.at[g].write_back = f->groups.at[g].closed = true;
    }
    kin_vec_deinit(&from.reads);
    return f->failed ? KIN_NOMEM : KIN_OK;
}

static kin_status
find_write_backs(fuse *f, write_backs *all)
{
    for (uint32_t o = 0; o < f->ir->outputs.len; o++) {
        write_back c = {.node = f->ir->outputs.at[o].node};
        if (f->ir->outputs.at[o].into && kin_ir_numel(f->ir, c.node))
            KIN_TRY(kin_vec_push(all, c));
    }
    for (uint32_t c = 0; c < all->len; c++) {
        statement s = write_back_of(all->at[c].node);
        if (may_compute_in_place(f, &s, 1))
            find_reads(f, all, c);
        else
            KIN_TRY(make_before(f, all, c));
    }
    return f->failed ? KIN_NOMEM : KIN_OK;
}

static kin_status
place_write_backs(fuse *f)
{
    write_backs all = {0};
    kin_status status = find_write_backs(f, &all);
    uint32_t *order = status == KIN_OK ? malloc((all.len + 1) * sizeof *order) : NULL;
    if (order)
        status = order_write_backs(f, &all, order);
    else if (status == KIN_OK)
        status = KIN_NOMEM;
    for (uint32_t i = 0; status == KIN_OK && i < all.len; i++)
        status = place_write_back(f, all.at[order[i]].node);
    for (uint32_t c = 0; c < all.len; c++)
        kin_vec_deinit(&all.at[c].reads);
    kin_vec_deinit(&all);
    free(order);
    return status;
}

/* Kernels that run when the program fails. */
static kin_status
place_undos(fuse *f)
{
    for (uint32_t e = 0; e < f->ir->updates.len; e++) {
        kin_irn n = f->ir->updates.at[e].undo;
        uint32_t before = f->groups.len;
        statement s = {.kind = ST_UPDATE, .node = n, .value = n};
        if (kin_ir_numel(f->ir, f->ir->updates.at[e].saved))
            KIN_TRY(place(f, s));
        for (uint32_t g = before; g < f->groups.len; g++)
            f->groups.at[g].undo = e + 1;
    }
    return KIN_OK;
}

/* Read by another group than the one that makes it: it needs memory. */
static void
find_needed(fuse *f)
{
    for (uint32_t g = 0; g < f->groups.len; g++) {
        const group *x = &f->groups.at[g];
        for (uint32_t i = 0; i < x->reads.len; i++)
            if (f->nodes[x->reads.at[i]].group != g)
                f->nodes[x->reads.at[i]].needed = true;
    }
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        kin_ir_class c = kin_ir_op_class(fuse_node(f, n)->op);
        if (f->nodes[n].stored && (c == KIN_IR_CLASS_SCAN || c == KIN_IR_CLASS_SCATTER || fuse_node(f, n)->op == KIN_IR_CAT || behind_reshape(f, n) != 0))
            f->nodes[n].needed = true;
    }
}

/* -- all of it ---------------------------------------------------------------------------------------------------- */

static kin_status
run(fuse *f, kin_fused *out)
{
    fuse_choose_stored(f);
    if (f->failed)
        return KIN_NOMEM;
    KIN_TRY(place_all(f));
    KIN_TRY(place_write_backs(f));
    KIN_TRY(place_undos(f));
    find_needed(f);
    return fuse_program(f, out);
}

static bool
make_room(fuse *f)
{
    const kin_ir *ir = f->ir;
    f->nodes = calloc(ir->nodes.len, sizeof *f->nodes);
    f->visited = calloc(ir->nodes.len, sizeof *f->visited);
    if (f->nodes == NULL || f->visited == NULL || kin_vec_push(&f->ints, (int64_t)0) != KIN_OK)
        return false;
    for (kin_irn n = 0; n < ir->nodes.len; n++)
        f->nodes[n].group = f->nodes[n].buffer = f->nodes[n].output = FUSE_NONE;
    for (kin_irn n = 1; n < ir->nodes.len; n++)
        if (ir->nodes.at[n].op == KIN_IR_INPUT || ir->nodes.at[n].op == KIN_IR_RESULT)
            fuse_lay_out(f, n, ir->nodes.at[n].strides ? ir->ints.at + ir->nodes.at[n].strides : NULL);
    return !f->failed;
}

/* What the kernels' reading depended on belongs to the program. */
static kin_status
hand_on_questions(kin_fused *out)
{
    for (uint32_t i = 0; i < out->kernels.len; i++) {
        const kin_ix_space *s = &out->kernels.at[i].loops.ix;
        for (uint32_t q = 0; q < s->asked.len; q++)
            KIN_TRY(kin_vec_push(&out->program->asked, s->asked.at[q].is));
    }
    return KIN_OK;
}

kin_status
kin_fuse(const kin_ir *ir, bool varying, kin_fused *out, kin_text *notes)
{
    fuse f = {.ir = ir, .varying = varying, .notes = notes};
    fuse_scratch_init(&f.scratch);
    *out = (kin_fused){0};
    kin_status s = make_room(&f) ? run(&f, out) : KIN_NOMEM;
    if (s == KIN_OK)
        s = hand_on_questions(out);
    for (uint32_t g = 0; g < f.groups.len; g++) {
        kin_vec_deinit(&f.groups.at[g].statements);
        kin_vec_deinit(&f.groups.at[g].reads);
    }
    kin_vec_deinit(&f.groups);
    kin_vec_deinit(&f.ints);
    fuse_scratch_deinit(&f.scratch);
    free(f.nodes);
    free(f.visited);
    if (s != KIN_OK) {
        kin_fused_deinit(out);
        kin_program_free(out->program);
        out->program = NULL;
    }
    return s;
}

void
kin_fused_deinit(kin_fused *f)
{
    for (uint32_t i = 0; i < f->kernels.len; i++)
        kin_loops_deinit(&f->kernels.at[i].loops);
    kin_vec_deinit(&f->kernels);
}
