/* Numbers among the inputs of a subgraph that differ from call to call: a temperature, a scale, a counter. Compiled code reads them at run time, so one
 * version serves all values (docs/design/sizes.md); in the graph they are inputs without dims. Floats are treated this way from the start, ints once
 * they differ while everything else is the same, because an int may be a size. A number whose value the code depends on is fixed: each value has code of
 * its own.
 */
#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/launch/launch_priv.h"

/* -- operands ---------------------------------------------------------------------------------------------------------- */

static PyObject *
tensor_of(PyObject *number)
{
    bool is_float = PyFloat_CheckExact(number);
    PyObject *tensor = kin_tensor_new(is_float ? KIN_F64 : KIN_I64, 0, NULL, NULL, false);
    void *data = tensor == NULL ? NULL : kin_tensor_data(tensor);
    if (data == NULL) {
        Py_XDECREF(tensor);
        PyErr_Clear();
        return NULL;
    }
    if (is_float)
        *(double *)data = PyFloat_AS_DOUBLE(number);
    else
        *(int64_t *)data = PyLong_AsLongLong(number);
    return tensor;
}

bool
launch_operands_make(const launch_signature *s, PyObject *const *in, launch_operands *out)
{
    *out = (launch_operands){.in = in, .n = s->n};
    if (s->nopen == 0)
        return true;
    out->in = out->own = calloc(s->n + 1, sizeof *out->own);
    for (uint32_t i = 0; out->own != NULL && i < s->n; i++)
        if ((out->own[i] = s->inputs[i].open ? tensor_of(in[i]) : Py_NewRef(in[i])) == NULL)
            launch_operands_end(out);
    return out->own != NULL;
}

void
launch_operands_end(launch_operands *o)
{
    for (uint32_t i = 0; o->own != NULL && i < o->n; i++)
        Py_XDECREF(o->own[i]);
    free(o->own);
    o->own = NULL;
}

/* -- which are open ----------------------------------------------------------------------------------------------------- */

static bool
has_room(kernel_launcher *self, uint32_t n)
{
    if (self->open == NULL)
        self->open = calloc(n + 1, sizeof *self->open);
    if (self->fixed == NULL)
        self->fixed = calloc(n + 1, sizeof *self->fixed);
    return self->open != NULL && self->fixed != NULL;
}

/* Do only ints differ from the inputs that the version was made for? */
static bool
differs_in_ints(const launch_signature *s, PyObject *const *in)
{
    bool only = launch_signature_fits_ambient(s);
    for (uint32_t i = 0; only && i < s->n; i++)
        only = launch_signature_fits_one(s, i, in[i]) || (s->inputs[i].value != NULL && PyLong_CheckExact(s->inputs[i].value) && PyLong_CheckExact(in[i]));
    return only;
}

static void
open_ints(kernel_launcher *self, const launch_signature *s, PyObject *const *in)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!self->fixed[i] && !self->open[i] && PyLong_CheckExact(in[i]) && !launch_signature_fits_one(s, i, in[i])) {
            self->open[i] = true;
            self->fixings++;
        }
}

void
launch_numbers_learn(kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in)
{
    if (!has_room(self, subgraph->nin))
        return;
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (PyFloat_CheckExact(in[i]) && !self->fixed[i])
            self->open[i] = true;
    const launch_version *last = self->versions.len > 0 ? self->versions.at[self->versions.len - 1] : NULL;
    if (last != NULL && last->signature.n == subgraph->nin && differs_in_ints(&last->signature, in))
        open_ints(self, &last->signature, in);
}

/* From now on each of its values has code of its own; the version's code is for the value that it was made with. */
static void
fix(kernel_launcher *self, launch_version *version, uint32_t i)
{
    self->open[i] = version->signature.inputs[i].open = false;
    self->fixed[i] = true;
    self->fixings++;
    version->signature.nopen--;
}

/* Its hash follows from the inputs that it was made for; the numbers of the present call may differ. */
static void
enter_again(kernel_launcher *self, launch_version *version, PyObject *const *in)
{
    PyObject **own = calloc(version->signature.n + 1, sizeof *own);
    for (uint32_t i = 0; own != NULL && i < version->signature.n; i++)
        own[i] = version->signature.inputs[i].value != NULL ? version->signature.inputs[i].value : in[i];
    if (own != NULL)
        launch_sizes_enter_again(self, version, own);
    free(own);
}

/* -- captures ----------------------------------------------------------------------------------------------------------- */

/* Tensors of half precision tell it from the first one, too, since operators get what torch.tensor() has rounded. */
static PyObject *
other_float(PyObject *number, uint32_t which)
{
    enum { OF_BF16 = 45, LAST = 51 }; /* bits of the mantissa */
    for (unsigned bit = OF_BF16; bit <= LAST; bit++) {
        double value = PyFloat_AS_DOUBLE(number);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits ^= (1ull << bit) + 0x2b5a7 + which * 0x40c8ull;
        memcpy(&value, &bits, sizeof bits);
        PyObject *other = PyFloat_FromDouble(value);
        if (other == NULL || launch_number_kind(other) == launch_number_kind(number))
            return other;
        Py_DECREF(other);
    }
    return NULL;
}

/* Which other values a capture is made with. PyTorch's own code compares ints with sizes (a slice up to element 20 of 8 is none, more than 8 chunks of 8 are 8), of which nothing is left in
 * the graph: near values may be on the same side of the size, but not both a small and a large one. */
typedef enum { OTHER_NEAR, OTHER_SMALL, OTHER_LARGE } other_values;

/* Another number of the same kind, which is unlikely to occur as a literal; NULL: there is none. */
static PyObject *
other_number(PyObject *number, uint32_t which, other_values values)
{
    if (PyFloat_CheckExact(number))
        return other_float(number, which);
    int64_t value = PyLong_AsLongLong(number), step = 3 + which, sign = value < 0 ? -1 : 1;
    enum { MUCH = 1 << 20 }; /* steps of the program run with it: `[0.0] * k` takes memory */
    int64_t least, most, magnitude = value * sign;
    launch_int_kind(magnitude, &least, &most);
    if (most > MUCH && most / 4 > magnitude)
        most = magnitude > MUCH / 4 ? 4 * magnitude : MUCH;
    if (values != OTHER_NEAR)
        return PyLong_FromLongLong(sign * (values == OTHER_SMALL ? least + which : most - which));
    for (int turn = 0; turn < 2; turn++, step = -step) {
        PyObject *other = PyLong_FromLongLong(value + step);
        if (other == NULL || launch_number_kind(other) == launch_number_kind(number))
            return other;
        Py_DECREF(other);
    }
    return NULL;
}

/* The open numbers, unchanged or replaced by others; only: replaces just that one. */
static PyObject **
numbers_of(const launch_signature *s, bool other, uint32_t only, other_values values)
{
    PyObject **numbers = calloc(s->n + 1, sizeof *numbers);
    for (uint32_t i = 0, k = 0; numbers != NULL && i < s->n; i++)
        if (s->inputs[i].open) {
            bool changed = other && (only == UINT32_MAX || only == i);
            numbers[i] = changed ? other_number(s->inputs[i].value, k, values) : Py_NewRef(s->inputs[i].value);
            k++;
            if (numbers[i] == NULL) {
                PyErr_Clear();
                launch_forget(numbers, s->n);
                return NULL;
            }
        }
    return numbers;
}

typedef struct {
    launch_version *version;
    kin_entry *v;
    const kin_subgraph *subgraph;
    PyObject *const *in; /* operands */
    unsigned may;
    PyObject **now;
} numbered;

/* Does the capture contain all numbers that differ between now and `other`? */
static bool
shows(const numbered *x, PyObject **other, kin_capture *capture)
{
    kin_capture probe;
    kin_status status = other == NULL ? KIN_NOMEM : kin_capture_run(x->v, x->subgraph, x->in, other, &x->version->hints, x->may, &probe);
    bool found = status == KIN_OK && kin_capture_find_numbers(capture, &probe, x->now, other);
    if (other != NULL)
        kin_capture_deinit(&probe);
    launch_forget(other, x->version->signature.n);
    return found;
}

static bool
has_open_ints(const launch_signature *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->inputs[i].open && PyLong_CheckExact(s->inputs[i].value))
            return true;
    return false;
}

/* Do captures with small numbers and with large ones differ in these alone? only: that number; UINT32_MAX: all. */
static bool
far_ones_agree(const numbered *x, uint32_t only)
{
    const launch_signature *s = &x->version->signature;
    PyObject **small = numbers_of(s, true, only, OTHER_SMALL), **large = numbers_of(s, true, only, OTHER_LARGE);
    kin_capture first, second;
    bool agree = small != NULL && large != NULL;
    if (agree) {
        bool both = kin_capture_run(x->v, x->subgraph, x->in, small, &x->version->hints, x->may, &first) == KIN_OK;
        both &= kin_capture_run(x->v, x->subgraph, x->in, large, &x->version->hints, x->may, &second) == KIN_OK;
        agree = both && kin_capture_find_numbers(&first, &second, small, large);
        kin_capture_deinit(&first);
        kin_capture_deinit(&second);
    }
    launch_forget(small, s->n);
    launch_forget(large, s->n);
    return agree;
}

/* The same with all kinds of other values. */
static bool
shows_all(const numbered *x, uint32_t only, kin_capture *capture)
{
    const launch_signature *s = &x->version->signature;
    return (!has_open_ints(s) || far_ones_agree(x, only)) && shows(x, numbers_of(s, true, only, OTHER_NEAR), capture);
}

/* Fixes numbers on which something other than an operator's argument depends. */
static void
fix_those_in_the_way(kernel_launcher *self, const numbered *x, kin_capture *capture)
{
    const launch_signature *s = &x->version->signature;
    bool *bad = calloc(s->n + 1, sizeof *bad);
    uint32_t nbad = 0;
    for (uint32_t i = 0; bad != NULL && s->nopen > 1 && i < s->n; i++)
        if (s->inputs[i].open)
            nbad += bad[i] = !shows_all(x, i, capture);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->inputs[i].open && (nbad == 0 || bad[i]))
            fix(self, x->version, i);
    free(bad);
}

kin_status
launch_numbers_capture(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, unsigned may, kin_capture *out)
{
    launch_operands operands;
    bool ready = launch_operands_make(&version->signature, in, &operands);
    PyObject **now = ready && version->signature.nopen > 0 ? numbers_of(&version->signature, false, UINT32_MAX, OTHER_NEAR) : NULL;
    numbered x = {version, v, subgraph, operands.in, may, now};
    kin_status status = kin_capture_run(v, subgraph, operands.in, now, &version->hints, may, out);
    bool again = status == KIN_OK && now != NULL && !shows_all(&x, UINT32_MAX, out);
    if (again)
        fix_those_in_the_way(self, &x, out);
    launch_forget(now, version->signature.n);
    launch_operands_end(&operands);
    if (!again)
        return status;
    enter_again(self, version, in);
    kin_capture_deinit(out);
    return launch_numbers_capture(self, version, v, subgraph, in, may, out);
}

bool
launch_numbers_decided(kernel_launcher *self, launch_version *version, const kin_capture *capture, PyObject *const *in)
{
    bool any = false;
    uint32_t number = 0;
    for (uint32_t i = 0; capture->graph->asked != NULL && i < version->signature.n; i++) {
        bool open = version->signature.inputs[i].open;
        if (open && capture->graph->asked[number]) {
            fix(self, version, i);
            any = true;
        }
        number += open || version->signature.inputs[i].value == NULL;
    }
    if (any)
        enter_again(self, version, in);
    return any;
}
