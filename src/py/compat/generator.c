/* Generators of CPython 3.11 hold their frame in themselves, behind a byte that says how far they are. A suspended
 * one has prev_instr at its YIELD_VALUE and is resumed at the instruction behind it with the sent value pushed.
 */
#define Py_BUILD_CORE 1
#include "py/compat/generator.h"

#include "py/compat/failure.h"

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000

#include <internal/pycore_frame.h>

bool
kin_generator_supported(void)
{
    return true;
}

struct _PyInterpreterFrame *
kin_generator_frame(PyObject *gen)
{
    return PyGen_CheckExact(gen) ? (struct _PyInterpreterFrame *)((PyGenObject *)gen)->gi_iframe : NULL;
}

kin_status
kin_generator_suspend(PyObject *gen, PyCodeObject *code, uint32_t offset, PyObject **values, int n)
{
    _PyInterpreterFrame *f = kin_generator_frame(gen);
    int state = f ? ((PyGenObject *)gen)->gi_frame_state : FRAME_CLEARED;
    if ((state != FRAME_CREATED && state != FRAME_SUSPENDED) || f->f_code != code ||
        n > code->co_nlocalsplus + code->co_stacksize || n < code->co_nlocalsplus) {
        kin_failure_raise("kintsugi: a generator cannot be put into its state");
        return KIN_PYERR;
    }
    int nold = f->stacktop;
    PyObject **old = PyMem_Malloc(((size_t)nold + 1) * sizeof *old);
    if (old == NULL) {
        PyErr_NoMemory();
        return KIN_PYERR;
    }
    memcpy(old, f->localsplus, (size_t)nold * sizeof *old);
    for (int i = 0; i < n; i++)
        f->localsplus[i] = Py_XNewRef(values[i]);
    f->stacktop = n;
    f->prev_instr = _PyCode_CODE(code) + offset / sizeof(_Py_CODEUNIT);
    ((PyGenObject *)gen)->gi_frame_state = FRAME_SUSPENDED;
    for (int i = 0; i < nold; i++) /* last: a finaliser may look at the generator */
        Py_XDECREF(old[i]);
    PyMem_Free(old);
    return KIN_OK;
}

#else

bool
kin_generator_supported(void)
{
    return false;
}

struct _PyInterpreterFrame *
kin_generator_frame(PyObject *gen)
{
    (void)gen;
    return NULL;
}

kin_status
kin_generator_suspend(PyObject *gen, PyCodeObject *code, uint32_t offset, PyObject **values, int n)
{
    (void)gen, (void)code, (void)offset, (void)values, (void)n;
    kin_failure_raise("kintsugi: generators cannot be put into a state on this version");
    return KIN_PYERR;
}

#endif
