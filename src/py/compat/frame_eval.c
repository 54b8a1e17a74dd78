/* Lets CPython run one of our frames to its end.
 *
 * 3.11 evaluates a frame wherever it lies. From 3.12 on the evaluator clears and pops the frame that it was given, which must
 * therefore be the topmost one on the thread's data stack, and only a call puts a frame there. So the frame's function is called
 * with placeholders for its arguments and an evaluation function (PEP 523) that is installed for just this call; it moves our
 * frame's contents into the frame that CPython created, and evaluates that from our instruction on.
 */
#define Py_BUILD_CORE 1
#include "py/compat/frame.h"

#include "py/compat/codes.h"
#include "py/compat/frame_layout.h"
#include "py/compat/kinds.h"

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
    for (int i = 0; i < layout_top(to); i++) {
        PyObject *placeholder = layout_take(to, i);
        Py_XDECREF(placeholder); /* None, an empty tuple and dict: nothing that could run code */
    }
    for (int i = 0; i < layout_top(from); i++)
        layout_put(to, i, layout_take(from, i));
    layout_set_top(to, layout_top(from));
    layout_set_top(from, 0);
    Py_XSETREF(to->f_locals, from->f_locals);
    from->f_locals = NULL;
    to->f_globals = from->f_globals;
    to->f_builtins = from->f_builtins;
    if (layout_func(to) != layout_func(from))
        layout_replace_func(to, Py_NewRef(layout_func(from)));
    if (from->frame_obj != NULL) {
        to->frame_obj = from->frame_obj;
        to->frame_obj->f_frame = to;
        from->frame_obj = NULL;
    }
}

#if PY_VERSION_HEX < 0x030D0000

/* The evaluator finds handler and line from the same instruction. */
static PyObject *
evaluate_throwing(PyThreadState *ts, _PyInterpreterFrame *f, uint32_t offset)
{
    layout_set_current(f, offset);
    return _PyEval_EvalFrameDefault(ts, f, true);
}

#else

/* From 3.13 on an evaluator that is given an exception looks for the handler of the code unit before the current one, while the
 * traceback's entry is made for the current one. */

static const kin_handler *
handler_at(const kin_code *code, uint32_t offset)
{
    return code != NULL ? kin_code_handler(code, offset) : NULL;
}

/* Does what the evaluator does until the handler starts: entry of the traceback, stack cut, exception on top. */
static bool
enter_handler(PyThreadState *ts, _PyInterpreterFrame *f, uint32_t offset, const kin_handler *handler)
{
    PyObject *raised = PyErr_GetRaisedException();
    layout_set_current(f, offset);
    f->previous = *layout_current(ts);
    *layout_current(ts) = f;
    PyFrameObject *frame_object = _PyFrame_IsIncomplete(f) ? NULL : PyThreadState_GetFrame(ts);
    PyErr_SetRaisedException(raised);
    if (frame_object != NULL)
        PyTraceBack_Here(frame_object);
    Py_XDECREF(frame_object);
    *layout_current(ts) = f->previous;
    int top = layout_top(f), keep = layout_code(f)->co_nlocalsplus + (int)handler->depth;
    raised = PyErr_GetRaisedException();
    while (top > keep) {
        PyObject *dropped = layout_take(f, --top);
        layout_set_top(f, top);
        Py_XDECREF(dropped);
    }
#if PY_VERSION_HEX >= 0x030E0000
    if (handler->lasti)
        f->localsplus[top++] = PyStackRef_TagInt((intptr_t)(offset / sizeof(_Py_CODEUNIT)));
#else
    if (handler->lasti) {
        PyObject *number = PyLong_FromLong((long)(offset / sizeof(_Py_CODEUNIT)));
        if (number == NULL) {
            PyErr_SetRaisedException(raised);
            return false;
        }
        layout_put(f, top++, number);
    }
#endif
    layout_put(f, top++, raised);
    layout_set_top(f, top);
    layout_set_next(f, handler->target);
    return true;
}

/* The exception has left the frame; the entry that was made for it names the unit behind the instruction. */
static void
correct_traceback(PyCodeObject *code, uint32_t offset)
{
    PyObject *raised = PyErr_GetRaisedException();
    PyObject *traceback = raised != NULL ? PyException_GetTraceback(raised) : NULL;
    PyTracebackObject *entry = (PyTracebackObject *)traceback;
    if (entry != NULL && entry->tb_frame != NULL && entry->tb_lasti == (int)(offset + sizeof(_Py_CODEUNIT))) {
        PyCodeObject *of = PyFrame_GetCode(entry->tb_frame);
        if (of == code) {
            entry->tb_lasti = (int)offset;
            entry->tb_lineno = PyCode_Addr2Line(code, (int)offset);
            if (entry->tb_frame->f_frame->owner == FRAME_OWNED_BY_FRAME_OBJECT)
                layout_set_current(entry->tb_frame->f_frame, offset);
        }
        Py_DECREF(of);
    }
    Py_XDECREF(traceback);
    PyErr_SetRaisedException(raised);
}

static PyObject *
evaluate_throwing(PyThreadState *ts, _PyInterpreterFrame *f, uint32_t offset)
{
    const uint32_t unit = sizeof(_Py_CODEUNIT);
    PyCodeObject *code = layout_code(f);
    const kin_code *decoded = rec_code_of(code);
    const kin_handler *handler = handler_at(decoded, offset), *before = offset >= unit ? handler_at(decoded, offset - unit) : NULL;
    if (decoded != NULL && offset >= unit && handler == before) {
        layout_set_current(f, offset); /* either way the same handler, or none */
        return _PyEval_EvalFrameDefault(ts, f, true);
    }
    if (handler != NULL && enter_handler(ts, f, offset, handler))
        return _PyEval_EvalFrameDefault(ts, f, false);
    layout_set_current(f, offset + unit);
    Py_INCREF(code);
    PyObject *result = _PyEval_EvalFrameDefault(ts, f, true);
    if (result == NULL)
        correct_traceback(code, offset);
    Py_DECREF(code);
    return result;
}

#endif

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
    if (throwing) {
        PyErr_Restore(entering.type, entering.value, entering.traceback);
        return evaluate_throwing(ts, f, offset);
    }
    layout_set_next(f, offset);
    return _PyEval_EvalFrameDefault(ts, f, false);
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

/* The frame's function; one that stands for it when it would not run the frame's code (any more). New reference. */
static PyObject *
callable_for(_PyInterpreterFrame *f)
{
    PyObject *func = layout_func(f);
    PyObject *code = (PyObject *)layout_code(f);
    if (kin_function_is_plain(func) && PyFunction_GET_CODE(func) == code)
        return Py_NewRef(func);
    return PyFunction_New(code, f->f_globals);
}

PyObject *
kin_frame_eval(PyThreadState *ts, kin_frame *frame, uint32_t offset, bool throwing, kin_frame_entered entered, void *arg)
{
    PyInterpreterState *interp = PyThreadState_GetInterpreter(ts);
    _PyInterpreterFrame *f = kin_frame_raw(frame);
    entering.from = f;
    entering.offset = offset;
    entering.throwing = throwing;
    entering.entered = entered;
    entering.arg = arg;
    if (throwing)
        PyErr_Fetch(&entering.type, &entering.value, &entering.traceback);
    PyObject *func = callable_for(f);
    if (func == NULL) {
        entering.from = NULL;
        if (throwing)
            PyErr_Restore(entering.type, entering.value, entering.traceback);
        return NULL;
    }
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
