/* What works on this machine (doctor.h). Each answer comes from trying the part itself, as the engine uses it, so the report
 * cannot say "on" for something that would fail later.
 */
#include "py/module/doctor.h"

#include "core/codegen/codegen.h"
#include "core/tiles/tile.h"
#include "core/track/track.h"
#include "py/aten/block.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"

static PyObject *
text_or_none(const kin_text *text)
{
    return text->len > 0 ? PyUnicode_DecodeUTF8(text->at, text->len, "replace") : Py_NewRef(Py_None);
}

/* The processor that kernels are compiled for, or None and why there are none. */
static int
add_code_generation(PyObject *facts)
{
    kin_text why = {0};
    kin_jit *jit = kin_jit_new(NULL, &why);
    PyObject *target = jit != NULL ? PyUnicode_FromString(kin_jit_target(jit)) : Py_NewRef(Py_None);
    PyObject *reason = text_or_none(&why);
    int failed = target == NULL || reason == NULL || PyDict_SetItemString(facts, "target", target) < 0
        || PyDict_SetItemString(facts, "target_why", reason) < 0;
    Py_XDECREF(target);
    Py_XDECREF(reason);
    kin_text_deinit(&why);
    kin_jit_free(jit);
    return failed ? -1 : 0;
}

/* Does the operating system say which pages were written to? */
static int
add_write_tracking(PyObject *facts)
{
    kin_text why = {0};
    kin_track *track = kin_track_new(&why);
    PyObject *known = track != NULL && kin_track_has_kernel(track) ? Py_True : Py_False;
    PyObject *reason = text_or_none(&why);
    int failed = reason == NULL || PyDict_SetItemString(facts, "write_tracking", known) < 0
        || PyDict_SetItemString(facts, "write_tracking_why", reason) < 0;
    Py_XDECREF(reason);
    kin_text_deinit(&why);
    kin_track_free(track);
    return failed ? -1 : 0;
}

/* Tensors are read and made through torch's C ABI: "tensors" says whether this build of torch has what that needs. Outputs over
 * kept memory also need the layout of torch's storages, which is compared at the first such tensor. */
static int
add_tensors(PyObject *facts)
{
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL)
        return -1;
    bool ready = kin_aten_init(torch) == KIN_OK && kin_make_init(torch) == KIN_OK;
    Py_DECREF(torch);
    PyErr_Clear();
    if (PyDict_SetItemString(facts, "tensors", ready ? Py_True : Py_False) < 0)
        return -1;
    if (!ready)
        return PyDict_SetItemString(facts, "blocks", Py_False);
    const int64_t size = 1 << 20, stride = 1;
    PyObject *tensor = kin_process_blocks() != NULL ? kin_tensor_in_block(KIN_F32, 1, &size, &stride, (size_t)size * 4) : NULL;
    if (tensor == NULL && PyErr_Occurred())
        return -1;
    int failed = PyDict_SetItemString(facts, "blocks", tensor != NULL ? Py_True : Py_False);
    Py_XDECREF(tensor);
    return failed;
}

PyObject *
kin_doctor_facts(bool foreign_tool)
{
    PyObject *facts = Py_BuildValue("{s:s,s:O,s:O}", "built_for", PY_VERSION, "foreign_tool", foreign_tool ? Py_True : Py_False, "tiles",
                                    kin_tile_here() ? Py_True : Py_False);
    if (facts == NULL || add_code_generation(facts) < 0 || add_write_tracking(facts) < 0 || add_tensors(facts) < 0) {
        Py_XDECREF(facts);
        return NULL;
    }
    return facts;
}
