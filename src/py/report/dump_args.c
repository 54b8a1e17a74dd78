/* Arguments of graph nodes: inputs, constants, and the lists, tuples, slices and dicts that were built only as arguments,
 * which are shown inside the call. */
#include "py/report/dump_graph_priv.h"

#include <string.h>

#include "py/compat/imports.h"
#include "py/compat/kinds.h"

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
    if (path == NULL)
        return NULL;
    const char *chars = kin_utf8(path);
    PyObject *name = val->name ? kin_refs_get(d->refs, val->name) : NULL;
    bool packed = strncmp(chars, "L['args']", 9) == 0 || strncmp(chars, "L['kwargs']", 11) == 0;
    PyObject *shown = NULL;
    if (name == NULL && (packed || val->kind != KIN_VAL_SRC))
        name = d->locals[vid];
    const kin_step *maker = val->kind == KIN_VAL_STEP && val->step < d->t->steps.len ? &d->t->steps.at[val->step] : NULL;
    if (maker != NULL && maker->kind == KIN_STEP_SIZE) {
        PyObject *tensor = input_source(x, d->t->vids.at[maker->args]);
        shown = tensor != NULL ? PyUnicode_FromFormat("%U.size(%u)", tensor, (unsigned)maker->imm) : NULL;
        Py_XDECREF(tensor);
    } else if (val->kind != KIN_VAL_SRC && d->names[vid] != NULL)
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
    kin_graph_source_name(kin_utf8(source), &text);
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

PyObject *
grapher_note_of(dumper *d, kin_vid vid)
{
    PyObject *note = d->t->vals.at[vid].note ? kin_refs_get(d->refs, d->t->vals.at[vid].note) : NULL;
    return note != NULL && PyUnicode_Check(note) ? note : NULL;
}

const char *
grapher_chars(PyObject *text)
{
    return text != NULL ? kin_utf8(text) : NULL;
}

static uint32_t
add_input(grapher *x, kin_vid vid)
{
    PyObject *source = input_source(x, vid), *note = grapher_note_of(x->d, vid), *plain = NULL, *entry = NULL;
    PyObject *path = dump_path(x->d, vid);
    PyObject *name = source != NULL ? input_name(x, source) : NULL;
    const char *chars = grapher_chars(name);
    uint32_t node = chars != NULL ? kin_graph_add_input(x->g, chars, grapher_chars(note)) : 0;
    if (node != 0 && path != NULL)
        entry = Py_BuildValue("{s:I,s:O,s:O,s:O,s:s,s:O}", "vid", (unsigned)vid, "source", source, "path", path, "name",
                              name, "local", kin_graph_text(x->g, x->g->nodes.at[node].name), "note",
                              note != NULL ? note : Py_None);
    if (entry != NULL) {
        kin_text bare = {0};
        kin_graph_source_name(kin_utf8(source), &bare);
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

PyObject *
grapher_add_constant(grapher *x, uint32_t node, uint32_t parent, const char *key, PyObject *value)
{
    PyObject *text = dump_constant_text(value);
    const char *chars = grapher_chars(text);
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

enum { MAX_NESTING = 12 };

static bool
push_element(elements *out, kin_vid vid, PyObject *known)
{
    return kin_vec_push(out, ((element){vid, known})) == KIN_OK;
}

bool
grapher_take_in(grapher *x, kin_vid vid, elements *out, int depth)
{
    PyObject *known = dump_maker(x->d, vid) == UINT32_MAX ? dump_known_object(x->d, vid) : NULL;
    if (known == NULL)
        return grapher_find_elements(x, vid, out, depth + 1);
    bool ok = PyTuple_Check(known) && Py_TYPE(known)->tp_iter == PyTuple_Type.tp_iter; /* torch.Size is one */
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
    bool ok = grapher_find_elements(x, vid, &more, depth + 1);
    for (uint32_t i = 0; ok && i + 1 < more.len; i += 2)
        ok = set_entry(x, out, more.at[i], more.at[i + 1]);
    kin_vec_deinit(&more);
    return ok;
}

/* list[key] = the items of `value`, del list[key] (value: 0), with a constant key. */
static bool
splice(grapher *x, kin_vid key, kin_vid value, elements *out, int depth)
{
    PyObject *k = dump_known_object(x->d, key);
    Py_ssize_t from = -1, to = 0, step = 1;
    elements more = {0};
    if (k != NULL && PySlice_Check(k) && PySlice_Unpack(k, &from, &to, &step) == 0)
        PySlice_AdjustIndices(out->len, &from, &to, step);
    else if (k != NULL && PyLong_CheckExact(k) && value == 0)
        to = (from = PyLong_AsSsize_t(k) + (PyLong_AsSsize_t(k) < 0 ? (Py_ssize_t)out->len : 0)) + 1;
    PyErr_Clear();
    bool ok = from >= 0 && step == 1 && to <= (Py_ssize_t)out->len && (value == 0 || grapher_take_in(x, value, &more, depth));
    for (uint32_t i = ok ? (uint32_t)(to < from ? from : to) : out->len; ok && i < out->len; i++)
        ok = push_element(&more, out->at[i].vid, out->at[i].known);
    out->len = ok ? (uint32_t)from : out->len;
    for (uint32_t i = 0; ok && i < more.len; i++)
        ok = push_element(out, more.at[i].vid, more.at[i].known);
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
    case KIN_STEP_LIST_EXTEND: return !is_dict && s->nargs == 2 && grapher_take_in(x, args[1], out, depth);
    case KIN_STEP_DICT_MERGE:
    case KIN_STEP_DICT_UPDATE: return is_dict && merge_entries(x, args[1], out, depth);
    case KIN_STEP_SET_SUBSCR:
        return is_dict ? set_entry(x, out, (element){args[1], NULL}, (element){args[2], NULL}) : splice(x, args[1], args[2], out, depth);
    case KIN_STEP_DEL_SUBSCR: return !is_dict && splice(x, args[1], 0, out, depth);
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

bool
grapher_find_elements(grapher *x, kin_vid vid, elements *out, int depth)
{
    const kin_trace *t = x->d->t;
    uint32_t maker = dump_maker(x->d, vid);
    if (maker == UINT32_MAX || depth > MAX_NESTING)
        return false;
    const kin_step *s = &t->steps.at[maker];
    bool is_dict = s->kind == KIN_STEP_BUILD_MAP, ok = true;
    if (s->kind == KIN_STEP_LIST_TO_TUPLE)
        return grapher_take_in(x, t->vids.at[s->args], out, depth);
    bool fixed = s->kind == KIN_STEP_BUILD_TUPLE || s->kind == KIN_STEP_BUILD_SIZE || s->kind == KIN_STEP_BUILD_SLICE;
    if (!is_dict && !fixed && s->kind != KIN_STEP_BUILD_LIST)
        return false;
    for (uint32_t i = 0; ok && i < s->nargs; i += is_dict ? 2 : 1) {
        kin_vid first = t->vids.at[s->args + i];
        ok = is_dict ? i + 1 < s->nargs && set_entry(x, out, (element){first, NULL},
                                                     (element){t->vids.at[s->args + i + 1], NULL})
                     : push_element(out, first, NULL);
    }
    if (fixed)
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

PyObject *
grapher_add_element(grapher *x, uint32_t node, uint32_t parent, const char *key, element e)
{
    return e.known != NULL ? grapher_add_constant(x, node, parent, key, e.known) : grapher_add_value(x, node, parent, key, e.vid);
}

PyObject *
grapher_list_elements(grapher *x, uint32_t node, uint32_t parent, const elements *found)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < found->len; i++) {
        PyObject *value = grapher_add_element(x, node, parent, NULL, found->at[i]);
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
    PyObject *list = grapher_list_elements(x, node, arg, found), *value = NULL;
    if (list == NULL || kind == KIN_ARG_LIST)
        return list;
    Py_ssize_t n = PyList_GET_SIZE(list);
    if (s->kind == KIN_STEP_BUILD_SIZE)
        value = kin_import_call("kintsugi._symbols", "Sizes", list);
    else if (kind == KIN_ARG_TUPLE)
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
        const char *chars = grapher_chars(text);
        PyObject *value = chars != NULL ? grapher_add_element(x, node, arg, chars, found->at[i + 1]) : NULL;
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

/* What the cell, which was made in the recording, holds when the node runs; 0: nothing, or it is not known. */
static kin_vid
cell_content(grapher *x, kin_vid cell)
{
    const kin_trace *t = x->d->t;
    uint32_t maker = dump_maker(x->d, cell);
    if (maker == UINT32_MAX || t->steps.at[maker].kind != KIN_STEP_BUILD_CELL)
        return 0;
    kin_vid content = t->vids.at[t->steps.at[maker].args];
    for (uint32_t i = maker + 1; i < x->step; i++) {
        const kin_step *s = &t->steps.at[i];
        if (s->kind == KIN_STEP_CELL_SET && t->vids.at[s->args] == cell)
            content = t->vids.at[s->args + 1];
    }
    return content;
}

/* A function that the recording makes, with what its cells hold in their place: {"function": (code, globals, name), "parts": [defaults, kwdefaults,
 * *cells]}. */
static PyObject *
add_function(grapher *x, uint32_t node, uint32_t parent, const char *key, const kin_step *s)
{
    const kin_vid *args = x->d->t->vids.at + s->args;
    PyObject *code = dump_known_object(x->d, args[KIN_FUNCTION_CODE]), *globals = dump_known_object(x->d, args[KIN_FUNCTION_GLOBALS]), *name = kin_refs_get(x->d->refs, s->ref);
    elements cells = {0};
    if (code == NULL || globals == NULL || (args[KIN_FUNCTION_CLOSURE] != 0 && !grapher_find_elements(x, args[KIN_FUNCTION_CLOSURE], &cells, 0))) {
        kin_vec_deinit(&cells);
        return NULL;
    }
    uint32_t arg = kin_graph_add_arg(x->g, node, parent, key, (kin_arg){.kind = KIN_ARG_TUPLE});
    kin_graph_add_text(x->g, node, arg, NULL, name != NULL && PyUnicode_Check(name) ? kin_utf8(name) : "function");
    PyObject *parts = PyList_New(0), *part = NULL;
    for (uint32_t i = 0; parts != NULL && i < cells.len + 2; i++) {
        kin_vid vid = i < 2 ? args[KIN_FUNCTION_DEFAULTS + i] : cell_content(x, cells.at[i - 2].vid);
        part = i >= 2 && vid == 0 ? NULL : grapher_add_value(x, node, arg, NULL, vid);
        if (part == NULL || PyList_Append(parts, part) < 0)
            Py_CLEAR(parts);
        Py_XDECREF(part);
    }
    kin_vec_deinit(&cells);
    PyObject *made = parts != NULL ? Py_BuildValue("{s:(OOO),s:O}", "function", code, globals, name != NULL ? name : Py_None, "parts", parts) : NULL;
    Py_XDECREF(parts);
    return made;
}

static PyObject *
add_value_inner(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid)
{
    const kin_trace *t = x->d->t;
    if (vid == 0)
        return grapher_add_constant(x, node, parent, key, Py_None);
    if (x->nodes[vid] != 0)
        return add_graph_value(x, node, parent, key, vid);
    uint32_t maker = dump_maker(x->d, vid);
    elements found = {0};
    PyObject *value = NULL;
    if (maker != UINT32_MAX && t->steps.at[maker].kind == KIN_STEP_BUILD_FUNCTION &&
        ((value = add_function(x, node, parent, key, &t->steps.at[maker])) != NULL || PyErr_Occurred()))
        return value;
    bool shown = maker != UINT32_MAX && grapher_find_elements(x, vid, &found, 0);
    if (shown)
        value = t->steps.at[maker].kind == KIN_STEP_BUILD_MAP
                    ? add_dict(x, node, parent, key, &found)
                    : add_sequence(x, node, parent, key, &t->steps.at[maker], &found);
    kin_vec_deinit(&found);
    if (shown)
        return value;
    PyObject *known = dump_known_object(x->d, vid);
    if (known != NULL)
        return grapher_add_constant(x, node, parent, key, known);
    return add_graph_value(x, node, parent, key, vid);
}

PyObject *
grapher_add_value(grapher *x, uint32_t node, uint32_t parent, const char *key, kin_vid vid)
{
    if (Py_EnterRecursiveCall(" while describing a graph"))
        return NULL;
    PyObject *value = add_value_inner(x, node, parent, key, vid);
    Py_LeaveRecursiveCall();
    return value;
}
