/* Repeated steps (capture.h). A model calls the same functions on tensors of the same sizes layer by layer. Which ATen calls a torch function makes
 * follows from the function, the metadata of its operands and its other arguments. So only the first of equal calls goes through torch; for the others
 * its ATen calls are copied, with their operands in place of its own. Not copied: calls that write, draw random numbers, have gradients, run under
 * autocast (which caches what it has cast), or return something that no shape rule predicts.
 */
#include <stdio.h>

#include "core/base/bits.h"
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/capture/capture_priv.h"
#include "py/compat/kinds.h"
#include "py/refs/sequence.h"

#define T kin_capture_torch

/* -- what a call is --------------------------------------------------------------------------------------------------- */

typedef struct {
    capturing *c;
    kin_text key;
    KIN_VEC(uint32_t) tensors; /* numbers of the fake tensors among the operands, each once */
    bool unknown;
} reading;

static void
say(reading *r, uint64_t word)
{
    kin_text_add_len(&r->key, (const char *)&word, sizeof word);
}

static void
say_ints(reading *r, const int64_t *ints, unsigned n)
{
    kin_text_add_len(&r->key, (const char *)ints, n * sizeof *ints);
}

static const kin_aten_value *
value_of(const reading *r, uint32_t number)
{
    return kin_aten_at(r->c->out->graph, r->c->entries.at[number].val);
}

/* The first of the operands in the same memory. */
static uint32_t
memory_of(const reading *r, uint32_t number)
{
    uint32_t at = 0;
    while (at < r->tensors.len && value_of(r, r->tensors.at[at])->storage != value_of(r, number)->storage)
        at++;
    return at;
}

static void
read_tensor(reading *r, uint32_t number, PyObject *obj)
{
    const kin_aten *g = r->c->out->graph;
    kin_aten_val val = r->c->entries.at[number].val;
    const kin_aten_value *v = kin_aten_at(g, val);
    uint32_t at = 0;
    while (at < r->tensors.len && r->tensors.at[at] != number)
        at++;
    say(r, 'T');
    say(r, at);
    if (at < r->tensors.len)
        return;
    say(r, (uint64_t)v->dtype << 8 | v->ndim);
    say(r, memory_of(r, number));
    say(r, (uint64_t)v->offset);
    say_ints(r, kin_aten_sizes(g, val), v->ndim);
    say_ints(r, kin_aten_strides(g, val), v->ndim);
    bool gradient = kin_tensor_requires_grad(obj);
    say(r, gradient);
    r->unknown = r->unknown || (gradient && kin_grad_enabled()) || kin_vec_push(&r->tensors, number) != KIN_OK;
}

/* Written in Python, in torch.nn.functional: what they do follows from their arguments, too. */
static bool
is_functional(PyObject *obj)
{
    return kin_is_from_module(obj, "torch.nn.functional");
}

static bool
is_kept_by_torch(PyObject *obj)
{
    return Py_IS_TYPE(obj, T.dtype) || Py_IS_TYPE(obj, T.layout) || Py_IS_TYPE(obj, T.memory_format) || PyCFunction_Check(obj) || PyType_Check(obj) || is_functional(obj) ||
           Py_IS_TYPE(obj, &PyMethodDescr_Type) || Py_IS_TYPE(obj, &PyWrapperDescr_Type);
}

static void
read_text(reading *r, PyObject *obj)
{
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(obj, &n);
    r->unknown = r->unknown || text == NULL;
    PyErr_Clear();
    say(r, 'S');
    say(r, text == NULL ? 0 : (uint64_t)n);
    if (text != NULL)
        kin_text_add_len(&r->key, text, (uint32_t)n);
}

static void read_operand(reading *r, PyObject *obj, int depth);

static void
read_number(reading *r, PyObject *obj)
{
    int over = 0;
    uint64_t word = PyFloat_CheckExact(obj) ? kin_bits_of_double(PyFloat_AS_DOUBLE(obj)) : (uint64_t)PyLong_AsLongLongAndOverflow(obj, &over);
    r->unknown = r->unknown || over != 0;
    say(r, (uintptr_t)Py_TYPE(obj));
    say(r, word);
}

static void
read_sequence(reading *r, PyObject *obj, int depth)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(obj);
    say(r, (uintptr_t)Py_TYPE(obj));
    say(r, (uint64_t)n);
    for (Py_ssize_t i = 0; i < n && !r->unknown; i++)
        read_operand(r, PySequence_Fast_GET_ITEM(obj, i), depth + 1);
}

static void
read_slice(reading *r, PyObject *obj, int depth)
{
    const PySliceObject *slice = (PySliceObject *)obj;
    say(r, 'I');
    read_operand(r, slice->start, depth + 1);
    read_operand(r, slice->stop, depth + 1);
    read_operand(r, slice->step, depth + 1);
}

static void
read_operand(reading *r, PyObject *obj, int depth)
{
    enum { DEEPEST = 6 };
    uint32_t number = obj == NULL ? UINT32_MAX : kin_capture_number(obj);
    if (depth > DEEPEST)
        r->unknown = true;
    else if (obj == NULL || obj == Py_None || obj == Py_Ellipsis || (obj != NULL && number == UINT32_MAX && is_kept_by_torch(obj)))
        say(r, (uintptr_t)obj);
    else if (number < r->c->entries.len && r->c->entries.at[number].data != 0)
        r->unknown = true; /* what is made of it is a tensor like that */
    else if (number < r->c->entries.len)
        read_tensor(r, number, obj);
    else if (PyFloat_CheckExact(obj) || PyLong_CheckExact(obj) || PyBool_Check(obj))
        read_number(r, obj);
    else if (PyUnicode_CheckExact(obj))
        read_text(r, obj);
    else if (PySlice_Check(obj))
        read_slice(r, obj, depth);
    else if (PyTuple_CheckExact(obj) || PyList_CheckExact(obj) || kin_is_size(obj))
        read_sequence(r, obj, depth);
    else
        r->unknown = true;
}

/* -- what it was found to ask --------------------------------------------------------------------------------------------- */

enum { OF_OPERAND = 0, OF_CALL = 1 };

/* A value: one of the operands', or made by the call. */
typedef struct {
    uint8_t from;
    uint32_t at;
} place;

struct kin_repeated {
    uint32_t first, ncalls;           /* calls of the graph */
    kin_aten_val values;              /* the first value that they made */
    uint32_t nvalues, storages, nstorages;
    KIN_VEC(kin_aten_val) operands;   /* values of its tensors */
    PyTypeObject *container;          /* of the results; NULL: there is one */
    KIN_VEC(place) results;
    uint32_t raising;                 /* how often it may raise */
    bool known;
};

static bool
find_place(const kin_repeated *p, kin_aten_val val, place *out)
{
    if (val >= p->values && val < p->values + p->nvalues) {
        *out = (place){OF_CALL, val - p->values};
        return true;
    }
    for (uint32_t i = 0; i < p->operands.len; i++)
        if (p->operands.at[i] == val) {
            *out = (place){OF_OPERAND, i};
            return true;
        }
    return false;
}

/* Memory of its own, or of an operand. */
static bool
knows_memory(const kin_repeated *p, const kin_aten *g, const kin_aten_value *v)
{
    if (v->storage > p->storages)
        return v->storage <= p->storages + p->nstorages;
    for (uint32_t i = 0; i < p->operands.len; i++)
        if (kin_aten_at(g, p->operands.at[i])->storage == v->storage)
            return true;
    return false;
}

static bool
knows_args(const kin_repeated *p, const kin_aten *g, uint32_t first, uint32_t count)
{
    place at;
    for (uint32_t i = first; i < first + count; i++) {
        const kin_aten_arg *a = &g->args.at[i];
        if (a->kind == KIN_ATEN_VALUE && (a->written || !find_place(p, a->value, &at)))
            return false;
        if (a->kind == KIN_ATEN_LIST && !knows_args(p, g, a->list.child, a->list.count))
            return false;
    }
    return true;
}

static bool
note_result(capturing *c, kin_repeated *p, PyObject *obj)
{
    place at;
    uint32_t number = kin_capture_number(obj);
    return number < c->entries.len && find_place(p, c->entries.at[number].val, &at) && kin_vec_push(&p->results, at) == KIN_OK;
}

static bool
note_all_results(capturing *c, kin_repeated *p, PyObject *result)
{
    if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result))
        return note_result(c, p, result);
    p->container = Py_TYPE(result);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); i++)
        if (!note_result(c, p, PySequence_Fast_GET_ITEM(result, i)))
            return false;
    return true;
}

static bool
is_plain(const capturing *c, const kin_repeated *p, uint32_t entries)
{
    const kin_aten *g = c->out->graph;
    for (uint32_t i = entries; i < c->entries.len; i++)
        if (c->entries.at[i].meta != NULL)
            return false;
    for (uint32_t i = p->first; i < p->first + p->ncalls; i++)
        if (g->calls.at[i].random || kin_aten_has_effect(g, &g->calls.at[i]) || !knows_args(p, g, g->calls.at[i].args, g->calls.at[i].nargs))
            return false;
    for (kin_aten_val v = p->values; v < p->values + p->nvalues; v++)
        if (!knows_memory(p, g, kin_aten_at(g, v)))
            return false;
    return true;
}

/* -- done again ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    capturing *c;
    const kin_repeated *p;
    const uint32_t *tensors;  /* numbers of its operands */
    kin_aten_val values;      /* the first value made now */
    uint32_t storages;
} again;

static kin_aten_val
value_now(const again *a, kin_aten_val val)
{
    place at = {0};
    find_place(a->p, val, &at);
    return at.from == OF_CALL ? a->values + at.at : a->c->entries.at[a->tensors[at.at]].val;
}

static uint32_t
storage_now(const again *a, uint32_t storage)
{
    const kin_aten *g = a->c->out->graph;
    if (storage > a->p->storages)
        return a->storages + (storage - a->p->storages);
    for (uint32_t i = 0; i < a->p->operands.len; i++)
        if (kin_aten_at(g, a->p->operands.at[i])->storage == storage)
            return kin_aten_at(g, a->c->entries.at[a->tensors[i]].val)->storage;
    return 0;
}

/* The graph's own texts move when it grows. */
static void
copy_arg(const again *a, uint32_t from)
{
    kin_aten *g = a->c->out->graph;
    kin_aten_arg arg = g->args.at[from];
    char name[64], text[256];
    bool worded = arg.kind == KIN_ATEN_STR || arg.kind == KIN_ATEN_WORD;
    int n = snprintf(name, sizeof name, "%s", kin_aten_text(g, arg.name)), m = worded ? snprintf(text, sizeof text, "%s", kin_aten_text(g, arg.text)) : 0;
    g->failed |= n >= (int)sizeof name || m >= (int)sizeof text;
    if (arg.kind == KIN_ATEN_VALUE)
        arg.value = value_now(a, arg.value);
    kin_aten_add_arg(g, arg, arg.name != 0 ? name : NULL, worded ? text : NULL);
    for (uint32_t i = 0; arg.kind == KIN_ATEN_LIST && i < arg.list.count; i++)
        copy_arg(a, arg.list.child + i);
}

static bool
copy_call(const again *a, uint32_t number)
{
    kin_aten *g = a->c->out->graph;
    kin_aten_call call = g->calls.at[number];
    char op[128];
    g->failed |= snprintf(op, sizeof op, "%s", kin_aten_text(g, call.op)) >= (int)sizeof op;
    kin_aten_add_call(g, op, call.random);
    for (uint32_t i = 0; i < call.nargs && !g->failed; i++)
        copy_arg(a, call.args + i);
    for (uint32_t i = 0; i < call.nresults && !g->failed; i++) {
        kin_aten_value v = g->values.at[call.results + i];
        kin_aten_add_result(g, (kin_dtype)v.dtype, v.ndim, g->ints.at + v.sizes, g->ints.at + v.strides, storage_now(a, v.storage), v.offset);
    }
    kin_capture_call made = a->c->out->calls.at[number];
    made.step = a->c->step;
    if (g->failed || kin_vec_push(&a->c->out->calls, made) != KIN_OK)
        return false;
    Py_INCREF(made.op);
    Py_INCREF(made.args);
    Py_XINCREF(made.kwargs);
    return true;
}

static PyObject *
result_now(const again *a, place at)
{
    if (at.from == OF_OPERAND)
        return Py_NewRef(PyList_GET_ITEM(a->c->out->fakes, a->tensors[at.at]));
    return kin_fake_new(a->c, NULL, false, a->values + at.at);
}

static PyObject *
results_now(const again *a)
{
    const kin_repeated *p = a->p;
    if (p->container == NULL)
        return result_now(a, p->results.at[0]);
    PyObject *made = p->container == &PyList_Type ? PyList_New(p->results.len) : PyTuple_New(p->results.len);
    for (uint32_t i = 0; made != NULL && i < p->results.len; i++)
        kin_sequence_put(&made, i, result_now(a, p->results.at[i]));
    return made;
}

static PyObject *
do_again(capturing *c, const kin_repeated *p, const uint32_t *tensors)
{
    again a = {c, p, tensors, c->out->graph->values.len, c->storages.len};
    bool ok = true;
    for (uint32_t i = 0; i < p->nstorages && ok; i++)
        ok = kin_fake_new_storage(c) != 0;
    for (uint32_t i = 0; i < p->ncalls && ok; i++)
        ok = copy_call(&a, p->first + i);
    for (uint32_t i = 0; i < p->raising && ok; i++)
        ok = kin_vec_push(&c->out->raising, c->step) == KIN_OK;
    return ok ? results_now(&a) : PyErr_NoMemory();
}

/* -- for capture.c --------------------------------------------------------------------------------------------------------- */

bool
kin_repeat_begin(capturing *c, const kin_step *s, PyObject *const *operands, kin_repeat *out)
{
    reading r = {.c = c};
    bool fresh = false;
    *out = (kin_repeat){.first = c->out->graph->calls.len, .values = c->out->graph->values.len, .storages = c->storages.len, .entries = c->entries.len,
                        .raising = c->out->raising.len, .asked = c->asked};
    if (c->joint || c->hints->len > 0 || kin_ambient_state() >> 8 != 0)
        return false;
    say(&r, (uint64_t)s->kind << 8 | s->imm | (uint64_t)kin_grad_enabled() << 16);
    say(&r, (uint64_t)s->ref << 32 | s->flags);
    for (uint32_t i = 0; i < s->nargs && !r.unknown; i++)
        read_operand(&r, operands[i], 0);
    if (!r.unknown && !r.key.failed)
        out->key = kin_intern_put(&c->repeats.keys, r.key.at, r.key.len, &fresh);
    out->reads = !r.unknown && !r.key.failed && !c->repeats.keys.failed && (!fresh || kin_vec_push(&c->repeats.at, (kin_repeated *)NULL) == KIN_OK);
    kin_text_deinit(&r.key);
    memcpy(&out->tensors, &r.tensors, sizeof out->tensors);
    const kin_repeated *p = out->reads && out->key < c->repeats.at.len ? c->repeats.at.at[out->key] : NULL;
    if (p == NULL || !p->known)
        return false;
    out->result = do_again(c, p, out->tensors.at);
    return true;
}

void
kin_repeat_end(capturing *c, kin_repeat *m, PyObject *result)
{
    const kin_aten *g = c->out->graph;
    bool first = m->reads && result != NULL && m->key < c->repeats.at.len && c->repeats.at.at[m->key] == NULL;
    kin_repeated *p = first ? calloc(1, sizeof *p) : NULL;
    if (p != NULL) {
        c->repeats.at.at[m->key] = p;
        p->first = m->first;
        p->ncalls = g->calls.len - m->first;
        p->values = m->values;
        p->nvalues = g->values.len - m->values;
        p->storages = m->storages;
        p->nstorages = c->storages.len - m->storages;
        p->raising = c->out->raising.len - m->raising;
        p->known = !g->failed && c->asked == m->asked; /* what tensors hold is no part of the key */
        for (uint32_t i = 0; i < m->tensors.len && p->known; i++)
            p->known = kin_vec_push(&p->operands, c->entries.at[m->tensors.at[i]].val) == KIN_OK;
        p->known = p->known && is_plain(c, p, m->entries) && note_all_results(c, p, result);
    }
    kin_vec_deinit(&m->tensors);
}

void
kin_repeats_deinit(kin_repeats *r)
{
    for (uint32_t i = 0; i < r->at.len; i++)
        if (r->at.at[i] != NULL) {
            kin_vec_deinit(&r->at.at[i]->operands);
            kin_vec_deinit(&r->at.at[i]->results);
            free(r->at.at[i]);
        }
    kin_vec_deinit(&r->at);
    kin_intern_deinit(&r->keys);
}
