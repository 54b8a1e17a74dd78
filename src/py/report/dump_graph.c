/* The call graphs of a trace: which steps belong to them, their inputs and their outputs.
 *
 * A graph's inputs are the values that its steps use and did not make; its outputs are the values that something outside the
 * graph uses. Lists, tuples and slices that were built only as arguments are shown inside the call.
 */
#include "py/report/dump_graph_priv.h"
#include "py/compat/kinds.h"

#include "core/trace/effects.h"

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
        else if (kin_kind_effects((kin_step_kind)s->kind) & KIN_MOVES || s->flags & KIN_STEP_PURE)
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

/* ---- nodes ---- */

static int
append_arg(grapher *x, uint32_t node, kin_vid vid, PyObject *args)
{
    PyObject *value = grapher_add_value(x, node, 0, NULL, vid);
    int status = value != NULL ? PyList_Append(args, value) : -1;
    Py_XDECREF(value);
    return status;
}

static int
append_keyword(grapher *x, uint32_t node, PyObject *name, kin_vid vid, PyObject *kwargs)
{
    const char *key = grapher_chars(name);
    PyObject *value = key != NULL ? grapher_add_value(x, node, 0, key, vid) : NULL;
    int status = value != NULL ? PyDict_SetItem(kwargs, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

/* f(*args): its elements where they are known, else the tuple as one argument, which the node then is not exact about. */
static int
add_star(grapher *x, uint32_t node, kin_vid star, PyObject *args)
{
    elements found = {0};
    bool known = grapher_take_in(x, star, &found, 0);
    int status = 0;
    if (!known) {
        x->inexact = true;
        status = append_arg(x, node, star, args);
    }
    PyObject *list = known ? grapher_list_elements(x, node, 0, &found) : NULL;
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
    if (!grapher_find_elements(x, starkw, &found, 0)) {
        x->inexact = true;
        found.len = 0;
    }
    for (uint32_t i = 0; status == 0 && i + 1 < found.len; i += 2) {
        const char *key = grapher_chars(found.at[i].known);
        PyObject *value = key != NULL ? grapher_add_element(x, node, 0, key, found.at[i + 1]) : NULL;
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
        /* getattr(x, "name"): the name is the step's ref, as is the number that another one must be */
        if (s->kind == KIN_STEP_GETATTR || (s->kind == KIN_STEP_SETATTR && i == 0) || (s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_EQ)) {
            PyObject *attr = grapher_add_constant(x, node, 0, NULL, kin_refs_get(x->d->refs, s->ref));
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
    const char *code = grapher_chars(line);
    if (code != NULL)
        kin_graph_set_place(x->g, node, kin_utf8(place.code->co_filename), place.line > 0 ? (uint32_t)place.line : 0, kin_utf8(place.code->co_name), code);
    return dump_set(entry, "code_line", line);
}

/* The class of the tensor, where it is another one than torch.Tensor; borrowed. */
static PyObject *
class_of_result(const dumper *d, const kin_step *s)
{
    kin_ref seen = s->out != 0 && d->t->vals.at[s->out].note != 0 ? d->t->vals.at[s->out].seen : 0;
    PyObject *cls = seen != 0 ? kin_refs_get(d->refs, seen) : NULL;
    return cls != NULL && PyType_Check(cls) ? cls : Py_None;
}

static PyObject *
describe_node(grapher *x, const kin_step *s, const callee *c, uint32_t node)
{
    dumper *d = x->d;
    PyObject *args = PyList_New(0), *kwargs = PyDict_New(), *entry = PyDict_New();
    PyObject *note = s->out ? grapher_note_of(d, s->out) : NULL;
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
                        || PyDict_SetItemString(entry, "switches", kin_step_switches(s) ? Py_True : Py_False) < 0
                        || PyDict_SetItemString(entry, "class", class_of_result(d, s)) < 0
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
    if (grapher_find_target(x, s, &c) == 0) {
        if (s->out && d->t->vals.at[s->out].name)
            hint = kin_refs_get(d->refs, d->t->vals.at[s->out].name);
        uint32_t node = kin_graph_add_node(x->g, c.op, kin_utf8(c.target), hint != NULL && PyUnicode_Check(hint) ? kin_utf8(hint) : NULL,
                                           s->out ? grapher_chars(grapher_note_of(d, s->out)) : NULL);
        if (node != 0)
            entry = describe_node(x, s, &c, node);
        if (entry != NULL && s->out) {
            x->nodes[s->out] = node;
            Py_XSETREF(d->names[s->out], PyUnicode_FromString(kin_graph_text(x->g, x->g->nodes.at[node].name)));
        }
        if (entry == NULL && !PyErr_Occurred())
            PyErr_NoMemory();
    }
    grapher_drop_callee(&c);
    return entry;
}

/* ---- the whole graph ---- */

static int
reserve_names(kin_graph *g, const char *module, const char *attr)
{
    PyObject *owner = PyImport_ImportModule(module);
    PyObject *names = owner == NULL ? NULL : attr != NULL ? PyObject_GetAttrString(owner, attr) : PyObject_Dir(owner);
    for (Py_ssize_t i = 0; names != NULL && PyList_Check(names) && i < PyList_GET_SIZE(names); i++) {
        kin_graph_reserve(g, kin_utf8(PyList_GET_ITEM(names, i)));
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
