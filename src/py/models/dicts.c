/* Models of OrderedDict and defaultdict, of dict.update and of counting. If the recording creates one whose keys are constants, it is known like a dict
 * (VIRTUAL_DICT): its pairs in their order. What a defaultdict returns for a missing key is known if its factory is a
 * builtin class.
 */
#include "py/models/models.h"

/* -- new ones ----------------------------------------------------------------------------------------------------------- */

void
rec_make_dict_of(rec *r, const rec_args *a, kin_vid cls, kin_vid first, const kin_vid *pairs, uint32_t n)
{
    kin_vid all[3] = {cls};
    uint32_t count = 1;
    if (first != 0)
        all[count++] = first;
    if (n > 0) {
        kin_vid plain = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, n);
        r->info.at[plain].type = &PyDict_Type;
        all[count++] = plain;
    }
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, count);
    rec_make_virtual(r, out, VIRTUAL_DICT, pairs, n, true);
    r->info.at[out].type = (PyTypeObject *)O(r, cls);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* The class called with one dict, or with nothing, behind `first`; pairs are (re)placed in the order in which the class would. */
static bool
make_dict(rec *r, const rec_args *a, kin_vid first, kin_vid from, PyObject *factory)
{
    kin_vid values[128] = {from}, *pairs = NULL;
    uint32_t n = 0, npos = from != 0;
    memcpy(values + npos, a->args + a->npos, a->nkw * sizeof *values);
    const rec_args source = {.args = values, .npos = npos, .nkw = a->nkw, .kwnames = a->kwnames};
    if (!rec_dict_pairs(r, &source, &pairs, &n))
        return false;
    rec_make_dict_of(r, a, a->callee, first, pairs, n);
    rec_virtual *f = VIRTUAL(r, r->top->await_vid);
    if (f != NULL)
        f->aux = factory;
    free(pairs);
    return true;
}

/* OrderedDict(), OrderedDict(pairs), OrderedDict(a=1) */
static bool
model_ordered_dict(rec *r, const rec_args *a)
{
    return a->npos <= 1 && a->nkw < 100 && make_dict(r, a, 0, a->npos ? a->args[0] : 0, NULL);
}

/* The classes whose instances are new each time and depend on nothing, or are constants. */
static PyObject *
known_factory(rec *r, kin_vid factory)
{
    PyTypeObject *const known[] = {&PyList_Type, &PyDict_Type, &PySet_Type, &PyLong_Type, &PyFloat_Type, &PyUnicode_Type, &PyBool_Type};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (O(r, factory) == (PyObject *)known[i] && rec_need_const(r, factory) != 0)
            return (PyObject *)known[i];
    return NULL;
}

/* defaultdict(list), defaultdict(list, pairs) */
static bool
model_default_dict(rec *r, const rec_args *a)
{
    if (a->npos < 1 || a->npos > 2 || a->nkw >= 100 || O(r, a->args[0]) == NULL)
        return false;
    PyObject *factory = known_factory(r, a->args[0]);
    if (factory == NULL) {
        if (!PyFunction_Check(O(r, a->args[0])) && O(r, a->args[0]) != Py_None)
            return false;
        if (VIRTUAL(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
    }
    kin_vid first = a->args[0];
    bool function = factory == NULL && PyFunction_Check(O(r, first));
    if (!make_dict(r, a, first, a->npos == 2 ? a->args[1] : 0, factory))
        return false;
    rec_virtual *f = VIRTUAL(r, r->top->await_vid);
    if (function && f != NULL)
        f->of = first;
    return true;
}

/* -- methods of OrderedDict ------------------------------------------------------------------------------------------------ */

static rec_virtual *
known_ordered(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos > 0 ? VIRTUAL(r, a->args[0]) : NULL;
    return f != NULL && f->kind == VIRTUAL_DICT && f->known && r->info.at[a->args[0]].type == &PyODict_Type ? f : NULL;
}

/* `last`, the second parameter of the one method and the first of the other; -1: not a constant. */
static int
read_last(rec *r, const rec_args *a, uint32_t place)
{
    kin_vid last = 0;
    if (a->nkw == 1 && a->npos == place && rec_is_keyword(a, 0, "last"))
        last = a->args[a->npos];
    else if (a->nkw == 0 && a->npos == place + 1)
        last = a->args[place];
    else
        return a->nkw == 0 && a->npos == place ? 1 : -1;
    return O(r, last) != NULL && PyBool_Check(O(r, last)) && rec_need_const(r, last) != 0 ? O(r, last) == Py_True : -1;
}

/* The call is done again as an effect: on an object made here, of which it tells nobody. */
static kin_vid
step_inside(rec *r, const rec_args *a)
{
    r->keep_inside = true;
    kin_vid out = rec_model_step(r, a, KIN_STEP_EFFECT);
    r->keep_inside = false;
    return out;
}

static bool
ordered_move(rec *r, const rec_args *a)
{
    rec_virtual *f = known_ordered(r, a);
    int last = f != NULL && a->npos >= 2 ? read_last(r, a, 2) : -1;
    if (last < 0 || !rec_is_known_key(r, a->args[1]) || rec_need_const(r, a->args[1]) == 0)
        return false;
    kin_vid *at = rec_pairs_find(r, f, O(r, a->args[1]));
    if (at == NULL)
        return false;
    kin_vid pair[2] = {at[-1], at[0]};
    rec_pairs_drop(r, f, O(r, a->args[1]));
    if (!last)
        memmove(f->items + 2, f->items, f->n * sizeof *f->items);
    memcpy(last ? f->items + f->n : f->items, pair, sizeof pair);
    f->n += 2;
    step_inside(r, a);
    rec_changed(r, a->args[0]);
    return true;
}

static bool
ordered_popitem(rec *r, const rec_args *a)
{
    rec_virtual *f = known_ordered(r, a);
    int last = f != NULL ? read_last(r, a, 1) : -1;
    if (last < 0 || f->n == 0)
        return false;
    kin_vid pair[2];
    memcpy(pair, last ? f->items + f->n - 2 : f->items, sizeof pair);
    f->n -= 2;
    if (!last)
        memmove(f->items, f->items + 2, f->n * sizeof *f->items);
    kin_vid out = step_inside(r, a);
    rec_make_virtual(r, out, VIRTUAL_TUPLE, pair, 2, true);
    r->info.at[out].type = &PyTuple_Type;
    rec_changed(r, a->args[0]);
    return true;
}

static bool
ordered_pop(rec *r, const rec_args *a)
{
    rec_virtual *f = known_ordered(r, a);
    if (f == NULL || a->nkw || a->npos < 2 || a->npos > 3 || !rec_is_known_key(r, a->args[1]) || rec_need_const(r, a->args[1]) == 0)
        return false;
    kin_vid *found = rec_pairs_find(r, f, O(r, a->args[1])), item = found ? *found : 0;
    if (item == 0)
        return a->npos == 3 && rec_model_value(r, a, a->args[2]);
    rec_step(r, KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, a->args, 2);
    rec_pairs_drop(r, f, O(r, a->args[1]));
    rec_changed(r, a->args[0]);
    return rec_model_value(r, a, item);
}

static bool
ordered_copy(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos == 1 && !a->nkw ? known_ordered(r, a) : NULL;
    if (f == NULL)
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    f = VIRTUAL(r, a->args[0]);
    rec_make_virtual(r, out, VIRTUAL_DICT, f->items, f->n, true);
    r->info.at[out].type = &PyODict_Type;
    return true;
}

/* -- update ------------------------------------------------------------------------------------------------------------------ */

/* The object made here whose __dict__ this is, if attributes of these names are only there; 0: it is none. */
static kin_vid
owner_of(rec *r, kin_vid dict, const kin_vid *pairs, uint32_t n)
{
    const rec_virtual *f = VIRTUAL(r, dict), *object = f->kind == VIRTUAL_ATTRS && f->known ? VIRTUAL(r, f->items[0]) : NULL;
    if (object == NULL || object->kind != VIRTUAL_OBJECT || !object->known || object->escaped)
        return 0;
    PyTypeObject *tp = rec_need_attrs(r, f->items[0]);
    for (uint32_t i = 0; i < n; i += 2) {
        PyObject *descr = PyUnicode_CheckExact(O(r, pairs[i])) ? rec_lookup(r, tp, O(r, pairs[i])) : Py_None;
        if (descr != NULL && (descr == Py_None || Py_TYPE(descr)->tp_descr_set != NULL))
            return 0;
    }
    return f->items[0];
}

/* As object.__setattr__ does it. */
static void
put_attributes(rec *r, kin_vid owner, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        const kin_vid args[2] = {owner, pairs[i + 1]};
        r->keep_inside = true;
        uint32_t s = rec_step(r, KIN_STEP_SETATTR, KIN_STEP_MUTATES, args, 2);
        r->keep_inside = false;
        kin_ref name = rec_ref(r, O(r, pairs[i]));
        r->t->steps.at[s].ref = name;
        r->t->steps.at[s].imm = 1;
        rec_pairs_put(r, VIRTUAL(r, owner), pairs[i], pairs[i + 1]);
    }
}

static void
put_items(rec *r, kin_vid dict, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        const kin_vid args[3] = {dict, pairs[i], pairs[i + 1]};
        rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
        rec_pairs_put(r, VIRTUAL(r, dict), pairs[i], pairs[i + 1]);
    }
    rec_changed(r, dict);
}

/* d.update(other), d.update(a=1) of a dict made here and pairs that are known: one store each. */
bool
rec_model_dict_update(rec *r, const rec_args *a)
{
    rec_virtual *f = a->npos >= 1 && a->npos <= 2 ? VIRTUAL(r, a->args[0]) : NULL;
    const rec_args from = {.args = a->args + 1, .npos = a->npos - 1, .nkw = a->nkw, .kwnames = a->kwnames};
    kin_vid *pairs = NULL, owner = 0;
    uint32_t n = 0;
    bool plain = f != NULL && f->kind == VIRTUAL_DICT && f->known, own = f != NULL && rec_own_mapping(r, a->args[0]) != NULL, attrs = f != NULL && f->kind == VIRTUAL_ATTRS;
    if ((!plain && !attrs && (!own || PyODict_Check(O(r, a->args[0])))) || a->nkw >= 100 || (a->npos == 2 && a->args[1] == a->args[0]) ||
        !rec_dict_pairs(r, &from, &pairs, &n))
        return false;
    if (attrs && (owner = owner_of(r, a->args[0], pairs, n)) == 0) {
        free(pairs);
        return false;
    }
    if (attrs)
        put_attributes(r, owner, pairs, n);
    if (own)
        rec_put_in_own_dict(r, a->args[0], pairs, n);
    if (plain)
        put_items(r, a->args[0], pairs, n);
    free(pairs);
    return rec_model_value(r, a, rec_const(r, Py_None));
}

/* d |= other, of the same. */
bool
rec_join_in_place(rec *r, int imm)
{
    kin_vid dict = rec_peek(r, 1), other = rec_peek(r, 0), *pairs = NULL;
    const rec_virtual *f = VIRTUAL(r, dict);
    uint32_t n = 0;
    if (imm != KIN_BINARY_INPLACE_OR || f == NULL || f->kind != VIRTUAL_DICT || !f->known || r->info.at[dict].type != &PyDict_Type || dict == other ||
        O(r, other) == NULL || !rec_dict_pairs(r, &(rec_args){.args = &other, .npos = 1}, &pairs, &n))
        return false;
    put_items(r, dict, pairs, n);
    free(pairs);
    rec_drop(r, 2);
    rec_push(r, dict);
    return true;
}

/* Of one that is known, or of another. */
#define ORDERED(name, known, other) \
    static bool name(rec *r, const rec_args *a) { return known(r, a) || other(r, a); }
ORDERED(move_to_end, ordered_move, rec_change_ordered)
ORDERED(popitem, ordered_popitem, rec_change_ordered)
ORDERED(pop, ordered_pop, rec_change_ordered)
ORDERED(update, rec_model_dict_update, rec_update_ordered)
#undef ORDERED

const rec_method_row rec_ordered_rows[] = {
    {"OrderedDict", model_ordered_dict}, {"OrderedDict.__setitem__", rec_model_dict_setitem}, {"OrderedDict.move_to_end", move_to_end},
    {"OrderedDict.popitem", popitem}, {"OrderedDict.pop", pop}, {"OrderedDict.copy", ordered_copy},
    {"OrderedDict.update", update}, {"OrderedDict.fromkeys", rec_model_fromkeys}, {NULL, NULL}};

/* Does the class leave reading and writing to dict? _count_elements asks its instances for nothing else then. */
static bool
counts_as_dict(rec *r, kin_vid dict)
{
    PyTypeObject *tp = rec_need_attrs(r, dict);
    return rec_lookup(r, tp, REC_STR("get")) == _PyType_Lookup(&PyDict_Type, REC_STR("get")) &&
           rec_lookup(r, tp, REC_STR("__setitem__")) == _PyType_Lookup(&PyDict_Type, REC_STR("__setitem__"));
}

/* How often the item occurs, with what the dict says of it already; pairs: those that were counted. False: it is no number. */
static bool
count_item(rec *r, const rec_virtual *f, kin_vid key, kin_vid *pairs, uint32_t *n)
{
    uint32_t k = 0;
    while (k < *n && !kin_exact_same_key(O(r, pairs[k]), O(r, key)))
        k += 2;
    kin_vid *found = k < *n ? &pairs[k + 1] : rec_pairs_find(r, f, O(r, key));
    if (found != NULL && (O(r, *found) == NULL || !PyLong_CheckExact(O(r, *found)) || rec_need_const(r, *found) == 0))
        return false;
    PyObject *one = PyLong_FromLong(1), *number = found != NULL && one != NULL ? PyNumber_Add(O(r, *found), one) : Py_XNewRef(one);
    pairs[k] = k < *n ? pairs[k] : key; /* the first of those that are equal */
    pairs[k + 1] = rec_const(r, number);
    *n = k < *n ? *n : *n + 2;
    Py_XDECREF(one);
    Py_XDECREF(number);
    return true;
}

bool
rec_count_items(rec *r, kin_vid dict, const kin_vid *items, uint32_t n, kin_vid *pairs, uint32_t *npairs)
{
    const rec_virtual *f = rec_own_mapping(r, dict);
    kin_vid key;
    bool ok = f != NULL && n <= MOST_COUNTED && counts_as_dict(r, dict);
    *npairs = 0;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = (key = rec_pin_key(r, items[i])) != 0 && count_item(r, f, key, pairs, npairs);
    return ok;
}

/* Counter(items): _count_elements puts how often each occurs into the new Counter. */
static bool
model_count_elements(rec *r, const rec_args *a)
{
    kin_vid *items = NULL, pairs[2 * MOST_COUNTED], from = a->npos == 2 ? a->args[1] : 0;
    uint32_t n, npairs;
    if (a->npos != 2 || a->nkw || O(r, from) == NULL || kin_is_tensor(O(r, from)) || rec_own_mapping(r, a->args[0]) == NULL ||
        !rec_iterated(r, &from, &items, &n))
        return false;
    bool ok = rec_count_items(r, a->args[0], items, n, pairs, &npairs);
    free(items);
    if (!ok)
        return false;
    rec_put_in_own_dict(r, a->args[0], pairs, npairs);
    return rec_model_value(r, a, rec_const(r, Py_None));
}

const rec_method_row rec_default_rows[] = {
    {"_count_elements", model_count_elements},{"defaultdict", model_default_dict}, {NULL, NULL}};
