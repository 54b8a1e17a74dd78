/* Checkpointed regions (torch.utils.checkpoint without re-entry). The node of a graph inside one saves only the graph's inputs; everything else that
 * backward needs is computed again. As in eager, that is one more call of the region's function, which finds variables and attributes as they are by
 * then; the values that its nodes would save are *collected*. If that call does not reach the same graphs any more, the forward program is launched on
 * the original inputs, with the original random numbers.
 *
 * kintsugi._checkpoint calls the region's function in one of two ways (launch_region_call). First *prepared*, inside torch's own checkpoint: its steps
 * run one by one and save what they save in eager; graphs are compiled beside that, and it is noted which of them could be repeated. Once all can, the
 * function is called without torch's checkpoint, and launches do its work.
 */
#include "py/compat/imports.h"
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

typedef enum { NO_REGION, PREPARED, LAUNCHED, COLLECTED } region_kind;

static _Thread_local struct {
    region_kind kind;
    unsigned fit, unfit; /* graphs that were asked for: could they be done again? */
    unsigned made;       /* nodes that do it */
    unsigned base;       /* ... when the function was called: its own are numbered from there */
    unsigned fit_before, unfit_before; /* ... as many as there were then */
    PyObject *again;     /* LAUNCHED: what calls the function again (kintsugi._checkpoint); COLLECTED: list of (number of the node, training, what it saves); borrowed */
    PyObject *function;  /* which one is called; borrowed */
    PyObject *given;     /* ... with (the region's function, its positional arguments, keywords); borrowed */
    bool unknown;        /* nothing that it recorded fits the call, or nothing that could be done again */
} region;

bool
launch_region_is_prepared(void)
{
    return region.kind == PREPARED;
}

/* What is written to would be written to twice: so it is in eager's checkpoint, too, as far as it goes; that is left to torch. */
static bool
can_be_done_again(const launch_code *code)
{
    return code != NULL && code->training != NULL && code->nwrites == 0;
}

void
launch_region_note(const launch_code *code)
{
    if (can_be_done_again(code))
        region.fit++;
    else
        region.unfit++;
}

PyObject *
launch_region_takes(const launch_code *code)
{
    bool takes = region.kind == LAUNCHED && can_be_done_again(code);
    return takes ? Py_BuildValue("OI", region.again, region.made++ - region.base) : Py_NewRef(Py_None);
}

bool
launch_region_collect(const launch_code *code, PyObject *saved)
{
    if (region.kind != COLLECTED || !can_be_done_again(code))
        return true;
    PyObject *one = Py_BuildValue("IOO", region.made++ - region.base, code->training, saved);
    bool ok = one != NULL && PyList_Append(region.again, one) == 0;
    Py_XDECREF(one);
    return ok;
}

/* What would be recorded is not known to do nothing but compute: torch's checkpoint has to be around it. */
bool
launch_region_refuses(PyObject *function)
{
    if (region.function != function || region.kind == PREPARED)
        return false;
    region.unknown = true;
    PyErr_SetString(PyExc_RuntimeError, "kintsugi: a checkpointed region has nothing recorded for this call");
    return true;
}

/* Functions of one code are one region: a module in evaluation mode can be done again, the same one in training mode, or another one of its class, writes to buffers. */
bool
launch_region_admits(PyObject *function, bool repeats)
{
    return repeats || region.kind != LAUNCHED || !launch_region_refuses(function);
}

void
launch_region_judge(PyObject *function, bool whole, bool *repeats)
{
    bool fit = region.fit > region.fit_before && region.unfit == region.unfit_before;
    if (region.function == function && region.kind == PREPARED)
        *repeats = whole && (*repeats || fit);
    else if (region.function == function && !whole)
        *repeats = false;
}

/* -- hooks --------------------------------------------------------------------------------------------------------- */

/* Tensors of a capture are no affair of those who look at what is saved: hooks are put aside, innermost first. NULL with an exception. */
PyObject *
launch_hooks_put_aside(void)
{
    PyObject *list = PyList_New(0), *top = kin_import("torch._C._autograd", "_top_saved_tensors_default_hooks");
    PyObject *pop = kin_import("torch._C._autograd", "_pop_saved_tensors_default_hooks");
    bool ok = list != NULL && top != NULL && pop != NULL;
    while (ok) {
        PyObject *pair = PyObject_CallOneArg(top, Py_True), *popped = NULL;
        if (pair == Py_None) {
            Py_DECREF(pair);
            break;
        }
        if (pair != NULL && PyList_Append(list, pair) == 0)
            popped = PyObject_CallNoArgs(pop);
        ok = popped != NULL;
        Py_XDECREF(popped);
        Py_XDECREF(pair);
    }
    Py_XDECREF(top);
    Py_XDECREF(pop);
    if (!ok)
        Py_CLEAR(list);
    return list;
}

void
launch_hooks_put_back(PyObject *aside)
{
    PyObject *push = aside == NULL ? NULL : kin_import("torch._C._autograd", "_push_saved_tensors_default_hooks");
    for (Py_ssize_t i = push == NULL ? 0 : PyList_GET_SIZE(aside); i-- > 0;) {
        PyObject *pushed = PyObject_CallObject(push, PyList_GET_ITEM(aside, i));
        Py_XDECREF(pushed);
    }
    PyErr_Clear();
    Py_XDECREF(push);
    Py_XDECREF(aside);
}

/* -- forward ------------------------------------------------------------------------------------------------------- */

static bool
is_argument(PyObject *tensor)
{
    PyObject *args = region.given != NULL && PyTuple_GET_SIZE(region.given) > 1 ? PyTuple_GET_ITEM(region.given, 1) : NULL;
    for (Py_ssize_t i = 0; args != NULL && PyTuple_Check(args) && i < PyTuple_GET_SIZE(args); i++)
        if (PyTuple_GET_ITEM(args, i) == tensor)
            return true;
    return false;
}

/* Inputs but for parameters, which eager's checkpoint does not look at either unless they are arguments: torch tells if one is written to. New tuple. */
PyObject *
launch_region_saves(const launch_code *code, PyObject *const *in)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < code->ninputs; i++) {
        PyObject *tensor = in[code->input_of[i]], *node = kin_tensor_requires_grad(tensor) ? PyObject_GetAttrString(tensor, "grad_fn") : NULL;
        bool parameter = node == Py_None && !is_argument(tensor);
        Py_XDECREF(node);
        if (!parameter && PyList_Append(list, tensor) < 0)
            Py_CLEAR(list);
    }
    PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple;
}

/* -- back ---------------------------------------------------------------------------------------------------------- */

static bool
run_forward(launch_code *code, PyObject *note, PyObject **made, PyObject **saved)
{
    uint32_t *input_of = malloc((code->ninputs + 1) * sizeof *input_of);
    launch_inputs inputs = {.in = ((PyTupleObject *)PyTuple_GET_ITEM(note, 0))->ob_item, .input_of = input_of, .n = code->ninputs};
    launch_running r;
    launch_outcome outcome;
    if (input_of == NULL)
        return false;
    for (uint32_t i = 0; i < code->ninputs; i++)
        input_of[i] = i;
    bool before = kin_grad_enabled();
    bool ok = launch_training_forward(&r, code, &inputs, 0, &outcome, made, saved);
    kin_grad_set(before);
    Py_XDECREF(r.random);
    kin_vec_deinit(&outcome.hints);
    free(input_of);
    return ok;
}

/* By a launch on the inputs that the first had. */
static PyObject *
make_from_inputs(launch_training *t, PyObject *note)
{
    launch_code *code = t->forward;
    PyObject *random = PyTuple_GET_ITEM(note, 2), *now = random == Py_None ? NULL : launch_again_random(), *saved = NULL;
    if (code == NULL || (random != Py_None && (now == NULL || !launch_again_set_random(random)))) {
        Py_XDECREF(now);
        return NULL;
    }
    uint32_t nouts = code->nouts;
    PyObject **made = calloc(nouts + 1, sizeof *made);
    code->running++;
    bool ok = made != NULL && run_forward(code, note, made, &saved);
    code->running--;
    if (now != NULL)
        ok = launch_again_set_random(now) && ok;
    for (uint32_t i = 0; made != NULL && i < nouts; i++)
        Py_XDECREF(made[i]);
    free(made);
    if (!ok)
        Py_CLEAR(saved);
    Py_XDECREF(now);
    return saved;
}

/* Numbers among what is kept are those of the first call: eager's nodes have them in themselves, and make tensors again only. New tuple. */
static PyObject *
with_first_numbers(const launch_training *t, PyObject *note, PyObject *collected)
{
    PyObject *saved = PyTuple_New(PyTuple_GET_SIZE(collected)), *tensors = PyTuple_GET_ITEM(note, 0);
    for (Py_ssize_t i = 0; saved != NULL && i < PyTuple_GET_SIZE(collected); i++) {
        bool first = i < (Py_ssize_t)t->nkept && launch_again_is_number(t, t->kept[i]);
        PyTuple_SET_ITEM(saved, i, Py_NewRef(first ? PyTuple_GET_ITEM(tensors, t->kept[i]) : PyTuple_GET_ITEM(collected, i)));
    }
    return saved;
}

PyObject *
launch_region_backward(launch_training *t, PyObject *note, PyObject *const *grads, bool *raised)
{
    PyObject *region_of = PyTuple_GET_ITEM(note, 3);
    PyObject *one = PyObject_CallOneArg(PyTuple_GET_ITEM(region_of, 0), PyTuple_GET_ITEM(region_of, 1)), *saved = NULL;
    if ((*raised = one == NULL)) /* as eager's function would */
        return NULL;
    if (PyTuple_Check(one) && PyTuple_GET_ITEM(one, 1) == (PyObject *)t)
        saved = with_first_numbers(t, note, PyTuple_GET_ITEM(one, 2));
    else
        saved = make_from_inputs(t, note);
    Py_DECREF(one);
    PyObject *given = saved == NULL ? NULL : launch_training_backward(t, saved, grads);
    Py_XDECREF(saved);
    return given;
}

/* -- calls --------------------------------------------------------------------------------------------------------- */

PyObject *
launch_region_call(PyObject *function, PyObject *args, PyObject *how)
{
    unsigned fit = region.fit, unfit = region.unfit, made = region.made, base = region.base, fit_before = region.fit_before, unfit_before = region.unfit_before;
    region_kind outside = region.kind;
    PyObject *outer = region.function, *again = region.again, *given = region.given;
    region.kind = how == Py_None ? PREPARED : PyList_CheckExact(how) ? COLLECTED : LAUNCHED;
    region.function = function;
    region.given = args;
    region.again = how;
    region.base = made;
    region.fit_before = fit;
    region.unfit_before = unfit;
    region.unknown = false;
    PyObject *result = PyObject_CallObject(function, args);
    bool unknown = result == NULL && region.unknown;
    region.kind = outside;
    region.function = outer;
    region.given = given;
    region.again = again;
    region.base = base;
    region.fit_before = fit_before;
    region.unfit_before = unfit_before;
    region.unknown = false;
    if (unknown) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return result == NULL ? NULL : Py_BuildValue("NIII", result, region.fit - fit, region.unfit - unfit, region.made - made);
}
