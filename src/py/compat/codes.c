/* Decoded code objects live in the code objects themselves ("extra" data), which free them when they are deallocated. So programs that
 * keep creating functions leak nothing. */
#include "py/compat/codes.h"

#include "py/compat/extra.h"
#include "py/compat/kinds.h"
#include <opcode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const kin_py_version running = (kin_py_version)(PY_MAJOR_VERSION * 100 + PY_MINOR_VERSION);

/* Tests: what is done where the interpreter has an opcode that the tables do not know. Its number, or -1. */
static int
find_simulated(const kin_code *kc)
{
    const char *name = getenv("KIN_SIMULATE_UNKNOWN_OPCODE");
    for (uint32_t i = 0; name != NULL && i < kc->ninstr; i++)
        if (strcmp(kin_op_name((kin_op)kc->instrs[i].op), name) == 0)
            return kc->instrs[i].native;
    return -1;
}

/* A micro release or a tool may have brought instructions that the tables do not know. The first is remembered, to be told once. */
static char unknown[300];

static void
remember_unknown(PyCodeObject *code, int opcode)
{
    if (opcode < 0 || unknown[0] != '\0')
        return;
    snprintf(unknown, sizeof unknown, "%.80s (%.120s:%d) has an instruction that this build for CPython %.20s does not know (opcode %d)",
             kin_utf8(code->co_qualname), kin_utf8(code->co_filename), code->co_firstlineno, PY_VERSION, opcode);
}

const char *
rec_code_unknown(void)
{
    return unknown[0] != '\0' ? unknown : NULL;
}

static kin_code *
decode(PyCodeObject *code)
{
    PyObject *bytes = PyCode_GetCode(code);
    kin_code *kc = calloc(1, sizeof *kc);
    kin_status st = KIN_NOMEM;
    if (bytes != NULL && kc != NULL)
        st = kin_code_init(kc, running,
                           (const uint8_t *)PyBytes_AS_STRING(bytes), (uint32_t)PyBytes_GET_SIZE(bytes),
                           (const uint8_t *)PyBytes_AS_STRING(code->co_exceptiontable),
                           (uint32_t)PyBytes_GET_SIZE(code->co_exceptiontable));
    int simulated = st == KIN_OK ? find_simulated(kc) : -1;
    if (simulated >= 0) {
        kin_code_deinit(kc);
        st = KIN_BREAK;
    }
    if (st == KIN_BREAK)
        remember_unknown(code, simulated >= 0 ? simulated : kin_code_find_unknown(running, (const uint8_t *)PyBytes_AS_STRING(bytes),
                                                                                  (uint32_t)PyBytes_GET_SIZE(bytes)));
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

/* Borrowed; NULL: the operation has no name. */
static PyObject *
name_of(PyCodeObject *code, kin_action action)
{
    switch ((kin_canon)action.op) {
    case KIN_DO_LOAD_GLOBAL: case KIN_DO_STORE_GLOBAL: case KIN_DO_DELETE_GLOBAL:
    case KIN_DO_LOAD_NAME: case KIN_DO_STORE_NAME: case KIN_DO_DELETE_NAME: case KIN_DO_LOAD_NAME_OR_GLOBAL:
    case KIN_DO_LOAD_ATTR: case KIN_DO_STORE_ATTR: case KIN_DO_DELETE_ATTR: case KIN_DO_LOAD_METHOD:
    case KIN_DO_LOAD_SUPER_ATTR: case KIN_DO_LOAD_SUPER_METHOD: case KIN_DO_IMPORT_NAME: case KIN_DO_IMPORT_FROM:
        return PyTuple_GET_ITEM(code->co_names, action.arg);
    case KIN_DO_LOAD_CELL: case KIN_DO_STORE_CELL: case KIN_DO_DELETE_CELL: case KIN_DO_LOAD_NAME_OR_CELL:
        return PyTuple_GET_ITEM(code->co_localsplusnames, action.arg);
    default:
        return NULL;
    }
}

PyObject *
rec_code_operations(PyCodeObject *code)
{
    const kin_code *kc = rec_code_of(code);
    if (kc == NULL)
        return PyErr_Format(PyExc_ValueError, "%.80s cannot be decoded", kin_utf8(code->co_qualname));
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < kc->ninstr; i++)
        for (unsigned k = 0; list != NULL && k < kc->instrs[i].ndoes; k++) {
            kin_action action = kc->instrs[i].does[k];
            PyObject *name = name_of(code, action), *pair = Py_BuildValue("sO", kin_canon_name((kin_canon)action.op), name != NULL ? name : Py_None);
            if (pair == NULL || PyList_Append(list, pair) < 0)
                Py_CLEAR(list);
            Py_XDECREF(pair);
        }
    return list;
}
