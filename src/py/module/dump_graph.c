/* The call graphs of a trace: which steps belong to them, what they are handed, and what leaves them.
 *
 * A graph's inputs are the values its steps use and did not make; its outputs are the values that something outside the
 * graph uses. Lists, tuples and slices that were built only to be arguments are shown inside the call.
 */
#include "py/module/dump_priv.h"

#include <string.h>

/* One graph being described. */
typedef struct {
    dumper *d;
    kin_graph *g;
    uint32_t number;
    uint32_t step;         /* the step being described */
    uint32_t *nodes;       /* by vid: node in g; 0 = not yet */
    PyObject *inputs;      /* list of dicts */
    PyObject *operators;   /* module operator */
    bool inexact;          /* some node is not shown with all that it is handed */
} grapher;

/* ---- who uses what ---- */

uint32_t
dump_maker(dumper *d, kin_vid vid)
{
    const kin_val *val = &d->t->vals.at[vid];
    if (vid == 0 || val->kind != KIN_VAL_STEP || val->step >= d->t->steps.len || d->t->steps.at[val->step].out != vid)
        return UINT32_MAX;
    return val->step;
}

static uint32_t
home_graph(dumper *d, kin_vid vid)
{
    uint32_t maker = dump_maker(d, vid);
    return maker != UINT32_MAX && d->t->steps.at[maker].flags & KIN_STEP_TORCH ? dump_graph_of(d, maker) : 0;
}

static void
mark_use(dumper *d, kin_vid vid, uint32_t user, uint32_t step)
{
    if (vid == 0 || user == 0)
        return;
    if (d->use[vid] == 0)
        d->use[vid] = user;
    else if (d->use[vid] != user)
        d->use[vid] = USED_OUTSIDE;
    if (user != home_graph(d, vid))
        d->first_use[vid] = step;
}

static void
mark_args(dumper *d, const kin_step *s, uint32_t from, uint32_t user, uint32_t step)
{
    for (uint32_t i = from; i < s->nargs; i++)
        mark_use(d, d->t->vids.at[s->args + i], user, step);
}

static void
mark_snapshot(dumper *d, uint32_t snap, uint32_t step)
{
    for (; snap != 0 && snap < d->t->snaps.len; snap = d->t->snaps.at[snap].parent) {
        const kin_snap *s = &d->t->snaps.at[snap];
        for (uint32_t i = 0; i < (uint32_t)s->nlocals + s->nstack; i++)
            mark_use(d, d->t->vids.at[s->vals + i], USED_OUTSIDE, step);
    }
}

static bool
is_container(const kin_step *s)
{
    return s->kind == KIN_STEP_BUILD_TUPLE || s->kind == KIN_STEP_BUILD_LIST || s->kind == KIN_STEP_BUILD_MAP
           || s->kind == KIN_STEP_BUILD_SLICE || s->kind == KIN_STEP_LIST_TO_TUPLE || s->kind == KIN_STEP_BUILD_METHOD;
}

/* Does the check ask for more than what kind of object it is? */
static bool
is_decision(const kin_step *s)
{
    return s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_EQ || s->imm == KIN_CHECK_IS
           || s->imm == KIN_CHECK_IS_NOT || s->imm == KIN_CHECK_LEN;
}

kin_status
dump_find_uses(dumper *d)
{
    for (uint32_t i = d->t->steps.len; i-- > 0;) {
        const kin_step *s = &d->t->steps.at[i];
        kin_vid target = s->nargs ? d->t->vids.at[s->args] : 0;
        if (s->flags & KIN_STEP_TORCH)
            mark_args(d, s, 0, dump_graph_of(d, i), i);
        else if (s->kind == KIN_STEP_CHECK && !is_decision(s))
            continue;
        else if (s->kind == KIN_STEP_EXIT)
            mark_snapshot(d, s->snap, i);
        else if (is_container(s) || s->flags & KIN_STEP_PURE)
            mark_args(d, s, 0, s->out ? d->use[s->out] : 0, s->out ? d->first_use[s->out] : i);
        else if (s->flags & KIN_STEP_MUTATES && s->flags & KIN_STEP_SUNK)
            mark_args(d, s, 1, d->use[target], d->first_use[target]);
        else if (s->flags & KIN_STEP_MUTATES && d->use[target] != 0)
            mark_args(d, s, 1, d->use[target], d->first_use[target]);
        else
            mark_args(d, s, 0, USED_OUTSIDE, i);
    }
    return KIN_OK;
}

/* ---- arguments ---- */

static PyObject *add_value(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid);

static PyObject *
make_vid_leaf(kin_vid vid)
{
    return Py_BuildValue("{s:I}", "vid", (unsigned)vid);
}

static PyObject *
input_source(grapher *x, kin_vid vid)
{
    dumper *d = x->d;
    const kin_val *val = &d->t->vals.at[vid];
    PyObject *path = dump_path(d, vid);
    const char *chars = path != NULL ? PyUnicode_AsUTF8(path) : NULL;
    if (chars == NULL)
        return path;
    PyObject *name = val->name ? kin_refs_get(d->refs, val->name) : NULL;
    bool packed = strncmp(chars, "L['args']", 9) == 0 || strncmp(chars, "L['kwargs']", 11) == 0;
    PyObject *shown = NULL;
    if (name == NULL && (packed || val->kind != KIN_VAL_SRC))
        name = d->locals[vid];
    if (val->kind != KIN_VAL_SRC && d->names[vid] != NULL)
        shown = PyUnicode_FromFormat("L['%U']", d->names[vid]);
    else if (val->kind != KIN_VAL_SRC && name == NULL)
        shown = PyUnicode_FromFormat("L['value_%u']", vid);
    else if ((val->kind != KIN_VAL_SRC || packed) && name != NULL && PyUnicode_Check(name))
        shown = PyUnicode_FromFormat("L['%U']", name);
    else
        return path;
    Py_DECREF(path);
    return shown;
}

/* The parameter's name, made unique among the inputs. */
static PyObject *
input_name(grapher *x, PyObject *source)
{
    kin_text text = {0};
    const char *chars = PyUnicode_AsUTF8(source);
    if (chars == NULL)
        return NULL;
    kin_graph_source_name(chars, &text);
    PyObject *name = text.failed ? PyErr_NoMemory() : PyUnicode_FromString(text.at != NULL ? text.at : "L_");
    uint32_t same = 0;
    for (Py_ssize_t i = 0; name != NULL && i < PyList_GET_SIZE(x->inputs); i++) {
        PyObject *other = PyDict_GetItemString(PyList_GET_ITEM(x->inputs, i), "plain");
        same += other != NULL && PyUnicode_Compare(other, name) == 0;
    }
    kin_text_deinit(&text);
    if (name != NULL && same > 0)
        Py_SETREF(name, PyUnicode_FromFormat("%U%u", name, same));
    return name;
}

static PyObject *
note_of(dumper *d, kin_vid vid)
{
    PyObject *note = d->t->vals.at[vid].note ? kin_refs_get(d->refs, d->t->vals.at[vid].note) : NULL;
    return note != NULL && PyUnicode_Check(note) ? note : NULL;
}

static const char *
chars_or_null(PyObject *text)
{
    return text != NULL ? PyUnicode_AsUTF8(text) : NULL;
}

static uint32_t
add_input(grapher *x, kin_vid vid)
{
    PyObject *source = input_source(x, vid), *note = note_of(x->d, vid), *plain = NULL, *entry = NULL;
    PyObject *path = dump_path(x->d, vid);
    PyObject *name = source != NULL ? input_name(x, source) : NULL;
    const char *chars = chars_or_null(name);
    uint32_t node = chars != NULL ? kin_graph_add_input(x->g, chars, chars_or_null(note)) : 0;
    if (node != 0 && path != NULL)
        entry = Py_BuildValue("{s:I,s:O,s:O,s:O,s:s,s:O}", "vid", (unsigned)vid, "source", source, "path", path, "name",
                              name, "local", kin_graph_text(x->g, x->g->nodes.at[node].name), "note",
                              note != NULL ? note : Py_None);
    if (entry != NULL) {
        kin_text bare = {0};
        kin_graph_source_name(PyUnicode_AsUTF8(source), &bare);
        plain = PyUnicode_FromString(bare.at != NULL ? bare.at : "");
        kin_text_deinit(&bare);
    }
    if (plain == NULL || PyDict_SetItemString(entry, "plain", plain) < 0 || PyList_Append(x->inputs, entry) < 0)
        node = 0;
    Py_XDECREF(plain);
    Py_XDECREF(entry);
    Py_XDECREF(path);
    Py_XDECREF(name);
    Py_XDECREF(source);
    return node;
}

static PyObject *
add_constant(grapher *x, uint32_t node, uint32_t parent, const char *key, PyObject *value)
{
    PyObject *text = dump_constant_text(value);
    const char *chars = chars_or_null(text);
    if (chars != NULL)
        kin_graph_add_text(x->g, node, parent, key, chars);
    Py_XDECREF(text);
    return chars != NULL ? Py_NewRef(value != NULL ? value : Py_None) : NULL;
}

static PyObject *
add_graph_value(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid)
{
    if (x->nodes[vid] == 0)
        x->nodes[vid] = add_input(x, vid);
    if (x->nodes[vid] == 0)
        return NULL;
    kin_graph_add_arg(x->g, node, parent, key, (kin_arg){.kind = KIN_ARG_NODE, .node = x->nodes[vid]});
    return make_vid_leaf(vid);
}

/* An element of a container: a value of the program, or an object that is known without one. */
typedef struct {
    kin_vid vid;
    PyObject *known; /* borrowed; used when not NULL */
} element;

typedef KIN_VEC(element) elements;

enum { MAX_NESTING = 12 };

static bool find_elements(grapher *x, kin_vid vid, elements *out, int depth);

static bool
push_element(elements *out, kin_vid vid, PyObject *known)
{
    return kin_vec_push(out, ((element){vid, known})) == KIN_OK;
}

/* The elements of another sequence or dict, which the step being followed takes in. */
static bool
take_in(grapher *x, kin_vid vid, elements *out, int depth)
{
    PyObject *known = dump_maker(x->d, vid) == UINT32_MAX ? dump_known_object(x->d, vid) : NULL;
    if (known == NULL)
        return find_elements(x, vid, out, depth + 1);
    bool ok = PyTuple_CheckExact(known);
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(known); i++)
        ok = push_element(out, 0, PyTuple_GET_ITEM(known, i));
    return ok;
}

/* Sets a key of a dict whose entries alternate in `out`. False when it cannot be told which entry that is. */
static bool
set_entry(grapher *x, elements *out, element key, element value)
{
    PyObject *name = key.known != NULL ? key.known : dump_known_object(x->d, key.vid);
    if (name == NULL || !PyUnicode_CheckExact(name))
        return false;
    for (uint32_t i = 0; i + 1 < out->len; i += 2)
        if (PyUnicode_Compare(out->at[i].known, name) == 0) {
            out->at[i + 1] = value;
            return true;
        }
    return push_element(out, 0, name) && push_element(out, value.vid, value.known);
}

static bool
merge_entries(grapher *x, kin_vid vid, elements *out, int depth)
{
    elements more = {0};
    bool ok = find_elements(x, vid, &more, depth + 1);
    for (uint32_t i = 0; ok && i + 1 < more.len; i += 2)
        ok = set_entry(x, out, more.at[i], more.at[i + 1]);
    kin_vec_deinit(&more);
    return ok;
}

/* Follows a step that has the container among its operands; false when it may do something else than is known here. */
static bool
follow_step(grapher *x, const kin_step *s, kin_vid vid, bool is_dict, elements *out, int depth)
{
    const kin_vid *args = x->d->t->vids.at + s->args;
    if (!(s->flags & KIN_STEP_MUTATES) || args[0] != vid)
        return s->flags & (KIN_STEP_TORCH | KIN_STEP_PURE | KIN_STEP_MUTATES) || s->kind == KIN_STEP_CHECK;
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_LIST_APPEND: return !is_dict && s->nargs == 2 && push_element(out, args[1], NULL);
    case KIN_STEP_LIST_EXTEND: return !is_dict && s->nargs == 2 && take_in(x, args[1], out, depth);
    case KIN_STEP_DICT_MERGE:
    case KIN_STEP_DICT_UPDATE: return is_dict && merge_entries(x, args[1], out, depth);
    case KIN_STEP_SET_SUBSCR:
        return is_dict && set_entry(x, out, (element){args[1], NULL}, (element){args[2], NULL});
    default: return false;
    }
}

static bool
has_operand(grapher *x, const kin_step *s, kin_vid vid)
{
    for (uint32_t a = 0; a < s->nargs; a++)
        if (x->d->t->vids.at[s->args + a] == vid)
            return true;
    return false;
}

/* What a container built in this recording holds at the current step; the entries of a dict as keys and values in
 * turn. False when that is not known: then it is shown as a value of its own. */
static bool
find_elements(grapher *x, kin_vid vid, elements *out, int depth)
{
    const kin_trace *t = x->d->t;
    uint32_t maker = dump_maker(x->d, vid);
    if (maker == UINT32_MAX || depth > MAX_NESTING)
        return false;
    const kin_step *s = &t->steps.at[maker];
    bool is_dict = s->kind == KIN_STEP_BUILD_MAP, ok = true;
    if (s->kind == KIN_STEP_LIST_TO_TUPLE)
        return take_in(x, t->vids.at[s->args], out, depth);
    if (!is_dict && s->kind != KIN_STEP_BUILD_TUPLE && s->kind != KIN_STEP_BUILD_LIST && s->kind != KIN_STEP_BUILD_SLICE)
        return false;
    for (uint32_t i = 0; ok && i < s->nargs; i += is_dict ? 2 : 1) {
        kin_vid first = t->vids.at[s->args + i];
        ok = is_dict ? i + 1 < s->nargs && set_entry(x, out, (element){first, NULL},
                                                     (element){t->vids.at[s->args + i + 1], NULL})
                     : push_element(out, first, NULL);
    }
    if (s->kind == KIN_STEP_BUILD_TUPLE || s->kind == KIN_STEP_BUILD_SLICE)
        return ok;
    bool stored = false; /* in another object, through which unknown code may reach it */
    for (uint32_t i = maker + 1; ok && i < x->step; i++) {
        const kin_step *next = &t->steps.at[i];
        ok = !(stored && next->flags & (KIN_STEP_OPAQUE | KIN_STEP_EFFECT) && !(next->flags & KIN_STEP_TORCH));
        if (!ok || !has_operand(x, next, vid))
            continue;
        stored = stored || next->flags & (KIN_STEP_PURE | KIN_STEP_MUTATES);
        ok = follow_step(x, next, vid, is_dict, out, depth);
    }
    return ok;
}

static PyObject *
add_element(grapher *x, uint32_t node, uint32_t parent, const char *key, element e)
{
    return e.known != NULL ? add_constant(x, node, parent, key, e.known) : add_value(x, node, parent, key, e.vid);
}

static PyObject *
list_elements(grapher *x, uint32_t node, uint32_t parent, const elements *found)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < found->len; i++) {
        PyObject *value = add_element(x, node, parent, NULL, found->at[i]);
        if (value == NULL || PyList_Append(list, value) < 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    return list;
}

static PyObject *
add_sequence(grapher *x, uint32_t node, uint32_t parent, const char *key, const kin_step *s, const elements *found)
{
    kin_arg_kind kind = s->kind == KIN_STEP_BUILD_LIST    ? KIN_ARG_LIST
                        : s->kind == KIN_STEP_BUILD_SLICE ? KIN_ARG_SLICE
                                                          : KIN_ARG_TUPLE;
    uint32_t arg = kin_graph_add_arg(x->g, node, parent, key, (kin_arg){.kind = (uint8_t)kind});
    PyObject *list = list_elements(x, node, arg, found), *value = NULL;
    if (list == NULL || kind == KIN_ARG_LIST)
        return list;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (kind == KIN_ARG_TUPLE)
        value = PyList_AsTuple(list);
    else
        value = PySlice_New(n > 0 ? PyList_GET_ITEM(list, 0) : NULL, n > 1 ? PyList_GET_ITEM(list, 1) : NULL,
                            n > 2 ? PyList_GET_ITEM(list, 2) : NULL);
    Py_DECREF(list);
    return value;
}

static PyObject *
add_dict(grapher *x, uint32_t node, uint32_t parent, const char *key, const elements *found)
{
    uint32_t arg = kin_graph_add_arg(x->g, node, parent, key, (kin_arg){.kind = KIN_ARG_DICT});
    PyObject *pairs = PyList_New(0);
    for (uint32_t i = 0; pairs != NULL && i + 1 < found->len; i += 2) {
        PyObject *text = dump_constant_text(found->at[i].known);
        const char *chars = chars_or_null(text);
        PyObject *value = chars != NULL ? add_element(x, node, arg, chars, found->at[i + 1]) : NULL;
        PyObject *pair = value != NULL ? PyTuple_Pack(2, found->at[i].known, value) : NULL;
        if (pair == NULL || PyList_Append(pairs, pair) < 0)
            Py_CLEAR(pairs);
        Py_XDECREF(pair);
        Py_XDECREF(value);
        Py_XDECREF(text);
    }
    PyObject *dict = pairs != NULL ? Py_BuildValue("{s:O}", "dict", pairs) : NULL;
    Py_XDECREF(pairs);
    return dict;
}

static PyObject *
add_value_inner(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid)
{
    const kin_trace *t = x->d->t;
    if (vid == 0)
        return add_constant(x, node, parent, key, Py_None);
    if (x->nodes[vid] != 0)
        return add_graph_value(x, node, parent, key, vid);
    uint32_t maker = dump_maker(x->d, vid);
    elements found = {0};
    PyObject *value = NULL;
    bool shown = maker != UINT32_MAX && find_elements(x, vid, &found, 0);
    if (shown)
        value = t->steps.at[maker].kind == KIN_STEP_BUILD_MAP
                    ? add_dict(x, node, parent, key, &found)
                    : add_sequence(x, node, parent, key, &t->steps.at[maker], &found);
    kin_vec_deinit(&found);
    if (shown)
        return value;
    PyObject *known = dump_known_object(x->d, vid);
    if (known != NULL)
        return add_constant(x, node, parent, key, known);
    return add_graph_value(x, node, parent, key, vid);
}

/* Adds the value to the node's arguments in the graph, and returns it in the form of the dump. */
static PyObject *
add_value(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid)
{
    if (Py_EnterRecursiveCall(" while describing a graph"))
        return NULL;
    PyObject *value = add_value_inner(x, node, parent, key, vid);
    Py_LeaveRecursiveCall();
    return value;
}

/* ---- nodes ---- */

/* What a step calls. */
typedef struct {
    kin_node_op op;
    const char *kind;     /* of the dump: call_function, ... */
    PyObject *target;     /* str, owned */
    PyObject *callable;   /* owned; may be NULL */
    kin_vid args[3];      /* the first arguments in the order of the call */
    uint32_t nfirst;
    uint32_t rest;        /* further arguments: step operands from here on */
    uint32_t nkw;         /* how many of them, at the end, are keywords */
    PyObject *kwnames;    /* borrowed */
    kin_vid star, starkw; /* CALL_EX operands that stand for *args and **kwargs */
} callee;

static void
drop_callee(callee *c)
{
    Py_CLEAR(c->target);
    Py_CLEAR(c->callable);
}

static bool
is_tensor_method(PyObject *callable)
{
    if (Py_TYPE(callable) == &PyMethodDescr_Type || Py_TYPE(callable) == &PyWrapperDescr_Type)
        return strstr(PyDescr_TYPE(callable)->tp_name, "Tensor") != NULL;
    if (!PyFunction_Check(callable))
        return false;
    PyObject *name = ((PyFunctionObject *)callable)->func_qualname;
    const char *chars = name != NULL ? PyUnicode_AsUTF8(name) : NULL;
    return chars != NULL && strncmp(chars, "Tensor.", 7) == 0;
}

static int
find_known_callee(callee *c, PyObject *known)
{
    c->callable = Py_NewRef(known);
    if (!is_tensor_method(known)) {
        c->op = KIN_NODE_FUNCTION;
        c->kind = "call_function";
        c->target = dump_dotted_name(known);
    } else {
        c->op = KIN_NODE_METHOD;
        c->kind = "call_method";
        c->target = PyObject_GetAttrString(known, "__name__");
    }
    return c->target != NULL ? 0 : -1;
}

/* The callable behind the vid: a known object, or a method taken from a value just before. */
static int
find_callee(grapher *x, kin_vid vid, callee *c)
{
    dumper *d = x->d;
    PyObject *known = dump_known_object(d, vid);
    if (known != NULL)
        return find_known_callee(c, known);
    uint32_t maker = dump_maker(d, vid);
    const kin_step *s = maker != UINT32_MAX ? &d->t->steps.at[maker] : NULL;
    if (s != NULL && s->kind == KIN_STEP_GETATTR) {
        c->op = KIN_NODE_METHOD;
        c->kind = "call_method";
        c->target = Py_NewRef(kin_refs_get(d->refs, s->ref));
        c->args[c->nfirst++] = d->t->vids.at[s->args];
        return 0;
    }
    if (s != NULL && s->kind == KIN_STEP_BUILD_METHOD) {
        c->args[c->nfirst++] = d->t->vids.at[s->args + 1];
        known = dump_known_object(d, d->t->vids.at[s->args]);
        if (known != NULL)
            return find_known_callee(c, known);
    }
    c->op = KIN_NODE_FUNCTION;
    c->kind = "call_function";
    c->target = dump_path(d, vid);
    return c->target != NULL ? 0 : -1;
}

static const char *const binary_symbols[] = {"+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"};
static const char *const binary_names[] = {"add", "and_", "floordiv", "lshift", "matmul", "mul", "mod",
                                           "or_", "pow",  "rshift",   "sub",    "truediv", "xor"};
static const char *const inplace_names[] = {"iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imul", "imod",
                                            "ior",  "ipow", "irshift",   "isub",    "itruediv", "ixor"};
static const char *const compare_symbols[] = {"<", "<=", "==", "!=", ">", ">="};
static const char *const compare_names[] = {"lt", "le", "eq", "ne", "gt", "ge"};
static const char *const unary_symbols[] = {"-", "+", "~", "not "};
static const char *const unary_names[] = {"neg", "pos", "invert", "not_"};

static int
set_operator(grapher *x, callee *c, kin_node_op op, const char *symbol, const char *name)
{
    c->op = op;
    c->kind = "operator";
    c->target = PyUnicode_FromString(symbol);
    c->callable = PyObject_GetAttrString(x->operators, name);
    return c->target != NULL && c->callable != NULL ? 0 : -1;
}

static int
set_function(grapher *x, callee *c, PyObject *module, const char *prefix, const char *name)
{
    (void)x;
    c->op = KIN_NODE_FUNCTION;
    c->kind = "call_function";
    c->target = PyUnicode_FromFormat("%s%s", prefix, name);
    c->callable = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    return c->target != NULL && (c->callable != NULL || module == NULL) ? 0 : -1;
}

static int
set_builtin(grapher *x, callee *c, const char *name)
{
    PyObject *builtins = PyImport_ImportModule("builtins");
    int status = builtins != NULL ? set_function(x, c, builtins, "", name) : -1;
    Py_XDECREF(builtins);
    return status;
}

static int
find_operator(grapher *x, const kin_step *s, callee *c)
{
    c->rest = 0;
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_BINARY:
        if (s->imm < 13)
            return set_operator(x, c, KIN_NODE_INFIX, binary_symbols[s->imm], binary_names[s->imm]);
        if (s->imm < 26)
            return set_function(x, c, x->operators, "operator.", inplace_names[s->imm - 13]);
        break;
    case KIN_STEP_COMPARE:
        if (s->imm < 6)
            return set_operator(x, c, KIN_NODE_INFIX, compare_symbols[s->imm], compare_names[s->imm]);
        break;
    case KIN_STEP_UNARY:
        if (s->imm < 4)
            return set_operator(x, c, KIN_NODE_PREFIX, unary_symbols[s->imm], unary_names[s->imm]);
        break;
    case KIN_STEP_SUBSCR: return set_operator(x, c, KIN_NODE_ITEM, "[]", "getitem");
    case KIN_STEP_SET_SUBSCR: return set_function(x, c, x->operators, "operator.", "setitem");
    case KIN_STEP_DEL_SUBSCR: return set_function(x, c, x->operators, "operator.", "delitem");
    case KIN_STEP_IS: return set_function(x, c, x->operators, "operator.", s->imm ? "is_not" : "is_");
    case KIN_STEP_TRUTH: return set_function(x, c, x->operators, "operator.", "truth");
    case KIN_STEP_CONTAINS:
        c->args[c->nfirst++] = x->d->t->vids.at[s->args + 1];
        c->args[c->nfirst++] = x->d->t->vids.at[s->args];
        c->rest = 2;
        return set_function(x, c, x->operators, "operator.", "contains");
    case KIN_STEP_GETATTR: return set_builtin(x, c, "getattr");
    case KIN_STEP_SETATTR: return set_builtin(x, c, "setattr");
    case KIN_STEP_LEN: return set_builtin(x, c, "len");
    case KIN_STEP_ITER: return set_builtin(x, c, "iter");
    case KIN_STEP_NEXT: return set_builtin(x, c, "next");
    default: break;
    }
    return set_function(x, c, NULL, "", kin_step_name((kin_step_kind)s->kind));
}

static int
find_target(grapher *x, const kin_step *s, callee *c)
{
    const kin_trace *t = x->d->t;
    if (s->kind == KIN_STEP_CALL) {
        c->rest = 1;
        c->kwnames = s->ref ? kin_refs_get(x->d->refs, s->ref) : NULL;
        c->nkw = c->kwnames != NULL && PyTuple_Check(c->kwnames) ? (uint32_t)PyTuple_GET_SIZE(c->kwnames) : 0;
        return find_callee(x, t->vids.at[s->args], c);
    }
    if (s->kind == KIN_STEP_CALL_EX) {
        c->rest = s->nargs;
        c->star = s->nargs > 1 ? t->vids.at[s->args + 1] : 0;
        c->starkw = s->nargs > 2 ? t->vids.at[s->args + 2] : 0;
        return find_callee(x, t->vids.at[s->args], c);
    }
    return find_operator(x, s, c);
}

static int
append_arg(grapher *x, uint32_t node, kin_vid vid, PyObject *args)
{
    PyObject *value = add_value(x, node, 0, NULL, vid);
    int status = value != NULL ? PyList_Append(args, value) : -1;
    Py_XDECREF(value);
    return status;
}

static int
append_keyword(grapher *x, uint32_t node, PyObject *name, kin_vid vid, PyObject *kwargs)
{
    const char *key = chars_or_null(name);
    PyObject *value = key != NULL ? add_value(x, node, 0, key, vid) : NULL;
    int status = value != NULL ? PyDict_SetItem(kwargs, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

/* f(*args): its elements where they are known, else the tuple as one argument, which the node then is not exact about. */
static int
add_star(grapher *x, uint32_t node, kin_vid star, PyObject *args)
{
    elements found = {0};
    bool known = take_in(x, star, &found, 0);
    int status = 0;
    if (!known) {
        x->inexact = true;
        status = append_arg(x, node, star, args);
    }
    PyObject *list = known ? list_elements(x, node, 0, &found) : NULL;
    if (known)
        status = list == NULL ? -1 : PyList_SetSlice(args, PY_SSIZE_T_MAX, PY_SSIZE_T_MAX, list);
    Py_XDECREF(list);
    kin_vec_deinit(&found);
    return status;
}

static int
add_starkw(grapher *x, uint32_t node, kin_vid starkw, PyObject *kwargs)
{
    elements found = {0};
    int status = 0;
    if (!find_elements(x, starkw, &found, 0)) {
        x->inexact = true;
        found.len = 0;
    }
    for (uint32_t i = 0; status == 0 && i + 1 < found.len; i += 2) {
        const char *key = chars_or_null(found.at[i].known);
        PyObject *value = key != NULL ? add_element(x, node, 0, key, found.at[i + 1]) : NULL;
        status = value != NULL ? PyDict_SetItem(kwargs, found.at[i].known, value) : -1;
        Py_XDECREF(value);
    }
    kin_vec_deinit(&found);
    return status;
}

static int
add_star_args(grapher *x, uint32_t node, const callee *c, PyObject *args, PyObject *kwargs)
{
    if (c->star != 0 && add_star(x, node, c->star, args) < 0)
        return -1;
    return c->starkw != 0 ? add_starkw(x, node, c->starkw, kwargs) : 0;
}

static int
add_arguments(grapher *x, uint32_t node, const kin_step *s, const callee *c, PyObject *args, PyObject *kwargs)
{
    const kin_trace *t = x->d->t;
    for (uint32_t i = 0; i < c->nfirst; i++)
        if (append_arg(x, node, c->args[i], args) < 0)
            return -1;
    for (uint32_t i = c->rest; i < s->nargs; i++) {
        kin_vid vid = t->vids.at[s->args + i];
        bool keyword = i + c->nkw >= s->nargs;
        PyObject *name = keyword ? PyTuple_GET_ITEM(c->kwnames, i + c->nkw - s->nargs) : NULL;
        if (keyword ? append_keyword(x, node, name, vid, kwargs) < 0 : append_arg(x, node, vid, args) < 0)
            return -1;
        /* getattr(x, "name"): the name is the step's ref */
        if (s->kind == KIN_STEP_GETATTR || (s->kind == KIN_STEP_SETATTR && i == 0)) {
            PyObject *attr = add_constant(x, node, 0, NULL, kin_refs_get(x->d->refs, s->ref));
            int status = attr != NULL ? PyList_Append(args, attr) : -1;
            Py_XDECREF(attr);
            if (status < 0)
                return -1;
        }
    }
    return s->kind == KIN_STEP_CALL_EX ? add_star_args(x, node, c, args, kwargs) : 0;
}

static int
set_node_place(grapher *x, uint32_t node, const kin_step *s, PyObject *entry)
{
    dump_place place = dump_user_place(x->d, s->snap);
    if (dump_set_place(entry, place) < 0)
        return -1;
    if (place.code == NULL)
        return dump_set(entry, "code_line", PyUnicode_FromString(""));
    PyObject *line = dump_code_line(x->d, place.code->co_filename, place.line);
    const char *file = PyUnicode_AsUTF8(place.code->co_filename), *function = PyUnicode_AsUTF8(place.code->co_name);
    const char *code = chars_or_null(line);
    if (file != NULL && function != NULL && code != NULL)
        kin_graph_set_place(x->g, node, file, place.line > 0 ? (uint32_t)place.line : 0, function, code);
    return dump_set(entry, "code_line", line);
}

static PyObject *
describe_node(grapher *x, const kin_step *s, const callee *c, uint32_t node)
{
    dumper *d = x->d;
    PyObject *args = PyList_New(0), *kwargs = PyDict_New(), *entry = PyDict_New();
    PyObject *note = s->out ? note_of(d, s->out) : NULL;
    int status = args != NULL && kwargs != NULL && entry != NULL ? 0 : -1;
    if (status == 0)
        status = add_arguments(x, node, s, c, args, kwargs);
    if (status == 0)
        status = set_node_place(x, node, s, entry);
    if (status == 0 && (dump_set(entry, "vid", PyLong_FromUnsignedLong(s->out)) < 0
                        || dump_set(entry, "op", PyUnicode_FromString(c->kind)) < 0
                        || PyDict_SetItemString(entry, "target", c->target) < 0
                        || PyDict_SetItemString(entry, "callable", c->callable != NULL ? c->callable : Py_None) < 0
                        || dump_set(entry, "args", PyList_AsTuple(args)) < 0
                        || PyDict_SetItemString(entry, "kwargs", kwargs) < 0
                        || PyDict_SetItemString(entry, "note", note != NULL ? note : Py_None) < 0
                        || dump_set(entry, "name", PyUnicode_FromString(x->g->failed ? "" : kin_graph_text(x->g, x->g->nodes.at[node].name))) < 0))
        status = -1;
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    if (status < 0)
        Py_CLEAR(entry);
    return entry;
}

static PyObject *
add_step(grapher *x, uint32_t index)
{
    dumper *d = x->d;
    const kin_step *s = &d->t->steps.at[index];
    PyObject *entry = NULL, *hint = NULL;
    callee c = {0};
    x->step = index;
    if (find_target(x, s, &c) == 0) {
        if (s->out && d->t->vals.at[s->out].name)
            hint = kin_refs_get(d->refs, d->t->vals.at[s->out].name);
        uint32_t node = kin_graph_add_node(x->g, c.op, PyUnicode_AsUTF8(c.target),
                                           hint != NULL && PyUnicode_Check(hint) ? PyUnicode_AsUTF8(hint) : NULL,
                                           s->out ? chars_or_null(note_of(d, s->out)) : NULL);
        if (node != 0)
            entry = describe_node(x, s, &c, node);
        if (entry != NULL && s->out) {
            x->nodes[s->out] = node;
            Py_XSETREF(d->names[s->out], PyUnicode_FromString(kin_graph_text(x->g, x->g->nodes.at[node].name)));
        }
        if (entry == NULL && !PyErr_Occurred())
            PyErr_NoMemory();
    }
    drop_callee(&c);
    return entry;
}

/* ---- the whole graph ---- */

static int
reserve_names(kin_graph *g, const char *module, const char *attr)
{
    PyObject *owner = PyImport_ImportModule(module);
    PyObject *names = owner == NULL ? NULL : attr != NULL ? PyObject_GetAttrString(owner, attr) : PyObject_Dir(owner);
    for (Py_ssize_t i = 0; names != NULL && PyList_Check(names) && i < PyList_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
        if (name != NULL)
            kin_graph_reserve(g, name);
    }
    Py_XDECREF(owner);
    Py_XDECREF(names);
    return names != NULL ? 0 : -1;
}

static PyObject *
list_nodes(grapher *x)
{
    PyObject *nodes = PyList_New(0);
    for (uint32_t i = 0; nodes != NULL && i < x->d->t->steps.len; i++) {
        const kin_step *s = &x->d->t->steps.at[i];
        if (!(s->flags & KIN_STEP_TORCH) || dump_graph_of(x->d, i) != x->number)
            continue;
        PyObject *entry = add_step(x, i);
        if (entry == NULL || PyList_Append(nodes, entry) < 0)
            Py_CLEAR(nodes);
        Py_XDECREF(entry);
    }
    return nodes;
}

/* Values of this graph that something outside uses, by the first such use. */
static PyObject *
list_outputs(grapher *x)
{
    dumper *d = x->d;
    PyObject *outputs = PyList_New(0);
    uint32_t nsteps = d->t->steps.len;
    KIN_VEC(kin_vid) found = {0};
    for (uint32_t i = 0; i < nsteps; i++) {
        const kin_step *s = &d->t->steps.at[i];
        if (!(s->flags & KIN_STEP_TORCH) || dump_graph_of(d, i) != x->number || s->out == 0)
            continue;
        bool outside = d->needed != NULL ? d->needed[s->out] != 0 : d->use[s->out] != 0 && d->use[s->out] != x->number;
        if (outside && kin_vec_push(&found, s->out) != KIN_OK)
            break;
    }
    for (uint32_t i = 1; i < found.len; i++) /* insertion sort: few outputs, mostly in order */
        for (uint32_t k = i; k > 0 && d->first_use[found.at[k]] < d->first_use[found.at[k - 1]]; k--) {
            kin_vid other = found.at[k];
            found.at[k] = found.at[k - 1];
            found.at[k - 1] = other;
        }
    for (uint32_t i = 0; outputs != NULL && i < found.len; i++) {
        kin_graph_add_output(x->g, x->nodes[found.at[i]]);
        PyObject *vid = PyLong_FromUnsignedLong(found.at[i]);
        if (vid == NULL || PyList_Append(outputs, vid) < 0)
            Py_CLEAR(outputs);
        Py_XDECREF(vid);
    }
    kin_vec_deinit(&found);
    return outputs;
}

static PyObject *
print_code(kin_graph *g)
{
    kin_text text = {0};
    PyObject *code = kin_graph_print(g, &text) ? PyUnicode_DecodeUTF8(text.at, text.len, "replace") : PyErr_NoMemory();
    kin_text_deinit(&text);
    return code;
}

PyObject *
dump_graph(dumper *d, uint32_t graph)
{
    grapher x = {.d = d, .number = graph, .g = kin_graph_new()};
    PyObject *result = PyDict_New(), *nodes = NULL;
    x.nodes = calloc(d->t->vals.len, sizeof *x.nodes);
    x.inputs = PyList_New(0);
    x.operators = PyImport_ImportModule("operator");
    int status = -1;
    if (x.g == NULL || x.nodes == NULL)
        PyErr_NoMemory();
    else if (result != NULL && x.inputs != NULL && x.operators != NULL && reserve_names(x.g, "builtins", NULL) == 0
             && reserve_names(x.g, "keyword", "kwlist") == 0 && (nodes = list_nodes(&x)) != NULL
             && dump_set(result, "outputs", list_outputs(&x)) == 0
             && dump_set(result, "exact", PyBool_FromLong(!x.inexact)) == 0
             && PyDict_SetItemString(result, "inputs", x.inputs) == 0
             && PyDict_SetItemString(result, "nodes", nodes) == 0 && dump_set(result, "code", print_code(x.g)) == 0)
        status = 0;
    Py_XDECREF(nodes);
    Py_XDECREF(x.inputs);
    Py_XDECREF(x.operators);
    free(x.nodes);
    kin_graph_free(x.g);
    if (status < 0)
        Py_CLEAR(result);
    return result;
}
