/* table[key] for keys that hash and compare by address: a tensor, a module, an instance of a plain class.
 *
 * Optimizers find the state of a parameter this way (in a defaultdict), and caches what belongs to a module. Which entry it
 * is turns out when the step runs. No user code runs: a tensor's __hash__ is torch's own and returns the address, and
 * a defaultdict creates missing values with a builtin class.
 */
#include "py/compat/heap.h"
#include "py/objects/objects.h"

static bool
is_defaultdict(PyTypeObject *tp)
{
    return kin_heap_type_is(tp, "collections.defaultdict");
}

static bool
is_builtin_factory(const PyObject *factory)
{
    const void *const known[] = {Py_None, &PyDict_Type, &PyList_Type, &PySet_Type, &PyLong_Type, &PyFloat_Type, &PyTuple_Type,
                                 &PyUnicode_Type, &PyBool_Type, &PyODict_Type};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (factory == known[i])
            return true;
    return false;
}

/* A defaultdict's factory is a builtin class, now and in later calls. */
static bool
needs_factory(rec *r, kin_vid table)
{
    const rec_virtual *f = VIRTUAL(r, table);
    if (f != NULL)
        return f->kind == VIRTUAL_DICT && f->aux != NULL && is_builtin_factory(f->aux);
    PyObject *factory = PyObject_GetAttrString(O(r, table), "default_factory"); /* a member of a C class */
    bool no_code = factory != NULL && is_builtin_factory(factory);
    Py_XDECREF(factory);
    PyErr_Clear();
    if (!no_code)
        return false;
    attr_result at = {0};
    rec_attr_generic(r, table, REC_STR("default_factory"), &at);
    return at.kind == ATTR_VALUE && rec_need_const(r, at.value) != 0;
}

/* Which entry it is turns out when the step runs; a defaultdict may have one more then. */
static void
look_up_late(rec *r, const kin_vid *args, bool makes)
{
    rec_virtual *own = makes ? VIRTUAL(r, args[0]) : NULL;
    r->keep_inside = own == NULL;
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, 0, args, 2);
    r->keep_inside = false;
    if (own != NULL)
        own->known = false;
    if (makes)
        rec_end_epoch(r);
    r->skip_expected = true; /* a tensor's hash is Python code */
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

bool
rec_keyed_item(rec *r, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    PyObject *key = O(r, args[1]);
    bool makes = is_defaultdict(tp), plain = kin_is_exact_immutable(key) && !PyTuple_Check(key);
    if ((tp != &PyDict_Type && tp != &PyODict_Type && !makes) || (makes && !needs_factory(r, args[0])))
        return false;
    if (plain ? !makes : PyTuple_Check(key) || !kin_exact_runs_no_code(key, false)) /* in another dict, a key of these kinds is known */
        return false;
    if (VIRTUAL(r, args[0]) == NULL)
        rec_need_type(r, args[0]);
    if (VIRTUAL(r, args[1]) == NULL)
        rec_need_type(r, args[1]);
    if (!plain)
        (void)rec_need_no_code(r, args[1], false); /* the class may be given a __hash__ */
    look_up_late(r, args, makes);
    return true;
}

/* d[key] of a defaultdict made here that lacks the key: what its factory makes is put in, and is the result. */
bool
rec_subscr_missing(rec *r, kin_vid dict, kin_vid key)
{
    rec_virtual *f = VIRTUAL(r, dict);
    PyObject *k = O(r, key);
    if (f == NULL || f->kind != VIRTUAL_DICT || !f->known || f->aux == NULL || r->info.at[dict].type == NULL ||
        !is_defaultdict(r->info.at[dict].type) || !rec_is_known_key(r, key) || rec_pairs_find(r, f, k) != NULL)
        return false;
    PyObject *factory = f->aux;
    kin_vid name = rec_need_const(r, key), callee = rec_const(r, factory);
    bool list = factory == (PyObject *)&PyList_Type, map = factory == (PyObject *)&PyDict_Type, set = factory == (PyObject *)&PySet_Type;
    kin_vid value;
    if (list || map || set) {
        value = set ? rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, &callee, 1)
                    : rec_step_out(r, list ? KIN_STEP_BUILD_LIST : KIN_STEP_BUILD_MAP, KIN_STEP_PURE, NULL, 0);
        rec_make_virtual(r, value, list ? VIRTUAL_LIST : map ? VIRTUAL_DICT : VIRTUAL_SET, NULL, 0, !set);
        r->info.at[value].type = (PyTypeObject *)factory;
    } else {
        PyObject *zero = PyObject_CallNoArgs(factory);
        value = zero != NULL ? rec_const(r, zero) : 0;
        Py_XDECREF(zero);
        PyErr_Clear();
    }
    const kin_vid args[3] = {dict, name, value};
    rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
    rec_pairs_put(r, VIRTUAL(r, dict), name, value);
    rec_changed(r, dict);
    rec_drop(r, 2);
    if (O(r, value) != NULL)
        rec_push(r, value);
    else
        rec_await_result(r, value, r->t->vals.at[value].step);
    return true;
}
