/* Operators that run the program's functions inside (torch.cond, scan, vmap, flex_attention ...) if these functions demonstrably only
 * compute: the names that their code looks up become facts, and the call is an ordinary node of the graph. If something in
 * the code may have an effect, or is not understood, the call is an opaque step.
 *
 * kintsugi._operators knows the operators (runner_of: what is called at replay in place of one, so that nothing is compiled twice) and reads
 * the code (names_of: the globals that it uses; None if it may do more than compute).
 */
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/objects/objects.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

enum { DEPTH = 4, MOST = 32 };

static bool is_pure(rec *r, kin_vid *func, int depth);

static bool
module_begins(PyObject *module, const char *name)
{
    const char *text = kin_utf8(module);
    size_t n = strlen(name);
    return strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == '.');
}

/* A module whose functions compute. */
static bool
is_known_module(PyObject *obj)
{
    PyObject *name = PyModule_Check(obj) ? PyModule_GetNameObject(obj) : NULL;
    bool known = module_begins(name, "torch") || module_begins(name, "math");
    Py_XDECREF(name);
    PyErr_Clear();
    return known;
}

/* What the code finds under a name: something that stays, or a function that is pure, too. A tensor is an operand of the node. *vid becomes the form in
 * which it is known. */
static bool
is_pure_value(rec *r, kin_vid *vid, bool operand, int depth)
{
    PyObject *obj = O(r, *vid);
    if (obj == NULL || rec_data_of(r, *vid) != REC_NO_DATA)
        return false;
    if (PyFunction_Check(obj) && !(VIRTUAL(r, *vid) == NULL && module_begins(((PyFunctionObject *)obj)->func_module, "torch")))
        return is_pure(r, vid, depth + 1);
    if (operand && VIRTUAL(r, *vid) == NULL && kin_is_plain_tensor(obj))
        return rec_need_type(r, *vid) != NULL;
    bool stays = kin_is_exact_immutable(obj) || is_known_module(obj) || PyFunction_Check(obj) || rec_is_torch_callable(obj) || rec_is_value(obj);
    return stays && rec_can_const(r, *vid) && (*vid = rec_need_const(r, *vid)) != 0;
}

static kin_vid
globals_of(rec *r, kin_vid func)
{
    PyFunctionObject *fn = (PyFunctionObject *)O(r, func);
    if (VIRTUAL(r, func) != NULL)
        return VIRTUAL(r, func)->items[FN_GLOBALS];
    return rec_is_const(r, func) ? rec_const(r, fn->func_globals) : rec_src(r, func, KIN_ACCESS_GLOBALS, 0, fn->func_globals);
}

/* What the code takes from its globals; what is not there is a builtin that computes. */
static bool
pure_names(rec *r, kin_vid func, PyObject *names, int depth)
{
    kin_vid globals = globals_of(r, func);
    PyObject *dict = O(r, globals);
    bool pure = dict != NULL && PyDict_CheckExact(dict) && PyTuple_CheckExact(names);
    for (Py_ssize_t i = 0; pure && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i), *value = PyDict_GetItemWithError(dict, name);
        kin_vid found = value == NULL ? 0 : rec_dict_item(r, globals, name, value);
        if (value == NULL)
            rec_fact(r, KIN_FACT_LACKS_KEY, globals, name, 0);
        else
            pure = is_pure_value(r, &found, false, depth);
    }
    return pure;
}

/* contents: what the cells hold. *others: the recording did not make all of them. */
static bool
pure_closure(rec *r, kin_vid func, kin_vid *contents, bool *others, int depth)
{
    PyObject *cells = PyFunction_GET_CLOSURE(O(r, func));
    bool pure = cells == NULL || PyTuple_GET_SIZE(cells) <= MOST;
    for (Py_ssize_t i = 0; pure && cells != NULL && i < PyTuple_GET_SIZE(cells); i++) {
        PyObject *cell = PyTuple_GET_ITEM(cells, i), *content = PyCell_GET(cell);
        kin_vid vid = content == NULL ? 0 : rec_closure_cell(r, func, (int)i, cell);
        const rec_virtual *virtual = vid == 0 ? NULL : VIRTUAL(r, vid);
        if (vid == 0 || (virtual != NULL && (!virtual->known || virtual->n == 0)))
            return false;
        if (virtual == NULL)
            rec_root(r, vid);
        *others = *others || virtual == NULL;
        contents[i] = virtual != NULL ? virtual->items[0] : rec_src(r, vid, KIN_ACCESS_CELL, 0, content);
        pure = is_pure_value(r, &contents[i], true, depth);
    }
    return pure;
}

static kin_vid
known_globals(rec *r, kin_vid func)
{
    kin_vid globals = globals_of(r, func);
    if (rec_is_const(r, globals))
        return globals;
    rec_fact(r, KIN_FACT_ID, globals, O(r, globals), 0);
    return rec_const(r, O(r, globals));
}

/* A closure over cells that the recording did not make may be another one in each call, so it is no constant, and what it does could not be written as a
 * graph of its own: the operator gets a function of the same code over the same values. */
static kin_vid
copy_closure(rec *r, kin_vid func, const kin_vid *contents)
{
    PyFunctionObject *fn = (PyFunctionObject *)O(r, func);
    uint32_t n = (uint32_t)PyTuple_GET_SIZE(fn->func_closure);
    kin_vid cells[MOST], parts[KIN_FUNCTION_ANNOTATE] = {[KIN_FUNCTION_CODE] = rec_const(r, fn->func_code), [KIN_FUNCTION_GLOBALS] = known_globals(r, func)};
    for (uint32_t i = 0; i < n; i++)
        cells[i] = rec_build_cell(r, contents[i], PyTuple_GET_ITEM(fn->func_closure, i));
    parts[KIN_FUNCTION_CLOSURE] = rec_build_tuple(r, cells, n, fn->func_closure);
    kin_vid out = rec_build_function(r, parts, KIN_FUNCTION_ANNOTATE, fn->func_qualname);
    rec_set_obj(r, out, (PyObject *)fn); /* what the program has in its place */
    return out;
}

/* Graphs make the function themselves, in globals that are known. */
static void
fix_globals(rec *r, kin_vid func)
{
    kin_step *made = &r->t->steps.at[r->t->vals.at[func].step];
    if (rec_is_const(r, globals_of(r, func)) || made->kind != KIN_STEP_BUILD_FUNCTION)
        return;
    kin_vid known = known_globals(r, func);
    made = &r->t->steps.at[r->t->vals.at[func].step];
    r->t->vids.at[made->args + KIN_FUNCTION_GLOBALS] = known;
    VIRTUAL(r, func)->items[FN_GLOBALS] = known;
}

/* Defaults are values that stay. */
static bool
pure_defaults(const PyFunctionObject *fn)
{
    bool pure = fn->func_kwdefaults == NULL || fn->func_kwdefaults == Py_None;
    for (Py_ssize_t i = 0; pure && fn->func_defaults != NULL && i < PyTuple_GET_SIZE(fn->func_defaults); i++)
        pure = kin_is_exact_immutable(PyTuple_GET_ITEM(fn->func_defaults, i));
    return pure;
}

/* What does the work of an operator at replay: new reference; NULL: nothing that is known. */
static PyObject *
runner_of(PyObject *func)
{
    PyObject *runner = kin_import_call("kintsugi._operators", "runner_of", func);
    if (runner == Py_None)
        Py_CLEAR(runner);
    PyErr_Clear();
    return runner;
}

/* Is the function one that torch.func.jacrev or jacfwd has made? It takes no function: it has one in a cell, and is an operand itself. */
static bool
is_transform(PyObject *func)
{
    static PyObject *kept;
    PyObject *run = kin_import_once(&kept, "kintsugi._operators", "run_transform"), *runner = runner_of(func);
    bool is_one = run != NULL && run == runner;
    Py_XDECREF(runner);
    return is_one;
}

/* The names that the code takes from globals, by `reader` of kintsugi._operators: new reference to a tuple; NULL: it may do more than compute, or ask what
 * the tensors of our own captures cannot tell (a custom backend's graph runs the code itself). */
static PyObject *
read_code(const rec *r, PyObject *code, const char *reader)
{
    PyObject *names = kin_import_call("kintsugi._operators", reader, code);
    PyObject *asks = names == NULL || names == Py_None || r->opt->custom ? NULL : kin_import_call("kintsugi._operators", "asks_about_tensors", code);
    bool refused = names == Py_None || (asks != Py_False && !r->opt->custom);
    Py_XDECREF(asks);
    if (refused)
        Py_CLEAR(names);
    PyErr_Clear();
    return names;
}

static bool
is_pure_code(rec *r, kin_vid *func, const char *reader, int depth)
{
    PyObject *obj = O(r, *func);
    const rec_virtual *virtual = VIRTUAL(r, *func);
    kin_vid contents[MOST];
    bool others = false;
    if (depth > DEPTH || !PyFunction_Check(obj) || (virtual != NULL && virtual->kind != VIRTUAL_FUNCTION) || !pure_defaults((PyFunctionObject *)obj))
        return false;
    PyObject *names = read_code(r, PyFunction_GET_CODE(obj), reader);
    if (names != NULL)
        rec_fix_function(r, func);
    bool pure = names != NULL && pure_names(r, *func, names, depth) && pure_closure(r, *func, contents, &others, depth);
    bool wrapped = virtual != NULL && is_transform(obj); /* its name and text are another function's, and nothing in the graph */
    if (pure && (others || wrapped) && !rec_is_const(r, *func) && PyFunction_GET_DEFAULTS(obj) == NULL)
        *func = copy_closure(r, *func, contents);
    else if (pure && virtual != NULL)
        fix_globals(r, *func);
    Py_XDECREF(names);
    return pure;
}

static bool
is_pure(rec *r, kin_vid *func, int depth)
{
    return is_pure_code(r, func, "names_of", depth);
}

static bool
is_class_of_torch(PyObject *cls)
{
    PyObject *module = PyObject_GetAttrString(cls, "__module__");
    bool is = module == NULL || module_begins(module, "torch");
    PyErr_Clear();
    Py_XDECREF(module);
    return is;
}

/* A class of autograd.Function whose functions compute, and keep in their context what they need. Torch's own stand for hooks and the like, which go by the
 * nodes that they make. */
static bool
is_pure_autograd(rec *r, kin_vid *vid)
{
    static const char *const parts[] = {"forward", "backward", "setup_context"};
    PyObject *cls = O(r, *vid);
    if (cls == NULL || !PyType_Check(cls) || (!r->opt->custom && is_class_of_torch(cls)) || !rec_can_const(r, *vid) || rec_class_is_dynamic(r, (PyTypeObject *)cls))
        return false;
    rec_attrs_of(r, (PyTypeObject *)cls);
    bool pure = true;
    for (size_t i = 0; pure && i < sizeof parts / sizeof *parts; i++) {
        PyObject *fn = PyObject_GetAttrString(cls, parts[i]); /* of the class, which stays as it is */
        PyErr_Clear();
        bool inherited = i == 2 && fn != NULL && PyFunction_Check(fn) && module_begins(((PyFunctionObject *)fn)->func_module, "torch");
        kin_vid func = fn == NULL || !PyFunction_Check(fn) ? 0 : rec_const(r, fn);
        pure = func != 0 && (inherited || is_pure_code(r, &func, r->opt->custom ? "names_with_context" : "names_with_writes", 0));
        Py_XDECREF(fn);
    }
    *vid = pure ? rec_need_const(r, *vid) : *vid;
    return pure;
}

/* fixed: containers only where nothing in them can be changed. */
static bool
is_known_operand(rec *r, kin_vid vid, bool fixed)
{
    PyObject *obj = O(r, vid);
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL)
        return obj != NULL && (kin_is_plain_tensor(obj) || rec_can_const(r, vid));
    return f->known && (fixed ? f->kind == VIRTUAL_TUPLE && kin_is_exact_immutable(obj) : f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_DICT);
}

/* The operands, with functions in the form in which they are known. */
static bool
fix_operands(rec *r, const rec_args *a, kin_vid *fixed)
{
    bool function = false, autograd = a->npos > 0 && kin_is_autograd_apply(O(r, a->callee));
    for (uint32_t i = 0; i < a->npos + a->nkw; i++) {
        PyObject *obj = O(r, a->args[i]);
        fixed[i] = a->args[i];
        if (autograd && i == 0) {
            function = is_pure_autograd(r, &fixed[0]);
            if (!function)
                return false;
            continue;
        }
        if (obj == NULL || !PyFunction_Check(obj)) {
            if (!is_known_operand(r, a->args[i], autograd && !r->opt->custom))
                return false;
            continue;
        }
        function = true;
        if (!is_pure(r, &fixed[i], 0))
            return false;
    }
    return function && rec_fix_for_torch(r, a->args, a->npos + a->nkw);
}

/* The operator, as the node has it, and its operands: 0, or how many; `all` begins with what the node calls. */
static uint32_t
fix_call(rec *r, const rec_args *a, kin_vid *all)
{
    uint32_t n = a->npos + a->nkw;
    if (is_transform(O(r, a->callee))) {
        all[1] = a->callee;
        if (!is_pure(r, &all[1], 0) || !rec_fix_for_torch(r, a->args, n))
            return 0;
        memcpy(all + 2, a->args, n * sizeof *all);
        return n + 2;
    }
    if (VIRTUAL(r, a->callee) != NULL || !rec_can_const(r, a->callee) || !fix_operands(r, a, all + 1))
        return 0;
    rec_need_const(r, a->callee);
    return n + 1;
}

bool
rec_call_pure_operator(rec *r, const rec_args *a)
{
    kin_vid all[MOST + 2];
    PyObject *obj = O(r, a->callee);
    if (!PyFunction_Check(obj) || a->npos + a->nkw > MOST || r->region != NULL || rec_skip_kind(obj) != SKIP_OPERATOR)
        return false;
    PyObject *runner = runner_of(obj);
    uint32_t n = runner != NULL ? fix_call(r, a, all) : 0;
    bool pure = n != 0 && !r->stopped;
    if (pure) {
        all[0] = rec_const(r, runner);
        kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_TORCH, all, n);
        uint32_t step = r->t->vals.at[out].step;
        kin_ref names = a->nkw ? rec_ref(r, a->kwnames) : 0;
        r->t->steps.at[step].ref = names;
        rec_hide_compiling(r);
        r->skip_expected = true;
        rec_drop(r, a->ndrop);
        rec_await_result(r, out, step);
    }
    Py_XDECREF(runner);
    return pure;
}
