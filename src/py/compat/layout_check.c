/* One binary serves all micro releases of a minor version, and internal structures have changed between such releases. From 3.13 on the runtime
 * holds a table of its own offsets. On all versions, the running frame is read through our layout and compared with the answers of the public
 * functions.
 */
#define Py_BUILD_CORE 1
#include "py/compat/layout_check.h"

#include "py/compat/frame_layout.h"
#include "py/compat/heap.h"

#include <internal/pycore_runtime.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static bool
refuse(const char *what)
{
    PyErr_Format(PyExc_ImportError, "this build is for CPython %s, and CPython %.20s keeps %s somewhere else", PY_VERSION, Py_GetVersion(),
                 what);
    return false;
}

#if PY_VERSION_HEX >= 0x030D0000

static const char *
find_moved(void)
{
    const _Py_DebugOffsets *o = &_PyRuntime.debug_offsets;
    const struct {
        const char *name;
        uint64_t theirs, ours;
    } rows[] = {
        {"the current frame of a thread", o->thread_state.current_frame, offsetof(PyThreadState, current_frame)},
        {"the caller of a frame", o->interpreter_frame.previous, offsetof(_PyInterpreterFrame, previous)},
        {"the code of a frame", o->interpreter_frame.executable, offsetof(_PyInterpreterFrame, f_executable)},
        {"the instruction of a frame", o->interpreter_frame.instr_ptr, offsetof(_PyInterpreterFrame, instr_ptr)},
        {"the locals of a frame", o->interpreter_frame.localsplus, offsetof(_PyInterpreterFrame, localsplus)},
        {"the owner of a frame", o->interpreter_frame.owner, offsetof(_PyInterpreterFrame, owner)},
        {"the instructions of a code object", o->code_object.co_code_adaptive, offsetof(PyCodeObject, co_code_adaptive)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].theirs != rows[i].ours)
            return rows[i].name;
    return NULL;
}

#else

static const char *
find_moved(void)
{
    return NULL;
}

#endif

static const char *
compare_running_frame(void)
{
    PyThreadState *ts = PyThreadState_Get();
    PyFrameObject *frame = PyThreadState_GetFrame(ts);
    if (frame == NULL)
        return NULL; /* nothing runs: there is nothing to compare */
    PyCodeObject *code = PyFrame_GetCode(frame);
    const _PyInterpreterFrame *f = *layout_current(ts);
#if PY_VERSION_HEX >= 0x030C0000
    while (f != NULL && f->owner != FRAME_OWNED_BY_THREAD && f->owner != FRAME_OWNED_BY_GENERATOR)
        f = f->previous;
#endif
    const char *moved = f == NULL || f->frame_obj != frame ? "the frame of a call" : layout_code(f) != code ? "the code of a frame" : NULL;
    Py_DECREF(code);
    Py_DECREF(frame);
    return moved;
}

/* Two keys, the first of which is put behind the other. */
static const char *
compare_ordered_dict(void)
{
    PyObject *ordered = PyODict_New(), *key;
    const void *node = NULL;
    bool same = ordered != NULL && PyODict_SetItem(ordered, Py_None, Py_None) == 0 && PyODict_SetItem(ordered, Py_True, Py_None) == 0;
    uint64_t before = same ? *kin_heap_ordered_state(ordered) : 0;
    PyObject *moved = same ? PyObject_CallMethod(ordered, "move_to_end", "O", Py_None) : NULL;
    same = moved != NULL && *kin_heap_ordered_state(ordered) != before && kin_heap_ordered_next(ordered, &node, &key) && key == Py_True &&
           kin_heap_ordered_next(ordered, &node, &key) && key == Py_None && !kin_heap_ordered_next(ordered, &node, &key);
    Py_XDECREF(moved);
    Py_XDECREF(ordered);
    PyErr_Clear();
    return same ? NULL : "the order of an OrderedDict";
}

/* A file that carries the name of another version is found by it, and may even be loaded. */
bool
kin_layout_is_this_version(void)
{
    if (Py_Version >> 16 == PY_VERSION_HEX >> 16)
        return true;
    PyErr_Format(PyExc_ImportError, "this build is for CPython %d.%d, and this is CPython %.20s", PY_MAJOR_VERSION, PY_MINOR_VERSION, Py_GetVersion());
    return false;
}

bool
kin_layout_check(void)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "calls are recorded in the main interpreter only, and this is a subinterpreter");
        return false;
    }
    const char *moved = find_moved();
    if (moved == NULL)
        moved = compare_running_frame();
    if (moved == NULL)
        moved = compare_ordered_dict();
    const char *simulated = getenv("KIN_SIMULATE_MOVED"); /* tests: what is said and done then */
    if (simulated != NULL && *simulated != '\0')
        moved = "a field that a test names";
    return moved == NULL || refuse(moved);
}
