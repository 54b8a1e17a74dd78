/* map, filter, zip, islice ... objects over what the recording knows: how they are made, and those with a function over known items that a consumer
 * exhausts at once (consume.c). An object that is also held elsewhere is then consumed as a whole (USE_UP). All others are asked item by item (ask.c).
 */
#include "core/diag/breaks.h"
#include "py/compat/frame.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/replay/iterator_state.h"
#include "py/torchcalls/torchcalls.h"

/* Rows of inputs for each call: item i of every iterable. */
static kin_vid *
zip_inputs(rec *r, const kin_vid *iterables, uint32_t width, uint32_t *n)
{
    kin_vid *lists[4] = {0}, *inputs = NULL;
    uint32_t count, shortest = UINT32_MAX;
    bool ok = width > 0 && width <= 4;
    for (uint32_t k = 0; ok && k < width; k++) {
        ok = rec_known_elements(r, iterables[k], &lists[k], &count);
        shortest = ok && count < shortest ? count : shortest;
    }
    if (ok && (inputs = malloc((shortest * width + 1) * sizeof *inputs)) != NULL)
        for (uint32_t i = 0; i < shortest * width; i++)
            inputs[i] = lists[i % width][i / width];
    for (uint32_t k = 0; k < 4; k++)
        free(lists[k]);
    *n = shortest * width;
    return inputs;
}

static bool
is_of_kind(rec *r, kin_vid lazy, kin_iterator_kind kind)
{
    PyTypeObject *tp = r->info.at[lazy].type;
    return tp != NULL && tp == kin_iterator_class(kind);
}

/* What accumulate() starts from, then what it adds. */
static kin_vid *
accumulate_inputs(rec *r, const rec_virtual *f, uint32_t *n)
{
    kin_vid *items = NULL, start = f->n > 3 ? f->items[3] : 0, *inputs = NULL;
    uint32_t count, more = start != 0;
    if (rec_known_elements(r, f->items[LAZY_SOURCES], &items, &count) && count + more > 0 && (inputs = malloc((count + 1) * sizeof *inputs)) != NULL) {
        inputs[0] = start;
        memcpy(inputs + more, items, count * sizeof *items);
    }
    *n = inputs != NULL ? count + more : 0;
    free(items);
    return inputs;
}

/* The items of known tuples or lists of one length each, in a row; malloc'ed. */
static kin_vid *
starmap_inputs(rec *r, kin_vid iterable, uint32_t *n, uint32_t *width)
{
    kin_vid *rows = NULL, *row = NULL, *inputs = NULL;
    uint32_t count, length;
    bool ok = rec_known_elements(r, iterable, &rows, &count);
    *n = *width = 0;
    for (uint32_t i = 0; ok && i < count; i++) {
        rec_virtual *f = VIRTUAL(r, rows[i]);
        ok = (f == NULL ? O(r, rows[i]) != NULL && PyTuple_CheckExact(O(r, rows[i])) : f->kind == VIRTUAL_TUPLE) &&
             rec_items_of(r, rows[i], &row, &length) && length > 0 && length <= CONSUMER_ARGS && (i == 0 || length == *width);
        *width = ok ? length : 0;
        kin_vid *more = ok ? realloc(inputs, (*n + length) * sizeof *inputs) : NULL;
        if ((ok = more != NULL)) {
            inputs = more;
            memcpy(inputs + *n, row, length * sizeof *row);
            *n += length;
        }
        free(row);
        row = NULL;
    }
    free(rows);
    if (!ok) {
        free(inputs);
        inputs = NULL;
    }
    return inputs; /* NULL without rows, too */
}

/* What the callback of a map, filter or starmap object is called with. */
static kin_vid *
lazy_inputs(rec *r, kin_vid lazy, uint32_t *n, uint32_t *width)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    if (is_of_kind(r, lazy, KIN_ITERATOR_STARMAP))
        return starmap_inputs(r, f->items[LAZY_SOURCES], n, width);
    if (is_of_kind(r, lazy, KIN_ITERATOR_ACCUMULATE)) {
        *width = 1;
        return accumulate_inputs(r, f, n);
    }
    *width = f->n - LAZY_SOURCES;
    return zip_inputs(r, f->items + LAZY_SOURCES, *width, n);
}

/* A C function, or the None of a filter. */
static bool
applies(rec *r, PyObject *cls, kin_vid callback)
{
    return rec_can_apply(r, callback) || (cls == (PyObject *)&PyFilter_Type && O(r, callback) == Py_None && rec_need_const(r, callback) != 0);
}

/* The iterator of a dict's view keeps the dict alone: the view would be gone when its items are asked for. The recording holds it. */
static void
hold_view(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (obj == NULL || r->info.at[vid].held || !(PyDictItems_Check(obj) || PyDictKeys_Check(obj) || PyDictValues_Check(obj)))
        return;
    Py_INCREF(obj);
    r->info.at[vid].held = true;
}

/* -- making one --------------------------------------------------------------------------------------------------------- */

/* Bits of `makes` in iterators.def. */
enum { FIRST = 1, ALWAYS = 2, LATE = 4 };

typedef struct {
    kin_vid callback; /* 0: none */
    kin_vid more[3];  /* what goes behind the sources */
    uint32_t nmore;
} lazy_operands;

typedef struct {
    unsigned makes;
    bool all; /* are all operands behind the function sources, or one? */
    uint32_t least, most;
    bool (*reads)(rec *r, const rec_args *a, lazy_operands *out); /* false: not followed */
} lazy_row;

/* Must it be asked for each of its items? Of a container, or an iterator that only the new object will have, the items are known now. */
static bool
has_to_be_asked(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL)
        return false;
    if (f->kind == VIRTUAL_ITER)
        return f->endless != ENDS || (!f->given && O(r, vid) != NULL && kin_reference_count(O(r, vid)) != 1);
    return f->kind == VIRTUAL_GENERATOR || f->kind == VIRTUAL_LAZY;
}

bool
rec_is_asked(rec *r, kin_vid vid)
{
    return VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind == VIRTUAL_LAZY && has_to_be_asked(r, vid);
}

/* The class's iter() of a container: an iterator that only the new object has. */
static kin_vid
hidden_iterator(rec *r, kin_vid arg)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool ok = O(r, arg) == NULL ? rec_items_of(r, arg, &items, &n) : rec_iterated(r, &arg, &items, &n);
    if (!ok)
        return 0;
    kin_vid it = rec_step_out(r, KIN_STEP_ITER, KIN_STEP_PURE, &arg, 1);
    rec_virtual *f = rec_make_virtual(r, it, VIRTUAL_ITER, items, n, true);
    free(items);
    if (f != NULL) {
        f->of = VIRTUAL(r, arg) && VIRTUAL(r, arg)->kind == VIRTUAL_VIEW ? VIRTUAL(r, arg)->items[0] : arg;
        f->given = true;
        if (kin_vec_push(&r->iters, it) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    return it;
}

/* What goes into the new object for an operand that it iterates over. 0: not known. */
static kin_vid
source_of(rec *r, unsigned makes, kin_vid arg)
{
    const rec_virtual *f = VIRTUAL(r, arg);
    PyObject *obj = O(r, arg);
    if (f != NULL && f->kind == VIRTUAL_GENERATOR)
        return rec_usable_generator(r, arg) != NULL ? arg : 0;
    if (f != NULL && (f->kind == VIRTUAL_ITER || f->kind == VIRTUAL_LAZY))
        return f->known && !f->escaped ? arg : 0;
    if (rec_is_step_tuple(r, arg)) /* its items are asked for when they are wanted */
        return makes & ALWAYS ? arg : 0;
    if (rec_is_own_iterator(r, arg)) {
        if (f == NULL && r->region == NULL)
            rec_root(r, arg);
        bool same = rec_python_method(r, arg, REC_STR("__iter__")) != 0 && rec_python_method(r, arg, REC_STR("__next__")) != 0;
        r->skip_expected = true; /* its __iter__ */
        return same ? arg : 0;
    }
    if (rec_is_indexed(r, arg))
        return rec_index_iterator(r, arg);
    kin_vid hidden = rec_hidden_generator(r, arg);
    if (hidden != 0)
        return hidden;
    if (obj == NULL || (makes & LATE && !PyList_CheckExact(obj) && !PyTuple_CheckExact(obj)) || (!(makes & ALWAYS) && kin_is_tensor(obj)))
        return 0;
    hold_view(r, arg);
    return hidden_iterator(r, arg);
}

kin_vid
rec_source(rec *r, kin_vid vid)
{
    return source_of(r, 0, vid);
}

/* -- its operands besides the sources --------------------------------------------------------------------------------------- */

static bool
is_callback(rec *r, const rec_args *a, kin_vid vid)
{
    kin_vid func, self;
    return rec_find_callback(r, vid, &func, &self) || applies(r, O(r, a->callee), vid);
}

/* An operand that may be None, which says the same as leaving it out: it is 0 then. */
static bool
read_optional(rec *r, kin_vid *vid)
{
    if (*vid == 0 || O(r, *vid) != Py_None)
        return true;
    bool none = rec_need_const(r, *vid) != 0;
    *vid = 0;
    return none;
}

static bool
reads_nothing(rec *r, const rec_args *a, lazy_operands *out)
{
    return a->nkw == 0;
}

/* strict=False is what zip does without. */
static bool
reads_strict(rec *r, const rec_args *a, lazy_operands *out)
{
    return a->nkw == 0 || (a->nkw == 1 && rec_is_keyword(a, 0, "strict") && O(r, a->args[a->npos]) == Py_False && rec_need_const(r, a->args[a->npos]) != 0);
}

static bool
reads_function(rec *r, const rec_args *a, lazy_operands *out)
{
    out->callback = a->args[0];
    return a->nkw == 0 && is_callback(r, a, out->callback);
}

static bool
reads_fill(rec *r, const rec_args *a, lazy_operands *out)
{
    out->more[0] = a->nkw == 1 ? a->args[a->npos] : rec_const(r, Py_None);
    out->nmore = 1;
    return a->nkw == 0 || (a->nkw == 1 && rec_is_keyword(a, 0, "fillvalue"));
}

/* Is it a constant that is a small number, or None? */
static bool
is_count(rec *r, kin_vid *vid, bool none)
{
    PyObject *obj = O(r, *vid);
    if ((obj != Py_None && !PyLong_CheckExact(obj)) || (*vid = rec_need_const(r, *vid)) == 0)
        return false;
    long number = obj == Py_None ? 0 : PyLong_AsLong(obj);
    PyErr_Clear();
    return number >= 0 && number <= 1000000 && (none || obj != Py_None);
}

static bool
reads_start(rec *r, const rec_args *a, lazy_operands *out)
{
    if (a->nkw > 1 || (a->nkw == 1 && (a->npos != 1 || !rec_is_keyword(a, 0, "start"))))
        return false;
    kin_vid start = a->npos + a->nkw == 2 ? a->args[1] : 0;
    return start == 0 || is_count(r, &start, false);
}

/* islice's start, end and step. */
static bool
reads_numbers(rec *r, const rec_args *a, lazy_operands *out)
{
    kin_vid none = rec_const(r, Py_None), given[3] = {none, none, none};
    uint32_t count = a->npos - 1;
    if (a->nkw != 0)
        return false;
    memcpy(given, a->args + 1, count * sizeof *given);
    for (uint32_t i = 0; i < count; i++)
        if (!is_count(r, &given[i], true))
            return false;
    PyObject *one = PyLong_FromLong(1), *zero = PyLong_FromLong(0);
    kin_vid start = count > 1 ? given[0] : none, step = given[2];
    out->nmore = 3;
    out->more[0] = O(r, start) == Py_None ? rec_const(r, zero) : start;
    out->more[1] = given[count > 1];
    out->more[2] = O(r, step) == Py_None ? rec_const(r, one) : step;
    bool ok = PyObject_IsTrue(O(r, out->more[2])) == 1;
    Py_XDECREF(one);
    Py_XDECREF(zero);
    return ok;
}

/* The function and the start of accumulate(). */
static bool
reads_total(rec *r, const rec_args *a, lazy_operands *out)
{
    static PyObject *add;
    kin_vid func = a->npos == 2 ? a->args[1] : 0, start = 0;
    for (uint32_t i = 0; i < a->nkw; i++) {
        if (rec_is_keyword(a, i, "initial"))
            start = a->args[a->npos + i];
        else if (rec_is_keyword(a, i, "func") && a->npos == 1)
            func = a->args[a->npos + i];
        else
            return false;
    }
    if (!read_optional(r, &func) || !read_optional(r, &start))
        return false;
    if (func == 0 && kin_import_once(&add, "_operator", "add") != NULL)
        func = rec_const(r, add);
    out->callback = func;
    out->more[0] = start;
    out->nmore = start != 0;
    return func != 0 && (start == 0 || O(r, start) != NULL) && is_callback(r, a, func);
}

/* The key function of groupby(). */
static bool
reads_key(rec *r, const rec_args *a, lazy_operands *out)
{
    out->callback = a->npos == 2 ? a->args[1] : a->nkw == 1 ? a->args[a->npos] : 0;
    if (a->npos + a->nkw > 2 || (a->nkw == 1 && !rec_is_keyword(a, 0, "key")) || !read_optional(r, &out->callback))
        return false;
    return out->callback == 0 || is_callback(r, a, out->callback);
}

#define ALL true
#define ONE false
static const lazy_row rows[] = {
#define ITERATOR(KIND, module, name, makes, sources, least, most, reads, gives, state, example) {makes, sources, least, most, reads_##reads},
#include "py/replay/iterators.def"
#undef ITERATOR
};

/* -- the call --------------------------------------------------------------------------------------------------------------- */

static PyTypeObject *
class_made(kin_iterator_kind kind)
{
    return kin_iterator_class(kind == KIN_ITERATOR_FLAT ? KIN_ITERATOR_CHAIN : kind);
}

/* What the call makes; KIN_ITERATOR__COUNT: nothing of ours. chain.from_iterable is called with the class as its first operand. */
static kin_iterator_kind
kind_of_call(rec *r, const rec_args *a)
{
    PyObject *callee = O(r, a->callee);
    kin_iterator_kind kind = KIN_ITERATOR__COUNT;
    if (callee != NULL && PyType_Check(callee)) {
        kind = kin_iterator_kind_of((PyTypeObject *)callee);
    } else if (callee != NULL && Py_TYPE(callee) == &PyClassMethodDescr_Type) {
        PyTypeObject *cls = PyDescr_TYPE(callee);
        bool flat = cls == kin_iterator_class(KIN_ITERATOR_CHAIN) && O(r, a->args[0]) == (PyObject *)cls && rec_is_const(r, a->args[0]);
        if (flat && strcmp(kin_utf8(PyDescr_NAME(callee)), "from_iterable") == 0)
            kind = KIN_ITERATOR_FLAT;
    }
    return kind != KIN_ITERATOR__COUNT && kin_iterator_can_set(class_made(kind)) ? kind : KIN_ITERATOR__COUNT;
}

bool
rec_takes_iterators(rec *r, const rec_args *a, uint32_t *first, uint32_t *end)
{
    kin_iterator_kind kind = a->npos > 0 && a->npos + a->nkw <= MOST_SOURCES ? kind_of_call(r, a) : KIN_ITERATOR__COUNT;
    if (kind == KIN_ITERATOR__COUNT || rows[kind].makes & LATE || a->npos < rows[kind].least || a->npos > rows[kind].most)
        return false;
    *first = (rows[kind].makes & FIRST) != 0;
    *end = rows[kind].all ? a->npos : *first + 1;
    return true;
}

/* map(f, xs), zip(xs, ys) ...: an iterator that has not begun. */
bool
rec_make_lazy(rec *r, const rec_args *a)
{
    kin_iterator_kind kind = a->npos > 0 && a->npos + a->nkw <= MOST_SOURCES ? kind_of_call(r, a) : KIN_ITERATOR__COUNT;
    const lazy_row *row = &rows[kind];
    if (kind == KIN_ITERATOR__COUNT || a->npos < row->least || a->npos > row->most)
        return false;
    kin_vid step[MOST_SOURCES + 1], items[LAZY_SOURCES + MOST_SOURCES + 3] = {0};
    uint32_t start = r->t->steps.len, n = LAZY_SOURCES, first = (row->makes & FIRST) != 0, last = row->all ? a->npos : first + 1;
    bool asked = row->makes & ALWAYS;
    for (uint32_t i = first; i < last; i++)
        asked = asked || has_to_be_asked(r, a->args[i]) || rec_has_hidden_generator(r, a->args[i]) || rec_is_own_iterator(r, a->args[i]) || rec_is_indexed(r, a->args[i]);
    lazy_operands others = {0};
    if (!asked || !row->reads(r, a, &others))
        return false;
    items[LAZY_CLASS] = kind == KIN_ITERATOR_FLAT ? 0 : a->callee;
    items[LAZY_CALLBACK] = others.callback;
    step[0] = a->callee;
    memcpy(step + 1, a->args, (a->npos + a->nkw) * sizeof *step);
    for (uint32_t i = first; i < last; i++) {
        kin_vid source = source_of(r, row->makes, a->args[i]);
        /* the object that an exit makes asks a source that has ended once more; one that asks others itself could show that */
        bool asks_again = source != 0 && kind == KIN_ITERATOR_LONGEST && VIRTUAL(r, source) != NULL && VIRTUAL(r, source)->kind == VIRTUAL_LAZY;
        if (source == 0 || asks_again) {
            rec_truncate(r, start);
            r->skip_expected = false;
            return false;
        }
        step[i + 1] = items[n++] = source;
    }
    memcpy(items + n, others.more, others.nmore * sizeof *others.more);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, step, a->npos + a->nkw + 1);
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_LAZY, items, n + others.nmore, true);
    if (f != NULL)
        f->made_of = n + others.nmore;
    if (f != NULL && kind == KIN_ITERATOR_ENUMERATE && a->npos + a->nkw == 2)
        f->pos = (uint32_t)PyLong_AsLong(O(r, a->args[1]));
    r->info.at[out].type = class_made(kind);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* tee() of what is asked item by item: objects that share what the source has given. */
bool
rec_make_tee(rec *r, const rec_args *a)
{
    static PyObject *tee;
    PyTypeObject *cls = kin_iterator_class(KIN_ITERATOR_TEE);
    bool known = O(r, a->callee) != NULL && O(r, a->callee) == kin_import_once(&tee, "itertools", "tee") && kin_iterator_can_set(cls);
    if (!known || a->nkw || a->npos < 1 || a->npos > 2 || r->info.at[a->args[0]].type == cls ||
        (!has_to_be_asked(r, a->args[0]) && !rec_has_hidden_generator(r, a->args[0]) && !rec_is_own_iterator(r, a->args[0])))
        return false;
    PyObject *number = a->npos == 2 ? O(r, a->args[1]) : NULL;
    long copies = number == NULL ? 2 : PyLong_CheckExact(number) && rec_need_const(r, a->args[1]) ? PyLong_AsLong(number) : -1;
    PyErr_Clear();
    kin_vid source = copies > 0 && copies <= MOST_SOURCES ? rec_source(r, a->args[0]) : 0, its[MOST_SOURCES];
    if (source == 0)
        return false;
    const kin_vid step[3] = {a->callee, source, a->npos == 2 ? a->args[1] : 0};
    kin_vid made = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, step, 1 + a->npos), given = rec_value(r, (kin_val){.kind = KIN_VAL_NONE}, NULL);
    rec_make_virtual(r, given, VIRTUAL_OTHER, NULL, 0, false);
    const kin_vid items[] = {rec_const(r, (PyObject *)cls), 0, source, made, given};
    for (long i = 0; i < copies; i++) {
        its[i] = rec_item_of_copy(r, made, PyLong_FromLong(i));
        r->t->steps.at[r->t->vals.at[its[i]].step].flags = KIN_STEP_PURE;
        rec_virtual *f = rec_make_virtual(r, its[i], VIRTUAL_LAZY, items, sizeof items / sizeof *items, true);
        if (f != NULL)
            f->made_of = f->n;
        r->info.at[its[i]].type = cls;
    }
    rec_make_virtual(r, made, VIRTUAL_TUPLE, its, (uint32_t)copies, true);
    r->info.at[made].type = &PyTuple_Type;
    rec_drop(r, a->ndrop);
    rec_await_result(r, made, r->t->vals.at[made].step);
    return true;
}

/* -- using all of it at once ----------------------------------------------------------------------------------------------- */

/* The class of a map or filter object that has not begun; NULL: it is none, or not known. */
static PyTypeObject *
lazy_class(rec *r, kin_vid lazy)
{
    rec_virtual *f = lazy ? VIRTUAL(r, lazy) : NULL;
    kin_vid func, self;
    if (f == NULL || f->kind != VIRTUAL_LAZY || !f->known || f->escaped || O(r, lazy) == NULL)
        return NULL;
    PyTypeObject *tp = r->info.at[lazy].type;
    bool is_lazy = tp == &PyMap_Type || tp == &PyFilter_Type || is_of_kind(r, lazy, KIN_ITERATOR_STARMAP);
    if (is_of_kind(r, lazy, KIN_ITERATOR_ACCUMULATE)) /* if others hold it, it can be asked later, and how far it has got is not tracked */
        is_lazy = kin_reference_count(O(r, lazy)) == 1 && f->pos == 0;
    return is_lazy && (rec_find_callback(r, f->items[LAZY_CALLBACK], &func, &self) || applies(r, (PyObject *)tp, f->items[LAZY_CALLBACK]))
               ? tp
               : NULL;
}

/* Does the program hold it besides the instruction that uses it up? */
static bool
is_shared(rec *r, kin_vid lazy)
{
    return kin_reference_count(O(r, lazy)) > 1;
}

/* All that a map or filter object gives has been taken. */
void
rec_lazy_used_up(rec *r, kin_vid lazy)
{
    uint32_t s = rec_step(r, KIN_STEP_USE_UP, KIN_STEP_MUTATES, &lazy, 1);
    if (s != 0)
        r->t->steps.at[s].snap = 0;
    VIRTUAL(r, lazy)->known = false;
}

static rec_consumer *
begin_lazy(rec *r, const consumer_row *row, kin_vid lazy)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t n, width;
    bool select = r->info.at[lazy].type == &PyFilter_Type;
    kin_vid callback = f->items[LAZY_CALLBACK], *inputs = lazy_inputs(r, lazy, &n, &width);
    rec_consumer *c = inputs ? rec_begin_callbacks(r, row, callback, inputs, n, width) : NULL;
    if (c != NULL) {
        c->source = lazy;
        c->lazy = is_shared(r, lazy) ? lazy : 0;
        c->fold = is_of_kind(r, lazy, KIN_ITERATOR_ACCUMULATE);
        if (c->fold)
            rec_take_item(r, c, c->inputs[c->next++]);
        c->select = select;
    }
    return c;
}

/* The items that filter() leaves, by the truth of the answers. False: not known. */
static bool
select_items(rec *r, const kin_vid *inputs, kin_vid *answers, uint32_t *n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        int truth = O(r, answers[i]) != NULL ? rec_truth(r, answers[i]) : -1;
        if (truth < 0)
            return false;
        if (truth > 0)
            answers[kept++] = inputs[i];
    }
    *n = kept;
    return true;
}

/* accumulate() of a C function: each answer is the next call's first argument. */
static bool
apply_in_turn(rec *r, kin_vid func, const kin_vid *inputs, uint32_t n, kin_vid *out)
{
    out[0] = inputs[0];
    for (uint32_t i = 1; i < n; i++) {
        const kin_vid pair[2] = {out[i - 1], inputs[i]};
        if ((out[i] = rec_apply(r, func, pair, 2)) == 0)
            return false;
    }
    r->skip_expected = true;
    return true;
}

/* What a map or filter object with a C function gives, all at once; malloc'ed. */
static bool
applied_items(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t width, total, start = r->t->steps.len;
    kin_vid *inputs = lazy_inputs(r, lazy, &total, &width);
    bool none = O(r, f->items[LAZY_CALLBACK]) == Py_None;
    *n = inputs != NULL ? total / width : 0;
    *items = inputs != NULL ? malloc((*n + 1) * sizeof **items) : NULL;
    bool ok = *items != NULL;
    if (ok && none)
        memcpy(*items, inputs, *n * sizeof **items);
    else if (ok && is_of_kind(r, lazy, KIN_ITERATOR_ACCUMULATE))
        ok = apply_in_turn(r, f->items[LAZY_CALLBACK], inputs, *n, *items);
    else if (ok)
        ok = rec_apply_each(r, f->items[LAZY_CALLBACK], inputs, *n, width, *items);
    if (ok && r->info.at[lazy].type == &PyFilter_Type && !select_items(r, inputs, *items, n)) {
        rec_truncate(r, start);
        ok = false;
    }
    free(inputs);
    if (!ok)
        free(*items);
    return ok;
}

/* A map object that others may have is used up by a step that runs; what it gives follows all the same, if no torch call is in it. */
bool
rec_lazy_for_real(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n)
{
    rec_virtual *f = VIRTUAL(r, lazy);
    uint32_t start = r->t->steps.len;
    kin_vid func, self;
    *items = NULL;
    if (f == NULL || f->kind != VIRTUAL_LAZY || !f->known || f->escaped || r->region != NULL || r->info.at[lazy].type != &PyMap_Type ||
        rec_find_callback(r, f->items[LAZY_CALLBACK], &func, &self) || !applied_items(r, lazy, items, n))
        return false;
    rec_truncate(r, start);
    for (uint32_t i = 0; i < *n; i++)
        if (r->t->vals.at[(*items)[i]].kind == KIN_VAL_NONE) {
            free(*items);
            return false;
        }
    f->known = false;
    r->skip_expected = false;
    return true;
}

bool
rec_lazy_items(rec *r, kin_vid lazy, kin_vid **items, uint32_t *n, bool *shared)
{
    kin_vid func, self;
    if (lazy_class(r, lazy) == NULL)
        return false;
    *shared = is_shared(r, lazy);
    return !rec_find_callback(r, VIRTUAL(r, lazy)->items[LAZY_CALLBACK], &func, &self) &&
           applied_items(r, lazy, items, n);
}

static bool
consume_applied(rec *r, const consumer_row *row, const rec_args *a, kin_vid lazy)
{
    uint32_t start = r->t->steps.len;
    rec_consumer c = {.row = row, .call = *a, .source = lazy, .ended = true};
    memcpy(c.args, a->args, a->npos * sizeof *a->args);
    if (row->rule != TAKE_ALL || row->looks || !applied_items(r, lazy, &c.items, &c.n))
        return false;
    bool shared = is_shared(r, lazy), done = row->finish(r, &c);
    if (!done)
        rec_truncate(r, start);
    else if (row->written != NULL)
        row->written(r, &c);
    if (done && shared)
        rec_lazy_used_up(r, lazy);
    free(c.items);
    return done;
}

/* list(map(f, xs)) and the like. */
bool
rec_consume_lazy(rec *r, const rec_args *a)
{
    kin_vid lazy = a->npos && a->npos <= 2 && a->nkw == 0 ? a->args[a->npos - 1] : 0;
    const consumer_row *row = lazy_class(r, lazy) ? rec_consumer_row(O(r, a->callee)) : NULL;
    if (row == NULL || row->rule == TAKE_ONE || rec_consumed_operand(row, a->npos) != (int)a->npos - 1)
        return false;
    kin_vid func, self;
    if (!rec_find_callback(r, VIRTUAL(r, lazy)->items[LAZY_CALLBACK], &func, &self))
        return consume_applied(r, row, a, lazy);
    rec_consumer *c = begin_lazy(r, row, lazy);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    rec_next_callback(r, c);
    return true;
}

/* list(zip(generator, xs)), next(it), a, b = islice(it, 2): as much as the instruction wants, item by item. `measured` is asked for its length first, if `length` is one in Python. */
static bool
consume_asked(rec *r, const consumer_row *row, const rec_args *a, kin_vid source, kin_vid measured, kin_vid length)
{
    bool begins = a->npos == 2 && row->takes == ITEMS_AND_MAYBE_MORE && row->rule == TAKE_ALL && kin_is_tensor(O(r, a->args[1])); /* a sum */
    if (begins && !kin_is_plain_tensor(O(r, a->args[1])))
        return false;
    if (begins)
        rec_need_type(r, a->args[1]);
    rec_consumer *c = rec_begin_asking(r, source);
    if (c == NULL)
        return false;
    c->row = row;
    c->source = source;
    c->from_tensor = begins;
    rec_consume_as(r, c, a);
    rec_measure_and_ask(r, c, measured, length);
    return true;
}

bool
rec_consume_asked(rec *r, const rec_args *a)
{
    const consumer_row *row = a->npos && a->npos <= 2 && a->nkw == 0 ? rec_consumer_row(O(r, a->callee)) : NULL;
    int at = row != NULL ? rec_consumed_operand(row, a->npos) : -1;
    kin_vid length = 0, indexed = at >= 0 && row->rule != TAKE_ONE ? rec_hidden_index_iterator(r, a->args[at], row->sized, &length) : 0;
    if (indexed != 0)
        return consume_asked(r, row, a, indexed, a->args[at], length);
    if (at < 0 || !has_to_be_asked(r, a->args[at]) || VIRTUAL(r, a->args[at])->kind == VIRTUAL_GENERATOR ||
        (row->rule == TAKE_ONE && VIRTUAL(r, a->args[at])->kind == VIRTUAL_ITER))
        return false;
    if (row->sized && !rec_length_of_iterator(r, a->args[at], &length))
        return false;
    return consume_asked(r, row, a, a->args[at], VIRTUAL(r, a->args[at])->kind == VIRTUAL_LAZY ? VIRTUAL(r, a->args[at])->items[LAZY_SOURCES] : 0, length);
}

/* How many items there are is known, so tuple(map) calls back as the unpacking does. A filter's number is not. */
static void
unpack_lazy_opaquely(rec *r, const rec_consumer *c)
{
    kin_vid lazy = c->source, call[2] = {rec_const(r, (PyObject *)&PyTuple_Type), lazy}, items[256];
    uint32_t n = c->width ? c->ninputs / c->width : 0;
    if (c->before < 0 || c->select || c->after >= 0 || n != (uint32_t)c->before || n > 250) {
        rec_refuse_unpacking(r, c);
        return;
    }
    kin_vid all = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, call, 2);
    rec_forget_contents(r);
    r->skip_expected = true;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *index = PyLong_FromLong((long)i);
        kin_vid pair[2] = {all, rec_const(r, index)};
        Py_XDECREF(index);
        items[i] = rec_step_out(r, KIN_STEP_SUBSCR, 0, pair, 2);
    }
    rec_push_unpacked(r, items, n, c->before, c->after);
}

static const consumer_row unpack_lazy_row = {"", TAKE_ALL, rec_finish_unpack, NULL, NULL, unpack_lazy_opaquely};

static bool
unpack_applied(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid *items = NULL;
    uint32_t n, start = r->t->steps.len;
    if (before == INTO_CALL || !applied_items(r, lazy, &items, &n))
        return false;
    bool shared = is_shared(r, lazy), ok = rec_fits(before, after, n) && rec_hand_over(r, NULL, items, n, before, after);
    if (ok && shared)
        rec_lazy_used_up(r, lazy);
    else if (!ok)
        rec_truncate(r, start);
    free(items);
    return ok;
}

static void
unpack_indexed_opaquely(rec *r, const rec_consumer *c)
{
    if (c->before < 0)
        rec_refuse_unpacking(r, c);
    else
        rec_unpack_opaquely(r, rec_peek(r, 0), c->before, c->after, KIN_ROW_OPAQUE_CALLABLE);
}

static const consumer_row unpack_indexed_row = {"", TAKE_ALL, rec_finish_unpack, NULL, NULL, unpack_indexed_opaquely};
static const consumer_row unpack_asked_row = {"", TAKE_ALL, rec_finish_unpack, NULL, NULL, rec_refuse_unpacking};

static bool
unpack_asked(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid length = 0, indexed = rec_hidden_index_iterator(r, lazy, rec_asks_length(before), &length), measured = lazy;
    lazy = indexed != 0 ? indexed : lazy;
    bool asked = lazy != 0 && VIRTUAL(r, lazy) != NULL && VIRTUAL(r, lazy)->kind == VIRTUAL_LAZY;
    if (asked && indexed == 0 && rec_asks_length(before)) {
        asked = rec_length_of_iterator(r, lazy, &length);
        measured = VIRTUAL(r, lazy)->items[LAZY_SOURCES];
    }
    rec_consumer *c = asked ? rec_begin_asking(r, lazy) : NULL;
    if (c == NULL)
        return false;
    c->row = indexed != 0 ? &unpack_indexed_row : &unpack_asked_row;
    c->source = lazy;
    rec_aim(r, c, before, after);
    rec_measure_and_ask(r, c, measured, length);
    rec_settle(r);
    return true;
}

bool
rec_consume_unpack_lazy(rec *r, kin_vid lazy, int before, int after)
{
    kin_vid func, self;
    bool known = lazy_class(r, lazy) != NULL;
    if (known && !rec_find_callback(r, VIRTUAL(r, lazy)->items[LAZY_CALLBACK], &func, &self))
        return unpack_applied(r, lazy, before, after);
    rec_consumer *c = known ? begin_lazy(r, &unpack_lazy_row, lazy) : NULL;
    if (c == NULL)
        return unpack_asked(r, lazy, before, after);
    rec_aim(r, c, before, after);
    if (c->ninputs == 0 && before == INTO_CALL)
        rec_refuse(r);
    rec_next_callback(r, c);
    rec_settle(r);
    return true;
}
