/* Steps that capture does not just run: one_hot, which looks at data; recurrent layers, which torch would take apart before the mode sees them; autograd functions of the program, whose
 * gradients are not those of the operators that they call; assignments by mask, from which torch would go back by operators whose sizes depend on data.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"

/* -- recurrent layers ----------------------------------------------------------------------------------------------- */

/* Recurrent layers (core/rewrite/match_recurrent.c) that the step calls as the modules do; NULL: it does something else. Packed sequences are something
 * else: there the weights come fourth. */
static const char *
recurrent_layers(const stepper *x, const kin_step *s)
{
    enum { NARGS = 9 };
    static const char *const names[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
    const kin_vid *args = x->t->vids.at + s->args;
    PyObject *fn = s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_TORCH && s->nargs == NARGS + 1 && s->ref == 0 ? capture_operand(x, args[0]) : NULL;
    PyObject *flag = fn != NULL ? capture_operand(x, args[4]) : NULL;
    for (unsigned i = 0; fn != NULL && PyCFunction_Check(fn) && i < sizeof names / sizeof *names; i++)
        if (strcmp(((PyCFunctionObject *)fn)->m_ml->ml_name, names[i]) == 0)
            return flag != NULL && PyBool_Check(flag) ? names[i] : NULL;
    return NULL;
}

/* What the step hands to what it calls, behind `first` (stolen; NULL: nothing). */
static PyObject *
arguments_of(const stepper *x, const kin_step *s, PyObject *first)
{
    uint32_t before = first != NULL;
    PyObject *args = PyTuple_New(s->nargs - 1 + before);
    if (first != NULL && args != NULL)
        PyTuple_SET_ITEM(args, 0, first);
    for (uint32_t a = 1; args != NULL && a < s->nargs; a++) {
        PyObject *obj = capture_operand(x, x->t->vids.at[s->args + a]);
        if (obj == NULL)
            Py_CLEAR(args);
        else
            PyTuple_SET_ITEM(args, a - 1 + before, Py_NewRef(obj));
    }
    return args;
}

/* made: stolen. */
static void
put_result(stepper *x, const kin_step *s, PyObject *made)
{
    if (s->out != 0)
        Py_XSETREF(x->slots[s->out], made);
    else
        Py_DECREF(made);
}

static bool
run_layers(stepper *x, const kin_step *s, const char *name)
{
    PyObject *args = arguments_of(x, s, NULL);
    PyObject *made = args == NULL ? NULL : kin_mode_call_whole(&x->c, name, args);
    Py_XDECREF(args);
    if (made == NULL) {
        kin_capture_refuse(&x->c, "this variant of %s is not supported", name);
        return false;
    }
    put_result(x, s, made);
    return true;
}

/* Layer by layer, as operators with gradients of our own (kintsugi/_recurrent.py). 1: done, 0: they are not of that kind, -1: it failed. */
static int
train_layers(stepper *x, const kin_step *s, const char *name)
{
    PyObject *first = PyUnicode_FromString(name), *args = first == NULL ? NULL : arguments_of(x, s, first);
    PyObject *function = args == NULL ? NULL : kin_import("kintsugi._recurrent", "layers");
    PyObject *made = function == NULL ? NULL : PyObject_CallObject(function, args);
    Py_XDECREF(function);
    Py_XDECREF(args);
    if (made == NULL || made == Py_NotImplemented) {
        Py_XDECREF(made);
        return made == NULL ? -1 : 0;
    }
    put_result(x, s, made);
    return 1;
}

/* -- autograd functions --------------------------------------------------------------------------------------------- */

static bool
calls_autograd_function(const stepper *x, const kin_step *s)
{
    return x->c.joint && s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_TORCH && s->nargs > 1 &&
           kin_is_autograd_apply(capture_operand(x, x->t->vids.at[s->args]));
}

/* False without memory. */
static bool
note_passed(capturing *c, PyObject *made)
{
    uint32_t number = kin_capture_number(made);
    uint32_t storage = number == UINT32_MAX ? 0 : kin_aten_at(c->out->graph, c->entries.at[number].val)->storage;
    bool ok = storage == 0 || storage > c->before || kin_vec_push(&c->passed, storage) == KIN_OK;
    for (Py_ssize_t i = 0; ok && number == UINT32_MAX && PyTuple_Check(made) && i < PyTuple_GET_SIZE(made); i++)
        ok = note_passed(c, PyTuple_GET_ITEM(made, i));
    return ok;
}

/* The operators that its forward calls are captured; where torch goes over them again, it calls the function instead (py/training/again.c). */
static bool
run_autograd_function(stepper *x, const kin_step *s)
{
    uint32_t first = x->c.out->calls.len;
    PyObject *function = capture_operand(x, x->t->vids.at[s->args]), *args = s->ref == 0 ? arguments_of(x, s, NULL) : NULL;
    PyObject *made = args == NULL || kin_vec_push(&x->c.suspects, x->c.step) != KIN_OK ? NULL : PyObject_CallObject(function, args);
    bool ok = made != NULL && x->c.out->calls.len > first && kin_capture_note_whole(&x->c, first, function, args, NULL, made) &&
              kin_capture_note_bindings(&x->c, PyTuple_GET_ITEM(args, 0)) && note_passed(&x->c, made);
    if (made != NULL && !ok)
        kin_capture_refuse(&x->c, "it is an autograd function that calls no operator, or whose backward uses too much");
    Py_XDECREF(args);
    if (ok)
        put_result(x, s, made);
    else
        Py_XDECREF(made);
    return ok;
}

/* -- one_hot ------------------------------------------------------------------------------------------------------- */

/* PyTorch looks at the data first; as kintsugi/_compose_index.py does it, an index out of range raises where it is used. 1: done, 0: it is none, -1: it failed. */
static int
run_one_hot(stepper *x, const kin_step *s)
{
    enum { MOST = 3 };
    static PyObject *kept;
    PyObject *operands[MOST], *fn = s->kind == KIN_STEP_CALL && s->nargs > 1 && s->nargs <= MOST ? capture_operand(x, x->t->vids.at[s->args]) : NULL;
    if (fn == NULL || !PyCFunction_Check(fn) || strcmp(kin_callable_name(fn), "one_hot") != 0)
        return 0;
    for (uint32_t i = 0; i < s->nargs; i++)
        operands[i] = capture_operand(x, x->t->vids.at[s->args + i]);
    PyObject *names = s->ref != 0 ? kin_refs_get(&x->v->refs, s->ref) : NULL, *function = kin_import_once(&kept, "kintsugi._compose_index", "one_hot");
    size_t nkw = names != NULL ? (size_t)PyTuple_GET_SIZE(names) : 0;
    PyObject *made = function == NULL ? NULL : PyObject_Vectorcall(function, operands + 1, s->nargs - 1u - nkw, names);
    if (made == Py_NotImplemented)
        Py_CLEAR(made);
    if (made == NULL)
        kin_capture_refuse(&x->c, "PyTorch computes it in another way while a graph is captured");
    else
        put_result(x, s, made);
    return made != NULL ? 1 : -1;
}

/* -- assignments by mask -------------------------------------------------------------------------------------------- */

/* As kintsugi/_compose_index.py does it. 1: done, 0: it is none that needs it, -1: it failed. */
static int
assign_by_mask(stepper *x, const kin_step *s)
{
    static PyObject *kept;
    const kin_vid *args = x->t->vids.at + s->args;
    if (!x->c.joint || s->kind != KIN_STEP_SET_SUBSCR || kin_capture_number(capture_operand(x, args[0])) == UINT32_MAX ||
        kin_capture_number(capture_operand(x, args[2])) == UINT32_MAX)
        return 0;
    PyObject *assign = kin_import_once(&kept, "kintsugi._compose_index", "assign");
    PyObject *done = assign == NULL ? NULL : PyObject_CallFunctionObjArgs(assign, capture_operand(x, args[0]), capture_operand(x, args[1]), capture_operand(x, args[2]), NULL);
    int result = done == NULL ? -1 : done != Py_NotImplemented;
    Py_XDECREF(done);
    return result;
}

/* -- functions of TorchScript --------------------------------------------------------------------------------------- */

bool
capture_calls_scripted(const stepper *x, const kin_step *s)
{
    static PyObject *scripted;
    PyObject *fn = kin_subgraph_calls(s) && s->nargs > 0 ? capture_operand(x, x->t->vids.at[s->args]) : NULL;
    PyObject *type = fn != NULL ? kin_import_once(&scripted, "torch._C", "ScriptFunction") : NULL;
    PyErr_Clear();
    return type != NULL && (PyObject *)Py_TYPE(fn) == type;
}

/* The plan is one for what such a tensor holds, which may follow from sizes in any way. */
static bool
ask_for_elements(capturing *c, PyObject *tensor)
{
    PyObject *flat = PyObject_CallMethod(tensor, "reshape", "i", -1), *values = flat == NULL ? NULL : PyObject_CallMethod(flat, "tolist", NULL);
    bool ok = values != NULL;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(values); i++)
        ok = PyLong_Check(PyList_GET_ITEM(values, i)) && kin_capture_ask_value(c->out, PyList_GET_ITEM(values, i));
    Py_XDECREF(flat);
    Py_XDECREF(values);
    return ok;
}

bool
capture_lift_scripted(stepper *x, const kin_step *s)
{
    PyObject *made = s->out != 0 ? x->slots[s->out] : NULL;
    if (made == NULL || !kin_is_tensor(made) || kin_capture_number(made) != UINT32_MAX || !capture_calls_scripted(x, s))
        return true;
    PyObject *args = PyTuple_Pack(1, made), *popped = args == NULL ? NULL : PyObject_CallOneArg(kin_capture_torch.pop, Py_None);
    PyObject *lifted = popped == NULL ? NULL : kin_capture_new_tensor(&x->c, args);
    bool ok = lifted != NULL && !capture_uses_open(&x->c, x->c.step) && ask_for_elements(&x->c, made);
    PyObject *pushed = popped == NULL ? NULL : PyObject_CallOneArg(kin_capture_torch.push, x->mode);
    ok = ok && pushed != NULL;
    Py_XDECREF(args);
    Py_XDECREF(popped);
    Py_XDECREF(pushed);
    if (ok)
        Py_SETREF(x->slots[s->out], lifted);
    else
        Py_XDECREF(lifted);
    if (!ok)
        kin_capture_refuse(&x->c, "it is a function of TorchScript that makes a tensor");
    return ok;
}

int
capture_whole_call(stepper *x, const kin_step *s)
{
    const char *layers = recurrent_layers(x, s);
    if (layers != NULL && x->c.joint) /* what is called as a whole has no gradients */
        return x->layers ? train_layers(x, s, layers) : 0;
    bool function = layers == NULL && calls_autograd_function(x, s);
    if (layers == NULL && !function) {
        int one_hot = run_one_hot(x, s);
        return one_hot != 0 ? one_hot : assign_by_mask(x, s);
    }
    return (function ? run_autograd_function(x, s) : run_layers(x, s, layers)) ? 1 : -1;
}
