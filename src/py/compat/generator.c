/* A generator contains its frame, after a byte that holds its state. A suspended one stands at its YIELD_VALUE
 * and is resumed at the following instruction with the sent value pushed.
 */
#define Py_BUILD_CORE 1
#include "py/compat/generator.h"

#include <opcode.h>

#include "py/compat/failure.h"
#include "py/compat/frame_layout.h"

#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_genobject.h>
#endif

struct _PyInterpreterFrame *
kin_generator_frame(PyObject *gen)
{
    if (!PyGen_CheckExact(gen))
        return NULL;
#if PY_VERSION_HEX >= 0x030E0000
    return &((PyGenObject *)gen)->gi_iframe;
#else
    return (struct _PyInterpreterFrame *)((PyGenObject *)gen)->gi_iframe;
#endif
}

bool
kin_generator_has_ended(PyObject *gen)
{
    return PyGen_CheckExact(gen) && ((PyGenObject *)gen)->gi_frame_state >= FRAME_COMPLETED;
}

bool
kin_generator_is_new(PyObject *gen)
{
    return PyGen_CheckExact(gen) && ((PyGenObject *)gen)->gi_frame_state == FRAME_CREATED;
}

/* Is it new, or suspended at a yield? */
static bool
is_waiting(const PyGenObject *gen)
{
    int state = gen->gi_frame_state;
#if PY_VERSION_HEX >= 0x030D0000
    return state == FRAME_CREATED || FRAME_STATE_SUSPENDED(state);
#else
    return state == FRAME_CREATED || state == FRAME_SUSPENDED;
#endif
}

/* From 3.13 on the state says whether the yield is one of `yield from`, which the yield's operand tells. */
static int
state_at(PyCodeObject *code, uint32_t offset)
{
#if PY_VERSION_HEX >= 0x030D0000
    return FRAME_SUSPENDED + (_PyCode_CODE(code)[offset / sizeof(_Py_CODEUNIT)].op.arg & 1);
#else
    (void)code, (void)offset;
    return FRAME_SUSPENDED;
#endif
}

kin_status
kin_generator_suspend(PyObject *gen, PyCodeObject *code, uint32_t offset, PyObject **values, int n, PyObject *exc)
{
    _PyInterpreterFrame *f = kin_generator_frame(gen);
    if (f == NULL || !is_waiting((PyGenObject *)gen) || layout_code(f) != code || n > code->co_nlocalsplus + code->co_stacksize ||
        n < code->co_nlocalsplus) {
        kin_failure_raise("kintsugi: a generator cannot be put into its state");
        return KIN_PYERR;
    }
    int nold = layout_top(f);
    PyObject **old = PyMem_Malloc(((size_t)nold + 1) * sizeof *old);
    if (old == NULL) {
        PyErr_NoMemory();
        return KIN_PYERR;
    }
    for (int i = 0; i < nold; i++)
        old[i] = layout_take(f, i);
    for (int i = 0; i < n; i++)
        layout_put(f, i, Py_XNewRef(values[i]));
    layout_set_top(f, n);
    layout_set_next(f, offset + sizeof(_Py_CODEUNIT));
    ((PyGenObject *)gen)->gi_frame_state = (int8_t)state_at(code, offset);
    Py_XSETREF(((PyGenObject *)gen)->gi_exc_state.exc_value, Py_XNewRef(exc));
    for (int i = 0; i < nold; i++) /* last: a finaliser may look at the generator */
        Py_XDECREF(old[i]);
    PyMem_Free(old);
    return KIN_OK;
}

/* Where calling the generator function has left it: no handler is there. */
static uint32_t
find_beginning(PyCodeObject *code)
{
    const uint8_t *bytes = (const uint8_t *)_PyCode_CODE(code);
    uint32_t offset = 0, end = (uint32_t)(Py_SIZE(code) * (Py_ssize_t)sizeof(_Py_CODEUNIT));
    while (offset + sizeof(_Py_CODEUNIT) < end && bytes[offset] != RETURN_GENERATOR)
        offset += sizeof(_Py_CODEUNIT);
    return offset;
}

kin_status
kin_generator_end(PyObject *gen)
{
    _PyInterpreterFrame *f = kin_generator_frame(gen);
    if (f != NULL && is_waiting((PyGenObject *)gen)) {
        PyCodeObject *code = layout_code(f);
        PyObject **none = PyMem_Calloc((size_t)code->co_nlocalsplus + 1, sizeof *none);
        if (none == NULL) {
            PyErr_NoMemory();
            return KIN_PYERR;
        }
        kin_status status = kin_generator_suspend(gen, code, find_beginning(code), none, code->co_nlocalsplus, NULL);
        PyMem_Free(none);
        KIN_TRY(status);
        ((PyGenObject *)gen)->gi_frame_state = FRAME_CREATED;
    }
    PyObject *closed = PyObject_CallMethod(gen, "close", NULL);
    Py_XDECREF(closed);
    return closed != NULL ? KIN_OK : KIN_PYERR;
}
