/* Epilogues: what is computed element by element from the result of a product or convolution (bias, activation, residual ...), done on each block of the
 * result while it is in the cache.
 *
 * Before values are stored, the element-wise nodes after each such result are followed to where they come together in one
 * (`find`); that one is then stored, and the nodes between are not. When it is placed and everything it reads exists before the
 * product runs, it becomes a statement of the product's group, and its loops are built with a *window*: the inner loop
 * runs over the columns of a block. Otherwise it is an ordinary kernel, and a note says why.
 */
#include "core/fuse/fuse_priv.h"

enum { PANEL = 32 /* columns: blocks begin at multiples of it */, MOST_OPS = 64 };

static bool
has_blocks(const fuse *f, kin_irn call)
{
    const kin_ir_node *node = fuse_node(f, call);
    return node->op == KIN_IR_EXTERN && node->nattrs > 1 && kin_ir_attrs(f->ir, call)[1] & KIN_IR_EXTERN_BLOCKS;
}

/* -- what follows ------------------------------------------------------------------------------------------------- */

static unsigned
uses_of_marked(const fuse *f, kin_irn n)
{
    unsigned count = 0;
    for (unsigned a = 0; a < fuse_node(f, n)->nargs; a++)
        count += f->visited[kin_ir_arg(f->ir, n, a)] == f->visit;
    return count;
}

static bool
is_elementwise(const kin_ir_node *node)
{
    kin_ir_class c = kin_ir_op_class(node->op);
    return c == KIN_IR_CLASS_POINTWISE || c == KIN_IR_CLASS_COMPARE;
}

/* A view of as many elements, or fewer. */
static bool
keeps_elements(unsigned op)
{
    return op == KIN_IR_RESHAPE || op == KIN_IR_SLICE || op == KIN_IR_PERMUTE;
}

/* The last node in which all that is computed from `result` comes together; 0: there is none. */
static kin_irn
find_exit(fuse *f, kin_irn result)
{
    kin_irn best = 0;
    uint32_t open = f->nodes[result].uses, count = 0;
    f->visit++;
    f->visited[result] = f->visit;
    for (kin_irn n = result + 1; n < f->ir->nodes.len && open > 0; n++) {
        const kin_ir_node *node = fuse_node(f, n);
        unsigned marked = f->nodes[n].live ? uses_of_marked(f, n) : 0;
        if (marked == 0)
            continue;
        if ((!is_elementwise(node) && !keeps_elements(node->op)) || ++count > MOST_OPS)
            break;
        f->visited[n] = f->visit;
        open += f->nodes[n].uses - marked;
        if (open == f->nodes[n].uses && is_elementwise(node))
            best = n;
    }
    return best;
}

/* Nodes between are computed where the exit is. */
static void
mark_inside(fuse *f, kin_irn result, kin_irn exit)
{
    f->visit++;
    f->visited[result] = f->visit;
    for (kin_irn n = result + 1; n < exit; n++)
        if (f->nodes[n].live && uses_of_marked(f, n) > 0) {
            f->visited[n] = f->visit;
            f->nodes[n].inside = true;
        }
}

void
fuse_find_epilogues(fuse *f)
{
    for (kin_irn n = 1; n < f->ir->nodes.len; n++) {
        const kin_ir_node *node = fuse_node(f, n);
        if (!f->nodes[n].live || node->op != KIN_IR_RESULT || !has_blocks(f, kin_ir_arg(f->ir, n, 0)))
            continue;
        kin_irn exit = find_exit(f, n);
        if (exit == 0 || f->nodes[exit].into || kin_ir_numel(f->ir, exit) == 0)
            continue;
        mark_inside(f, n, exit);
        f->nodes[exit].inside = false;
        f->nodes[exit].exits = true;
    }
}

/* -- loops with a window ------------------------------------------------------------------------------------------- */

static int64_t
multiple_of(const kin_loops *k, kin_ix e, uint32_t var, bool *plain)
{
    const kin_ix_expr *x = kin_ix_at(&k->ix, e);
    int64_t found = 0;
    for (uint32_t i = 0; i < x->nterms; i++) {
        const kin_ix_atom *a = &k->ix.atoms.at[k->ix.terms.at[x->terms + i].atom];
        if (a->kind != KIN_IX_VAR)
            *plain = false;
        else if (a->of == var)
            found = k->ix.terms.at[x->terms + i].coef;
    }
    return found;
}

static bool
loads_result(const kin_loops *k, const kin_loop_inst *in, const kin_irn_list *of, kin_irn result)
{
    return in->kind == KIN_LI_LOAD && !k->buffers.at[in->buffer].local && of->at[in->buffer] == result;
}

/* Which variables count columns: the same ones in all loads of the result. Its rows are `width` long. */
static const char *
mark_columns(kin_loops *k, const kin_irn_list *of, kin_irn result, int64_t width)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        bool plain = true;
        if (!loads_result(k, &k->insts.at[i], of, result))
            continue;
        for (uint32_t v = 0; v < k->vars.len; v++) {
            int64_t c = multiple_of(k, k->insts.at[i].index, v, &plain);
            if (k->vars.at[v].size > 1 && (c <= 0 || (c > width && c % width != 0)))
                return "the product is not read row by row";
            bool column = c < width;
            if (first != 0 && column != k->vars.at[v].column)
                return "the product is read in two ways";
            k->vars.at[v].column = column;
        }
        first = first == 0 ? i : first;
        if (!plain)
            return "the product is not read row by row";
    }
    return first == 0 ? "it does not read the product" : NULL;
}

/* Do the loops number rows as the product has them, and is the inner one the one over columns? */
static const char *
check_rows(const kin_loops *k, kin_ix e, int64_t rows, int64_t width)
{
    int64_t below = width;
    bool plain = true;
    for (uint32_t v = k->vars.len; v-- > 0;) {
        const kin_loop_var *var = &k->vars.at[v];
        if (var->size == 1)
            continue;
        int64_t c = multiple_of(k, e, v, &plain);
        if (v == k->vector_var ? !var->column || !var->inner || c != 1 : var->column || var->inner || c != below)
            return "another order of loops";
        below *= var->column ? 1 : var->size;
    }
    return below != rows * width ? "not all rows are read" : NULL;
}

/* A load or store that jumps from column to column, or depends on data, is better done apart. */
static bool
has_jumps(const kin_loops *k)
{
    for (uint32_t i = 1; i < k->insts.len + k->actions.len; i++) {
        bool plain = true, store = i >= k->insts.len;
        if (!store && k->insts.at[i].kind != KIN_LI_LOAD)
            continue;
        kin_ix e = store ? k->actions.at[i - k->insts.len].index : k->insts.at[i].index;
        int64_t c = multiple_of(k, e, k->vector_var, &plain);
        if (!plain || (c != 1 && (store || c != 0)))
            return true;
    }
    return false;
}

/* Is the result a convolution's? Its rows are channels, which lie last. */
static bool
has_channels(const fuse *f, kin_irn result)
{
    return fuse_node(f, result)->ndim > 2 && fuse_strides(f, result)[1] == 1;
}

static int64_t
row_length(const fuse *f, kin_irn result)
{
    return fuse_sizes(f, result)[has_channels(f, result) ? 1 : fuse_node(f, result)->ndim - 1];
}

/* Where in a row of the product the loads begin: at multiples of the window's width. */
static const char *
check_parts(const fuse *f, const kin_loops *k, const kin_irn_list *of, kin_irn result, fuse_window *out)
{
    int64_t width = row_length(f, result), rows = kin_ir_numel(f->ir, result) / width;
    out->columns = k->vars.at[k->vector_var].size;
    if (width % out->columns != 0 || (width != out->columns && (out->columns % PANEL != 0 || has_channels(f, result))))
        return "columns that do not divide up";
    out->parts = (uint32_t)(width / out->columns);
    out->in_place = out->parts == 1 && k->actions.len == 1 && k->actions.at[0].dtype == KIN_F32;
    for (uint32_t i = 1; i < k->insts.len; i++) {
        kin_ix e = k->insts.at[i].index;
        if (!loads_result(k, &k->insts.at[i], of, result))
            continue;
        const char *why = check_rows(k, e, rows, width);
        if (why)
            return why;
        if (kin_ix_at(&k->ix, e)->constant % out->columns != 0 || kin_ix_at(&k->ix, e)->constant >= width)
            return "columns that do not divide up";
        out->in_place &= k->actions.at[0].index == e;
    }
    return NULL;
}

static const char *
arrange_window(fuse *f, kin_loops *k, const kin_irn_list *of, kin_irn result, fuse_window *out)
{
    for (uint32_t i = 0; i < k->actions.len; i++)
        if (k->actions.at[i].kind != KIN_LA_STORE || k->actions.at[i].row)
            return "more than elementwise";
    if (k->checks || k->ordered || k->nphases != 1)
        return "more than elementwise";
    const char *why = mark_columns(k, of, result, row_length(f, result));
    if (why)
        return why;
    k->window = true;
    if (!kin_loops_arrange(k))
        return "memory";
    if (k->vector_var == KIN_LOOP_NO_VAR || has_jumps(k))
        return "columns are not neighbours in memory";
    why = check_parts(f, k, of, result, out);
    kin_loops_number(k);
    return why;
}

const char *
fuse_build_epilogue(fuse *f, const group *g, kin_loops *k, kin_irn_list *of, fuse_window *out)
{
    const char *why = fuse_build(f, g->statements.at, g->statements.len, false, k, of);
    return why ? why : arrange_window(f, k, of, g->result, out);
}

/* -- placing ------------------------------------------------------------------------------------------------------- */

/* The result of the call that the statement reads; 0: none, or several. */
static kin_irn
result_of(const fuse *f, kin_irn call, const kin_irn_list *reads)
{
    kin_irn found = 0;
    for (uint32_t i = 0; i < reads->len; i++)
        if (fuse_node(f, reads->at[i])->op == KIN_IR_RESULT && kin_ir_arg(f->ir, reads->at[i], 0) == call)
            found = found == 0 ? reads->at[i] : 0;
    return found;
}

const char *
fuse_try_epilogue(fuse *f, uint32_t g, const statement *s, const kin_irn_list *reads)
{
    group *to = &f->groups.at[g];
    fuse_window window;
    if (s->kind != ST_VALUE || !to->is_extern || !has_blocks(f, to->call))
        return "something else is made between the product and this";
    kin_irn result = result_of(f, to->call, reads);
    if (to->statements.len > 0 || result == 0)
        return "the product has one already";
    if (kin_vec_push(&to->statements, *s) != KIN_OK)
        return "memory";
    to->result = result;
    const char *why = fuse_build_epilogue(f, to, &f->scratch.trial, &f->scratch.trial_of, &window);
    if (why)
        to->statements.len = 0;
    return why;
}
