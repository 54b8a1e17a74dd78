/* Finds the row of core/trace/callables.def that a callable has. The objects that the rows name are looked up once, when the first callable
 * is asked about; a row whose module or name does not exist in this Python is ignored.
 */
#include "py/compat/heap.h"
#include "py/recorder/callables.h"

#include "py/refs/refs.h"

typedef struct {
    const char *module, *name;
    uint32_t effects;
    unsigned knows;
} row;

static const row rows[] = {
#define CALLABLE(module, name, looks, does, knows, model) {module, name, (looks) | (does) | KIN_MAY_RUN | KIN_MAY_RAISE, knows},
#include "core/trace/callables.def"
#undef CALLABLE
};
enum { NROWS = sizeof rows / sizeof *rows };

static kin_refs known;              /* the callables: numbered from 1 in the order in which they were added */
static KIN_VEC(uint16_t) row_of;    /* by that number */
static PyCFunction tp_new;          /* the C function of object.__new__ and of all its like */
static int tp_new_row = -1;

static void
add(PyObject *callable, unsigned r)
{
    kin_ref ref; /* without memory nothing is known of it */
    if (kin_refs_find(&known, callable) == 0 && kin_vec_reserve(&row_of, 1) == KIN_OK && kin_refs_add(&known, callable, &ref) == KIN_OK)
        row_of.at[row_of.len++] = (uint16_t)r;
}

/* The object with that name in the class (not bound to it) or in the module; new reference. */
static PyObject *
find_part(PyObject *home, const char *name)
{
    PyObject *found = PyType_Check(home) ? Py_XNewRef(PyDict_GetItemString(kin_type_dict((PyTypeObject *)home), name)) : PyObject_GetAttrString(home, name);
    PyErr_Clear();
    if (found != NULL && PyInstanceMethod_Check(found))
        Py_SETREF(found, Py_NewRef(PyInstanceMethod_GET_FUNCTION(found)));
    return found;
}

/* All C functions of a module, all methods of a class. */
static void
add_all(PyObject *home, unsigned r)
{
    PyObject *dict = PyType_Check(home) ? kin_type_dict((PyTypeObject *)home) : PyModule_Check(home) ? PyModule_GetDict(home) : NULL, *key, *value;
    Py_ssize_t pos = 0;
    while (dict != NULL && PyDict_Next(dict, &pos, &key, &value))
        if (PyType_Check(home) ? Py_IS_TYPE(value, &PyMethodDescr_Type) : PyCFunction_Check(value))
            add(value, r);
}

static void
add_row(unsigned r, bool wildcards)
{
    const char *name = rows[r].name, *dot = strchr(name, '.'), *last = dot != NULL ? dot + 1 : name;
    if ((strcmp(last, "*") == 0) != wildcards)
        return;
    PyObject *home = PyImport_ImportModule(rows[r].module);
    if (home != NULL && dot != NULL) {
        char cls[64];
        snprintf(cls, sizeof cls, "%.*s", (int)(dot - name), name);
        Py_SETREF(home, find_part(home, cls));
    }
    PyObject *found = home != NULL && !wildcards ? find_part(home, last) : NULL;
    if (home != NULL && wildcards)
        add_all(home, r);
    if (found != NULL)
        add(found, r);
    if (found != NULL && strcmp(name, "object.__new__") == 0 && PyCFunction_Check(found)) {
        tp_new = PyCFunction_GET_FUNCTION(found);
        tp_new_row = (int)r;
    }
    Py_XDECREF(found);
    Py_XDECREF(home);
    PyErr_Clear();
}

static void
find_all(void)
{
    if (kin_refs_init(&known) != KIN_OK || kin_vec_push(&row_of, 0) != KIN_OK)
        return;
    for (int wildcards = 0; wildcards < 2; wildcards++)
        for (unsigned r = 0; r < NROWS; r++)
            add_row(r, wildcards);
}

int
rec_callable_row(PyObject *callable)
{
    static bool tried;
    if (!tried) {
        tried = true;
        find_all();
    }
    kin_ref ref = kin_refs_find(&known, callable);
    if (ref != 0 && ref < row_of.len)
        return row_of.at[ref];
    return tp_new != NULL && PyCFunction_Check(callable) && PyCFunction_GET_FUNCTION(callable) == tp_new ? tp_new_row : -1;
}

bool
rec_callable_knows(PyObject *callable, unsigned what)
{
    int r = rec_callable_row(callable);
    return r >= 0 && rows[r].knows & what;
}

uint32_t
rec_callable_effects(PyObject *callable)
{
    int r = rec_callable_row(callable);
    if (r >= 0)
        return rows[r].effects;
    return kin_kind_effects(KIN_STEP_CALL) | (PyType_Check(callable) ? KIN_INSIDE : 0u);
}

PyObject *
rec_callable_settings(void)
{
    PyObject *names = PyList_New(0);
    for (unsigned r = 0; names != NULL && r < NROWS; r++) {
        const char *name = rows[r].name;
        bool reads = rows[r].effects & KIN_SETTINGS && !(rows[r].effects & KIN_STORES) && strcmp(rows[r].module, "torch._C") == 0 &&
                     (strncmp(name, "_get_", 5) == 0 || strncmp(name, "_is_", 4) == 0 || strncmp(name, "get_", 4) == 0 || strncmp(name, "is_", 3) == 0);
        PyObject *text = reads ? PyUnicode_FromString(name) : NULL;
        if (reads && (text == NULL || PyList_Append(names, text) < 0))
            Py_CLEAR(names);
        Py_XDECREF(text);
    }
    return names;
}
