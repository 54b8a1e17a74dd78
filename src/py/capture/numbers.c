/* Finds the input numbers of a capture among the arguments of its operators (core/aten/numbers.c). */
#include <string.h>

#include "py/capture/capture.h"
#include "py/refs/sequence.h"

typedef struct {
    const kin_capture *c;
    const kin_aten_number *numbers;
    PyObject *other; /* what stands in the probe at the same place; borrowed */
} pair;

static kin_aten_number
number_of(kin_aten_val input, PyObject *now, PyObject *other)
{
    if (PyFloat_CheckExact(now))
        return (kin_aten_number){.input = input, .kind = KIN_ATEN_FLOAT, .now.f = PyFloat_AS_DOUBLE(now), .probe.f = PyFloat_AS_DOUBLE(other)};
    return (kin_aten_number){.input = input, .kind = KIN_ATEN_INT, .now.i = PyLong_AsLongLong(now), .probe.i = PyLong_AsLongLong(other)};
}

static bool
is_it(const kin_aten_number *n, PyObject *now, PyObject *other)
{
    if ((PyFloat_CheckExact(now) ? KIN_ATEN_FLOAT : KIN_ATEN_INT) != n->kind || Py_TYPE(now) != Py_TYPE(other))
        return false;
    kin_aten_number is = number_of(0, now, other);
    return memcmp(&is.now, &n->now, sizeof is.now) == 0 && memcmp(&is.probe, &n->probe, sizeof is.probe) == 0;
}

static PyObject *put_fakes(void *arg, PyObject *obj);

/* Of a container, with the one at the same place: new reference. */
static PyObject *
put_inside(const pair *p, PyObject *obj)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    bool fits = Py_TYPE(p->other) == Py_TYPE(obj) && PySequence_Fast_GET_SIZE(p->other) == n;
    PyObject *made = !fits ? NULL : PyList_CheckExact(obj) ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; made != NULL && i < n; i++) {
        pair inside = {p->c, p->numbers, PySequence_Fast_GET_ITEM(p->other, i)};
        kin_sequence_put(&made, i, put_fakes(&inside, PySequence_Fast_GET_ITEM(obj, i)));
    }
    return made;
}

static PyObject *
put_fakes(void *arg, PyObject *obj)
{
    const pair *p = arg;
    if (PyTuple_CheckExact(obj) || PyList_CheckExact(obj))
        return put_inside(p, obj);
    if ((PyFloat_CheckExact(obj) || PyLong_CheckExact(obj)) && p->other != NULL)
        for (uint32_t k = 0; k < p->c->numbers.len; k++)
            if (is_it(&p->numbers[k], obj, p->other))
                return Py_NewRef(PyList_GET_ITEM(p->c->fakes, p->c->numbers.at[k]));
    return Py_NewRef(obj);
}

static bool
replace(const pair *p, PyObject **args, PyObject **kwargs, PyObject *other_args, PyObject *other_kwargs)
{
    pair inside = *p;
    inside.other = other_args;
    PyObject *made = put_fakes(&inside, *args);
    if (made == NULL)
        return false;
    Py_SETREF(*args, made);
    PyObject *key, *value, *dict = *kwargs == NULL ? NULL : PyDict_Copy(*kwargs);
    Py_ssize_t pos = 0;
    bool ok = *kwargs == NULL || dict != NULL;
    while (ok && dict != NULL && PyDict_Next(*kwargs, &pos, &key, &value)) {
        inside.other = other_kwargs == NULL ? NULL : PyDict_GetItem(other_kwargs, key);
        PyObject *put = inside.other == NULL ? Py_NewRef(value) : put_fakes(&inside, value);
        ok = put != NULL && PyDict_SetItem(dict, key, put) == 0;
        Py_XDECREF(put);
    }
    if (ok && dict != NULL)
        Py_SETREF(*kwargs, Py_NewRef(dict));
    Py_XDECREF(dict);
    return ok;
}

static bool
replace_all(kin_capture *c, const kin_capture *probe, const kin_aten_number *numbers)
{
    pair p = {.c = c, .numbers = numbers};
    bool ok = c->calls.len == probe->calls.len && c->joint.wholes.len == probe->joint.wholes.len;
    for (uint32_t i = 0; ok && i < c->calls.len; i++)
        ok = replace(&p, &c->calls.at[i].args, &c->calls.at[i].kwargs, probe->calls.at[i].args, probe->calls.at[i].kwargs);
    for (uint32_t i = 0; ok && i < c->joint.wholes.len; i++) {
        kin_capture_call *whole = &c->joint.wholes.at[i].call;
        const kin_capture_call *other = &probe->joint.wholes.at[i].call;
        ok = replace(&p, &whole->args, &whole->kwargs, other->args, other->kwargs);
    }
    return ok;
}

bool
kin_capture_find_numbers(kin_capture *c, const kin_capture *probe, PyObject *const *now, PyObject *const *other)
{
    kin_aten_number *numbers = calloc(c->numbers.len + 1, sizeof *numbers);
    bool found = numbers != NULL;
    for (uint32_t i = 0, k = 0; found && k < c->numbers.len; i++)
        if (now[i] != NULL) {
            numbers[k] = number_of(c->values[c->numbers.at[k]], now[i], other[i]);
            k++;
        }
    found = found && kin_aten_find_numbers(c->graph, probe->graph, numbers, c->numbers.len) && replace_all(c, probe, numbers);
    PyErr_Clear();
    free(numbers);
    return found;
}
