/* Running a frame of ours to its end in CPython.
 *
 * 3.11 evaluates a frame wherever it lies. From 3.12 on the evaluator clears and pops the frame that it was given, which must
 * therefore be the topmost one of the thread's data stack. Only a call puts a frame there. So the frame's function is called
 * with placeholders for its arguments and an evaluation function (PEP 523) that is in place for just this call; it moves our
 * frame's contents into the frame that CPython has made, and evaluates that from our instruction on.
 */
#define Py_BUILD_CORE 1
#include "py/compat/frame.h"

#include "py/compat/frame_layout.h"

#ifdef KIN_FRAMES

#if PY_VERSION_HEX < 0x030C0000

PyObject *
kin_frame_eval(PyThreadState *ts, kin_frame *frame, uint32_t offset, bool throwing, kin_frame_entered entered, void *arg)
{
    _PyInterpreterFrame *f = kin_frame_raw(frame);
    if (entered != NULL)
        entered(arg, f);
    if (throwing)
        layout_set_current(f, offset);
    else
        layout_set_next(f, offset);
    return _PyEval_EvalFrameDefault(ts, f, throwing);
}

#else

/* What the evaluation function is to do; one call at a time, under the GIL, and nothing runs in between. */
static struct {
    _PyInterpreterFrame *from;
    uint32_t offset;
    bool throwing;
    PyObject *type, *value, *traceback; /* the pending exception, while the call is made */
    kin_frame_entered entered;
    void *arg;
    _PyFrameEvalFunction before;
} entering;

/* Everything that `from` owns becomes `to`'s, and what `to` owned is dropped; `from` is left empty, to be freed. */
static void
move_contents(_PyInterpreterFrame *from, _PyInterpreterFrame *to)
{
    for (int i = 0; i < to->stacktop; i++)
        Py_CLEAR(to->localsplus[i]); /* placeholders, an empty tuple and dict: nothing that could run code */
    for (int i = 0; i < from->stacktop; i++) {
        to->localsplus[i] = from->localsplus[i];
        from->localsplus[i] = NULL;
    }
    to->stacktop = from->stacktop;
    from->stacktop = 0;
    Py_XSETREF(to->f_locals, from->f_locals);
    from->f_locals = NULL;
    if (from->frame_obj != NULL) {
        to->frame_obj = from->frame_obj;
        to->frame_obj->f_frame = to;
        from->frame_obj = NULL;
    }
}

static PyObject *
enter(PyThreadState *ts, _PyInterpreterFrame *f, int throwing)
{
    _PyInterpreterFrame *from = entering.from;
    _PyInterpreterState_SetEvalFrameFunc(PyThreadState_GetInterpreter(ts), entering.before);
    uint32_t offset = entering.offset;
    throwing = entering.throwing;
    entering.from = NULL;
    move_contents(from, f);
    if (entering.entered != NULL)
        entering.entered(entering.arg, f);
    if (!throwing)
        layout_set_next(f, offset);
    else {
        PyErr_Restore(entering.type, entering.value, entering.traceback);
        layout_set_current(f, offset + (PY_VERSION_HEX >= 0x030D0000 ? sizeof(_Py_CODEUNIT) : 0));
    }
    return _PyEval_EvalFrameDefault(ts, f, throwing);
}

/* Calls the function with as many placeholders as it has parameters, so that binding needs no default and cannot fail. */
static PyObject *
call_with_placeholders(PyObject *func, PyCodeObject *code)
{
    int n = code->co_argcount + code->co_kwonlyargcount;
    PyObject *small[32], **args = n <= 32 ? small : PyMem_Malloc((size_t)n * sizeof *args);
    PyObject *names = PyCode_GetVarnames(code);
    PyObject *keywords = names != NULL && args != NULL ? PyTuple_GetSlice(names, code->co_argcount, n) : NULL;
    PyObject *result = NULL;
    if (keywords != NULL) {
        for (int i = 0; i < n; i++)
            args[i] = Py_None;
        result = PyObject_Vectorcall(func, args, (size_t)code->co_argcount, keywords);
    }
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    if (args != small)
        PyMem_Free(args);
    Py_XDECREF(keywords);
    Py_XDECREF(names);
    return result;
}

PyObject *
kin_frame_eval(PyThreadState *ts, kin_frame *frame, uint32_t offset, bool throwing, kin_frame_entered entered, void *arg)
{
    PyInterpreterState *interp = PyThreadState_GetInterpreter(ts);
    _PyInterpreterFrame *f = kin_frame_raw(frame);
    PyObject *func = Py_NewRef(layout_func(f));
    entering.from = f;
    entering.offset = offset;
    entering.throwing = throwing;
    entering.entered = entered;
    entering.arg = arg;
    if (throwing)
        PyErr_Fetch(&entering.type, &entering.value, &entering.traceback);
    entering.before = _PyInterpreterState_GetEvalFrameFunc(interp);
    _PyInterpreterState_SetEvalFrameFunc(interp, enter);
    PyObject *result = call_with_placeholders(func, layout_code(f));
    if (entering.from == f) { /* the call was not made */
        _PyInterpreterState_SetEvalFrameFunc(interp, entering.before);
        entering.from = NULL;
    }
    Py_DECREF(func);
    return result;
}

#endif
#endif
