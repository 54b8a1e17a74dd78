/* A trace as text for readers: paths of values, constants, guards, steps, source positions. */
#include "py/aten/sizes.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/guardeval/guard_source.h"
#include "py/report/dump_priv.h"
#include "py/report/guard_text_priv.h"

#include <string.h>
#include <structmember.h>

#include "core/bytecode/canon.h"

int
dump_set(PyObject *dict, const char *key, PyObject *value)
{
    if (value == NULL)
        return -1;
    int status = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return status;
}

/* ---- names of objects ---- */

/* obj.attr as str (new), or NULL without an exception. */
static PyObject *
get_str(PyObject *obj, const char *attr)
{
    PyObject *value = PyObject_GetAttrString(obj, attr);
    if (value == NULL)
        PyErr_Clear();
    else if (!PyUnicode_Check(value))
        Py_CLEAR(value);
    return value;
}

/* torch.sin and its like are static methods of a class that stands for the module: their names without that class. */
static PyObject *
variable_function_name(PyObject *callable)
{
    PyObject *name = PyCFunction_Check(callable) ? get_str(callable, "__qualname__") : NULL;
    const char *chars = kin_utf8(name), *dot = strncmp(chars, "_VariableFunctions", 18) == 0 ? strchr(chars, '.') : NULL;
    PyObject *text = dot != NULL ? PyUnicode_FromFormat("torch.%s", dot + 1) : NULL;
    Py_XDECREF(name);
    return text;
}

static bool
is_operator_overload(PyObject *callable)
{
    return strstr(Py_TYPE(callable)->tp_name, "OpOverload") != NULL;
}

/* module.name where that is a valid path, else NULL without an exception. */
static PyObject *
join_module_name(PyObject *callable)
{
    PyObject *module = get_str(callable, "__module__"), *text = NULL;
    /* A C function of a module that pybind11 made is bound to a record, whose type is no part of the name. */
    PyObject *name = module != NULL && PyCFunction_Check(callable) ? NULL : get_str(callable, "__qualname__");
    if (name == NULL)
        name = get_str(callable, "__name__");
    if (module != NULL && name != NULL) {
        const char *chars = kin_utf8(module);
        if (strcmp(chars, "builtins") == 0)
            text = Py_NewRef(name);
        else if (strcmp(chars, "_operator") == 0)
            text = PyUnicode_FromFormat("operator.%U", name);
        else
            text = PyUnicode_FromFormat("%U.%U", module, name);
    } else if (name != NULL && (PyCFunction_Check(callable) || Py_TYPE(callable) == &PyMethodDescr_Type)) {
        text = Py_NewRef(name);
    }
    Py_XDECREF(module);
    Py_XDECREF(name);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

PyObject *
dump_dotted_name(PyObject *callable)
{
    PyObject *text = variable_function_name(callable);
    if (text != NULL || PyErr_Occurred())
        return text;
    if (is_operator_overload(callable)) {
        PyObject *name = PyObject_Str(callable);
        text = name != NULL ? PyUnicode_FromFormat("torch.ops.%U", name) : NULL;
        Py_XDECREF(name);
    } else {
        text = join_module_name(callable);
    }
    if (text == NULL && !PyErr_Occurred())
        text = PyUnicode_FromFormat("<%s object>", Py_TYPE(callable)->tp_name);
    return text;
}

static bool
has_name_of_its_own(PyObject *value)
{
    return PyType_Check(value) || PyFunction_Check(value) || PyCFunction_Check(value)
           || Py_TYPE(value) == &PyMethodDescr_Type;
}

/* Name of the module whose namespace this is; borrowed, NULL for any other object. */
static PyObject *
namespace_name(PyObject *value)
{
    if (value == NULL || !PyDict_CheckExact(value) || PyDict_GetItemString(value, "__spec__") == NULL)
        return NULL;
    PyObject *name = PyDict_GetItemString(value, "__name__");
    return name != NULL && PyUnicode_Check(name) ? name : NULL;
}

/* Containers are shown by their elements only while they are small. */
static PyObject *
large_container_text(PyObject *value)
{
    enum { SHOWN = 16 };
    Py_ssize_t n = 0;
    if (PyDict_CheckExact(value))
        n = PyDict_GET_SIZE(value);
    else if (PyList_CheckExact(value) || PyTuple_CheckExact(value))
        n = Py_SIZE(value);
    else if (PyAnySet_CheckExact(value))
        n = PySet_GET_SIZE(value);
    if (value == PyImport_GetModuleDict())
        return PyUnicode_FromString("sys.modules");
    return n > SHOWN ? PyUnicode_FromFormat("<%s of %zd>", Py_TYPE(value)->tp_name, n) : NULL;
}

/* classmethod(Class.function), whose repr() has an address in it. */
static PyObject *
wrapped_text(PyObject *value)
{
    PyObject *func = PyObject_GetAttrString(value, "__func__"), *name = func != NULL && PyFunction_Check(func) ? dump_dotted_name(func) : NULL;
    PyObject *text = name != NULL ? PyUnicode_FromFormat("%s(%U)", Py_TYPE(value)->tp_name, name) : NULL;
    Py_XDECREF(func);
    Py_XDECREF(name);
    PyErr_Clear();
    return text != NULL ? text : PyUnicode_FromFormat("<%s object>", Py_TYPE(value)->tp_name);
}

PyObject *
dump_constant_text(PyObject *value)
{
    if (value == NULL)
        return PyUnicode_FromString("<missing>");
    PyObject *module = namespace_name(value);
    if (module != NULL)
        return PyUnicode_FromFormat("%U.__dict__", module);
    if (value == Py_Ellipsis)
        return PyUnicode_FromString("Ellipsis");
    if (PyModule_Check(value)) {
        PyObject *name = PyModule_GetNameObject(value);
        if (name == NULL)
            PyErr_Clear();
        return name != NULL ? name : PyUnicode_FromString("<module>");
    }
    if (has_name_of_its_own(value))
        return dump_dotted_name(value);
    if (PyCode_Check(value))
        return PyUnicode_FromFormat("<code %U>", ((PyCodeObject *)value)->co_qualname);
    if (Py_IS_TYPE(value, &PyClassMethod_Type) || Py_IS_TYPE(value, &PyStaticMethod_Type))
        return wrapped_text(value);
    /* Only builtin values and torch's small ones have a repr worth running; others may print pages. */
    const char *type_name = Py_TYPE(value)->tp_name;
    if (strcmp(type_name, "Tensor") == 0 || strcmp(type_name, "Parameter") == 0)
        return PyUnicode_FromString("self._tensor_constant");
    if (Py_TYPE(value)->tp_flags & Py_TPFLAGS_HEAPTYPE)
        return PyUnicode_FromFormat("<%s object>", type_name);
    PyObject *text = large_container_text(value);
    if (text != NULL || PyErr_Occurred())
        return text;
    text = PyObject_Repr(value);
    if (text == NULL) {
        PyErr_Clear();
        return PyUnicode_FromFormat("<%s object>", type_name);
    }
    if (PyUnicode_GET_LENGTH(text) > 160) {
        PyObject *head = PyUnicode_Substring(text, 0, 157);
        Py_SETREF(text, head != NULL ? PyUnicode_FromFormat("%U...", head) : NULL);
        Py_XDECREF(head);
    }
    return text;
}

/* ---- paths ---- */

static PyObject *
ref_text(dumper *d, uint32_t ref)
{
    return dump_constant_text(ref < d->refs->objs.len ? kin_refs_get(d->refs, ref) : NULL);
}

static PyCodeObject *
function_code(dumper *d)
{
    PyObject *func = d->v->func;
    return func != NULL && PyFunction_Check(func) ? (PyCodeObject *)PyFunction_GET_CODE(func) : NULL;
}

static PyObject *
local_text(dumper *d, uint32_t i)
{
    PyCodeObject *code = function_code(d);
    if (code == NULL || (Py_ssize_t)i >= PyTuple_GET_SIZE(code->co_localsplusnames))
        return PyUnicode_FromFormat("L[%u]", i);
    return PyUnicode_FromFormat("L['%U']", PyTuple_GET_ITEM(code->co_localsplusnames, i));
}

/* A free variable reads as a local, as PyTorch writes it. */
static PyObject *
closure_text(dumper *d, const kin_val *val, PyObject *parent)
{
    PyCodeObject *code = function_code(d);
    if (code != NULL && d->t->vals.at[val->parent].access == KIN_ACCESS_FUNC && d->t->vals.at[val->parent].parent == 0) {
        Py_ssize_t i = (Py_ssize_t)val->key + code->co_nlocalsplus - code->co_nfreevars;
        if (i >= 0 && i < PyTuple_GET_SIZE(code->co_localsplusnames))
            return PyUnicode_FromFormat("L['%U']", PyTuple_GET_ITEM(code->co_localsplusnames, i));
    }
    return PyUnicode_FromFormat("%U.__closure__[%u]", parent, val->key);
}

static PyObject *
attribute_text(dumper *d, PyObject *parent, uint32_t ref)
{
    PyObject *name = ref < d->refs->objs.len ? kin_refs_get(d->refs, ref) : NULL;
    if (name == NULL || !PyUnicode_Check(name))
        return PyUnicode_FromFormat("%U.?", parent);
    return PyUnicode_FromFormat("%U.%U", parent, name);
}

static PyObject *
keyed_text(dumper *d, PyObject *parent, uint32_t ref)
{
    PyObject *key = ref_text(d, ref);
    PyObject *text = key != NULL ? PyUnicode_FromFormat("%U[%U]", parent, key) : NULL;
    Py_XDECREF(key);
    return text;
}

static PyObject *
dict_item_text(dumper *d, const kin_val *val, PyObject *parent)
{
    const kin_val *owner = &d->t->vals.at[val->parent];
    PyObject *module = owner->kind == KIN_VAL_CONST ? namespace_name(kin_refs_get(d->refs, owner->key)) : NULL;
    if (module != NULL)
        return attribute_text(d, module, val->key);
    if (owner->kind != KIN_VAL_SRC || owner->access != KIN_ACCESS_INSTDICT)
        return keyed_text(d, parent, val->key);
    PyObject *object = dump_path(d, owner->parent);
    PyObject *text = object != NULL ? attribute_text(d, object, val->key) : NULL;
    Py_XDECREF(object);
    return text;
}

/* The class of a value, if it is a constant or a guard asks for it; borrowed or NULL. */
static PyTypeObject *
class_of(dumper *d, kin_vid vid)
{
    const kin_val *val = &d->t->vals.at[vid];
    PyObject *constant = val->kind == KIN_VAL_CONST ? kin_refs_get(d->refs, val->key) : NULL;
    for (uint32_t i = 0; constant == NULL && i < d->t->facts.len; i++) {
        const kin_fact *fact = &d->t->facts.at[i];
        PyObject *asked = fact->kind == KIN_FACT_TYPE && fact->vid == vid ? kin_refs_get(d->refs, fact->ref) : NULL;
        if (asked != NULL && PyType_Check(asked))
            return (PyTypeObject *)asked;
    }
    return constant != NULL ? Py_TYPE(constant) : NULL;
}

/* What is at a byte offset of the object: the name that a descriptor of its class has for it. */
static PyObject *
member_text(dumper *d, const kin_val *val, PyObject *parent)
{
    PyTypeObject *tp = class_of(d, val->parent);
    PyObject *mro = tp != NULL ? tp->tp_mro : NULL, *name, *descr;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyObject *dict = kin_type_dict((PyTypeObject *)PyTuple_GET_ITEM(mro, i));
        Py_ssize_t pos = 0;
        while (dict != NULL && PyDict_Next(dict, &pos, &name, &descr))
            if (Py_IS_TYPE(descr, &PyMemberDescr_Type) && ((PyMemberDescrObject *)descr)->d_member->offset == (Py_ssize_t)val->key)
                return PyUnicode_FromFormat("%U.%U", parent, name);
    }
    return PyUnicode_FromFormat("%U.<member>", parent);
}

static PyObject *
source_text(dumper *d, const kin_val *val, PyObject *parent)
{
    PyObject *parameter = kin_forward_parameter(d->v, val);
    if (parameter != NULL)
        return PyUnicode_FromFormat("L['%U']", parameter);
    switch ((kin_access)val->access) {
    case KIN_ACCESS_LOCAL: return local_text(d, val->key);
    case KIN_ACCESS_FUNC: return PyUnicode_FromString("F");
    case KIN_ACCESS_GLOBALS: return PyUnicode_FromString("G");
    case KIN_ACCESS_BUILTINS: return PyUnicode_FromString("G['__builtins__']");
    case KIN_ACCESS_DEFAULT: return PyUnicode_FromFormat("%U.__defaults__[%u]", parent, val->key);
    case KIN_ACCESS_KWDEFAULT: return PyUnicode_FromFormat("%U.__kwdefaults__", parent);
    case KIN_ACCESS_CLOSURE: return closure_text(d, val, parent);
    case KIN_ACCESS_CELL: return Py_NewRef(parent);
    case KIN_ACCESS_INSTDICT: return PyUnicode_FromFormat("%U.__dict__", parent);
    case KIN_ACCESS_IATTR:
    case KIN_ACCESS_TYPEATTR: return attribute_text(d, parent, val->key);
    case KIN_ACCESS_TYPE: return PyUnicode_FromFormat("type(%U)", parent);
    case KIN_ACCESS_MEMBER: return member_text(d, val, parent);
    case KIN_ACCESS_DICT_ITEM: return dict_item_text(d, val, parent);
    case KIN_ACCESS_DICT_KEY: return PyUnicode_FromFormat("list(%U)[%u]", parent, val->key);
    case KIN_ACCESS_LIST_ITEM:
    case KIN_ACCESS_TUPLE_ITEM: return PyUnicode_FromFormat("%U[%u]", parent, val->key);
    case KIN_ACCESS_METHOD_FUNC: return PyUnicode_FromFormat("%U.__func__", parent);
    case KIN_ACCESS_METHOD_SELF: return PyUnicode_FromFormat("%U.__self__", parent);
    case KIN_ACCESS_PARTIAL_FUNC: return PyUnicode_FromFormat("%U.func", parent);
    case KIN_ACCESS_PARTIAL_ARGS: return PyUnicode_FromFormat("%U.args", parent);
    case KIN_ACCESS_PARTIAL_KW: return PyUnicode_FromFormat("%U.keywords", parent);
    case KIN_ACCESS_COMPILED_FUNC: return PyUnicode_FromFormat("%U.fn", parent);
    case KIN_ACCESS__COUNT: break;
    }
    return PyUnicode_FromFormat("%U.%s", parent, kin_access_name((kin_access)val->access));
}

static PyObject *step_expression(dumper *d, const kin_step *step);

/* A value that a step makes and no variable holds. */
static PyObject *
unnamed_text(dumper *d, kin_vid vid)
{
    enum { DEEPEST = 3 };
    const kin_val *val = &d->t->vals.at[vid];
    if (d->unfolded == 0)
        return PyUnicode_FromFormat("%%%u", vid);
    if (d->unfolded > DEEPEST || val->kind != KIN_VAL_STEP)
        return PyUnicode_FromString("...");
    d->unfolded++;
    PyObject *text = step_expression(d, &d->t->steps.at[val->step]);
    d->unfolded--;
    return text;
}

static PyObject *
make_path(dumper *d, kin_vid vid)
{
    const kin_val *val = &d->t->vals.at[vid];
    if (val->kind == KIN_VAL_CONST)
        return ref_text(d, val->key);
    if (val->kind != KIN_VAL_SRC) {
        PyObject *name = val->name ? kin_refs_get(d->refs, val->name) : NULL;
        if (d->names[vid] != NULL)
            return Py_NewRef(d->names[vid]);
        if (name != NULL && PyUnicode_Check(name))
            return Py_NewRef(name);
        if (d->locals[vid] == NULL)
            return unnamed_text(d, vid);
        return PyUnicode_FromFormat(d->unfolded != 0 ? "%U" : "L['%U']", d->locals[vid]);
    }
    PyObject *parent = NULL, *text = NULL;
    if (val->parent != 0 && (parent = dump_path(d, val->parent)) == NULL)
        return NULL;
    text = source_text(d, val, parent != NULL ? parent : Py_None);
    Py_XDECREF(parent);
    return text;
}

PyObject *
dump_path(dumper *d, kin_vid vid)
{
    if (vid == 0 || vid >= d->t->vals.len)
        return PyUnicode_FromString("NULL");
    if (d->paths[vid] == NULL) {
        if (Py_EnterRecursiveCall(" while naming a value"))
            return NULL;
        PyObject *text = make_path(d, vid);
        Py_LeaveRecursiveCall();
        if (text == NULL || d->t->vals.at[vid].kind == KIN_VAL_STEP)
            return text; /* the name of a step's value may still change */
        d->paths[vid] = text;
    }
    return Py_NewRef(d->paths[vid]);
}

PyObject *
dump_known_object(dumper *d, kin_vid vid)
{
    const kin_val *val = &d->t->vals.at[vid];
    if (vid == 0)
        return NULL;
    if (val->kind == KIN_VAL_CONST)
        return kin_refs_get(d->refs, val->key);
    if (val->kind != KIN_VAL_SRC)
        return NULL;
    for (uint32_t i = 0; i < d->t->facts.len; i++) {
        const kin_fact *fact = &d->t->facts.at[i];
        /* What a later epoch tests is not known before it, nor on other paths. */
        if (fact->vid == vid && fact->epoch == val->epoch && (fact->kind == KIN_FACT_ID || fact->kind == KIN_FACT_EQ))
            return kin_refs_get(d->refs, fact->ref);
    }
    return NULL;
}

/* ---- guards ---- */

/* (callable, args..., result) -> "torch.is_grad_enabled() == True" */
static PyObject *
format_state_fact(PyObject *tuple)
{
    if (tuple == NULL || !PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < 2)
        return PyUnicode_FromString("ambient state");
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    PyObject *name = dump_dotted_name(PyTuple_GET_ITEM(tuple, 0));
    PyObject *result = name != NULL ? dump_constant_text(PyTuple_GET_ITEM(tuple, n - 1)) : NULL;
    PyObject *args = result != NULL ? PyUnicode_FromString("") : NULL;
    for (Py_ssize_t i = 1; args != NULL && i < n - 1; i++) {
        PyObject *arg = dump_constant_text(PyTuple_GET_ITEM(tuple, i));
        Py_SETREF(args, arg != NULL ? PyUnicode_FromFormat(i > 1 ? "%U, %U" : "%U%U", args, arg) : NULL);
        Py_XDECREF(arg);
    }
    PyObject *text = args != NULL ? PyUnicode_FromFormat("%U(%U) == %U", name, args, result) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(result);
    Py_XDECREF(args);
    return text;
}

PyObject *
dump_fact_text(dumper *d, const kin_fact *fact)
{
    if (fact->kind == KIN_FACT_CALL_IS)
        return format_state_fact(fact->ref ? kin_refs_get(d->refs, fact->ref) : NULL);
    PyObject *source = dump_path(d, fact->vid), *ref = source != NULL ? ref_text(d, fact->ref) : NULL;
    PyObject *other = fact->vid2 != 0 ? dump_path(d, fact->vid2) : NULL;
    PyObject *text = ref != NULL && (other != NULL || fact->vid2 == 0) ? kin_fact_words(d->t, d->refs, fact, source, ref, other) : NULL;
    Py_XDECREF(source);
    Py_XDECREF(ref);
    Py_XDECREF(other);
    return text;
}

/* ---- steps ---- */

/* "key == 0", "sizes[1]": an operator as Python writes it; NULL without an exception: the step is another one. */
static PyObject *
operator_words(dumper *d, const kin_step *step)
{
    if (d->unfolded == 0 || step->nargs != 2 || (step->kind != KIN_STEP_SUBSCR && (step->kind != KIN_STEP_COMPARE || step->imm > Py_GE)))
        return NULL;
    PyObject *a = dump_path(d, d->t->vids.at[step->args]), *b = a != NULL ? dump_path(d, d->t->vids.at[step->args + 1]) : NULL, *text = NULL;
    if (b != NULL)
        text = step->kind == KIN_STEP_SUBSCR ? PyUnicode_FromFormat("%U[%U]", a, b) : PyUnicode_FromFormat("%U %s %U", a, kin_compare_operator(step->imm)->symbol, b);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return text;
}

/* "getattr(%3, 'shape')" */
static PyObject *
step_expression(dumper *d, const kin_step *step)
{
    PyObject *words = operator_words(d, step);
    if (words != NULL || PyErr_Occurred())
        return words;
    bool is_call = step->kind == KIN_STEP_CALL && step->nargs > 0;
    PyObject *head = is_call ? dump_path(d, d->t->vids.at[step->args])
                             : PyUnicode_FromString(kin_step_name((kin_step_kind)step->kind));
    PyObject *args = head != NULL ? PyUnicode_FromString("") : NULL;
    for (uint32_t i = is_call; args != NULL && i < step->nargs; i++) {
        PyObject *arg = dump_path(d, d->t->vids.at[step->args + i]);
        Py_SETREF(args, arg != NULL ? PyUnicode_FromFormat(i > is_call ? "%U, %U" : "%U%U", args, arg) : NULL);
        Py_XDECREF(arg);
    }
    PyObject *ref = args == NULL || step->ref == 0 ? NULL : ref_text(d, step->ref);
    PyObject *text = NULL;
    if (args != NULL && !PyErr_Occurred()) {
        text = PyUnicode_FromFormat("%U(%U%s%V)", head, args, ref != NULL && step->nargs > is_call ? ", " : "", ref, "");
    }
    Py_XDECREF(head);
    Py_XDECREF(args);
    Py_XDECREF(ref);
    return text;
}

PyObject *
dump_step_text(dumper *d, const kin_step *step)
{
    PyObject *text = step_expression(d, step);
    if (text != NULL && step->out != 0)
        Py_SETREF(text, PyUnicode_FromFormat("%%%u = %U", step->out, text));
    return text;
}

PyObject *
dump_step_words(dumper *d, const kin_step *step)
{
    PyObject *ref = step->ref != 0 ? kin_refs_get(d->refs, step->ref) : NULL;
    bool truth = step->kind == KIN_STEP_CHECK &&
                 (step->imm == KIN_CHECK_TRUE || step->imm == KIN_CHECK_FALSE || (step->imm == KIN_CHECK_IS && ref != NULL && PyBool_Check(ref)));
    d->unfolded++;
    PyObject *text = truth ? dump_path(d, d->t->vids.at[step->args]) : step_expression(d, step);
    d->unfolded--;
    if (text != NULL && truth)
        Py_SETREF(text, PyUnicode_FromFormat("if %U", text));
    return text;
}

/* ---- places ---- */

PyObject *
dump_code_line(dumper *d, PyObject *filename, int line)
{
    PyObject *key = Py_BuildValue("(Oi)", filename, line);
    if (key == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(d->lines, key);
    if (found != NULL || PyErr_Occurred()) {
        Py_DECREF(key);
        return Py_XNewRef(found);
    }
    PyObject *raw = PyObject_CallFunction(d->getline, "Oi", filename, line);
    PyObject *text = raw != NULL ? PyObject_CallMethod(raw, "strip", NULL) : NULL;
    if (text != NULL && PyDict_SetItem(d->lines, key, text) < 0)
        Py_CLEAR(text);
    Py_XDECREF(raw);
    Py_DECREF(key);
    return text;
}

dump_place
dump_snap_place(dumper *d, uint32_t snap)
{
    dump_place place = {0};
    if (snap == 0 || snap >= d->t->snaps.len)
        return place;
    const kin_snap *s = &d->t->snaps.at[snap];
    PyObject *code = kin_refs_get(d->refs, s->code);
    if (code == NULL || !PyCode_Check(code))
        return place;
    place.code = (PyCodeObject *)code;
    place.line = s->line ? (int)s->line : PyCode_Addr2Line(place.code, (int)s->offset);
    place.offset = (int)s->offset;
    return place;
}

static bool
is_torch_file(PyObject *filename)
{
    const char *name = kin_utf8(filename);
    return strstr(name, "site-packages/torch/") != NULL || strstr(name, "dist-packages/torch/") != NULL;
}

dump_place
dump_user_place(dumper *d, uint32_t snap)
{
    for (uint32_t s = snap; s != 0 && s < d->t->snaps.len; s = d->t->snaps.at[s].parent) {
        dump_place place = dump_snap_place(d, s);
        if (place.code != NULL && !is_torch_file(place.code->co_filename))
            return place;
    }
    return dump_snap_place(d, snap);
}

int
dump_set_place(PyObject *dict, dump_place place)
{
    if (place.code == NULL)
        return dump_set(dict, "filename", PyUnicode_FromString("")) < 0
                       || dump_set(dict, "line", PyLong_FromLong(0)) < 0
                       || dump_set(dict, "function", PyUnicode_FromString("")) < 0 ? -1 : 0;
    return PyDict_SetItemString(dict, "filename", place.code->co_filename) < 0
                   || dump_set(dict, "line", PyLong_FromLong(place.line)) < 0
                   || PyDict_SetItemString(dict, "function", place.code->co_name) < 0 ? -1 : 0;
}

PyObject *
dump_user_stack(dumper *d, uint32_t snap)
{
    PyObject *stack = PyList_New(0);
    for (uint32_t s = snap; stack != NULL && s != 0 && s < d->t->snaps.len; s = d->t->snaps.at[s].parent) {
        dump_place place = dump_snap_place(d, s);
        if (place.code == NULL)
            continue;
        PyObject *entry = Py_BuildValue("(OiO)", place.code->co_filename, place.line, place.code->co_name);
        if (entry == NULL || PyList_Insert(stack, 0, entry) < 0)
            Py_CLEAR(stack);
        Py_XDECREF(entry);
    }
    return stack;
}

PyObject *
dump_user_columns(dumper *d, uint32_t snap)
{
    PyObject *list = PyList_New(0);
    for (uint32_t s = snap; list != NULL && s != 0 && s < d->t->snaps.len; s = d->t->snaps.at[s].parent) {
        dump_place place = dump_snap_place(d, s);
        int line = 0, column = -1, end_line = -1, end_column = -1;
        if (place.code == NULL)
            continue;
        if (!PyCode_Addr2Location(place.code, place.offset, &line, &column, &end_line, &end_column) || line != place.line)
            column = end_line = end_column = -1;
        PyObject *entry = Py_BuildValue("(iii)", column, end_line, end_column);
        if (entry == NULL || PyList_Insert(list, 0, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}
