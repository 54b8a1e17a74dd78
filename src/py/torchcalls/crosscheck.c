/* The cross-check: records what its mode sees, and compares it with the steps.
 *
 * The mode is pushed when a watched instruction begins and popped at the next event, so rules, getters of
 * ambient state and code below opaque steps never meet it. C++ takes a mode off the stack while it runs; our method
 * only counts the call and lets torch make it. So what happens below a call is not seen: one call, one node.
 *
 * The comparison is made instruction by instruction; a region (region.c) is compared as a whole, when it ends. Between two comparisons
 *   - an opaque step, a graph break or a step that raised accounts for whatever was seen;
 *   - each call needs a TORCH step, or a step that calls just that torch function, and each TORCH step needs a call.
 *     A function written in Python may show no call (if it does not offer itself to modes) or those that it makes; taking
 *     an item out of a tuple of results shows none, and some C functions of torch never show;
 *   - a read of an attribute or of metadata needs a step that reads it again, or a metadata fact.
 */
#include "py/compat/kinds.h"
#include "py/torchcalls/crosscheck.h"
#include "py/torchcalls/torchcalls.h"

typedef struct rec_crosscheck {
    PyObject *mode;
    PyObject *push, *pop, *all_disabled; /* functions of torch._C */
    bool on;                /* the mode is on the stack (or below it: `inside`) */
    uint32_t inside;        /* calls of our method in progress */
    uint32_t mark;          /* trace.steps.len at the last comparison */
    uint32_t calls, reads;  /* seen since */
    bool blind;             /* the program has switched modes off: an instruction could not be watched */
    char name[120];         /* what was seen first */
} rec_crosscheck;

/* -- the mode ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    rec *r; /* NULL: the recording is over */
} mode_object;

/* "torch.Tensor.add"; attributes come as method-wrappers of their descriptors. */
static void
describe_callable(PyObject *func, char *text, size_t size)
{
    PyObject *of = kin_is_method_wrapper(func) ? PyObject_GetAttrString(func, "__self__") : Py_NewRef(func);
    PyObject *name = of ? PyObject_GetAttrString(of, "__qualname__") : NULL;
    if (name == NULL) {
        PyErr_Clear();
        name = of ? PyObject_GetAttrString(of, "__name__") : NULL;
    }
    snprintf(text, size, "%s", name && PyUnicode_Check(name) ? kin_utf8(name) : Py_TYPE(func)->tp_name);
    Py_XDECREF(name);
    Py_XDECREF(of);
    PyErr_Clear();
}

static bool
is_read(PyObject *func)
{
    if (kin_is_method_wrapper(func)) {
        PyObject *name = PyObject_GetAttrString(func, "__name__");
        bool get = kin_text_is(name, "__get__");
        Py_XDECREF(name);
        PyErr_Clear();
        return get;
    }
    return rec_meta_mask(kin_callable_name(func)) != 0;
}

static void
note(rec_crosscheck *w, PyObject *func)
{
    if (is_read(func)) {
        if (w->reads++ == 0 && w->calls == 0)
            describe_callable(func, w->name, sizeof w->name);
    } else if (w->calls++ == 0) {
        describe_callable(func, w->name, sizeof w->name);
    }
}

/* __torch_function__(func, types, args=(), kwargs=None) */
static PyObject *
torch_function(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    rec *r = ((mode_object *)self)->r;
    if (nargs < 2 || nargs > 4 || kwnames != NULL) {
        PyErr_SetString(PyExc_TypeError, "__torch_function__(func, types, args, kwargs)");
        return NULL;
    }
    rec_crosscheck *w = r != NULL && !r->stopped && !r->done ? r->crosscheck : NULL;
    if (w != NULL) {
        if (!rec_in_collector(r))
            note(w, args[0]);
        w->inside++;
    }
    PyObject *none = nargs > 2 && args[2] != Py_None ? Py_NewRef(args[2]) : PyTuple_New(0);
    PyObject *kwargs = nargs > 3 && args[3] != Py_None ? args[3] : NULL;
    PyObject *result = none ? PyObject_Call(args[0], none, kwargs) : NULL;
    Py_XDECREF(none);
    if (w != NULL && ((mode_object *)self)->r == r)
        w->inside--;
    return result;
}

static void
dealloc_mode(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef mode_methods[] = {
    {"__torch_function__", (PyCFunction)(void (*)(void))torch_function, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

static PyObject *
new_mode(rec *r)
{
    static PyTypeObject *type; /* kept for the life of the process */
    PyType_Slot slots[] = {{Py_tp_methods, mode_methods}, {Py_tp_dealloc, dealloc_mode}, {0, NULL}};
    PyType_Spec spec = {"kintsugi._kintsugi.Crosscheck", sizeof(mode_object), 0, Py_TPFLAGS_DEFAULT, slots};
    if (type == NULL)
        type = (PyTypeObject *)PyType_FromSpec(&spec);
    mode_object *mode = type ? (mode_object *)type->tp_alloc(type, 0) : NULL;
    if (mode != NULL)
        mode->r = r;
    return (PyObject *)mode;
}

struct rec_crosscheck *
rec_crosscheck_new(rec *r)
{
    rec_crosscheck *w = calloc(1, sizeof *w);
    PyObject *c = w ? PyImport_ImportModule("torch._C") : NULL;
    if (c != NULL) {
        w->push = PyObject_GetAttrString(c, "_push_on_torch_function_stack");
        w->pop = w->push ? PyObject_GetAttrString(c, "_pop_torch_function_stack") : NULL;
        w->all_disabled = w->pop ? PyObject_GetAttrString(c, "_is_torch_function_all_disabled") : NULL;
        w->mode = w->all_disabled ? new_mode(r) : NULL;
        Py_DECREF(c);
    }
    if (w != NULL && w->mode == NULL) {
        PyErr_Clear();
        rec_crosscheck_free(w);
        return NULL;
    }
    if (w != NULL)
        w->mark = r->t->steps.len;
    return w;
}

void
rec_crosscheck_free(struct rec_crosscheck *w)
{
    if (w == NULL)
        return;
    if (w->mode != NULL)
        ((mode_object *)w->mode)->r = NULL;
    Py_XDECREF(w->mode);
    Py_XDECREF(w->push);
    Py_XDECREF(w->pop);
    Py_XDECREF(w->all_disabled);
    free(w);
}

/* -- on and off ------------------------------------------------------------------------------------------------------ */

static void
push_mode(const rec_crosscheck *w, PyObject *mode)
{
    PyObject *none = PyObject_CallOneArg(w->push, mode);
    if (none == NULL)
        PyErr_Clear();
    Py_XDECREF(none);
}

/* Takes our mode off the stack, also from below modes that the instruction has pushed. */
static void
take_off(rec_crosscheck *w)
{
    PyObject *above[16], *mode = NULL;
    int n = 0;
    while (n < 16 && (mode = PyObject_CallNoArgs(w->pop)) != NULL && mode != w->mode)
        above[n++] = mode;
    PyErr_Clear();
    if (n < 16)
        Py_XDECREF(mode);
    while (n-- > 0) {
        push_mode(w, above[n]);
        Py_DECREF(above[n]);
    }
}

void
rec_crosscheck_look_away(rec *r)
{
    rec_crosscheck *w = r->crosscheck;
    if (!w->on || w->inside > 0)
        return;
    PyObject *type, *exc, *tb;
    PyErr_Fetch(&type, &exc, &tb);
    take_off(w);
    w->on = false;
    PyErr_Restore(type, exc, tb);
}

/* Does the current instruction run as a step behind which anything may happen? */
static bool
is_opaque(rec *r)
{
    for (uint32_t i = r->top->steps0; i < r->t->steps.len; i++)
        if (r->t->steps.at[i].flags & KIN_STEP_OPAQUE)
            return true;
    return false;
}

void
rec_crosscheck_look(rec *r)
{
    rec_crosscheck *w = r->crosscheck;
    /* A call that one of the program's classes takes over (call.of_torch) is that class's method, whose instructions are watched one by one. */
    if (w->on || w->inside > 0 || r->stopped || r->done || r->unchecked || r->call.of_torch || is_opaque(r))
        return;
    PyObject *disabled = PyObject_CallNoArgs(w->all_disabled);
    if (disabled == Py_False) {
        push_mode(w, w->mode);
        w->on = true;
    } else {
        w->blind = true;
    }
    Py_XDECREF(disabled);
    PyErr_Clear();
}

/* -- the comparison ---------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t nodes;   /* TORCH steps that show as one call */
    uint32_t silent;  /* steps that may show as one call */
    bool leaf;        /* among the nodes is a function that makes calls of its own: of Python, or of C but not of torch (max, which compares) */
    bool anything;    /* whatever was seen is accounted for */
    bool again;       /* some step does what the instruction did again */
} recorded;

/* C functions that torch does not offer to modes: its plumbing outside of the classes and modules of operators. */
static bool
never_shows(PyObject *callee)
{
    static const char *const operators[] = {"torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special",
                                            "torch._C._sparse", "torch._C._nested", NULL};
    if (!PyCFunction_Check(callee))
        return false;
    PyObject *self = PyCFunction_GET_SELF(callee);
    if (self != NULL && PyType_Check(self))
        return strcmp(kin_callable_name(callee), "from_numpy") == 0;
    const char *name = self != NULL && PyModule_Check(self) ? PyModule_GetName(self) : NULL;
    if (name == NULL)
        PyErr_Clear();
    for (int i = 0; name != NULL && operators[i]; i++)
        if (strcmp(operators[i], name) == 0)
            return false;
    return true;
}

/* x[i], x.name with x not known to be a tensor: a part of a tuple of results. */
static bool
takes_a_part(rec *r, const kin_step *s)
{
    if (s->kind != KIN_STEP_SUBSCR && s->kind != KIN_STEP_GETATTR)
        return false;
    PyTypeObject *type = r->info.at[r->t->vids.at[s->args]].type;
    return type == NULL || !kin_is_tensor_type((PyObject *)type);
}

static void
add_step(rec *r, const kin_step *s, recorded *sum)
{
    bool test = s->kind == KIN_STEP_CHECK || s->kind == KIN_STEP_EPOCH;
    PyObject *callee = s->kind == KIN_STEP_CALL ? O(r, r->t->vids.at[s->args]) : NULL;
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_RAISES)) {
        sum->anything = true;
    } else if (!(s->flags & KIN_STEP_TORCH)) {
        sum->again = sum->again || !(test || (s->flags & (KIN_STEP_PURE | KIN_STEP_MUTATES)));
        sum->silent += callee != NULL && rec_is_torch_callable(callee);
    } else if (callee != NULL && (PyFunction_Check(callee) || !rec_is_torch_callable(callee))) {
        sum->leaf = true;
    } else if ((callee != NULL && never_shows(callee)) || takes_a_part(r, s)) {
        sum->silent++;
    } else {
        sum->nodes++;
    }
}

static recorded
summary(rec *r, uint32_t from)
{
    recorded sum = {0};
    for (uint32_t i = from; i < r->t->steps.len; i++)
        add_step(r, &r->t->steps.at[i], &sum);
    return sum;
}

/* What is wrong; NULL when the two agree. */
static const char *
disagreement(rec *r, const rec_crosscheck *w)
{
    recorded sum = summary(r, w->mark < r->t->steps.len ? w->mark : r->t->steps.len);
    if (sum.anything)
        return NULL;
    if (w->calls > sum.nodes + sum.silent && !sum.leaf)
        return "was called here but the recording has no node";
    if (w->reads > 0 && sum.nodes + sum.silent == 0 && !sum.leaf && !sum.again && !r->meta_asked)
        return "was read here but the recording has no fact";
    if (w->calls + w->reads < sum.nodes && !w->blind)
        return "was all that was called here but the recording has more nodes";
    return NULL;
}

void
rec_crosscheck_compare(rec *r)
{
    rec_crosscheck *w = r->crosscheck;
    if (r->stopped || r->region != NULL)
        return;
    /* A side trace begins with the instruction in which the program left: it asks again what steps of the trunk asked. (What is compared is the
     * instruction before.) */
    const char *wrong = r->join != 0 && r->ninstr <= 2 ? NULL : disagreement(r, w);
    if (wrong != NULL) {
        char text[200];
        snprintf(text, sizeof text, "crosscheck: %s %s", w->calls + w->reads ? w->name : "nothing", wrong);
        rec_bug(r, text);
    }
    r->result->crosschecked += w->calls + w->reads;
    w->mark = r->t->steps.len;
    w->calls = w->reads = 0;
    w->blind = r->meta_asked = false;
    w->name[0] = '\0';
}
