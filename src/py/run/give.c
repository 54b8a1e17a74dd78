/* The results of a compiled program (running.h): its own tensors, views of them and of inputs, containers of both. */
#include "py/run/running.h"

#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/capture/capture.h"
#include "py/refs/sequence.h"

PyObject *
launch_view_of(PyObject *base, const launch_out *o)
{
    PyObject *at = PyLong_FromLongLong(kin_tensor_offset(base) + o->offset), *of = o->of_detached ? PyObject_CallMethod(base, "detach", NULL) : Py_NewRef(base);
    PyObject *view = at == NULL || of == NULL ? NULL : PyObject_CallMethod(of, "as_strided", "OOO", o->sizes, o->strides, at);
    Py_XDECREF(at);
    Py_XDECREF(of);
    if (view != NULL && o->detached)
        Py_SETREF(view, PyObject_CallMethod(view, "detach", NULL));
    return view;
}

/* A tensor counts how often it was written to, together with its views; in inference mode it does not. */
void
launch_set_version(PyObject *tensor, uint32_t writes)
{
    PyObject *module = PyImport_ImportModule("torch._C._autograd");
    PyObject *done = module == NULL ? NULL : PyObject_CallMethod(module, "_unsafe_set_version_counter", "(O)(I)", tensor, writes);
    if (done == NULL && module != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* torch 2.6 takes one tensor */
        PyErr_Clear();
        done = PyObject_CallMethod(module, "_unsafe_set_version_counter", "OI", tensor, writes);
    }
    PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(module);
}

PyObject *
launch_make_out(launch_running *r, const launch_out *o)
{
    PyObject *const *in = r->inputs->in;
    if (o->kind == KIN_OUT_INPUT)
        return o->whole ? Py_NewRef(in[o->index]) : launch_view_of(in[o->index], o);
    PyObject *tensor = r->tensors[r->p->outputs[o->index]];
    if (tensor == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: an output has no tensor");
        return NULL;
    }
    if (o->writes > 0)
        launch_set_version(tensor, o->writes);
    return o->kind == KIN_OUT_SHARED ? launch_view_of(tensor, o) : Py_NewRef(tensor);
}

static PyObject *
give(const launch_inputs *inputs, const launch_give *g, PyObject *const *made)
{
    return g->kind == LAUNCH_GIVE_INPUT ? Py_NewRef(inputs->in[g->index]) : Py_NewRef(made[g->index]);
}

/* A container as captured, with the tensors of this run. */
static PyObject *
give_shape(const launch_inputs *inputs, const launch_code *code, PyObject *obj, PyObject *const *made)
{
    uint32_t number = kin_capture_number(obj);
    if (number < code->nfakes)
        return give(inputs, &code->by_fake[number], made);
    if (!PyTuple_Check(obj) && !PyList_CheckExact(obj))
        return Py_NewRef(obj);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++)
        kin_sequence_put(&list, i, give_shape(inputs, code, PySequence_Fast_GET_ITEM(obj, i), made));
    if (list == NULL || PyList_CheckExact(obj))
        return list;
    /* Tuples, and the named results of operators, which are made from a sequence. */
    PyObject *tuple = PyTuple_CheckExact(obj) ? PyList_AsTuple(list) : PyObject_CallOneArg((PyObject *)Py_TYPE(obj), list);
    Py_DECREF(list);
    return tuple;
}

void
launch_count_writes(launch_running *r, const launch_code *code)
{
    for (uint32_t w = 0; w < code->nwrites && !r->counted; w++)
        kin_tensor_bump(r->inputs->in[code->writes[w].input], code->writes[w].times);
    r->counted = true;
}

static bool
make_outs(launch_running *r, const launch_code *code, bool late, PyObject **made)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < code->nouts; i++)
        if (code->outs[i].late == late) {
            if (late)
                launch_count_writes(r, code);
            ok = (made[i] = launch_make_out(r, &code->outs[i])) != NULL;
        }
    return ok;
}

/* A view of an input knows how often that had been written to: autograd refuses one made without gradients that is older than a write. */
bool
launch_make_outs(launch_running *r, const launch_code *code, PyObject **made)
{
    memset(made, 0, code->nouts * sizeof *made);
    bool ok = make_outs(r, code, false, made) && make_outs(r, code, true, made);
    for (uint32_t i = 0; !ok && i < code->nouts; i++)
        Py_CLEAR(made[i]);
    return ok;
}

bool
launch_give_made(const launch_inputs *inputs, const launch_code *code, PyObject *const *made, PyObject **out)
{
    uint32_t given = 0;
    bool ok = true;
    while (ok && given < code->ngive) {
        const launch_give *g = &code->give[given];
        out[given] = g->kind == LAUNCH_GIVE_OTHER ? give_shape(inputs, code, g->shape, made) : give(inputs, g, made);
        ok = out[given] != NULL && ++given > 0;
    }
    for (uint32_t i = 0; !ok && i < given; i++)
        Py_CLEAR(out[i]);
    return ok;
}

bool
launch_hand_out(launch_running *r, const launch_code *code, PyObject **out)
{
    PyObject *small[16], **made = code->nouts <= 16 ? small : malloc(code->nouts * sizeof *made);
    bool ok = made != NULL && launch_make_outs(r, code, made);
    if (ok) {
        ok = launch_give_made(r->inputs, code, made, out);
        for (uint32_t i = 0; i < code->nouts; i++)
            Py_DECREF(made[i]);
    }
    if (made != small)
        free(made);
    return ok;
}
