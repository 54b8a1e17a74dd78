/* Numbers that Python asks of tensors which the graph makes of numbers alone: a length that a model keeps as torch.tensor(3) and cuts by. The operators that made
 * the tensor are called on real tensors. The numbers may follow from sizes. Sums and products of them are numbers of a plan like others; where something else was done,
 * the plan is for this number only.
 */
#include "py/capture/capture_priv.h"
#include "py/refs/sequence.h"

#include <string.h>

enum { MOST_DEPTH = 24, MOST_ELEMENTS = 64, MOST_CALLS = 64, MOST_OPERANDS = 64 };

typedef struct {
    capturing *c;
    uint32_t calls; /* so far */
    int depth;
    bool polynomial; /* ... were sums and products */
} asking;

/* The tensors that a call takes, as values of the graph: what their memory held then. A copied call (repeat.c) has another one's arguments, with the same tensors
 * in the same order. */
typedef struct {
    asking *a;
    kin_aten_val at[MOST_OPERANDS];
    uint32_t n, next;
} operands;

static PyObject *value_of(asking *a, kin_aten_val val);

static void
collect(operands *o, const kin_aten *g, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n && o->n < MOST_OPERANDS; i++)
        if (g->args.at[i].kind == KIN_ATEN_VALUE)
            o->at[o->n++] = g->args.at[i].value;
        else if (g->args.at[i].kind == KIN_ATEN_LIST)
            collect(o, g, g->args.at[i].list.child, g->args.at[i].list.count);
}

static PyObject *
with_values(void *arg, PyObject *obj)
{
    operands *o = arg;
    if (kin_is_tensor(obj))
        return kin_capture_number(obj) != UINT32_MAX && o->next < o->n ? value_of(o->a, o->at[o->next++]) : NULL;
    return PyList_CheckExact(obj) || PyTuple_CheckExact(obj) ? kin_map_items(obj, with_values, arg) : Py_NewRef(obj);
}

/* What is done to both parts of a complex number by itself is linear. */
static bool
is_polynomial(const kin_aten *g, const kin_aten_call *call)
{
    kin_aten_op op = kin_aten_op_of(call);
    kin_aten_complex class = kin_aten_op_complex(op);
    bool linear = class == KIN_COMPLEX_BOTH || class == KIN_COMPLEX_SUM || class == KIN_COMPLEX_PRODUCT;
    return strcmp(kin_aten_text(g, call->op), "aten.full.default") == 0 || (linear && !kin_aten_op_is(op, KIN_ATEN_READS_PART | KIN_ATEN_RAISES));
}

/* The number of the call that made the value, if calling it once more gives the same and does nothing else; UINT32_MAX: there is none. */
static uint32_t
maker_of(asking *a, kin_aten_val val)
{
    const kin_aten *g = a->c->out->graph;
    for (uint32_t i = g->calls.len; i-- > 0;) {
        const kin_aten_call *call = &g->calls.at[i];
        if (val < call->results || val >= call->results + call->nresults)
            continue;
        bool effect = kin_aten_has_effect(g, call) && !kin_aten_raises(g, call); /* if it raises, nothing is known */
        a->polynomial = a->polynomial && is_polynomial(g, call);
        return !capture_uses_open(a->c, a->c->out->calls.at[i].step) && call->nresults == 1 && !call->random && !effect && kin_aten_written(g, call) == NULL && !kin_aten_writes_unsaid(g, call) ? i : UINT32_MAX;
    }
    return UINT32_MAX;
}

static bool
is_small(const kin_aten *g, kin_aten_val val)
{
    int64_t n = 1;
    for (unsigned d = 0; d < kin_aten_at(g, val)->ndim && n <= MOST_ELEMENTS; d++)
        n *= kin_aten_sizes(g, val)[d];
    return n <= MOST_ELEMENTS;
}

/* The tensor: new reference. NULL: it is not known, or with an exception. */
static PyObject *
value_of(asking *a, kin_aten_val val)
{
    const kin_aten *g = a->c->out->graph;
    uint32_t number = is_small(g, val) ? maker_of(a, val) : UINT32_MAX;
    if (number == UINT32_MAX || a->depth == MOST_DEPTH || a->calls++ == MOST_CALLS)
        return NULL;
    const kin_capture_call *call = &a->c->out->calls.at[number];
    operands o = {.a = a};
    collect(&o, g, g->calls.at[number].args, g->calls.at[number].nargs);
    a->depth++;
    PyObject *args = kin_map_items(call->args, with_values, &o), *made = NULL;
    PyObject *kwargs = args == NULL || call->kwargs == NULL ? NULL : kin_map_values(call->kwargs, with_values, &o);
    if (args != NULL && (call->kwargs == NULL || kwargs != NULL) && o.next == o.n)
        made = PyObject_Call(call->op, args, kwargs);
    a->depth--;
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return made;
}

PyObject *
kin_capture_known_number(capturing *c, PyObject *args)
{
    uint32_t number = PyTuple_GET_SIZE(args) == 1 ? kin_capture_number(PyTuple_GET_ITEM(args, 0)) : UINT32_MAX;
    if (number == UINT32_MAX || c->device != NULL)
        return NULL;
    asking a = {.c = c, .polynomial = true};
    PyObject *tensor = value_of(&a, c->entries.at[number].val), *found = tensor == NULL ? NULL : PyObject_CallMethod(tensor, "item", NULL);
    Py_XDECREF(tensor);
    if (found != NULL && (!PyLong_CheckExact(found) || (!a.polynomial && !kin_capture_ask_value(c->out, found))))
        Py_CLEAR(found);
    c->asked += found != NULL;
    PyErr_Clear();
    return found;
}
