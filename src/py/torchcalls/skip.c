/* Python functions that recording does not trace into, and what they count as instead. */
#include "py/recorder/rec.h"
#include "py/compat/kinds.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

static bool
has_attr(PyObject *func, PyObject *name)
{
    PyObject *dict = ((PyFunctionObject *)func)->func_dict;
    return dict != NULL && PyDict_GetItemWithError(dict, name) != NULL;
}

/* allow_in_graph, nonstrict_trace and leaf_function note the ids of their functions, in a set of torch._dynamo that
 * exists once one of them was used. */
static bool
is_allowed(PyObject *func)
{
    PyObject *rules = PyDict_GetItemWithError(PyImport_GetModuleDict(), REC_STR("torch._dynamo.trace_rules"));
    PyObject *ids = rules && PyModule_Check(rules) ? PyDict_GetItemWithError(PyModule_GetDict(rules), REC_STR("_allowed_callable_ids")) : NULL;
    PyObject *set = ids ? PyObject_GetAttr(ids, REC_STR("function_ids")) : NULL;
    PyObject *id = set && PyAnySet_Check(set) ? PyLong_FromVoidPtr(func) : NULL;
    bool found = id && PySet_Contains(set, id) > 0;
    Py_XDECREF(id);
    Py_XDECREF(set);
    PyErr_Clear();
    return found;
}

/* Its globals are those of the wrapper around it. */
bool
rec_is_checkpoint(PyObject *func)
{
    return kin_is_from_module(func, "torch.utils.checkpoint") &&
           PyUnicode_CompareWithASCIIString(((PyFunctionObject *)func)->func_name, "checkpoint") == 0;
}

/* Functions that are handed code of the program to run inside, or at a later time: torch.cond, while_loop, scan, an
 * autograd.Function's apply, hooks of tensors, torch.func's transforms, torch's engine that goes backward (and runs hooks), a module's
 * zero_grad (its parameters come from a generator). What they do is torch's business, and ends no graph. They are known by the names in their code: functools.wraps gives some the names of what they wrap. */
static bool
is_operator(PyObject *func)
{
    static const char prefix[] = "torch._higher_order_ops.";
    static const struct { const char *module, *name; } others[] = {
        {"torch.autograd.function", "apply"}, {"torch._tensor", "register_hook"},
        {"torch._tensor", "register_post_accumulate_grad_hook"}, {"torch.nn.attention.flex_attention", "flex_attention"},
        {"torch._tensor", "backward"}, {"torch.autograd", "backward"}, {"torch.autograd", "grad"}, {"torch.nn.modules.module", "zero_grad"},
        {"torch._functorch.vmap", "vmap_impl"}, {"torch._functorch.eager_transforms", "grad_impl"},
        {"torch._functorch.eager_transforms", "grad_and_value_impl"}, {"torch._functorch.eager_transforms", "wrapper_fn"},
        {"torch._functorch.eager_transforms", "_vjp_with_argnums"}, {"torch._functorch.eager_transforms", "wrapper"},
        {"torch._functorch.eager_transforms", "_jvp_with_argnums"}, {"torch._functorch.eager_transforms", "linearize"}};
    const PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(func);
    PyObject *home = PyDict_GetItemWithError(((PyFunctionObject *)func)->func_globals, REC_STR("__name__"));
    const char *module = kin_utf8(home);
    if (strncmp(module, "torch.", 6) != 0)
        return is_allowed(func);
    if (rec_is_checkpoint(func))
        return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(module, others[i].module) == 0 && PyUnicode_CompareWithASCIIString(code->co_name, others[i].name) == 0)
            return true;
    return strncmp(module, prefix, sizeof prefix - 1) == 0 || is_allowed(func);
}

/* Module copy, but for copy.copy and what it needs: that does what the class of the object says, once. */
static bool
is_deep_copy(PyObject *func)
{
    static const char *const shallow[] = {"copy", "_copy_immutable", "_reconstruct", NULL};
    if (!kin_is_from_module(func, "copy"))
        return false;
    for (int i = 0; shallow[i]; i++)
        if (PyUnicode_CompareWithASCIIString(((PyFunctionObject *)func)->func_name, shallow[i]) == 0)
            return false;
    return true;
}

skip_kind
rec_skip_kind(PyObject *func)
{
    if (!PyFunction_Check(func))
        return SKIP_NO;
    if (rec_is_torch_leaf(func))
        return SKIP_TORCH;
    if (is_operator(func))
        return SKIP_OPERATOR;
    if (has_attr(func, REC_STR("_torchdynamo_disable")))
        return SKIP_DISABLED;
    if (has_attr(func, REC_STR("_dynamo_marked_constant"))) /* assume_constant_result: called as it is, each time */
        return SKIP_OPERATOR;
    if (has_attr(func, REC_STR("_torchdynamo_orig_callable")))
        return SKIP_COMPILED;
    if (kin_is_from_module(func, "logging") || kin_is_from_module(func, "warnings"))
        return SKIP_EFFECT;
    if (kin_is_from_module(func, "torch._dynamo.decorators") &&
        PyUnicode_CompareWithASCIIString(((PyFunctionObject *)func)->func_name, "graph_break") == 0)
        return SKIP_GRAPH_BREAK;
    if (has_attr(func, REC_STR("_kintsugi_graph_break")))
        return SKIP_GRAPH_BREAK;
    if (kin_is_from_module(func, "torch.autograd") || kin_is_from_module(func, "torch._tensor") || kin_is_from_module(func, "torch._ops") ||
        kin_is_from_module(func, "torch._tensor_str") || is_deep_copy(func) || kin_is_from_module(func, "torch.random") ||
        kin_is_from_module(func, "importlib.util"))
        return SKIP_PLAIN; /* torch.random: seeding goes on to devices, with a traceback of the frames for each; importlib.util.find_spec (torch.autocast
                            * asks it up to torch 2.6) asks each finder, those of setuptools and pytest among them, and looks into folders */
    return SKIP_NO;
}
