/* Dynamic sizes. A size that differed between calls (or was declared dynamic) is not assumed: the guard leaves it open, and where the
 * program reads it, a step asks the tensor again. From there on it is a number that is not known: arithmetic on it becomes steps, a decision on
 * it becomes a check. What such sizes and numbers lead to is tracked through the recording, so that the sizes of intermediate tensors
 * are read again as well. This tracking only affects speed: a size that it misses gets a check where it is used.
 *
 * A size that is 0 or 1 while recording stays static, because broadcasting and emptiness decide much of what is recorded then, unless it is 1 and has been another one before.
 * A larger one that is open serves 0 and 1, too: each step runs on what there is, and what the program learns of the results is read or checked. Only a custom backend's graph does not, since its operations were
 * chosen for larger sizes; there the guard requires that the size is neither.
 */
#include "py/guardeval/guard_source.h"
#include "py/recorder/rec.h"
#include "core/diag/breaks.h"
#include "py/aten/make.h"
#include "py/compat/kinds.h"

enum { MAX_DIMS = 64 };

/* -- which sizes ---------------------------------------------------------------------------------------------------- */

static bool
is_module(PyObject *obj)
{
    static PyTypeObject *module;
    if (module == NULL) {
        PyObject *nn = PyDict_GetItemString(PyImport_GetModuleDict(), "torch.nn");
        PyObject *cls = nn ? PyObject_GetAttrString(nn, "Module") : NULL;
        PyErr_Clear();
        if (cls == NULL || !PyType_Check(cls))
            return false;
        module = (PyTypeObject *)cls;
    }
    return obj != NULL && PyType_IsSubtype(Py_TYPE(obj), module);
}

/* Does the value come with the arguments of the call, and not as a part of a module? */
static bool
is_argument(rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    for (; val->kind == KIN_VAL_SRC && val->parent != 0; val = &r->t->vals.at[vid]) {
        vid = val->parent;
        if (is_module(O(r, vid)))
            return false;
    }
    return val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_LOCAL;
}

/* Is it found in something that an earlier part of the recording made, and that depends on such sizes? In a side trace what that part built is an ordinary object. */
static bool
is_in_sized(const rec *r, kin_vid vid)
{
    while (r->t->vals.at[vid].kind == KIN_VAL_SRC && r->t->vals.at[vid].parent != 0)
        vid = r->t->vals.at[vid].parent;
    return r->t->vals.at[vid].kind == KIN_VAL_STEP && r->info.at[vid].sized;
}

bool
rec_is_size(const rec *r, kin_vid number)
{
    const kin_val *val = &r->t->vals.at[number];
    const kin_step *s = val->kind == KIN_VAL_STEP && r->info.at[number].sized ? &r->t->steps.at[val->step] : NULL;
    return s != NULL && O(r, number) != NULL && PyLong_CheckExact(O(r, number)) && kin_step_does(s, KIN_GIVES_NUMBER) &&
           (s->kind == KIN_STEP_SIZE || s->flags & KIN_STEP_PURE);
}

bool
rec_is_number_in_sized(const rec *r, kin_vid number)
{
    int over = 0;
    long long value = PyLong_AsLongLongAndOverflow(O(r, number), &over);
    return (over > 0 || (over == 0 && value > 1)) && is_in_sized(r, number); /* 0 and 1 are mostly no sizes, but axes, steps and the like */
}

/* Is the dimension in the set that torch._dynamo.mark_dynamic and its like leave on the tensor? */
static bool
is_marked(PyObject *tensor, PyObject *where, int dim)
{
    PyObject *set = kin_instance_attr(tensor, where);
    PyObject *key = set != NULL && PyAnySet_Check(set) ? PyLong_FromLong(dim) : NULL;
    bool found = key != NULL && PySet_Contains(set, key) > 0;
    Py_XDECREF(key);
    PyErr_Clear();
    return found;
}

/* Which sizes of a tensor of the program's are marked with mark_dynamic, not just with maybe_mark_dynamic: users are told where such a size is tested exactly (report/exact_sizes.h). */
static void
note_declared(rec *r, kin_vid vid)
{
    PyObject *tensor = O(r, vid), *set = kin_is_plain_strided(tensor) ? kin_instance_attr(tensor, REC_STR("_dynamo_dynamic_indices")) : NULL;
    for (int d = 0; set != NULL && PyAnySet_Check(set) && d < MAX_DIMS && d < (int)kin_tensor_dim(tensor); d++) {
        kin_known_size declared = {.tensor = vid, .dim = d, .size = kin_tensor_sizes(tensor)[d]};
        bool known = !is_marked(tensor, REC_STR("_dynamo_dynamic_indices"), d);
        for (uint32_t i = 0; i < r->v->declared.len && !known; i++)
            known = r->v->declared.at[i].tensor == vid && r->v->declared.at[i].dim == d;
        if (!known && kin_vec_push(&r->v->declared, declared) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    PyErr_Clear();
}

static bool
is_marked_dynamic(PyObject *tensor, int dim)
{
    return is_marked(tensor, REC_STR("_dynamo_dynamic_indices"), dim) || is_marked(tensor, REC_STR("_dynamo_weak_dynamic_indices"), dim);
}

/* How sure it is that a size has differed between calls. */
typedef enum { GUESSED, SOME_OF_TENSOR, ITSELF } sureness;

/* Did the size, or some size of the tensor, differ between calls, or is that a guess? */
static bool
is_noted_size(rec *r, kin_vid vid, int dim, sureness least)
{
    const int noted[] = {dim, KIN_ALL_SIZES, KIN_PERHAPS_FIRST};
    PyObject *set = r->opt->dynamic_sources, *source = NULL, *name = NULL;
    if (set == NULL || PySet_GET_SIZE(set) == 0)
        return false;
    source = kin_value_source(r->v, vid);
    bool found = false;
    for (int i = 0; source != NULL && !found && i < (least == ITSELF ? 1 : least == GUESSED && dim == 0 ? 3 : 2); i++) {
        name = kin_size_source(source, noted[i]);
        found = name != NULL && PySet_Contains(set, name) > 0;
        Py_XDECREF(name);
    }
    Py_XDECREF(source);
    PyErr_Clear();
    return found;
}

/* Did sizes of something computed differ? Then those of arguments do. */
static bool
all_sizes_vary(rec *r)
{
    PyObject *name = r->opt->dynamic_sources != NULL && PySet_GET_SIZE(r->opt->dynamic_sources) > 0 ? kin_all_sizes_source() : NULL;
    bool found = name != NULL && PySet_Contains(r->opt->dynamic_sources, name) > 0;
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}

static uint64_t
bit_of(int64_t size)
{
    return UINT64_C(1) << (size & 63);
}

/* An argument whose sizes no guard of the previous recording tested, so it is not known whether they have changed. A dim as long as one
 * that did change has probably changed with it, as the values of a cache do with its keys. First dims are compared with first dims only, because they are
 * opened together with others whether they changed or not.
 */
static bool
is_as_long_as_open(const rec *r, int dim, int64_t size)
{
    for (uint32_t i = 0; r->opt->kernels && i < r->open_lengths.len; i++)
        if (r->open_lengths.at[i].size == size && r->open_lengths.at[i].opens && r->open_lengths.at[i].first == (dim == 0))
            return true;
    return false;
}

/* opens: others of that length are open, too. varies: it is not just a guess that it may differ. */
static void
note_open_length(rec *r, int dim, int64_t size, bool opens, bool varies)
{
    rec_length length = {.size = size, .first = dim == 0, .opens = opens, .varies = varies};
    for (uint32_t i = 0; i < r->open_lengths.len; i++)
        if (r->open_lengths.at[i].size == size && r->open_lengths.at[i].first == length.first && r->open_lengths.at[i].opens == opens && r->open_lengths.at[i].varies == varies)
            return;
    if (kin_vec_push(&r->open_lengths, length) != KIN_OK)
        r->status = KIN_NOMEM;
}

/* A size that is 1 now and was another one before: steps run on what there is, so the recording may as well serve both. The graphs of custom backends may not. */
static bool
is_varying_one(rec *r, kin_vid vid, int dim, int64_t size)
{
    return size == 1 && r->opt->kernels && !r->opt->custom && is_noted_size(r, vid, dim, ITSELF);
}

static bool
is_open(rec *r, kin_vid vid, int dim, int64_t size)
{
    const kin_val *val = &r->t->vals.at[vid];
    PyObject *tensor = O(r, vid);
    const rec_info *info = &r->info.at[vid];
    if (val->kind == KIN_VAL_STEP && info->sized) {
        if (val->step < r->first_step && is_noted_size(r, vid, dim, GUESSED)) /* the side trace may have begun because of it */
            note_open_length(r, dim, size, true, is_noted_size(r, vid, dim, SOME_OF_TENSOR));
        return true;
    }
    if (info->unbacked)
        return info->data_sizes & bit_of(size) || !(info->kept_sizes & bit_of(size));
    if (r->opt->dynamic == 0)
        return false;
    if ((val->kind == KIN_VAL_SRC && size < 2 && !is_varying_one(r, vid, dim, size)) || is_marked(tensor, REC_STR("_dynamo_static_indices"), dim))
        return false;
    if (is_marked_dynamic(tensor, dim)) {
        note_open_length(r, dim, size, false, true);
        return true;
    }
    if (info->fixed_sizes >> dim & 1)
        return false;
    if (is_in_sized(r, vid))
        return true;
    if (is_noted_size(r, vid, dim, GUESSED)) {
        note_open_length(r, dim, size, true, is_noted_size(r, vid, dim, SOME_OF_TENSOR));
        return true;
    }
    return (r->opt->dynamic > 0 || all_sizes_vary(r) || is_as_long_as_open(r, dim, size)) && val->kind == KIN_VAL_SRC &&
           kin_is_tensor_type((PyObject *)Py_TYPE(tensor)) && is_argument(r, vid);
}

/* So that a call that misses tells which sizes have changed, though no guard may ask for them (module/dynamic_sources.c). */
static void
note_seen_sizes(rec *r, kin_vid tensor, const int64_t *sizes, int dim)
{
    for (uint32_t i = 0; i < r->v->seen_sizes.len; i++)
        if (r->v->seen_sizes.at[i].tensor == tensor)
            return;
    for (int d = 0; d < dim; d++) {
        kin_known_size seen = {.tensor = tensor, .dim = d, .size = sizes[d]};
        if (kin_vec_push(&r->v->seen_sizes, seen) != KIN_OK)
            r->status = KIN_NOMEM;
    }
}

uint64_t
rec_dynamic_dims(rec *r, kin_vid tensor)
{
    rec_info *i = &r->info.at[tensor];
    const kin_val *val = &r->t->vals.at[tensor];
    if (i->open_epoch == r->meta_epoch + 1)
        return i->dynamic_dims;
    i->open_epoch = r->meta_epoch + 1;
    i->dynamic_dims = 0;
    if (val->kind == KIN_VAL_SRC)
        note_declared(r, tensor);
    int64_t dim = kin_is_plain_strided(i->obj) ? kin_tensor_dim(i->obj) : 0;
    const int64_t *sizes = dim > 0 && dim <= MAX_DIMS ? kin_tensor_sizes(i->obj) : NULL;
    if ((r->opt->dynamic == 0 && !i->unbacked) || sizes == NULL || (val->kind != KIN_VAL_SRC && val->kind != KIN_VAL_STEP))
        return 0;
    uint64_t open = 0;
    for (int d = 0; d < (int)dim; d++)
        open |= (uint64_t)is_open(r, tensor, d, sizes[d]) << d;
    r->info.at[tensor].dynamic_dims = open;
    if (r->meta_epoch == 0 && is_argument(r, tensor))
        note_seen_sizes(r, tensor, sizes, (int)dim);
    return open;
}

/* The metadata of the tensor that a guard may test. Strides depend on sizes, so they are not tested if sizes are dynamic. */
PyObject *
rec_size_record(rec *r, kin_vid tensor, unsigned mask, uint64_t open)
{
    if (open == 0)
        return kin_meta_make(O(r, tensor), mask);
    bool entry = r->t->vals.at[tensor].kind == KIN_VAL_SRC;
    return kin_meta_make_open(O(r, tensor), mask & ~(unsigned)KIN_META_STRIDES, open, entry && r->opt->custom ? KIN_SIZE_SOME : KIN_SIZE_ANY);
}

/* -- following them ------------------------------------------------------------------------------------------------- */

static bool
is_sized(rec *r, kin_vid vid, int depth)
{
    if (vid == 0 || depth > 4)
        return false;
    if (r->info.at[vid].sized || rec_changes_each_call(r, vid))
        return true;
    rec_virtual *f = VIRTUAL(r, vid);
    for (uint32_t i = 0; f != NULL && f->kind != VIRTUAL_FUNCTION && i < f->n; i++)
        if (is_sized(r, f->items[i], depth + 1))
            return true;
    if (f != NULL || r->t->vals.at[vid].kind != KIN_VAL_SRC || !kin_is_plain_strided(O(r, vid)))
        return false;
    return rec_dynamic_dims(r, vid) != 0;
}

void
rec_note_sized(rec *r, kin_step *s)
{
    bool follows = s->flags & KIN_STEP_TORCH || !(s->flags & KIN_STEP_OPAQUE);
    const kin_vid *args = r->t->vids.at + s->args;
    bool sized = false;
    for (uint32_t i = 0; follows && r->opt->dynamic != 0 && i < s->nargs && !sized; i++)
        sized = s->flags & KIN_STEP_TORCH || s->kind == KIN_STEP_SUBSCR ? is_sized(r, args[i], 0) : args[i] && r->info.at[args[i]].sized;
    r->info.at[s->out].sized = sized;
    s->flags |= sized ? KIN_STEP_SIZED : 0;
}

/* -- sizes that data decides ---------------------------------------------------------------------------------------- */

/* Functions that give as many elements as the data says, in the first dimension. */
static bool
counts_data(rec *r, const kin_step *s, const kin_vid *args, const char *name)
{
    static const char *const always[] = {"nonzero", "argwhere", "masked_select", "unique", "_unique2", "unique_consecutive", "unique_dim",
                                         "bincount", "_return_output", "_return_inverse", "_return_counts", "_return_inverse_false", NULL};
    if (rec_in_list(name, always))
        return true;
    if (strcmp(name, "where") == 0)
        return s->nargs == 2;
    if (strcmp(name, "repeat_interleave") == 0)
        return s->nargs > 2 && O(r, args[2]) != NULL && kin_is_tensor(O(r, args[2]));
    kin_dtype dtype;
    PyObject *index = s->kind == KIN_STEP_SUBSCR && s->nargs == 2 ? O(r, args[1]) : NULL;
    if (index != NULL && PyTuple_CheckExact(index) && PyTuple_GET_SIZE(index) > 0)
        index = PyTuple_GET_ITEM(index, 0);
    return index != NULL && kin_is_plain_tensor(index) && kin_tensor_dtype(index, &dtype) && dtype == KIN_BOOL;
}

/* The sizes of a tensor, or a number, that goes in. */
static bool
add_sizes(rec *r, kin_vid vid, uint64_t *kept, uint64_t *data, int depth)
{
    PyObject *obj = vid != 0 ? O(r, vid) : NULL;
    bool follows = false;
    const rec_virtual *f = vid != 0 ? VIRTUAL(r, vid) : NULL;
    if (f != NULL && f->kind != VIRTUAL_FUNCTION && depth < 4)
        for (uint32_t i = 0; i < f->n; i++)
            follows = add_sizes(r, f->items[i], kept, data, depth + 1) || follows;
    if (obj == NULL || f != NULL)
        return follows;
    if (PyLong_CheckExact(obj) && rec_data_of(r, vid) != REC_NO_DATA) {
        *data |= bit_of(PyLong_AsLongLong(obj));
        PyErr_Clear();
        return true;
    }
    int64_t dim = kin_is_plain_strided(obj) ? kin_tensor_dim(obj) : 0;
    for (int64_t d = 0; d < dim; d++)
        *(is_open(r, vid, (int)d, kin_tensor_sizes(obj)[d]) ? data : kept) |= bit_of(kin_tensor_sizes(obj)[d]);
    return dim > 0 && r->info.at[vid].unbacked;
}

void
rec_note_unbacked(rec *r, const kin_step *s)
{
    const kin_vid *args = r->t->vids.at + s->args;
    const char *name = s->kind == KIN_STEP_CALL && O(r, args[0]) != NULL ? kin_callable_name(O(r, args[0])) : "";
    rec_info *of = s->nargs > 0 ? &r->info.at[args[0]] : NULL;
    rec_info *out = &r->info.at[s->out];
    bool call = s->flags & KIN_STEP_TORCH && !(s->flags & KIN_STEP_OPAQUE);
    if (s->kind == KIN_STEP_SUBSCR && of->unbacked && of->obj != NULL && PyTuple_Check(of->obj)) { /* one of the results */
        out->unbacked = true;
        out->kept_sizes = of->kept_sizes;
        out->data_sizes = of->data_sizes;
        return;
    }
    bool follows = call && counts_data(r, s, args, name);
    bool counts = follows;
    uint64_t kept = 0, data = 0;
    for (uint32_t i = 0; call && i < s->nargs; i++)
        follows = add_sizes(r, args[i], &kept, &data, 0) || follows;
    bool rows = counts && (strcmp(name, "nonzero") == 0 || strcmp(name, "argwhere") == 0);
    out = &r->info.at[s->out];
    out->unbacked = follows;
    out->kept_sizes = rows ? UINT64_C(1) << (kin_tensor_dim(O(r, args[1])) & 63) : counts && s->kind != KIN_STEP_SUBSCR ? 0 : kept;
    out->data_sizes = data;
}

/* -- reading them --------------------------------------------------------------------------------------------------- */

kin_vid
rec_known_size(rec *r, int64_t size)
{
    PyObject *number = PyLong_FromLongLong(size);
    kin_vid vid = number != NULL ? rec_const(r, number) : 0;
    Py_XDECREF(number);
    return vid;
}

/* Steps may have been taken back since they were noted. */
static bool
is_size_step(rec *r, kin_vid vid, kin_vid tensor, int dim)
{
    const kin_val *val = vid != 0 && vid < r->t->vals.len ? &r->t->vals.at[vid] : NULL;
    if (val == NULL || val->kind != KIN_VAL_STEP || val->step >= r->t->steps.len)
        return false;
    const kin_step *s = &r->t->steps.at[val->step];
    return s->kind == KIN_STEP_SIZE && s->out == vid && s->imm == dim && r->t->vids.at[s->args] == tensor;
}

/* The value that was read from this dim last, since sizes may last have changed. */
static uint32_t *
last_read(rec *r, kin_vid tensor, int dim)
{
    enum { SIZE_KEY = 0x517E };
    return r->region != NULL ? NULL : rec_map_at(r->value_numbers, r->meta_epoch, tensor, SIZE_KEY + (uint32_t)dim, UINT32_MAX);
}

kin_vid
rec_size(rec *r, kin_vid tensor, int dim)
{
    int64_t size = kin_tensor_sizes(O(r, tensor))[dim];
    if (!(rec_dynamic_dims(r, tensor) >> dim & 1))
        return rec_known_size(r, size);
    uint32_t *seen = last_read(r, tensor, dim);
    if (seen != NULL && is_size_step(r, *seen, tensor, dim))
        return *seen;
    kin_vid out = rec_step_out(r, KIN_STEP_SIZE, 0, &tensor, 1);
    r->t->steps.at[r->t->vals.at[out].step].imm = (uint8_t)dim;
    PyObject *number = PyLong_FromLongLong(size);
    if (number != NULL)
        rec_set_obj(r, out, number);
    Py_XDECREF(number);
    r->info.at[out].type = &PyLong_Type;
    r->info.at[out].sized = r->info.at[tensor].sized || !r->info.at[tensor].unbacked;
    if (!r->info.at[out].sized) {
        r->info.at[out].data = REC_DATA_IN_GRAPH;
        r->info.at[out].data_row = KIN_ROW_DATA_DEPENDENT_OP;
        r->info.at[out].of_sizes = true;
    }
    if ((seen = last_read(r, tensor, dim)) != NULL)
        *seen = out;
    return out;
}

/* torch.Size of ints, to be awaited. */
kin_vid
rec_build_size(rec *r, const kin_vid *items, uint32_t n)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_SIZE, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, out, VIRTUAL_NAMED, items, n, true);
    r->info.at[out].type = kin_size_type();
    for (uint32_t i = 0; i < n; i++)
        r->info.at[out].of_sizes = r->info.at[out].of_sizes || r->info.at[items[i]].of_sizes;
    return out;
}

kin_vid
rec_shape(rec *r, kin_vid tensor)
{
    kin_vid items[MAX_DIMS];
    PyObject *objs[MAX_DIMS];
    int dim = (int)kin_tensor_dim(O(r, tensor));
    for (int d = 0; d < dim; d++) {
        items[d] = rec_size(r, tensor, d);
        objs[d] = O(r, items[d]);
    }
    kin_vid out = rec_build_size(r, items, (uint32_t)dim);
    PyObject *size = kin_size_new(objs, dim);
    if (size == NULL) {
        PyErr_Clear();
        r->status = KIN_NOMEM;
        return out;
    }
    rec_set_obj(r, out, size);
    Py_DECREF(size);
    return out;
}

/* -- fixing them ---------------------------------------------------------------------------------------------------- */

/* How often a loop runs and how long a list is are part of the program: steps over such a number serve one value anyway, whether it is open or not, and if it is, the
 * numbers of the loop are computed by Python. So a size that is open only because others have differed is fixed where it is needed: one of an argument by
 * the guard, that of a computed tensor by a check. Once it differs itself, it is noted (module/dynamic_sources.c) and stays open.
 */

/* A size of something computed has perhaps differed if it is as long as one that has. */
static bool
can_fix_computed(rec *r, kin_vid size)
{
    return r->opt->kernels && !rec_is_dynamic(r, size) && !rec_length_has_differed(r, PyLong_AsLongLong(O(r, size)));
}

static bool
can_fix_size(rec *r, const kin_step *s)
{
    kin_vid tensor = r->t->vids.at[s->args], size = s->out;
    int dim = s->imm;
    if (r->opt->dynamic >= 0 || r->info.at[tensor].unbacked)
        return false;
    if (r->t->vals.at[tensor].kind != KIN_VAL_SRC)
        return can_fix_computed(r, size);
    if (r->inplace || is_marked_dynamic(O(r, tensor), dim) || is_noted_size(r, tensor, dim, SOME_OF_TENSOR))
        return false;
    (void)rec_epoch(r);
    const uint32_t *seen = last_read(r, tensor, dim);
    return seen != NULL && *seen == size;
}

/* The step that computed the number from numbers alone, of which one is a size that is open; or that asked for the size. NULL: there is none. */
static const kin_step *
made_of_sizes(rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    const rec_info *info = &r->info.at[vid];
    if (val->kind != KIN_VAL_STEP || val->step >= r->t->steps.len || !info->sized || info->varies || info->changes_each_call || !info->held || info->obj == NULL ||
        !(PyLong_CheckExact(info->obj) || PyFloat_CheckExact(info->obj)))
        return NULL;
    const kin_step *s = &r->t->steps.at[val->step];
    bool call = s->kind == KIN_STEP_CALL && rec_is_const(r, r->t->vids.at[s->args]) && kin_step_does(s, KIN_ASKS | KIN_INSIDE);
    bool computes = call || s->kind == KIN_STEP_SIZE || s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_UNARY;
    return computes && !(s->flags & (KIN_STEP_TORCH | KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_MUTATES | KIN_STEP_RAISES | KIN_STEP_BREAK)) ? s : NULL;
}

/* Is the number a constant, or computed from constants and sizes that can be fixed? */
static bool
can_fix(rec *r, kin_vid vid, int depth)
{
    if (vid == 0 || rec_is_const(r, vid))
        return vid != 0;
    const kin_step *s = depth < 16 ? made_of_sizes(r, vid) : NULL;
    if (s == NULL || s->kind == KIN_STEP_SIZE)
        return s != NULL && can_fix_size(r, s);
    uint32_t args = s->args, n = s->nargs;
    bool can = true;
    for (uint32_t i = 0; can && i < n; i++)
        can = can_fix(r, r->t->vids.at[args + i], depth + 1);
    return can;
}

/* Has the size differed between calls? Where some size of the tensor has, or the program has said that all sizes may: does it seem to be a length? The tensor
 * may be dead. */
static bool
size_has_differed(rec *r, const kin_step *s)
{
    enum { FEW = 8 }; /* heads, layers, and the like are seldom more */
    kin_vid tensor = r->t->vids.at[s->args];
    int64_t length = PyLong_AsLongLong(O(r, s->out));
    if (r->info.at[tensor].unbacked || is_noted_size(r, tensor, s->imm, ITSELF))
        return true;
    return length >= FEW && (r->opt->dynamic > 0 || rec_length_has_differed(r, length) || is_noted_size(r, tensor, s->imm, SOME_OF_TENSOR));
}

bool
rec_length_has_differed(const rec *r, int64_t length)
{
    for (uint32_t i = 0; i < r->open_lengths.len; i++)
        if (r->open_lengths.at[i].varies && r->open_lengths.at[i].size == length)
            return true;
    return false;
}

bool
rec_number_has_differed(rec *r, kin_vid vid)
{
    if (vid == 0 || rec_is_const(r, vid))
        return false;
    const kin_step *s = made_of_sizes(r, vid);
    if (s == NULL)
        return true;
    if (s->kind == KIN_STEP_SIZE)
        return size_has_differed(r, s);
    bool differed = false;
    for (uint32_t i = 0, args = s->args, n = s->nargs; i < n && !differed; i++)
        differed = rec_number_has_differed(r, r->t->vids.at[args + i]);
    return differed;
}

/* By the guard. False: its sizes cannot be read. */
static bool
fix_argument(rec *r, kin_vid tensor, int dim)
{
    rec_info *info = &r->info.at[tensor];
    info->fixed_sizes |= UINT64_C(1) << dim;
    info->open_epoch = 0;
    info->meta_mask &= ~(unsigned)KIN_META_SIZES;
    bool fixed = rec_meta(r, tensor, KIN_META_SIZES);
    info = &r->info.at[tensor];
    info->fixed_sizes &= fixed ? UINT64_MAX : ~(UINT64_C(1) << dim);
    info->open_epoch = 0;
    return fixed;
}

static void
make_constant(rec *r, kin_vid vid)
{
    kin_vid known = rec_const(r, O(r, vid));
    r->info.at[vid].as_const = known;
    r->info.at[vid].sized = false;
}

/* Fixes the sizes that the number is computed from. */
static void
fix_sizes_of(rec *r, kin_vid vid)
{
    const kin_step *s = rec_is_const(r, vid) ? NULL : made_of_sizes(r, vid);
    if (s == NULL)
        return;
    uint32_t args = s->args, n = s->nargs;
    int dim = s->imm;
    if (s->kind != KIN_STEP_SIZE) {
        for (uint32_t i = 0; i < n; i++)
            fix_sizes_of(r, r->t->vids.at[args + i]);
        return;
    }
    kin_vid tensor = r->t->vids.at[args];
    bool argument = r->t->vals.at[tensor].kind == KIN_VAL_SRC;
    if (argument && !fix_argument(r, tensor, dim))
        return;
    if (!argument)
        rec_check(r, KIN_CHECK_EQ, vid, O(r, vid), 0);
    make_constant(r, vid);
}

/* What the program has computed from such sizes so far is a constant from now on. */
static void
fold_numbers(rec *r)
{
    for (uint32_t i = r->first_step; i < r->t->steps.len; i++) {
        kin_vid out = r->t->steps.at[i].out;
        const kin_step *s = out != 0 && !rec_is_const(r, out) ? made_of_sizes(r, out) : NULL;
        bool fold = s != NULL && s->kind != KIN_STEP_SIZE;
        for (uint32_t k = 0; fold && k < s->nargs; k++)
            fold = r->t->vids.at[s->args + k] != 0 && rec_is_const(r, r->t->vids.at[s->args + k]);
        if (fold)
            make_constant(r, out);
    }
}

bool
rec_fix_number(rec *r, kin_vid vid)
{
    if (r->region != NULL || r->refused || vid == 0 || rec_is_const(r, vid) || !can_fix(r, vid, 0))
        return false;
    fix_sizes_of(r, vid);
    fold_numbers(r);
    return rec_is_const(r, vid);
}

/* -- comparing shapes ----------------------------------------------------------------------------------------------- */

static bool
equal_items(rec *r, const kin_vid *x, const kin_vid *y, uint32_t n)
{
    bool equal = true;
    for (uint32_t i = 0; equal && i < n; i++) {
        kin_vid pair[2] = {x[i], y[i]};
        equal = kin_exact_equal(O(r, x[i]), O(r, y[i]));
        if (x[i] == y[i] || (rec_can_const(r, x[i]) && rec_can_const(r, y[i]) && rec_need_const(r, x[i]) && rec_need_const(r, y[i])))
            continue;
        kin_vid answer = rec_step_out(r, KIN_STEP_COMPARE, KIN_STEP_PURE, pair, 2);
        r->t->steps.at[r->t->vals.at[answer].step].imm = Py_EQ;
        r->info.at[answer].type = &PyBool_Type;
        rec_set_obj(r, answer, equal ? Py_True : Py_False);
        rec_check(r, equal ? KIN_CHECK_TRUE : KIN_CHECK_FALSE, answer, NULL, 0);
    }
    return equal;
}

static bool
all_ints(rec *r, const kin_vid *items, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (O(r, items[i]) == NULL || !PyLong_CheckExact(O(r, items[i])))
            return false;
    return true;
}

int
rec_decide_equal(rec *r, kin_vid a, kin_vid b)
{
    kin_vid *x = NULL, *y = NULL;
    uint32_t nx = 0, ny = 0;
    int equal = -1;
    PyObject *left = O(r, a), *right = O(r, b);
    if (a == b)
        return 1;
    if (left == NULL || right == NULL)
        return -1;
    bool known = VIRTUAL(r, a) != NULL && VIRTUAL(r, b) != NULL && PyTuple_Check(left) && PyTuple_Check(right) && rec_items_of(r, a, &x, &nx) &&
                 rec_items_of(r, b, &y, &ny);
    for (uint32_t i = 0; known && nx == ny && i < nx && equal != 0 && (i == 0 || equal > 0); i++)
        equal = rec_decide_equal(r, x[i], y[i]);
    equal = known && nx != ny ? 0 : known && nx == 0 ? 1 : equal;
    free(x);
    free(y);
    if (known)
        return equal;
    if (PyLong_CheckExact(left) && PyLong_CheckExact(right) && VIRTUAL(r, a) == NULL && VIRTUAL(r, b) == NULL) {
        rec_need_type(r, a);
        rec_need_type(r, b);
        return equal_items(r, &a, &b, 1);
    }
    return rec_pin_key(r, a) != 0 && rec_pin_key(r, b) != 0 ? kin_exact_same_key(left, right) : -1;
}

bool
rec_equal_sizes(rec *r, int op, const kin_vid *args)
{
    kin_vid *x = NULL, *y = NULL;
    uint32_t nx = 0, ny = 0;
    bool tuples = true, shapes = false;
    for (int i = 0; i < 2; i++) {
        PyObject *obj = O(r, args[i]);
        tuples = tuples && obj != NULL && (kin_is_size(obj) || PyTuple_CheckExact(obj));
        shapes = shapes || (kin_is_size(obj) && VIRTUAL(r, args[i]) != NULL);
    }
    bool ok = tuples && shapes && (op == Py_EQ || op == Py_NE) && rec_items_of(r, args[0], &x, &nx) &&
              rec_items_of(r, args[1], &y, &ny) && all_ints(r, x, nx) && all_ints(r, y, ny);
    for (uint32_t i = 0; ok && i < nx; i++)
        rec_need_type(r, x[i]);
    for (uint32_t i = 0; ok && i < ny; i++)
        rec_need_type(r, y[i]);
    if (ok) {
        bool equal = nx == ny && equal_items(r, x, y, nx);
        rec_drop(r, 2);
        rec_push(r, rec_const(r, equal == (op == Py_EQ) ? Py_True : Py_False));
    }
    free(x);
    free(y);
    return ok;
}
