/* Questions about values that every rule may ask: are two values the same object, will a value differ in the next call, which name does
 * a value hold? */
#include "py/compat/heap.h"
#include "py/recorder/rec.h"

bool
rec_varies(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    const rec_info *i = &r->info.at[vid];
    return (i->varies || i->changes_each_call || i->sized || i->data != REC_NO_DATA) && obj != Py_None && !PyBool_Check(obj); /* a yes or no is worth a side trace */
}

/* A number that differed in every call so far, or was computed from one: a counter. */
bool
rec_changes_each_call(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    bool number = obj != NULL && (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj));
    return number && (r->info.at[vid].changes_each_call || (r->t->vals.at[vid].kind == KIN_VAL_SRC && rec_is_dynamic(r, vid)));
}

bool
rec_in_list(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* -- identity ------------------------------------------------------------------------------------------------------ */

/* Was the value once of a class of the program's, or of another builtin one? Then it never becomes the object of a builtin class: None, a number. */
static bool
is_another_kind(rec *r, kin_vid v, PyObject *obj)
{
    PyTypeObject *was = r->info.at[v].type;
    return r->t->vals.at[v].kind == KIN_VAL_STEP && was != NULL && was != Py_TYPE(obj) && O(r, v) != obj &&
           kin_heap_type_is_static(Py_TYPE(obj));
}

/* Decides `a is b`, making a fact or a check of the outcome. */
bool
rec_decide_is(rec *r, kin_vid a, kin_vid b)
{
    PyObject *x = O(r, a), *y = O(r, b);
    bool same = x == y;
    if (a == b)
        return true;
    if (y == Py_NotImplemented && r->t->vals.at[b].kind == KIN_VAL_SRC && rec_can_const(r, b)) /* a name that leads there */
        b = rec_need_const(r, b);
    if (r->t->vals.at[a].kind == KIN_VAL_CONST) {
        kin_vid t = a;
        a = b;
        b = t;
    }
    if (r->t->vals.at[b].kind == KIN_VAL_CONST) {
        if (r->t->vals.at[a].kind == KIN_VAL_CONST || (VIRTUAL(r, a) && !same))
            return same;
        PyObject *c = O(r, b);
        if (r->info.at[a].type != NULL && !rec_is_entry_value(r, a) && Py_TYPE(c) != r->info.at[a].type && !same)
            return false;
        if (is_another_kind(r, a, c))
            return false;
        if (rec_is_entry_value(r, a))
            rec_fact(r, same ? KIN_FACT_ID : KIN_FACT_NOT_ID, a, c, 0);
        else
            rec_check(r, same ? KIN_CHECK_IS : KIN_CHECK_IS_NOT, a, c, 0);
        return same;
    }
    if ((VIRTUAL(r, a) || VIRTUAL(r, b)) && !same)
        return false;
    if (rec_is_entry_value(r, a) && rec_is_entry_value(r, b)) {
        rec_fact(r, same ? KIN_FACT_SAME : KIN_FACT_NOT_SAME, a, NULL, b);
        for (uint32_t i = r->t->facts.len; i-- > 0;)
            if (r->t->facts.at[i].vid == a && r->t->facts.at[i].num == b &&
                r->t->facts.at[i].kind == (same ? KIN_FACT_SAME : KIN_FACT_NOT_SAME)) {
                r->t->facts.at[i].vid2 = b;
                break;
            }
        return same;
    }
    kin_vid pair[2] = {a, b};
    uint32_t s = rec_step(r, KIN_STEP_CHECK, 0, pair, 2);
    r->t->steps.at[s].imm = same ? KIN_CHECK_SAME : KIN_CHECK_NOT_SAME;
    return same;
}

/* Does a tuple that the recording has made still hold what it was made of? */
static bool
is_as_made(rec *r, kin_vid vid, PyObject *tuple)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    bool same = f != NULL && f->kind == VIRTUAL_TUPLE && f->known && (Py_ssize_t)f->n == PyTuple_GET_SIZE(tuple);
    for (uint32_t i = 0; same && i < f->n; i++)
        same = O(r, f->items[i]) == PyTuple_GET_ITEM(tuple, i);
    return same;
}

/* Another value that is the same object, one that the graph gives if there is one, else the oldest; 0: none. One that is gone by now may have had its address: replay asks. */
static kin_vid
find_same(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    bool tuple = PyTuple_CheckExact(obj), of_step = r->t->vals.at[vid].kind == KIN_VAL_STEP;
    kin_vid oldest = 0;
    for (kin_vid known = r->t->vals.len; known-- > 1;) {
        const kin_val *val = &r->t->vals.at[known];
        if (known == vid || O(r, known) != obj)
            continue;
        if (tuple ? is_as_made(r, known, obj) : val->kind == KIN_VAL_STEP && r->info.at[known].graph)
            return known;
        if (!tuple && of_step && (val->kind == KIN_VAL_STEP || val->kind == KIN_VAL_SRC))
            oldest = known;
    }
    return oldest;
}

/* A tensor of the graph, or a tuple with some, that comes back out of something which is not followed (a deque, an object of the program's own, an iterator) is that
 * value again: a call that gets it has all that it needs in the graph. */
kin_vid
rec_recognise(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (!r->opt->custom || r->region != NULL || obj == NULL || VIRTUAL(r, vid) != NULL || rec_is_const(r, vid) || !(kin_is_tensor(obj) || PyTuple_CheckExact(obj)) || r->info.at[vid].graph)
        return vid;
    kin_vid known = find_same(r, vid);
    return known != 0 && rec_decide_is(r, vid, known) ? known : vid;
}
