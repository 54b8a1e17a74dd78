/* Models of methods of list, dict and set. */
#include "py/compat/heap.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

static bool
is_known(rec *r, kin_vid v, virtual_kind kind)
{
    rec_virtual *f = VIRTUAL(r, v);
    return f != NULL && f->kind == kind && f->known;
}

/* An operand of another type could run code: its type is asked for. */
static void
ask_type(rec *r, kin_vid vid)
{
    if (VIRTUAL(r, vid) == NULL && !rec_is_const(r, vid))
        rec_need_type(r, vid);
}

static bool
needs_no_code(rec *r, kin_vid vid, bool all)
{
    bool no_code = rec_need_no_code(r, vid, all);
    if (no_code)
        ask_type(r, vid);
    return no_code;
}

/* A change that replay repeats: of a virtual object (contents no longer known), or of one that others see. It runs no code. */
static bool
change(rec *r, const rec_args *a)
{
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    if (f == NULL)
        rec_need_type(r, a->args[0]);
    rec_model_step(r, a, KIN_STEP_EFFECT);
    if (f != NULL && !f->escaped) {
        f->known = false;
        return true;
    }
    rec_forget_contents(r);
    return true;
}

static bool
mutate(rec *r, const rec_args *a)
{
    if (a->npos == 0 || !(rec_is_plain_value(O(r, a->args[0])) || rec_plays_builtin(O(r, a->args[0])))) /* a method of list asks no class that is one */
        return false;
    /* keys and indices; what is stored behind them is not looked at */
    if (a->npos > 1 && !needs_no_code(r, a->args[1], PyList_Check(O(r, a->args[0]))))
        return false;
    return change(r, a);
}

/* Changes of an OrderedDict that the recording knows nothing of: by a key, or at one of its ends, which a keyword may name. */
bool
rec_change_ordered(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->nkw; i++)
        if (rec_need_const(r, a->args[a->npos + i]) == 0)
            return false;
    return a->npos > 0 && PyODict_CheckExact(O(r, a->args[0])) && mutate(r, a);
}

bool
rec_update_ordered(rec *r, const rec_args *a)
{
    bool takes = a->npos == 1 || (a->npos == 2 && PyDict_CheckExact(O(r, a->args[1])));
    return takes && PyODict_CheckExact(O(r, a->args[0])) && mutate(r, a);
}

/* A question that is asked again at replay. */
static bool
ask(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        /* C methods of dict look into a subclass's table without asking the subclass */
        if (!rec_is_plain_value(obj) && !(i == 0 ? PyDict_Check(obj) : kin_is_exact_key(obj)))
            return false;
        if (i > 0 && !rec_need_no_code(r, a->args[i], false)) /* a key is hashed and compared */
            return false;
        if (VIRTUAL(r, a->args[i]) == NULL && !rec_is_const(r, a->args[i]))
            rec_need_type(r, a->args[i]);
    }
    rec_model_step(r, a, 0);
    return true;
}

/* The same, where elements are compared. */
static bool
ask_elements(rec *r, const rec_args *a)
{
    return a->npos > 0 && (rec_need_no_code(r, a->args[0], true) || rec_need_no_code(r, a->args[0], false)) && ask(r, a);
}

/* What is known of a list or dict is known of its copy. */
static bool
copy_known(rec *r, const rec_args *a, virtual_kind kind, PyTypeObject *cls)
{
    kin_vid of = a->npos == 1 ? rec_proxied(r, a->args[0]) : 0;
    if (a->npos != 1 || !is_known(r, of, kind) || r->info.at[of].type != cls)
        return a->npos == 1 && ask(r, a);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = VIRTUAL(r, of);
    rec_make_virtual(r, out, kind, f->items, f->n, true);
    r->info.at[out].type = cls;
    return true;
}

/* The list keeps the item, whatever it is, and asks it nothing. */
static bool
append_to_older(rec *r, const rec_args *a)
{
    Py_ssize_t n = PyList_GET_SIZE(O(r, a->args[0]));
    rec_place place = {.kind = KIN_PLACE_END_OF_LIST, .base = a->args[0], .index = (uint32_t)n};
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    rec_model_store(r, a, a->args[1], n < KIN_PLACE_INDEX ? &place : NULL);
    return true;
}

/* ... of a list made here. */
static kin_vid
append_to_own(rec *r, const kin_vid *args)
{
    rec_step(r, KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, args, 2);
    if (VIRTUAL(r, args[0])->known)
        rec_virtual_push(VIRTUAL(r, args[0]), args[1]);
    rec_changed(r, args[0]);
    return rec_const(r, Py_None);
}

static bool
list_append(rec *r, const rec_args *a)
{
    if (a->npos != 2 || a->nkw || !PyList_Check(O(r, a->args[0])))
        return false;
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    if (!PyList_CheckExact(O(r, a->args[0]))) { /* of a class of the program's: nothing is known of what it holds */
        if (f == NULL)
            rec_need_type(r, a->args[0]);
        rec_model_store(r, a, a->args[1], NULL);
        return true;
    }
    if (f == NULL || f->kind != VIRTUAL_LIST)
        return append_to_older(r, a);
    return rec_model_value(r, a, append_to_own(r, a->args));
}

static bool
list_extend(rec *r, const rec_args *a)
{
    kin_vid *items = NULL, args[2];
    uint32_t n;
    bool known = a->npos == 2 && !a->nkw && is_known(r, a->args[0], VIRTUAL_LIST);
    if (known) {
        memcpy(args, a->args, sizeof args);
        known = kin_is_tensor(O(r, args[1])) ? rec_iterated(r, &args[1], &items, &n) : rec_use_up(r, args[1], &items, &n);
    }
    if (!known && a->npos == 2 && !a->nkw && PyList_Check(O(r, a->args[0])) && rec_holds_items(O(r, a->args[1]))) {
        ask_type(r, a->args[1]);
        return change(r, a);
    }
    if (!known)
        return a->npos == 2 && rec_is_plain_value(O(r, a->args[1])) && mutate(r, a);
    args[1] = rec_take_apart(r, args[1], items, n);
    rec_step(r, KIN_STEP_LIST_EXTEND, KIN_STEP_MUTATES, args, 2);
    for (uint32_t i = 0; i < n; i++)
        rec_virtual_push(VIRTUAL(r, a->args[0]), items[i]);
    rec_changed(r, a->args[0]);
    free(items);
    return rec_model_value(r, a, rec_const(r, Py_None));
}

/* Where an index that is a constant points, from 0 to `most`; -1: elsewhere, or it is not known. */
static Py_ssize_t
constant_index(rec *r, kin_vid vid, Py_ssize_t n, Py_ssize_t most)
{
    PyObject *obj = O(r, vid);
    if (!PyLong_CheckExact(obj) || !rec_can_const(r, vid))
        return -1;
    Py_ssize_t at = PyLong_AsSsize_t(O(r, rec_need_const(r, vid)));
    PyErr_Clear();
    at += at < 0 ? n : 0;
    return at < 0 || at > most ? -1 : at;
}

static bool
list_pop(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos > 0 && a->npos <= 2 && a->nkw == 0 ? rec_known_list(r, a->args[0]) : NULL;
    Py_ssize_t last = f == NULL ? -1 : (Py_ssize_t)f->n - 1, at = last >= 0 && a->npos == 2 ? constant_index(r, a->args[1], last + 1, last) : last;
    if (at < 0)
        return mutate(r, a);
    kin_vid item = f->items[at];
    return rec_list_splice(r, a->args[0], at, at + 1, NULL, 0) ? rec_model_value(r, a, item) : mutate(r, a);
}

static bool
list_insert(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos == 3 && a->nkw == 0 ? rec_known_list(r, a->args[0]) : NULL;
    Py_ssize_t at = f == NULL ? -1 : constant_index(r, a->args[1], f->n, f->n);
    if (at < 0)
        return mutate(r, a);
    return rec_list_splice(r, a->args[0], at, at, a->args + 2, 1) && rec_model_value(r, a, rec_const(r, Py_None));
}

static bool
list_clear(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos == 1 ? rec_known_list(r, a->args[0]) : NULL;
    if (f == NULL)
        return mutate(r, a);
    return rec_list_splice(r, a->args[0], 0, f->n, NULL, 0) ? rec_model_value(r, a, rec_const(r, Py_None)) : mutate(r, a);
}

static bool
list_reverse(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos == 1 ? rec_known_list(r, a->args[0]) : NULL;
    kin_vid *items = f == NULL ? NULL : malloc((f->n + (size_t)1) * sizeof *items);
    if (items == NULL)
        return mutate(r, a);
    uint32_t n = f->n;
    for (uint32_t i = 0; i < n; i++)
        items[i] = f->items[n - 1 - i];
    bool ok = n == 0 || rec_list_splice(r, a->args[0], 0, n, items, n);
    free(items);
    return ok ? rec_model_value(r, a, rec_const(r, Py_None)) : mutate(r, a);
}

static bool
list_copy(rec *r, const rec_args *a)
{
    return copy_known(r, a, VIRTUAL_LIST, &PyList_Type);
}

/* sort() without a key: elements are compared with one another. */
static bool
list_sort(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && PyList_CheckExact(O(r, a->args[0])) && rec_need_no_code(r, a->args[0], true) && mutate(r, a);
}

/* -- dict ------------------------------------------------------------------------------------------------------------------ */

static bool
is_key(rec *r, kin_vid v)
{
    return kin_is_exact_key(O(r, v)) && rec_can_const(r, v);
}

/* Methods of dict called by name look into the table of a subclass without asking it. What such a table lacks is no fact. */
static bool
holds_key(PyObject *obj, const rec_virtual *f, PyObject *key)
{
    bool held = f == NULL && PyDict_Check(obj) && kin_is_exact_immutable(key) && PyDict_GetItemWithError(obj, key) != NULL;
    PyErr_Clear();
    return held;
}

/* Looks a constant key up: *item is the value, 0 when absent (a fact). False: not known. */
static bool
look_up(rec *r, kin_vid dict, kin_vid key, kin_vid *item)
{
    PyObject *obj = O(r, dict);
    rec_virtual *f = VIRTUAL(r, dict);
    *item = 0;
    if (!(PyDict_CheckExact(obj) || rec_mapping(r, dict) != NULL || holds_key(obj, f, O(r, key))) || !is_key(r, key) || (f != NULL && !rec_is_pair_key(O(r, key))))
        return false;
    if (f != NULL) {
        if ((f = rec_mapping(r, dict)) == NULL)
            return false;
        kin_vid c = rec_need_const(r, key);
        kin_vid *found = rec_pairs_find(r, f, O(r, c));
        *item = found ? *found : 0;
        return true;
    }
    kin_vid c = rec_need_const(r, key);
    PyObject *value = kin_exact_item(obj, O(r, c));
    rec_root(r, dict);
    if (value != NULL) {
        *item = rec_dict_item(r, dict, O(r, c), value);
    } else {
        rec_need_type(r, dict);
        if (rec_written_key(r, dict, O(r, c)) != 0)
            rec_fact(r, KIN_FACT_LACKS_KEY, dict, O(r, c), 0);
    }
    return true;
}

static bool
dict_get(rec *r, const rec_args *a)
{
    kin_vid item;
    if (a->npos < 2 || a->npos > 3 || a->nkw)
        return false;
    if (!look_up(r, a->args[0], a->args[1], &item))
        return ask(r, a);
    return rec_model_value(r, a, item ? item : a->npos == 3 ? a->args[2] : rec_const(r, Py_None));
}

/* dict.__getitem__(d, key), as methods of subclasses call it, of a key that is there. */
static bool
dict_getitem(rec *r, const rec_args *a)
{
    kin_vid item;
    return a->npos == 2 && !a->nkw && look_up(r, a->args[0], a->args[1], &item) && item != 0 && rec_model_value(r, a, item);
}

/* Is the key asked for one that the dict does not have now? */
static bool
is_missing(rec *r, const rec_args *a)
{
    PyObject *dict = O(r, a->args[0]), *key = O(r, a->args[1]);
    if (!PyDict_CheckExact(dict) || !kin_is_exact_immutable(key) || !rec_is_const(r, a->args[1]))
        return false;
    PyObject *found = PyDict_GetItemWithError(dict, key);
    PyErr_Clear();
    return found == NULL;
}

/* dict.pop(key, default) that finds nothing changes nothing: whether the key is there is asked again. */
static bool
pop_nothing(rec *r, const rec_args *a)
{
    kin_vid asked[2] = {a->args[1], a->args[0]};
    rec_need_type(r, a->args[0]);
    r->keep_inside = true;
    kin_vid there = rec_step_out(r, KIN_STEP_CONTAINS, 0, asked, 2);
    r->keep_inside = false;
    rec_set_obj(r, there, Py_False);
    rec_check(r, KIN_CHECK_IS, there, Py_False, 0);
    return rec_model_value(r, a, a->args[2]);
}

static bool
dict_pop(rec *r, const rec_args *a)
{
    kin_vid item;
    if (a->npos == 3 && !a->nkw && !is_known(r, a->args[0], VIRTUAL_DICT) && is_missing(r, a))
        return pop_nothing(r, a);
    if (a->npos < 2 || a->nkw || !is_known(r, a->args[0], VIRTUAL_DICT) || r->info.at[a->args[0]].type == &PyODict_Type || !look_up(r, a->args[0], a->args[1], &item) ||
        rec_is_mortal(r, item))
        return mutate(r, a);
    if (item == 0)
        return a->npos == 3 && rec_model_value(r, a, a->args[2]);
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    rec_step(r, KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, a->args, 2);
    rec_pairs_drop(r, f, O(r, a->args[1]));
    rec_changed(r, a->args[0]);
    return rec_model_value(r, a, item);
}

/* What dict.pop and dict.get give, of a dict made here and constant keys, and list.append; 0: not known. */
kin_vid
rec_apply_method(rec *r, kin_vid descr, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, descr);
    kin_vid item;
    if (obj != NULL && obj == PyDict_GetItemString(kin_type_dict(&PyList_Type), "append") && n == 2 && is_known(r, args[0], VIRTUAL_LIST))
        return append_to_own(r, args);
    bool pop = obj != NULL && obj == PyDict_GetItemString(kin_type_dict(&PyDict_Type), "pop");
    bool get = obj != NULL && obj == PyDict_GetItemString(kin_type_dict(&PyDict_Type), "get");
    if ((!pop && !get) || (pop && r->info.at[args[0]].type == &PyODict_Type) || n < 2 || n > 3 || !is_known(r, args[0], VIRTUAL_DICT) || O(r, args[0]) == NULL || O(r, args[1]) == NULL ||
        !look_up(r, args[0], args[1], &item) || (pop && rec_is_mortal(r, item)))
        return 0;
    if (item == 0)
        return n == 3 ? args[2] : get ? rec_const(r, Py_None) : 0;
    if (pop) {
        rec_step(r, KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, args, 2);
        rec_pairs_drop(r, VIRTUAL(r, args[0]), O(r, args[1]));
        rec_changed(r, args[0]);
    }
    return item;
}

static bool
dict_setdefault(rec *r, const rec_args *a)
{
    kin_vid item;
    if ((a->npos != 3 && !is_known(r, a->args[0], VIRTUAL_DICT)) || a->npos < 2 || a->nkw || !look_up(r, a->args[0], a->args[1], &item))
        return mutate(r, a);
    if (item != 0)
        return rec_model_value(r, a, item);
    if (!is_known(r, a->args[0], VIRTUAL_DICT) || r->info.at[a->args[0]].type != &PyDict_Type)
        return mutate(r, a);
    const kin_vid put[3] = {a->args[0], a->args[1], a->npos == 3 ? a->args[2] : rec_const(r, Py_None)};
    rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, put, 3);
    rec_pairs_put(r, VIRTUAL(r, put[0]), rec_need_const(r, put[1]), put[2]);
    rec_changed(r, put[0]);
    return rec_model_value(r, a, put[2]);
}

static bool
dict_view(rec *r, const rec_args *a, char which)
{
    if (a->npos != 1)
        return false;
    bool ordered = PyODict_Check(O(r, a->args[0])) && PyDescr_TYPE(O(r, a->callee)) == &PyODict_Type; /* dict's own view has another order */
    if (!PyDict_CheckExact(O(r, a->args[0])) && !ordered && rec_mapping(r, a->args[0]) == NULL)
        return ask(r, a);
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE), dict = rec_proxied(r, a->args[0]);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_VIEW, &dict, 1, true);
    if (f != NULL)
        f->pos = (uint32_t)which;
    return true;
}

static bool
dict_keys(rec *r, const rec_args *a)
{
    return dict_view(r, a, 'k');
}

static bool
dict_values(rec *r, const rec_args *a)
{
    return dict_view(r, a, 'v');
}

static bool
dict_items(rec *r, const rec_args *a)
{
    return dict_view(r, a, 'i');
}

static bool
dict_copy(rec *r, const rec_args *a)
{
    return copy_known(r, a, VIRTUAL_DICT, &PyDict_Type);
}

static bool
dict_update(rec *r, const rec_args *a)
{
    return rec_model_dict_update(r, a) || mutate(r, a);
}

static bool
dict_contains(rec *r, const rec_args *a)
{
    kin_vid item;
    return a->npos == 2 && look_up(r, a->args[0], a->args[1], &item) && rec_model_bool(r, a, item != 0);
}

/* One more element of a set that only the recording has. */
static bool
set_add(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos == 2 && !a->nkw ? VIRTUAL(r, a->args[0]) : NULL;
    if (f == NULL || f->kind != VIRTUAL_SET || f->escaped || !needs_no_code(r, a->args[1], false))
        return mutate(r, a);
    f->known = false;
    rec_step(r, KIN_STEP_SET_ADD, KIN_STEP_MUTATES, a->args, 2);
    r->skip_expected = true; /* a tensor's hash is Python code */
    return rec_model_value(r, a, rec_const(r, Py_None));
}

/* set.update(), set.difference_update() ... with any number of plain containers. */
static bool
set_update(rec *r, const rec_args *a)
{
    bool ok = a->npos > 0 && a->nkw == 0;
    for (uint32_t i = 1; ok && i < a->npos; i++)
        ok = O(r, a->args[i]) != NULL && rec_is_plain_value(O(r, a->args[i])) && needs_no_code(r, a->args[i], false);
    return ok && mutate(r, a);
}

/* A lock is taken, for which other threads may be waited, or given back: what is known is out of date, but no code of the program's runs in this thread. */
bool
rec_model_lock(rec *r, const rec_args *a)
{
    PyObject *lock = a->npos > 0 ? O(r, a->args[0]) : NULL, *method = O(r, a->callee);
    bool plain = lock != NULL && Py_IS_TYPE(method, &PyMethodDescr_Type) && Py_IS_TYPE(lock, PyDescr_TYPE(method));
    for (uint32_t i = 1; plain && i < a->npos + a->nkw; i++)
        plain = O(r, a->args[i]) != NULL && kin_is_exact_immutable(O(r, a->args[i]));
    return plain && change(r, a);
}

/* A new set of what plain containers hold. */
static bool
set_union(rec *r, const rec_args *a)
{
    bool ok = a->npos > 0 && a->nkw == 0;
    for (uint32_t i = 0; ok && i < a->npos; i++)
        ok = O(r, a->args[i]) != NULL && rec_is_plain_value(O(r, a->args[i])) && needs_no_code(r, a->args[i], false);
    if (!ok)
        return false;
    r->keep_inside = r->only_asks = true; /* it keeps keys, which are no containers */
    kin_vid out = rec_model_step(r, a, 0);
    r->keep_inside = r->only_asks = false;
    rec_make_virtual(r, out, VIRTUAL_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    return true;
}

/* The last pair of a known dict comes out. */
static bool
dict_popitem(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw || !is_known(r, a->args[0], VIRTUAL_DICT) || !PyDict_CheckExact(O(r, a->args[0])) || VIRTUAL(r, a->args[0])->n < 2 ||
        rec_is_mortal(r, VIRTUAL(r, a->args[0])->items[VIRTUAL(r, a->args[0])->n - 1]))
        return mutate(r, a);
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    kin_vid pair[2] = {f->items[f->n - 2], f->items[f->n - 1]}, step[2] = {a->args[0], pair[0]};
    rec_step(r, KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, step, 2);
    rec_pairs_drop(r, f, O(r, pair[0]));
    rec_changed(r, a->args[0]);
    return rec_model_value(r, a, rec_build_tuple(r, pair, 2, NULL));
}

/* -- deque ------------------------------------------------------------------------------------------------------------------- */

static bool
is_deque(rec *r, const rec_args *a)
{
    PyTypeObject *tp = a->npos && !a->nkw ? Py_TYPE(O(r, a->args[0])) : NULL;
    if (tp == NULL || !kin_heap_type_is(tp, "collections.deque"))
        return false;
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    return true;
}

/* The deque keeps the item, whatever it is, and asks it nothing; one that it drops for it dies as in eager. */
static bool
deque_append(rec *r, const rec_args *a)
{
    if (a->npos != 2 || !is_deque(r, a))
        return false;
    rec_model_store(r, a, a->args[1], NULL);
    return true;
}

/* inside: what the deque holds is known, and the change was made to that as well. */
static bool
step_of_change(rec *r, const rec_args *a, bool inside)
{
    r->keep_inside = inside;
    rec_model_step(r, a, KIN_STEP_EFFECT);
    r->keep_inside = false;
    if (!inside)
        rec_forget_contents(r);
    return true;
}

/* Other changes, which look at no item: numbers are how far, and lists and tuples are gone through. */
static bool
deque_change(rec *r, const rec_args *a)
{
    if (!is_deque(r, a) || a->npos > 2)
        return false;
    rec_virtual *f = VIRTUAL(r, a->args[0]), *items = a->npos == 2 ? VIRTUAL(r, a->args[1]) : NULL;
    PyObject *given = a->npos == 2 ? O(r, a->args[1]) : NULL; /* none yet: a tuple in place of a map object */
    if (a->npos == 2 && given == NULL && (items == NULL || items->kind != VIRTUAL_TUPLE))
        return false;
    if (given != NULL) {
        if (!PyLong_CheckExact(given) && !PyList_CheckExact(given) && !PyTuple_CheckExact(given))
            return false;
        ask_type(r, a->args[1]);
    }
    bool inside = f != NULL && !f->escaped && (a->npos == 1 || items != NULL || PyLong_CheckExact(O(r, a->args[1])));
    for (uint32_t i = 0; inside && items != NULL && i < items->n; i++)
        rec_virtual_push(f, items->items[i]);
    return step_of_change(r, a, inside);
}

static bool
deque_insert(rec *r, const rec_args *a)
{
    if (a->npos != 3 || !is_deque(r, a) || !PyLong_CheckExact(O(r, a->args[1])))
        return false;
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    bool inside = f != NULL && !f->escaped;
    ask_type(r, a->args[1]);
    if (inside)
        rec_virtual_push(f, a->args[2]);
    return step_of_change(r, a, inside);
}

const rec_method_row rec_deque_rows[] = {
    {"deque.append", deque_append}, {"deque.appendleft", deque_append}, {"deque.extend", deque_change}, {"deque.extendleft", deque_change},
    {"deque.pop", deque_change}, {"deque.popleft", deque_change}, {"deque.rotate", deque_change}, {"deque.clear", deque_change},
    {"deque.reverse", deque_change}, {"deque.insert", deque_insert}, {NULL, NULL}};

/* -- types.MappingProxyType of a dict made here ------------------------------------------------------------------------------ */

static bool
is_proxy(rec *r, const rec_args *a)
{
    return a->npos >= 1 && rec_proxied(r, a->args[0]) != a->args[0] && rec_mapping(r, a->args[0]) != NULL;
}

#define PROXY(method) \
    static bool proxy_##method(rec *r, const rec_args *a) { return is_proxy(r, a) && dict_##method(r, a); }
PROXY(get)
PROXY(keys)
PROXY(values)
PROXY(items)
PROXY(copy)
#undef PROXY

const rec_method_row rec_proxy_rows[] = {
    {"MappingProxyType.get", proxy_get}, {"MappingProxyType.keys", proxy_keys}, {"MappingProxyType.values", proxy_values},
    {"MappingProxyType.items", proxy_items}, {"MappingProxyType.copy", proxy_copy}, {NULL, NULL}};

const rec_method_row rec_ordered_views[] = {
    {"OrderedDict.keys", dict_keys}, {"OrderedDict.values", dict_values}, {"OrderedDict.items", dict_items}, {NULL, NULL}};

static bool
list_index(rec *r, const rec_args *a)
{
    if (ask_elements(r, a))
        return true;
    int at = a->npos == 2 && a->nkw == 0 ? rec_place_of_item(r, a->args[0], a->args[1], NULL) : REC_ITEM_UNKNOWN;
    PyObject *number = at >= 0 ? PyLong_FromLong(at) : NULL; /* else it raises, or asks tensors */
    bool done = number != NULL && rec_model_value(r, a, rec_const(r, number));
    Py_XDECREF(number);
    return done;
}

static bool
list_count(rec *r, const rec_args *a)
{
    uint32_t count = 0;
    if (ask_elements(r, a))
        return true;
    bool known = a->npos == 2 && a->nkw == 0 && rec_place_of_item(r, a->args[0], a->args[1], &count) != REC_ITEM_UNKNOWN;
    PyObject *number = known ? PyLong_FromUnsignedLong(count) : NULL;
    bool done = number != NULL && rec_model_value(r, a, rec_const(r, number));
    Py_XDECREF(number);
    return done;
}

static bool
list_remove(rec *r, const rec_args *a)
{
    bool older = a->npos == 2 && a->nkw == 0 && VIRTUAL(r, a->args[0]) == NULL && PyList_CheckExact(O(r, a->args[0]));
    if (older && needs_no_code(r, a->args[0], true) && needs_no_code(r, a->args[1], true))
        return change(r, a);
    if (a->npos != 2 || a->nkw != 0 || rec_known_list(r, a->args[0]) == NULL)
        return false;
    int at = rec_place_of_item(r, a->args[0], a->args[1], NULL);
    return at >= 0 && rec_list_splice(r, a->args[0], at, at + 1, NULL, 0) && rec_model_value(r, a, rec_const(r, Py_None));
}

const rec_method_row rec_method_rows[] = {
    {"list.append", list_append}, {"list.extend", list_extend}, {"list.insert", list_insert}, {"list.pop", list_pop},
    {"list.clear", list_clear}, {"list.reverse", list_reverse}, {"list.copy", list_copy}, {"list.__len__", ask},
    {"list.sort", list_sort}, {"list.index", list_index}, {"list.count", list_count}, {"list.remove", list_remove},
    {"dict.get", dict_get}, {"dict.__getitem__", dict_getitem}, {"dict.pop", dict_pop}, {"dict.setdefault", dict_setdefault}, {"dict.keys", dict_keys},
    {"dict.values", dict_values}, {"dict.items", dict_items}, {"dict.copy", dict_copy}, {"dict.clear", mutate},
    {"dict.update", dict_update}, {"dict.popitem", dict_popitem}, {"dict.__contains__", dict_contains},
    {"set.add", set_add}, {"set.discard", mutate}, {"set.clear", mutate}, {"set.update", set_update}, {"set.copy", ask}, {"set.union", set_union},
    {"set.remove", mutate}, {"set.pop", mutate}, {"set.difference_update", set_update}, {"set.intersection_update", set_update},
    {"set.symmetric_difference_update", set_update}, {NULL, NULL}};
