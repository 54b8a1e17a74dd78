/* collections.namedtuple("P", ["a", "b"]) in the compiled function: each call makes a class of its own. What it is like follows from the operands, so
 * instances and their fields are known, and the class itself is made by a step that is sunk until somebody wants it or an instance. While it is recorded,
 * its value stands wherever a constant would (rec_const).
 */
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

enum { MOST_FIELDS = 100, MOST_KEYWORDS = 4, MOST_MADE = 16 };

/* A text, or the known texts of a list or tuple as a tuple; 0: neither. */
static kin_vid
field_names(rec *r, kin_vid vid)
{
    kin_vid *items = NULL, names = 0;
    uint32_t n = 0;
    if (O(r, vid) == NULL)
        return 0;
    if (PyUnicode_CheckExact(O(r, vid)))
        return rec_pin_key(r, vid);
    bool ok = (PyList_CheckExact(O(r, vid)) || PyTuple_CheckExact(O(r, vid))) && rec_items_of(r, vid, &items, &n) && n <= MOST_FIELDS;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = O(r, items[i]) != NULL && PyUnicode_CheckExact(O(r, items[i])) && (items[i] = rec_pin_key(r, items[i])) != 0;
    if (ok)
        names = rec_build_tuple(r, items, n, NULL);
    free(items);
    return names;
}

static bool
is_field_name(PyObject *name)
{
    PyObject *keyword = PyUnicode_IsIdentifier(name) == 1 && PyUnicode_READ_CHAR(name, 0) != '_' ? kin_import_call("keyword", "iskeyword", name) : NULL;
    bool ok = keyword == Py_False;
    Py_XDECREF(keyword);
    PyErr_Clear();
    return ok;
}

/* How many fields there are; -1: the call raises. */
static Py_ssize_t
count_fields(PyObject *names, bool renamed)
{
    PyObject *spaced = PyUnicode_Check(names) ? PyObject_CallMethod(names, "replace", "ss", ",", " ") : NULL;
    PyObject *list = spaced != NULL ? PyUnicode_Split(spaced, NULL, -1) : PySequence_List(names), *set = list != NULL ? PySet_New(list) : NULL;
    Py_ssize_t n = set != NULL && (renamed || PySet_GET_SIZE(set) == PyList_GET_SIZE(list)) ? PyList_GET_SIZE(list) : -1;
    for (Py_ssize_t i = 0; i < n && !renamed; i++)
        if (!is_field_name(PyList_GET_ITEM(list, i)))
            n = -1;
    Py_XDECREF(set);
    Py_XDECREF(list);
    Py_XDECREF(spaced);
    PyErr_Clear();
    return n;
}

/* Does the call replace names that are no names of fields? */
static bool
renames(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->nkw; i++)
        if (rec_is_keyword(a, i, "rename"))
            return O(r, a->args[a->npos + i]) == Py_True;
    return false;
}

/* Will the call return? */
static bool
is_right(rec *r, const rec_args *a)
{
    PyObject *names = O(r, a->args[1]);
    bool known = names != NULL && (PyUnicode_CheckExact(names) || PyList_CheckExact(names) || PyTuple_CheckExact(names));
    Py_ssize_t n = known ? count_fields(names, renames(r, a)) : -1;
    for (uint32_t i = 0; n >= 0 && i < a->nkw; i++) {
        PyObject *value = O(r, a->args[a->npos + i]);
        bool defaults = rec_is_keyword(a, i, "defaults");
        if (value == NULL || (defaults && value != Py_None && (!PyTuple_CheckExact(value) || PyTuple_GET_SIZE(value) > n)))
            return false;
    }
    return n >= 0 && O(r, a->args[0]) != NULL && PyUnicode_CheckExact(O(r, a->args[0])) && is_field_name(O(r, a->args[0]));
}

/* The name of the module of the function that calls: namedtuple() looks it up in the caller's frame, which replay has not. */
static kin_vid
module_of_caller(rec *r)
{
    kin_vid globals = rec_frame_globals(r);
    PyObject *dict = O(r, globals), *name = PyDict_CheckExact(dict) ? PyDict_GetItemWithError(dict, REC_STR("__name__")) : NULL;
    PyErr_Clear();
    return name != NULL && PyUnicode_CheckExact(name) ? rec_need_const(r, rec_dict_item(r, globals, REC_STR("__name__"), name)) : 0;
}

/* The keywords, with the module among them. */
static bool
read_keywords(rec *r, const rec_args *a, kin_vid *values, PyObject **names)
{
    bool module = false, ok = true;
    for (uint32_t i = 0; ok && i < a->nkw; i++) {
        module = module || rec_is_keyword(a, i, "module");
        ok = (values[i] = rec_need_const(r, a->args[a->npos + i])) != 0;
    }
    Py_ssize_t n = a->nkw + !module;
    if (ok && !module)
        ok = (values[a->nkw] = module_of_caller(r)) != 0;
    *names = ok ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; *names != NULL && i < n; i++)
        PyTuple_SET_ITEM(*names, i, Py_NewRef(i < (Py_ssize_t)a->nkw ? PyTuple_GET_ITEM(a->kwnames, i) : REC_STR("module")));
    return *names != NULL;
}

bool
rec_call_namedtuple(rec *r, const rec_args *a)
{
    static rec_library own;
    kin_vid all[3 + MOST_KEYWORDS + 1] = {a->callee};
    PyObject *names = NULL;
    uint32_t start = r->t->steps.len;
    if (a->npos != 2 || a->nkw > MOST_KEYWORDS || r->region != NULL || r->made_classes.len >= MOST_MADE ||
        !rec_library_is_named(&own, "collections", "namedtuple", O(r, a->callee)) || !is_right(r, a))
        return false;
    bool ok = (all[1] = rec_pin_key(r, a->args[0])) != 0 && (all[2] = field_names(r, a->args[1])) != 0 && read_keywords(r, a, all + 3, &names);
    if (!ok) {
        rec_truncate(r, start);
        return false;
    }
    rec_fix_function(r, &all[0]);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, 3 + (uint32_t)PyTuple_GET_SIZE(names));
    kin_ref ref = rec_ref(r, names);
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    Py_DECREF(names);
    rec_make_virtual(r, out, VIRTUAL_OTHER, NULL, 0, false);
    r->info.at[out].type = &PyType_Type;
    r->info.at[out].as_const = out;
    if (kin_vec_push(&r->made_classes, out) != KIN_OK)
        r->status = KIN_NOMEM;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    r->skip_expected = true;
    return true;
}
