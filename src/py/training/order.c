/* The order in which hooks of a node's inputs run.
 *
 * Eager has a gradient ready as soon as backward has passed the operator; our node has all of them at once, and torch's engine then takes the nodes that
 * are ready in an order of its own: the one created last first, but nodes that accumulate gradients before all others, in any order. If two or more
 * leaves have hooks, each of these enters the node as an alias, created in the reverse of eager's order, which the capture has recorded
 * (capture/joint.c). The engine goes from alias to alias and accumulates at each immediately, running its hooks.
 */
#include "py/aten/tensor.h"
#include "py/training/training_priv.h"

static bool
has_hooks(PyObject *tensor, const char *name)
{
    PyObject *hooks = PyObject_GetAttrString(tensor, name);
    bool some = hooks != NULL && hooks != Py_None && PyObject_Length(hooks) != 0;
    Py_XDECREF(hooks);
    PyErr_Clear();
    return some;
}

static bool
is_hooked_leaf(PyObject *tensor)
{
    if (tensor == Py_None || !(has_hooks(tensor, "_backward_hooks") || has_hooks(tensor, "_post_accumulate_grad_hooks")))
        return false;
    PyObject *node = PyObject_GetAttrString(tensor, "grad_fn");
    Py_XDECREF(node);
    PyErr_Clear();
    return node == Py_None;
}

bool
launch_order_inputs(const launch_training *t, PyObject *args)
{
    const kin_capture_numbers *arriving = &t->capture.joint.arriving;
    uint32_t hooked = 0;
    for (uint32_t i = 0; t->has_capture && i < arriving->len; i++)
        hooked += is_hooked_leaf(PyTuple_GET_ITEM(args, 1 + arriving->at[i]));
    for (uint32_t i = arriving->len; hooked > 1 && i-- > 0;) {
        Py_ssize_t place = 1 + arriving->at[i];
        PyObject *tensor = PyTuple_GET_ITEM(args, place);
        if (!is_hooked_leaf(tensor))
            continue;
        PyObject *alias = PyObject_CallMethod(tensor, "view_as", "O", tensor);
        if (alias == NULL)
            return false;
        PyTuple_SET_ITEM(args, place, alias);
        Py_DECREF(tensor);
    }
    return true;
}
