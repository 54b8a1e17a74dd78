/* Recognises objects whose type has a private name in some CPython version; names as UTF-8. */
#ifndef KIN_PY_KINDS_H
#define KIN_PY_KINDS_H

#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Does a call of this function run its code in the evaluator, and nothing of somebody else's before it? */
bool kin_function_is_plain(PyObject *func);
/* The method of an instance that is written in C, as reading it gives it: (1).__add__ */
bool kin_is_method_wrapper(PyObject *obj);
bool kin_runs_method(PyObject *obj, PyObject *method); /* is it this method of a class in C, bound to an object? */
/* The bare name of a function or method; "" when it has none. */
const char *kin_callable_name(PyObject *callable);
/* max() and min() among C functions of that name. */
bool kin_is_max_or_min(PyObject *callable);
/* What a weak reference refers to, borrowed; None: it is gone. */
static inline PyObject *
kin_weakref_object(PyObject *ref)
{
    PyObject *referent = ((PyWeakReference *)ref)->wr_object;
    return Py_REFCNT(referent) > 0 ? referent : Py_None;
}
/* The result of a C function that was called directly, or SystemError where result and pending exception contradict each other. */
PyObject *kin_checked_result(PyThreadState *ts, PyObject *callee, PyObject *result);
/* Does an instruction that reads `obj.method` to call it leave a class method's function and the class, rather than a bound method? 3.14 does since 3.14.4, so one
 * binary meets both. */
bool kin_class_methods_come_apart(void);
/* A class whose members enum hashes by their names, with its own Enum.__hash__, and which are compared by identity. */
bool kin_is_enum_class(PyTypeObject *type);
/* A class of an enum whose members are texts or ints as well, and are hashed and compared as those, in C. */
bool kin_is_mixed_enum_class(PyTypeObject *type);
/* Is it the code of Enum.__hash__, which reads the member's name and nothing else? */
bool kin_is_enum_hash(PyCodeObject *code);
/* The hash of a member of such a class, without running that code. False: it cannot be told. */
bool kin_enum_hash(PyObject *member, Py_hash_t *hash);
/* The dict that a view of keys, values or items looks at, borrowed. */
PyObject *kin_view_dict(PyObject *view);

/* The place of the instruction that raised, as it lies below an exception on the stack of values (handlers with `lasti`).
 *
 * It is an int up to 3.13. From 3.14 on it is a tagged number, no object; here an object stands for it, one for each number and alive for
 * ever, so that a recording handles it like any other constant: reading a frame gives that object, writing it into a frame
 * gives the tagged number. No program can reach it: only RERAISE looks there.
 */
#if PY_VERSION_HEX >= 0x030E0000
/* Borrowed; NULL (no exception is set): without memory. */
PyObject *kin_offset_object(intptr_t unit);
bool kin_offset_check(PyObject *obj, intptr_t *unit);
#endif

/* The UTF-8 of a name, for messages and for comparisons with names of ours. Names may hold what UTF-8 cannot (lone surrogates, as in the name of a file that is
 * not valid text): "?" then. Never raises, and leaves a pending exception alone. */
static inline const char *
kin_utf8(PyObject *text)
{
    PyObject *type, *error, *traceback;
    if (text == NULL || !PyUnicode_Check(text))
        return "?";
    PyErr_Fetch(&type, &error, &traceback);
    const char *chars = PyUnicode_AsUTF8(text);
    PyErr_Restore(type, error, traceback); /* drops the one of a failure */
    return chars != NULL ? chars : "?";
}

/* Is it a str with this text? NULL and objects of other kinds are none. */
static inline bool
kin_text_is(PyObject *maybe, const char *text)
{
    return maybe != NULL && PyUnicode_Check(maybe) && PyUnicode_CompareWithASCIIString(maybe, text) == 0;
}

/* Is it a function in Python that was defined in this module? */
static inline bool
kin_is_from_module(PyObject *maybe, const char *module)
{
    return maybe != NULL && PyFunction_Check(maybe) && kin_text_is(PyFunction_GET_MODULE(maybe), module);
}

/* torch.autograd.Function.apply, which is handed a class and what this class's forward takes. */
static inline bool
kin_is_autograd_apply(PyObject *maybe)
{
    return kin_is_from_module(maybe, "torch.autograd.function") && kin_text_is(((PyFunctionObject *)maybe)->func_name, "apply");
}

/* Too many values to unpack: do the words of the error say how many there were? Is an object asked for its length by what makes a tuple of its items? */
#if PY_VERSION_HEX >= 0x030E0000
enum { kin_counts_what_is_unpacked = 1, kin_tuples_ask_length = 0 };
#else
enum { kin_counts_what_is_unpacked = 0, kin_tuples_ask_length = 1 };
#endif

#endif
