/* What a capture changes around the steps that it runs, and restores: dispatch modes, inference mode, how warnings are shown.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"

#define T kin_capture_torch

/* In place of warnings._showwarnmsg: a subgraph that warns is run by its steps. */
static PyObject *
catch_warning(PyObject *self, PyObject *message)
{
    *(bool *)PyCapsule_GetPointer(self, NULL) = true;
    Py_RETURN_NONE;
}

static PyMethodDef catch_method = {"_showwarnmsg", catch_warning, METH_O, NULL};

bool
capture_hide_warnings(capture_surroundings *s, bool *warned)
{
    PyObject *capsule = PyCapsule_New(warned, NULL, NULL);
    PyObject *hook = capsule == NULL ? NULL : PyCFunction_New(&catch_method, capsule);
    s->warnings = hook == NULL ? NULL : PyImport_ImportModule("warnings");
    s->show = s->warnings == NULL ? NULL : PyObject_GetAttrString(s->warnings, "_showwarnmsg");
    bool ok = s->show != NULL && PyObject_SetAttrString(s->warnings, "_showwarnmsg", hook) == 0;
    Py_XDECREF(hook);
    Py_XDECREF(capsule);
    return ok;
}

bool
capture_leave_inference(capture_surroundings *s)
{
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *on = torch == NULL ? NULL : PyObject_CallMethod(torch, "is_inference_mode_enabled", NULL);
    bool ok = on != NULL;
    if (on == Py_True) {
        s->inference = PyObject_CallMethod(torch, "inference_mode", "O", Py_False);
        PyObject *entered = s->inference == NULL ? NULL : PyObject_CallMethod(s->inference, "__enter__", NULL);
        ok = entered != NULL;
        if (ok)
            kin_grad_set(false); /* leaving inference mode would switch gradients on */
        Py_XDECREF(entered);
        if (!ok)
            Py_CLEAR(s->inference);
    }
    Py_XDECREF(on);
    Py_XDECREF(torch);
    return ok;
}

bool
capture_push_mode(capture_surroundings *s, capturing *c)
{
    PyObject *mode = kin_mode_new(c);
    PyObject *pushed = mode == NULL ? NULL : PyObject_CallOneArg(T.push, mode);
    if (pushed != NULL)
        s->mode = Py_NewRef(mode);
    Py_XDECREF(pushed);
    Py_XDECREF(mode);
    return s->mode != NULL;
}

bool
capture_keep_settings(capture_surroundings *s)
{
    s->settings = kin_import_call("kintsugi._launch", "keep_settings", Py_None);
    return s->settings != NULL;
}

void
capture_restore(capture_surroundings *s)
{
    PyObject *type, *error, *tb, *done;
    PyErr_Fetch(&type, &error, &tb);
    if (s->mode != NULL) {
        done = PyObject_CallOneArg(T.pop, Py_None);
        Py_XDECREF(done);
        kin_mode_end(s->mode);
        Py_DECREF(s->mode);
    }
    if (s->settings != NULL) {
        done = PyObject_CallMethod(s->settings, "close", NULL);
        Py_XDECREF(done);
        Py_DECREF(s->settings);
    }
    kin_grad_set(s->grad);
    if (s->inference != NULL) {
        done = PyObject_CallMethod(s->inference, "__exit__", "OOO", Py_None, Py_None, Py_None);
        Py_XDECREF(done);
        Py_DECREF(s->inference);
    }
    if (s->show != NULL && PyObject_SetAttrString(s->warnings, "_showwarnmsg", s->show) < 0)
        PyErr_Clear();
    Py_XDECREF(s->show);
    Py_XDECREF(s->warnings);
    PyErr_Clear();
    PyErr_Restore(type, error, tb);
}

bool
capture_set_device(capturing *c, PyObject *tensor)
{
    if (kin_tensor_is_dense(tensor, false) && c->device == NULL)
        return true;
    PyObject *device = PyObject_GetAttrString(tensor, "device");
    if (device != NULL && c->device == NULL && c->entries.len == 0) {
        c->device = device;
        c->no_rules = true;
        return true;
    }
    int same = device == NULL || c->device == NULL ? 0 : PyObject_RichCompareBool(device, c->device, Py_EQ);
    Py_XDECREF(device);
    if (same == 0 && !PyErr_Occurred())
        kin_capture_refuse(c, "its inputs are on several devices");
    return same == 1;
}
