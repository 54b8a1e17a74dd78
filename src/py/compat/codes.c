/* Decoded code objects live in the code objects themselves ("extra" data), which free them when they die: programs that
 * make functions all the time leave nothing behind. */
#include "py/compat/codes.h"

#include "py/compat/extra.h"
#include <opcode.h>
#include <stdlib.h>

/* BINARY_OP numbers its operators as kin_binary does. */
_Static_assert((int)KIN_BINARY_ADD == NB_ADD && (int)KIN_BINARY_REMAINDER == NB_REMAINDER && (int)KIN_BINARY_XOR == NB_XOR &&
                   (int)KIN_BINARY_INPLACE_ADD == NB_INPLACE_ADD && (int)KIN_BINARY_INPLACE_XOR == NB_INPLACE_XOR,
               "BINARY_OP numbers");

/* One number per process, asked for once; -1: not yet, -2: CPython has none left. */
static Py_ssize_t extra_index = -1;

static void
free_decoded(void *decoded)
{
    if (decoded == NULL)
        return;
    kin_code_deinit(decoded);
    free(decoded);
}

static bool
have_index(void)
{
    if (extra_index == -1) {
        extra_index = kin_extra_index(free_decoded);
        if (extra_index < 0)
            extra_index = -2;
    }
    return extra_index >= 0;
}

static kin_code *
decode(PyCodeObject *code)
{
    PyObject *bytes = PyCode_GetCode(code);
    kin_code *kc = calloc(1, sizeof *kc);
    kin_status st = KIN_NOMEM;
    if (bytes != NULL && kc != NULL)
        st = kin_code_init(kc, (kin_py_version)(PY_MAJOR_VERSION * 100 + PY_MINOR_VERSION),
                           (const uint8_t *)PyBytes_AS_STRING(bytes), (uint32_t)PyBytes_GET_SIZE(bytes),
                           (const uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable),
                           (uint32_t)PyBytes_GET_SIZE(code->co_exceptiontable));
    Py_XDECREF(bytes);
    PyErr_Clear();
    if (st != KIN_OK) {
        free(kc);
        return NULL;
    }
    return kc;
}

const kin_code *
rec_code_of(PyCodeObject *code)
{
    void *found = NULL;
    if (!have_index() || kin_extra_get((PyObject *)code, extra_index, &found) < 0) {
        PyErr_Clear();
        return NULL;
    }
    if (found != NULL)
        return found;
    kin_code *kc = decode(code);
    if (kc != NULL && kin_extra_set((PyObject *)code, extra_index, kc) < 0) {
        PyErr_Clear();
        free_decoded(kc);
        kc = NULL;
    }
    return kc;
}
