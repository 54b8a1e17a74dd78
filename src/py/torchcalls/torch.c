/* Torch calls: which callables are nodes of the call graph, which only read metadata or ambient state, and which give
 * tensor data to Python.
 */
#include "py/aten/modes.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/recorder/callables.h"
#include "core/diag/breaks.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

static struct {
    bool ready, failed;
    PyObject *leaves;          /* set of Python functions that are graph nodes */
    PyTypeObject *base;        /* torch._C.TensorBase */
    PyObject *function_base;   /* torch._C._FunctionBase, NULL: there is none */
    PyObject *script_function, *backward_hook; /* torch._C.ScriptFunction; the autograd function around modules with full backward hooks */
} torch_state;

/* -- finding torch ------------------------------------------------------------------------------------------------ */

static PyObject *
get_path(PyObject *root, const char *path)
{
    char part[64];
    PyObject *obj = Py_NewRef(root);
    while (*path && obj != NULL) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        Py_SETREF(obj, PyObject_GetAttrString(obj, part));
        path += n + (path[n] == '.');
    }
    if (obj == NULL)
        PyErr_Clear();
    return obj;
}

static bool
is_stock_function(PyObject *func)
{
    const char *module = kin_utf8(((PyFunctionObject *)func)->func_module);
    return strcmp(module, "torch") == 0 || strncmp(module, "torch.", 6) == 0;
}

static void
add_leaves(PyObject *namespace)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    PyObject *dict = namespace ? PyObject_GetAttrString(namespace, "__dict__") : NULL;
    PyObject *plain = dict ? PyDict_New() : NULL;
    if (plain != NULL && PyDict_Update(plain, dict) == 0)
        while (PyDict_Next(plain, &pos, &key, &value)) {
            const char *name = kin_utf8(key);
            if (PyFunction_Check(value) && is_stock_function(value) && name[0] != '_' && !kin_is_from_module(value, "torch.overrides"))
                PySet_Add(torch_state.leaves, value);
        }
    Py_XDECREF(plain);
    Py_XDECREF(dict);
    PyErr_Clear();
}

/* Methods of torch.Tensor written in Python that run torch calls and nothing else. */
static void
add_tensor_methods(PyObject *tensor)
{
    static const char *const not_leaves[] = {"backward", "__len__", "__iter__", "__repr__", "__format__", "__array__",
        "__deepcopy__", "__reduce_ex__", "__contains__", "__hash__", "register_hook", "__torch_function__", "__dir__",
        "register_post_accumulate_grad_hook", "share_memory_", "__setstate__", "module_load", "__dlpack__",
        "__dlpack_device__", "storage", "is_shared", "reinforce", "dim_order", "storage_type", NULL};
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(kin_type_dict((PyTypeObject *)tensor), &pos, &key, &value)) {
        if (!PyFunction_Check(value) || !is_stock_function(value))
            continue;
        bool is_leaf = true;
        for (int i = 0; not_leaves[i]; i++)
            is_leaf = is_leaf && PyUnicode_CompareWithASCIIString(key, not_leaves[i]) != 0;
        if (is_leaf)
            PySet_Add(torch_state.leaves, value);
    }
    PyErr_Clear();
}

static kin_status
find_torch(void)
{
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL)
        return KIN_PYERR;
    kin_status st = kin_aten_init(torch);
    PyObject *tensor = get_path(torch, "Tensor"), *compiler = get_path(torch, "compiler");
    torch_state.leaves = PySet_New(NULL);
    torch_state.base = (PyTypeObject *)get_path(torch, "_C.TensorBase");
    torch_state.function_base = get_path(torch, "_C._FunctionBase");
    torch_state.script_function = get_path(torch, "_C.ScriptFunction");
    torch_state.backward_hook = get_path(torch, "nn.modules._functions.BackwardHookFunction");
    if (st == KIN_OK && tensor && torch_state.base && torch_state.leaves && rec_compiling_init(compiler)) {
        PyObject *f = get_path(torch, "nn.functional"), *g = get_path(torch, "functional");
        add_leaves(f);
        add_leaves(g);
        add_tensor_methods(tensor);
        Py_XDECREF(f);
        Py_XDECREF(g);
        torch_state.ready = true;
    } else if (st == KIN_OK) {
        st = KIN_BUG;
    }
    Py_XDECREF(tensor);
    Py_XDECREF(compiler);
    Py_DECREF(torch);
    return st;
}

kin_status
rec_torch_init(void)
{
    if (torch_state.ready)
        return KIN_OK;
    if (torch_state.failed)
        return KIN_BUG;
    kin_status st = find_torch();
    torch_state.failed = st != KIN_OK;
    return st;
}

bool
rec_is_torch_leaf(PyObject *func)
{
    return PySet_Contains(torch_state.leaves, func) > 0;
}

/* -- kinds of torch callables --------------------------------------------------------------------------------------- */

static bool
module_starts(PyObject *self, const char *prefix)
{
    if (self == NULL || !PyModule_Check(self))
        return false;
    const char *name = PyModule_GetName(self);
    if (name == NULL)
        PyErr_Clear();
    return name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
}

/* A C function that belongs to torch. */
static bool
is_torch_c(PyObject *obj)
{
    if (PyCFunction_Check(obj)) {
        PyObject *self = ((PyCFunctionObject *)obj)->m_self; /* torch's functions are static methods of a class */
        if (self != NULL && PyType_Check(self) &&
            strncmp(((PyTypeObject *)self)->tp_name, "torch._C.", 9) == 0)
            return true;
        if (module_starts(self, "torch._C"))
            return true;
        return strncmp(kin_utf8(((PyCFunctionObject *)obj)->m_module), "torch._C", 8) == 0;
    }
    if (Py_TYPE(obj) == &PyMethodDescr_Type || Py_TYPE(obj) == &PyWrapperDescr_Type)
        return PyType_IsSubtype(torch_state.base, PyDescr_TYPE(obj)) && PyDescr_TYPE(obj) != &PyBaseObject_Type;
    return false;
}

bool
rec_is_of_tensors(PyObject *descr)
{
    bool is = Py_IS_TYPE(descr, &PyGetSetDescr_Type) || Py_IS_TYPE(descr, &PyMethodDescr_Type);
    return is && PyType_IsSubtype(torch_state.base, PyDescr_TYPE(descr)) && PyDescr_TYPE(descr) != &PyBaseObject_Type;
}

bool
rec_is_torch_callable(PyObject *obj)
{
    return is_torch_c(obj) || (PyFunction_Check(obj) && rec_skip_kind(obj) == SKIP_TORCH);
}

/* Rows for calls that hand tensor data to Python, or change a tensor in a way that no graph can hold. */
static int
data_row(const char *name)
{
    static const struct { const char *name; int row; } rows[] = {
        {"resize_", KIN_ROW_RESIZE}, {"resize_as_", KIN_ROW_RESIZE}, {"set_", KIN_ROW_SET_DATA}, {"item", KIN_ROW_TENSOR_ITEM},
        {"tolist", KIN_ROW_TENSOR_TOLIST}, {"numpy", KIN_ROW_TENSOR_NUMPY}, {"__array__", KIN_ROW_TENSOR_NUMPY}, {"data_ptr", KIN_ROW_DATA_POINTER},
        {"__float__", KIN_ROW_TENSOR_TO_NUMBER}, {"__int__", KIN_ROW_TENSOR_TO_NUMBER}, {"__index__", KIN_ROW_TENSOR_TO_NUMBER},
        {"__bool__", KIN_ROW_TENSOR_TO_NUMBER}, {"__complex__", KIN_ROW_TENSOR_TO_NUMBER}, {"equal", KIN_ROW_DATA_DEPENDENT_OP},
        {"allclose", KIN_ROW_DATA_DEPENDENT_OP}, {"is_nonzero", KIN_ROW_DATA_DEPENDENT_OP}, {"_is_zerotensor", KIN_ROW_DATA_DEPENDENT_OP}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(name, rows[i].name) == 0)
            return rows[i].row;
    return -1;
}

static bool
is_inplace(const char *name)
{
    size_t n = strlen(name);
    return n > 1 && name[n - 1] == '_' && name[n - 2] != '_';
}

/* -- calls ---------------------------------------------------------------------------------------------------------- */

/* The address of a tensor that is there before the call: no graph has to end for it, and it is another one in each call. */
static bool
call_address(rec *r, const rec_args *a)
{
    if (strcmp(kin_callable_name(O(r, a->callee)), "data_ptr") != 0 || a->npos != 1 || a->nkw != 0 || r->t->vals.at[a->args[0]].kind != KIN_VAL_SRC ||
        !kin_is_plain_strided(O(r, a->args[0])))
        return false;
    rec_need_type(r, a->args[0]);
    uint32_t step = r->t->steps.len;
    rec_call_step(r, a, 0, -1);
    if (step < r->t->steps.len && r->t->steps.at[step].out != 0)
        r->info.at[r->t->steps.at[step].out].varies = true;
    return true;
}

static bool
call_metadata(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    const char *name = kin_callable_name(obj);
    bool asked = rec_meta_is_asked(name);
    if (Py_TYPE(obj) != &PyMethodDescr_Type && strcmp(name, "__len__") != 0 && !asked)
        return false;
    unsigned mask = rec_meta_mask(name);
    if ((mask == 0 && !asked) || a->npos == 0 || !rec_reads_as_tensor(O(r, a->args[0])))
        return false;
    if (asked || !kin_tensor_is_readable(O(r, a->args[0]), mask)) { /* asked again, whatever kind it is then */
        rec_need_type(r, a->args[0]);
        rec_call_step(r, a, 0, -1);
        return true;
    }
    for (uint32_t i = 1; i < a->npos + a->nkw; i++)
        if (rec_need_const(r, a->args[i]) == 0)
            return false;
    rec_need_type(r, a->args[0]);
    r->skip_expected = r->skip_expected || !kin_is_plain_tensor(O(r, a->args[0])); /* the default of classes is Python code */
    if (mask & KIN_META_SIZES && rec_dynamic_dims(r, a->args[0]) != 0)
        return rec_size_call(r, a);
    if (!rec_meta(r, a->args[0], mask))
        return false;
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}

/* torch.ops.aten.mul, torch.ops.aten.mul.Tensor: PyTorch's own operator by name, without the overload. */
static bool
aten_name(PyObject *obj, char *name, size_t size)
{
    static const char prefix[] = "aten::";
    if (!rec_is_torch_operator(obj))
        return false;
    PyObject *full = kin_instance_attr(obj, REC_STR("_name"));
    if (full == NULL)
        full = kin_instance_attr(obj, REC_STR("_qualified_op_name"));
    const char *text = kin_utf8(full);
    if (strncmp(text, prefix, sizeof prefix - 1) != 0)
        return false;
    text += sizeof prefix - 1;
    snprintf(name, size, "%.*s", (int)strcspn(text, "."), text);
    return strlen(name) + 1 < size;
}

/* The call, or what it is told to call, by its name; its operands are fixed. */
static void
write_node(rec *r, const rec_args *given, kin_vid *fixed, const char *name)
{
    int row = rec_is_number_of_tensor(r, given) ? KIN_ROW_TENSOR_TO_NUMBER : data_row(name);
    if ((row == KIN_ROW_TENSOR_ITEM || row == KIN_ROW_TENSOR_TO_NUMBER) && rec_call_known_number(r, given))
        return;
    bool leaves = row >= 0; /* what the call returns is not for a graph */
    bool number = row == KIN_ROW_TENSOR_ITEM || row == KIN_ROW_TENSOR_TO_NUMBER || (row == KIN_ROW_TENSOR_TOLIST && rec_holds_integers(O(r, given->args[0])));
    int from = row;
    if (number || row == KIN_ROW_TENSOR_NUMPY) { /* an array over the tensor's memory is no reason to end the graph: what is done with it may be */
        leaves = !number;
        row = -1;
    }
    uint32_t step = r->t->steps.len;
    rec_call_step(r, &(rec_args){.callee = given->callee, .args = fixed, .npos = given->npos, .nkw = given->nkw, .kwnames = given->kwnames, .ndrop = given->ndrop}, leaves ? 0 : KIN_STEP_TORCH, row);
    if (number)
        rec_note_number(r, step, from);
    r->skip_expected = r->skip_expected || rec_is_torch_operator(O(r, given->callee)); /* its __call__ is Python */
    bool out_arg = false;
    for (uint32_t i = 0; i < given->nkw; i++)
        out_arg = out_arg || rec_is_keyword(given, i, "out");
    if (is_inplace(name) || out_arg) {
        r->inplace = true;
        r->meta_epoch++;
    }
}

/* x.as_subclass(cls): a tensor of that class, as is known without a look at it. */
static void
note_class(rec *r, const rec_args *a, const char *name, uint32_t step)
{
    PyObject *cls = a->npos == 2 && strcmp(name, "as_subclass") == 0 ? O(r, a->args[1]) : NULL;
    if (cls != NULL && PyType_Check(cls) && step < r->t->steps.len && r->t->steps.at[step].out != 0)
        r->info.at[r->t->steps.at[step].out].type = (PyTypeObject *)cls;
}

/* Of a call that runs code of the program (rec_fix_operands). */
static unsigned
flags_of_code(int row)
{
    return KIN_STEP_OPAQUE | KIN_STEP_EFFECT | (row == REC_RUNS_CODE ? KIN_STEP_TORCH : 0u);
}

static void
call_node(rec *r, const rec_args *given)
{
    kin_vid fixed[256];
    char buffer[64];
    const char *name = aten_name(O(r, given->callee), buffer, sizeof buffer) ? buffer : kin_callable_name(O(r, given->callee));
    uint32_t n = given->npos + given->nkw;
    if (n > 250) {
        rec_stop(r, "a torch call with too many arguments");
        return;
    }
    memcpy(fixed, given->args, n * sizeof *given->args);
    r->overrides_off = strcmp(name, "as_subclass") == 0;
    int row = rec_fix_operands(r, fixed, n);
    r->overrides_off = false;
    uint32_t step = r->t->steps.len;
    if (row != REC_RUNS_NO_CODE)
        rec_call_step(r, given, flags_of_code(row), row);
    else
        write_node(r, given, fixed, name);
    note_class(r, given, name, step);
}

/* torch.Tensor.__torch_function__(cls, func, types, args, kwargs), which classes leave their calls to: the call itself, on tensors as they come, with a
 * result of the class. */
static bool
call_default_override(rec *r, const rec_args *a)
{
    kin_vid fixed[5];
    PyObject *func = a->npos > 3 && a->npos <= 5 && a->nkw == 0 ? O(r, a->args[1]) : NULL;
    if (func == NULL || !rec_is_default_override(O(r, a->callee)) || !rec_is_torch_callable(func))
        return false;
    if (!rec_is_const(r, a->args[1]))
        rec_fact(r, KIN_FACT_ID, a->args[1], func, 0);
    memcpy(fixed, a->args, a->npos * sizeof *fixed);
    fixed[1] = rec_const(r, func);
    r->overrides_off = true;
    int row = rec_fix_operands(r, fixed, a->npos);
    r->overrides_off = false;
    rec_args known = rec_args_to(a, rec_const(r, O(r, a->callee)));
    if (row != REC_RUNS_NO_CODE)
        rec_call_step(r, &known, flags_of_code(row), row);
    else if (rec_meta_mask(kin_callable_name(func)) != 0)
        rec_call_step(r, &known, 0, -1);
    else
        write_node(r, &known, fixed, kin_callable_name(func));
    r->skip_expected = true;
    return true;
}

static bool
is_ambient_function(PyObject *obj, rec *r, const kin_vid *args, uint32_t n)
{
    if (!PyCFunction_Check(obj) || rec_any_tensor(r, args, n))
        return false;
    PyObject *self = ((PyCFunctionObject *)obj)->m_self;
    return !(self != NULL && PyType_Check(self)) &&
           !module_starts(self, "torch._C._nn") && !module_starts(self, "torch._C._linalg");
}

static bool
call_torch_c(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    const char *name = kin_callable_name(obj);
    r->unchecked = strstr(name, "torch_function") != NULL;
    if (rec_ask_setting(r, a))
        return true;
    if (strncmp(name, "_has_torch_function", 19) == 0) {
        for (uint32_t i = 0; i < a->npos; i++)
            if (VIRTUAL(r, a->args[i]) == NULL && !rec_is_const(r, a->args[i]))
                rec_need_type(r, a->args[i]);
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    if (is_ambient_function(obj, r, a->args, a->npos + a->nkw)) {
        rec_put_gradients_back(r, obj);
        r->ambient = r->ambient || !rec_callable_knows(obj, KIN_KNOWS_NO_CHANGE);
        unsigned seen = kin_foreign_modes() ? KIN_STEP_OPAQUE : 0; /* by the mode */
        kin_vid args[2];
        rec_args known = *a;
        bool switches = rec_switches_setting(r, a, args);
        known.args = switches ? args : a->args;
        rec_call_step(r, &known, switches ? KIN_STEP_EFFECT | KIN_STEP_TORCH : KIN_STEP_EFFECT | seen, -1);
        return true;
    }
    if (call_address(r, a) || call_metadata(r, a))
        return true;
    call_node(r, a);
    return true;
}

bool
rec_is_tensor_value(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    return f == NULL && (obj != NULL ? kin_is_plain_tensor(obj) : r->info.at[vid].graph);
}

bool
rec_fix_for_torch(rec *r, const kin_vid *args, uint32_t n)
{
    kin_vid fixed[64];
    if (n > 64)
        return false;
    memcpy(fixed, args, n * sizeof *args);
    return rec_fix_operands(r, fixed, n) == REC_RUNS_NO_CODE;
}

/* A tensor, or a known list of some. */
static bool
is_operand_of_torch(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    bool items = f != NULL && f->known && (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST) && f->n > 0;
    return rec_is_tensor_value(r, vid) || (items && rec_is_tensor_value(r, f->items[0]));
}

/* A call that is a node of the graph and changes none of its operands. */
kin_vid
rec_apply_torch(rec *r, kin_vid callee, const kin_vid *args, uint32_t n, PyObject *kwnames)
{
    kin_vid all[64];
    PyObject *obj = O(r, callee);
    const char *name = kin_callable_name(obj);
    bool tensor = false;
    for (uint32_t i = 0; i < n; i++)
        tensor = tensor || is_operand_of_torch(r, args[i]);
    kin_vid known = kwnames == NULL && is_torch_c(obj) ? rec_apply_metadata(r, callee, args, n) : 0;
    if (known != 0)
        return known;
    if (kwnames != NULL && PySequence_Contains(kwnames, REC_STR("out")) != 0)
        return 0;
    if (!is_torch_c(obj) || !tensor || n >= 63 || data_row(name) >= 0 || is_inplace(name) || rec_meta_mask(name) != 0 || name[0] == '_' ||
        strstr(name, "torch_function") != NULL || !rec_fix_for_torch(r, args, n))
        return 0;
    all[0] = callee;
    memcpy(all + 1, args, n * sizeof *args);
    kin_ref names = kwnames != NULL ? rec_ref(r, kwnames) : 0;
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_TORCH, all, n + 1);
    r->t->steps.at[r->t->vals.at[out].step].ref = names;
    return out;
}

/* disable() called by the program itself; PyTorch's own modules call it to set themselves up. */
static bool
is_disable(rec *r, PyObject *obj)
{
    if (!PyFunction_Check(obj) || PyUnicode_CompareWithASCIIString(((PyFunctionObject *)obj)->func_name, "disable") != 0)
        return false;
    PyObject *caller = O(r, r->top->func);
    return (kin_is_from_module(obj, "torch.compiler") || kin_is_from_module(obj, "torch._dynamo.decorators") ||
            kin_is_from_module(obj, "kintsugi._api")) &&
           !(caller != NULL && PyFunction_Check(caller) && is_stock_function(caller));
}

/* The autograd function around a module with full backward hooks. PyTorch's setting for such programs says that no
 * graph ends there. */
static bool
is_backward_hook(PyObject *cls)
{
    if (cls == NULL || cls != torch_state.backward_hook)
        return false;
    PyObject *config = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.config");
    PyObject *allowed = config != NULL ? PyObject_GetAttrString(config, "compiled_autograd") : NULL;
    bool ends = allowed != Py_True;
    Py_XDECREF(allowed);
    PyErr_Clear();
    return ends;
}

/* What does the work of torch.utils.checkpoint.checkpoint at replay, with compiled functions (kintsugi._checkpoint); 0: itself. */
static kin_vid
runner_of_checkpoint(rec *r, kin_vid callee)
{
    PyObject *obj = O(r, callee);
    bool known = r->opt->kernels && obj != NULL && VIRTUAL(r, callee) == NULL && PyFunction_Check(obj) && rec_is_checkpoint(obj);
    PyObject *runner = known ? kin_import_call("kintsugi._checkpoint", "runner_of", obj) : NULL;
    PyErr_Clear();
    bool some = runner != NULL && runner != Py_None;
    if (some && r->t->vals.at[callee].kind == KIN_VAL_SRC)
        rec_fact(r, KIN_FACT_ID, callee, obj, 0);
    else if (some)
        rec_check(r, KIN_CHECK_IS, callee, obj, 0);
    kin_vid vid = some ? rec_const(r, runner) : 0;
    Py_XDECREF(runner);
    return vid;
}

/* What is done inside is torch's business, or any code: executed each time as a whole, and a node of the graph. */
static void
call_operator(rec *r, const rec_args *a)
{
    unsigned opaque = KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
    rec_note_detour(r);
    kin_vid runner = runner_of_checkpoint(r, a->callee);
    rec_args call = runner != 0 || rec_can_const(r, a->callee) ? rec_args_to(a, runner != 0 ? runner : rec_need_const(r, a->callee)) : *a;
    if (a->npos > 0 && is_backward_hook(O(r, a->args[0])))
        rec_call_step(r, &call, opaque, KIN_ROW_MODULE_BACKWARD_HOOK);
    else
        rec_call_step(r, &call, opaque | KIN_STEP_TORCH, -1);
}

/* A method of the library's optimizers that PyTorch's own compiler leaves alone, like zero_grad: no request of the program. */
static bool
is_of_optimizer(PyObject *func)
{
    PyObject *dict = ((PyFunctionObject *)func)->func_dict;
    PyObject *inner = dict != NULL ? PyDict_GetItemWithError(dict, REC_STR("_torchdynamo_orig_callable")) : NULL;
    return inner != NULL && PyFunction_Check(inner) && rec_is_of_optimizer((PyCodeObject *)PyFunction_GET_CODE(inner));
}

/* For the report of the break; the function itself need not be the same in later calls. */
static void
note_disable_reason(rec *r, kin_vid callee)
{
    PyObject *dict = ((PyFunctionObject *)O(r, callee))->func_dict;
    PyObject *reason = dict != NULL ? PyDict_GetItemWithError(dict, REC_STR("_torchdynamo_disable_msg")) : NULL;
    if (reason != NULL && PyUnicode_Check(reason))
        r->t->vals.at[callee].note = rec_ref(r, reason);
}

static void
call_known_node(rec *r, const rec_args *a)
{
    kin_vid callee = rec_const(r, O(r, a->callee));
    if (!rec_is_const(r, a->callee))
        rec_fact(r, KIN_FACT_ID, a->callee, O(r, a->callee), 0);
    rec_args known = rec_args_to(a, callee);
    call_node(r, &known);
}

/* What torch.jit.script and torch.jit.trace make of functions: C code, whose operators a capture sees. */
static bool
is_scripted(PyObject *obj)
{
    return torch_state.script_function == (PyObject *)Py_TYPE(obj);
}

/* An autograd function's apply where that is the C method itself, called with the class (torch 2.14 on; before, a Python function: is_operator). */
static bool
is_autograd_apply(PyObject *obj)
{
    return Py_IS_TYPE(obj, &PyClassMethodDescr_Type) && torch_state.function_base == (PyObject *)PyDescr_TYPE(obj) &&
           PyUnicode_CompareWithASCIIString(PyDescr_NAME(obj), "apply") == 0;
}

/* Jagged tensors are views of a tensor that their first one makes, by code that is not looked into, and that torch keeps. Made a moment earlier, it is there for
 * the call, as it is for all later ones. */
static void
make_what_jagged_tensors_share(PyObject *func)
{
    if (!PyFunction_Check(func) || !kin_is_from_module(func, "torch.nested._internal.nested_tensor") ||
        PyUnicode_CompareWithASCIIString(((PyFunctionObject *)func)->func_name, "_nt_view_dummy") != 0)
        return;
    Py_XDECREF(kin_import_call("torch.nested._internal.nested_tensor", "_nt_view_dummy", NULL));
    PyErr_Clear();
}

/* By how the function is treated that is not looked into (skip.c). */
static bool
call_skipped(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    unsigned opaque = KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
    skip_kind kind = rec_skip_kind(obj);
    make_what_jagged_tensors_share(obj);
    if ((kind == SKIP_GRAPH_BREAK || kind == SKIP_DISABLED) && rec_is_of_optimizer(r->top->code))
        return false; /* asked for because of what another compiler does with gradients and groups of parameters */
    switch (kind) {
    case SKIP_NO:
    case SKIP_PLAIN:
        return false;
    case SKIP_TORCH:
        call_known_node(r, a);
        return true;
    case SKIP_OPERATOR:
        call_operator(r, a);
        return true;
    case SKIP_EFFECT:
        rec_call_step(r, a, opaque | KIN_STEP_REPORTS, r->opt->strict_breaks ? rec_effect_row(obj) : -1);
        return true;
    case SKIP_COMPILED:
        rec_call_step(r, a, opaque, KIN_ROW_NESTED_COMPILE);
        return true;
    case SKIP_DISABLED:
        if (is_of_optimizer(obj)) {
            call_operator(r, a);
            return true;
        }
        note_disable_reason(r, a->callee);
        rec_call_step(r, a, opaque, KIN_ROW_DISABLED_CALL);
        return true;
    case SKIP_GRAPH_BREAK:
        rec_call_step(r, a, opaque, KIN_ROW_EXPLICIT_BREAK);
        return true;
    }
    return false;
}

bool
rec_call_torch(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    if (rec_call_inference_mode(r, a))
        return true;
    if (is_scripted(obj) && rec_any_tensor(r, a->args, a->npos + a->nkw)) {
        call_known_node(r, a);
        return true;
    }
    if (is_torch_c(obj))
        return rec_is_const(r, a->callee) && call_torch_c(r, a);
    if (call_default_override(r, a))
        return true;
    if (is_autograd_apply(obj)) {
        call_operator(r, a);
        return true;
    }
    if (rec_is_torch_operator(obj)) {
        char name[64];
        if (aten_name(obj, name, sizeof name) && rec_is_const(r, a->callee))
            call_node(r, a);
        else
            call_operator(r, a);
        return true;
    }
    bool length = kin_is_from_module(obj, "torch._tensor") && strcmp(kin_callable_name(obj), "__len__") == 0;
    if (length && rec_is_const(r, a->callee) && call_metadata(r, a)) {
        r->skip_expected = true;
        return true;
    }
    if (rec_is_number_of_tensor(r, a) && rec_is_const(r, a->callee)) {
        call_node(r, a);
        return true;
    }
    if (is_disable(r, obj)) {
        rec_call_step(r, a, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, KIN_ROW_DISABLE_INSIDE);
        return true;
    }
    if (rec_checks_data(r, a)) {
        call_known_node(r, a);
        return true;
    }
    return call_skipped(r, a);
}

/* x + y, -x, x[i], x < y with a tensor among the operands. */
void
rec_torch_operator(rec *r, kin_step_kind kind, int imm, const kin_vid *args, uint32_t n, int ndrop)
{
    kin_vid fixed[3];
    memcpy(fixed, args, n * sizeof *args);
    int row = rec_fix_operands(r, fixed, n);
    bool plain = row == REC_RUNS_NO_CODE;
    bool stores = kind == KIN_STEP_SET_SUBSCR;
    unsigned flags = plain ? KIN_STEP_TORCH | (stores ? KIN_STEP_EFFECT : 0u) : flags_of_code(row);
    kin_vid out = 0;
    uint32_t s;
    bool judged = plain && rec_written_judges_operator(r, kind, imm, fixed);
    if (stores) {
        s = rec_step(r, kind, flags, fixed, n);
    } else {
        out = rec_step_out(r, kind, flags, fixed, n);
        s = r->t->vals.at[out].step;
    }
    r->t->steps.at[s].imm = (uint8_t)imm;
    rec_written_note(r, s, judged);
    r->skip_expected = true;
    if (!plain) {
        if (row >= 0)
            rec_break(r, s, row);
        rec_forget_contents(r);
    }
    rec_drop(r, ndrop);
    if (out != 0)
        rec_await_result(r, out, s);
}

/* -- our own wrappers --------------------------------------------------------------------------------------------------- */

bool
rec_is_compiled(PyObject *obj)
{
    return strcmp(Py_TYPE(obj)->tp_name, "kintsugi._kintsugi.Compiled") == 0;
}

PyObject *
rec_compiled_fn(PyObject *obj)
{
    PyObject *fn = PyObject_GetAttrString(obj, "fn");
    if (fn == NULL)
        PyErr_Clear();
    Py_XDECREF(fn); /* the wrapper holds it */
    return fn;
}
