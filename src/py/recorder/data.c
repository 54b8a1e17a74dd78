/* Numbers that come from tensor data (x.item(), x.tolist(), sizes of x.nonzero()), and what is computed from them.
 *
 * Arithmetic on such numbers can be part of a graph (KIN_FROM_DATA), so the graph goes on if they only flow back into torch calls.
 * It ends at a decision on such a number, and where Python code computed a value from one that a later torch call takes.
 */
#include "py/recorder/rec.h"

rec_data
rec_data_of(rec *r, kin_vid vid)
{
    return vid == 0 ? REC_NO_DATA : r->info.at[vid].data;
}

/* Does the operator compute a number from numbers, so that a graph can do it? */
static bool
fits_graph(rec *r, const kin_step *s, const kin_vid *args)
{
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES | KIN_STEP_EFFECT | KIN_STEP_MUTATES))
        return false;
    if (s->kind == KIN_STEP_SUBSCR)
        return rec_data_of(r, args[0]) == REC_DATA_IN_GRAPH && rec_is_const(r, args[1]);
    bool fits = s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_UNARY || s->kind == KIN_STEP_COMPARE;
    for (uint32_t i = 0; fits && i < s->nargs; i++) {
        PyObject *obj = O(r, args[i]);
        fits = rec_data_of(r, args[i]) != REC_DATA_OUTSIDE && obj != NULL &&
               (PyLong_Check(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj));
    }
    return fits;
}

/* The value goes back into a torch call: the graph ends where Python code made it. */
static void
end_graph_at(rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP ? &r->t->steps.at[val->step] : NULL;
    if (s == NULL || s->flags & KIN_STEP_BREAK || rec_is_of_optimizer(r->top->code))
        return;
    if (s->snap != 0)
        rec_break(r, val->step, r->info.at[vid].data_row);
}

static void
end_graph_for(rec *r, kin_vid vid, int depth)
{
    if (vid == 0 || depth > 4)
        return;
    if (r->info.at[vid].data == REC_DATA_OUTSIDE)
        end_graph_at(r, vid);
    const rec_virtual *f = VIRTUAL(r, vid);
    for (uint32_t i = 0; f != NULL && f->kind != VIRTUAL_FUNCTION && f->known && i < f->n; i++)
        end_graph_for(r, f->items[i], depth + 1);
}

void
rec_make_node(rec *r, uint32_t step)
{
    kin_step *s = &r->t->steps.at[step];
    s->flags |= KIN_STEP_TORCH;
    s->effects = kin_step_effects(s) | KIN_FROM_DATA;
    if (s->out != 0)
        r->info.at[s->out].graph = true;
}

/* Does the number follow from the sizes of tensors, those that data decides among them, and from nothing else of theirs? */
static bool
are_of_sizes(rec *r, const kin_step *s, const kin_vid *args)
{
    bool sizes = true;
    for (uint32_t i = 0; sizes && i < s->nargs; i++)
        sizes = args[i] == 0 || rec_data_of(r, args[i]) == REC_NO_DATA || r->info.at[args[i]].of_sizes;
    return sizes;
}

void
rec_note_data(rec *r, uint32_t step)
{
    kin_step *s = &r->t->steps.at[step];
    kin_vid out = s->out;
    if (s->flags & KIN_STEP_TORCH) {
        uint32_t at = s->args, n = s->nargs; /* the step may move */
        for (uint32_t i = 0; i < n; i++)
            end_graph_for(r, r->t->vids.at[at + i], 0);
        return;
    }
    const kin_vid *args = r->t->vids.at + s->args;
    rec_data data = REC_NO_DATA;
    int row = -1;
    for (uint32_t i = 0; i < s->nargs; i++)
        if (rec_data_of(r, args[i]) > data) {
            data = rec_data_of(r, args[i]);
            row = r->info.at[args[i]].data_row;
        }
    if (data == REC_NO_DATA || s->effects & KIN_MOVES)
        return;
    bool fits = fits_graph(r, s, args);
    bool of_sizes = are_of_sizes(r, s, args);
    if (!fits && of_sizes) /* range(n) and its like: decided on by checks, as with sizes that differ between calls */
        return;
    r->info.at[out].of_sizes = of_sizes && s->flags & KIN_STEP_PURE;
    r->info.at[out].data_row = row;
    r->info.at[out].data = fits ? REC_DATA_IN_GRAPH : REC_DATA_OUTSIDE;
    if (fits && !(s->flags & KIN_STEP_PURE)) /* that one is of sizes, which graphs ask themselves */
        rec_make_node(r, step);
}

void
rec_set_data(rec *r, kin_vid vid, int row)
{
    r->info.at[vid].data_row = row;
    r->info.at[vid].data = REC_DATA_IN_GRAPH;
    rec_make_node(r, r->t->vals.at[vid].step);
}

/* Does the result of the check depend on the value, so that it is a decision on data? (A class follows from dtypes, a length from sizes.) */
static bool
decides(kin_check check, PyObject *ref)
{
    switch (check) {
    case KIN_CHECK_TRUE: case KIN_CHECK_FALSE: case KIN_CHECK_EQ: case KIN_CHECK_WAS_TRUE: case KIN_CHECK_WAS_FALSE:
    case KIN_CHECK_NULL: case KIN_CHECK_NOTNULL:
        return true;
    case KIN_CHECK_IS: case KIN_CHECK_IS_NOT:
        return ref != Py_None;
    default:
        return false;
    }
}

void
rec_note_decision(rec *r, uint32_t step, kin_check check, kin_vid vid, PyObject *ref)
{
    bool decision = rec_data_of(r, vid) != REC_NO_DATA && decides(check, ref) && !(r->t->steps.at[step].flags & KIN_STEP_BREAK);
    bool yes_or_no = check == KIN_CHECK_TRUE || check == KIN_CHECK_FALSE || (check == KIN_CHECK_IS && ref != NULL && PyBool_Check(ref));
    if (decision && r->info.at[vid].of_sizes && (yes_or_no || check == KIN_CHECK_EQ)) { /* the graph asserts it */
        rec_make_node(r, step);
        return;
    }
    if (decision && !r->asserts && !rec_is_of_optimizer(r->top->code)) /* which counts its steps in a tensor */
        rec_break(r, step, r->info.at[vid].data_row);
}

bool
rec_is_list_of_numbers(PyObject *obj)
{
    bool numbers = PyList_CheckExact(obj) && PyList_GET_SIZE(obj) <= 1000;
    for (Py_ssize_t i = 0; numbers && i < PyList_GET_SIZE(obj); i++)
        numbers = PyLong_CheckExact(PyList_GET_ITEM(obj, i)) || PyFloat_CheckExact(PyList_GET_ITEM(obj, i));
    return numbers;
}

/* A list is kept as a copy: the program's own may change. */
void
rec_note_example(rec *r, kin_vid vid, PyObject *obj)
{
    PyObject *kept = PyList_CheckExact(obj) ? PyList_GetSlice(obj, 0, PyList_GET_SIZE(obj)) : Py_NewRef(obj);
    kin_ref ref = kept != NULL ? rec_ref(r, kept) : 0;
    r->t->vals.at[vid].key = ref;
    PyErr_Clear();
    Py_XDECREF(kept);
}
