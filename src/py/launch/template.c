/* Copies plans for further sizes, without capture and passes (docs/design/sizes.md). Plans that were made are compared: plans with one structure differ only in
 * numbers, which are polynomials of the sizes (core/program/sizes.h). A further plan is then a copy of one of them with other numbers.
 */
#include <stdlib.h>
#include <string.h>

#include "core/program/make.h"
#include "core/program/numbers.h"
#include "core/program/sizes.h"
#include "py/aten/make.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/launch/launch_priv.h"
#include "py/refs/sequence.h"

struct launch_template {
    kin_text structure;
    kin_sizes *sizes;
};

/* -- Python objects inside of a plan ----------------------------------------------------------------------------------------- */

/* Objects that are unique for each value. */
static bool
is_alone(PyObject *obj)
{
    static const char *const types[] = {"NoneType", "bool", "ellipsis", "torch.dtype", "torch.layout", "torch.memory_format"};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (kin_heap_type_is(Py_TYPE(obj), types[i]))
            return true;
    return false;
}

static void
say_text(kin_walk *w, PyObject *text)
{
    Py_ssize_t n = 0;
    const char *at = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &n);
    w->failed |= at == NULL;
    kin_walk_word(w, (uint64_t)n);
    kin_walk_say(w, at, at == NULL ? 0 : (size_t)n);
}

static void
say_value(kin_walk *w, PyObject *obj)
{
    kin_walk_word(w, (uintptr_t)Py_TYPE(obj));
    if (PyFloat_CheckExact(obj)) {
        double value = PyFloat_AS_DOUBLE(obj);
        kin_walk_say(w, &value, sizeof value);
    } else if (PyUnicode_CheckExact(obj)) {
        say_text(w, obj);
    } else if (kin_heap_type_is(Py_TYPE(obj), "torch.device")) {
        PyObject *text = PyObject_Str(obj);
        say_text(w, text);
        Py_XDECREF(text);
    } else if (is_alone(obj)) {
        kin_walk_word(w, (uintptr_t)obj);
    } else {
        w->failed = true;
    }
}

static PyObject *walk_object(void *arg, PyObject *obj);

/* A torch.Size, if the other one is; the tuple (stolen) otherwise. */
static PyObject *
like_size(PyObject *of, PyObject *tuple)
{
    if (tuple == NULL || !Py_IS_TYPE(of, kin_size_type()))
        return tuple;
    PyObject *size = PyObject_CallOneArg((PyObject *)kin_size_type(), tuple);
    Py_DECREF(tuple);
    return size;
}

/* A container of them: new reference. */
static PyObject *
walk_items(kin_walk *w, PyObject *obj)
{
    kin_walk_word(w, (uintptr_t)Py_TYPE(obj));
    kin_walk_word(w, (uint64_t)PySequence_Fast_GET_SIZE(obj));
    return like_size(obj, kin_map_items(obj, walk_object, w));
}

/* Walks the object; if numbers are replaced, returns the new object. New reference. */
static PyObject *
walk_object(void *arg, PyObject *obj)
{
    kin_walk *w = arg;
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX) {
        kin_walk_word(w, number);
        return Py_NewRef(obj);
    }
    if (PyTuple_CheckExact(obj) || PyList_CheckExact(obj) || Py_IS_TYPE(obj, kin_size_type()))
        return walk_items(w, obj);
    if (PyLong_CheckExact(obj)) {
        int over = 0;
        int64_t value = PyLong_AsLongLongAndOverflow(obj, &over);
        w->failed |= over != 0;
        value = kin_walk_number(w, value);
        return w->structure != NULL ? Py_NewRef(obj) : PyLong_FromLongLong(value);
    }
    if (w->structure != NULL)
        say_value(w, obj);
    return Py_NewRef(obj);
}

static PyObject *
walk_dict(kin_walk *w, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (w->structure != NULL && PyDict_Next(dict, &pos, &key, &value))
        say_value(w, key);
    return kin_map_values(dict, walk_object, w);
}

/* *obj may be NULL, or a dict. */
static void
walk_reference(kin_walk *w, PyObject **obj)
{
    kin_walk_word(w, *obj != NULL);
    if (*obj == NULL)
        return;
    PyObject *walked = PyDict_CheckExact(*obj) ? walk_dict(w, *obj) : walk_object(w, *obj);
    w->failed |= walked == NULL;
    if (w->structure == NULL && walked != NULL)
        Py_SETREF(*obj, Py_NewRef(walked));
    Py_XDECREF(walked);
    PyErr_Clear();
}

/* -- all of a plan ------------------------------------------------------------------------------------------------------------- */

static void
walk_launch_program(kin_walk *w, launch_program *p)
{
    kin_walk_word(w, p->program != NULL);
    if (p->program == NULL)
        return;
    kin_walk_program(w, p->program);
    for (uint32_t i = 0; i < p->program->externs.len; i++) {
        launch_extern *e = &p->externs[i];
        uint64_t words[] = {(uintptr_t)e->op, e->effect, e->packs, e->library != NULL};
        kin_walk_say(w, words, sizeof words);
        if (e->library != NULL)
            kin_walk_say(w, &e->library->call, sizeof e->library->call);
        walk_reference(w, &e->args);
        walk_reference(w, &e->kwargs);
    }
}

static void
walk_code(kin_walk *w, launch_code *code)
{
    uint64_t words[] = {(uintptr_t)code->frozen, code->nouts, code->ngive, code->nfakes, code->ninputs, code->nwrites, code->copes, code->loses_nan,
                        code->only_packed != NULL};
    kin_walk_say(w, words, sizeof words);
    walk_launch_program(w, &code->main);
    walk_launch_program(w, &code->once);
    if (code->only_packed != NULL)
        kin_walk_say(w, code->only_packed, code->main.program->buffers.len * sizeof *code->only_packed);
    for (uint32_t i = 0; i < code->nouts; i++) {
        launch_out *o = &code->outs[i];
        uint64_t out[] = {o->kind, o->whole, o->detached, o->of_detached, o->late, o->writes, o->index};
        kin_walk_say(w, out, sizeof out);
        kin_walk_numbers(w, &o->offset, 1);
        walk_reference(w, &o->sizes);
        walk_reference(w, &o->strides);
    }
    for (uint32_t i = 0; i < code->ngive; i++) {
        kin_walk_word(w, (uint64_t)code->give[i].kind << 32 | code->give[i].index);
        walk_reference(w, &code->give[i].shape);
    }
    for (uint32_t i = 0; i < code->nfakes; i++)
        kin_walk_word(w, (uint64_t)code->by_fake[i].kind << 32 | code->by_fake[i].index);
    kin_walk_say(w, code->input_of, code->ninputs * sizeof *code->input_of);
    kin_walk_say(w, code->writes, code->nwrites * sizeof *code->writes);
    kin_walk_word(w, code->training != NULL);
    if (code->training != NULL)
        launch_training_walk(code->training, w, walk_code, walk_reference);
}

/* -- copies --------------------------------------------------------------------------------------------------------------------- */

static void *
copy_bytes(const void *from, size_t bytes, bool *failed)
{
    void *copy = from == NULL ? NULL : calloc(1, bytes + 1);
    if (copy != NULL)
        memcpy(copy, from, bytes);
    *failed = *failed || (from != NULL && copy == NULL);
    return copy;
}

static void
copy_externs(launch_program *c, const launch_program *p, bool *failed)
{
    uint32_t n = p->program->externs.len;
    c->externs = calloc(n + 1, sizeof *c->externs);
    *failed = *failed || c->externs == NULL;
    for (uint32_t i = 0; !*failed && i < n; i++) {
        const launch_extern *e = &p->externs[i];
        c->externs[i] = (launch_extern){.op = Py_XNewRef(e->op), .args = Py_XNewRef(e->args), .kwargs = Py_XNewRef(e->kwargs), .effect = e->effect, .packs = e->packs};
        if (e->library != NULL) {
            c->externs[i].library = launch_library_new(&e->library->call);
            *failed = c->externs[i].library == NULL;
        }
    }
}

static void
copy_program(launch_program *c, const launch_program *p, bool *failed)
{
    if (p->program == NULL || *failed)
        return;
    c->program = kin_program_copy(p->program);
    *failed = c->program == NULL;
    if (*failed)
        return;
    copy_externs(c, p, failed);
    c->ndies = copy_bytes(p->ndies, p->program->ops.len * sizeof *p->ndies, failed);
    c->dies = calloc(p->program->ops.len + 1, sizeof *c->dies);
    *failed = *failed || c->dies == NULL;
    for (uint32_t i = 0; !*failed && i < p->program->ops.len; i++)
        c->dies[i] = copy_bytes(p->dies[i], p->ndies[i] * sizeof **p->dies, failed);
}

static launch_give *
copy_gives(const launch_give *gives, uint32_t n, bool *failed)
{
    launch_give *copy = copy_bytes(gives, n * sizeof *gives, failed);
    for (uint32_t i = 0; copy != NULL && i < n; i++)
        Py_XINCREF(copy[i].shape);
    return copy;
}

static launch_code *
copy_code(const launch_code *code)
{
    launch_code *c = calloc(1, sizeof *c);
    bool failed = c == NULL;
    if (failed)
        return NULL;
    copy_program(&c->main, &code->main, &failed);
    copy_program(&c->once, &code->once, &failed);
    if (code->only_packed != NULL && !failed)
        c->only_packed = copy_bytes(code->only_packed, code->main.program->buffers.len * sizeof *code->only_packed, &failed);
    c->outs = copy_bytes(code->outs, code->nouts * sizeof *code->outs, &failed);
    c->nouts = c->outs == NULL ? 0 : code->nouts;
    for (uint32_t i = 0; i < c->nouts; i++) {
        Py_XINCREF(c->outs[i].sizes);
        Py_XINCREF(c->outs[i].strides);
    }
    c->give = copy_gives(code->give, code->ngive, &failed);
    c->ngive = c->give == NULL ? 0 : code->ngive;
    c->by_fake = copy_gives(code->by_fake, code->nfakes, &failed);
    c->nfakes = c->by_fake == NULL ? 0 : code->nfakes;
    c->input_of = copy_bytes(code->input_of, code->ninputs * sizeof *code->input_of, &failed);
    c->ninputs = code->ninputs;
    c->writes = copy_bytes(code->writes, code->nwrites * sizeof *code->writes, &failed);
    c->nwrites = code->nwrites;
    c->copes = code->copes;
    c->loses_nan = code->loses_nan;
    if (!failed && code->frozen != NULL) {
        c->frozen = launch_frozen_again(code->frozen);
        failed = c->frozen == NULL;
    }
    launch_code *back = failed || code->training == NULL ? NULL : copy_code(launch_training_code_back(code));
    if (!failed && code->training != NULL && (back == NULL || !launch_training_copy(code->training, c, back))) {
        launch_code_free(back);
        failed = true;
    }
    if (failed) {
        launch_code_free(c);
        return NULL;
    }
    return c;
}

/* -- inputs ----------------------------------------------------------------------------------------------------------------------- */

static bool
read_inputs(const kernel_launcher *self, PyObject *const *in, uint32_t n, kin_walk *w)
{
    for (uint32_t i = 0; i < n; i++)
        if (kin_is_tensor(in[i])) {
            kin_walk_sizes(w, kin_tensor_sizes(in[i]), (uint32_t)kin_tensor_dim(in[i]));
            kin_walk_numbers(w, kin_tensor_strides(in[i]), (uint32_t)kin_tensor_dim(in[i]));
        } else if (launch_may_be_sizes(in[i]) && !launch_number_is_open(self->open, i, in[i])) {
            w->dim = true;
            Py_XDECREF(walk_object(w, in[i]));
            w->dim = false;
        }
    return !w->failed;
}

/* -- templates ---------------------------------------------------------------------------------------------------------------------- */

void
launch_templates_deinit(launch_templates *all)
{
    for (uint32_t i = 0; i < all->at.len; i++) {
        kin_text_deinit(&all->at.at[i]->structure);
        kin_sizes_free(all->at.at[i]->sizes);
        free(all->at.at[i]);
    }
    kin_vec_deinit(&all->at);
}

/* The number of the template with this structure, counted from 1; 0: out of memory, or there are too many. */
static uint32_t
template_of(launch_templates *all, kin_text *structure, const kin_walk *inputs, const kin_walk *numbers)
{
    for (uint32_t i = 0; i < all->at.len; i++) {
        const kin_text *one = &all->at.at[i]->structure;
        if (one->len == structure->len && memcmp(one->at, structure->at, one->len) == 0)
            return i + 1;
    }
    launch_template *t = all->at.len < KIN_TIER_PLAN_STRUCTURES ? calloc(1, sizeof *t) : NULL;
    if (t == NULL)
        return 0;
    t->sizes = kin_sizes_new(inputs->numbers.len, numbers->numbers.len, inputs->dims.at, numbers->dims.at);
    bool ok = t->sizes != NULL;
    for (uint32_t q = 0; q < numbers->asks.len && ok; q++)
        ok = kin_sizes_ask(t->sizes, numbers->asks.at[q].asks, numbers->asks.at[q].number);
    if (!ok || kin_vec_push(&all->at, t) != KIN_OK) {
        kin_sizes_free(t->sizes);
        free(t);
        return 0;
    }
    t->structure = *structure;
    *structure = (kin_text){0};
    return all->at.len;
}

/* Everything but sizes that all plans so far depend on. */
static uint64_t
state_of(const kernel_launcher *self)
{
    return (uint64_t)self->fixings << 32 | (uint64_t)self->unfrozen.len << 1 | self->exact_nan;
}

/* All ints among these arguments, and in lists of them. */
static void
say_ints(kin_walk *w, const kin_aten *g, uint32_t first, uint32_t n)
{
    for (uint32_t a = first; a < first + n; a++) {
        const kin_aten_arg *arg = &g->args.at[a];
        kin_walk_word(w, arg->kind);
        if (arg->kind == KIN_ATEN_LIST)
            say_ints(w, g, arg->list.child, arg->list.count);
        if (arg->kind == KIN_ATEN_INT)
            kin_walk_word(w, (uint64_t)arg->i);
    }
}

/* What operators divide sizes by belongs to the structure: their results are quotients of one size then, and not of two. */
static void
say_divisors(kin_walk *w, const kin_aten *g)
{
    for (uint32_t c = 0; c < g->calls.len; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        uint32_t first = 0, step;
        if (kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_DIVIDES))
            say_ints(w, g, call->args, call->nargs);
        if (!kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_STEPS))
            continue;
        while (first < call->nargs && (g->args.at[call->args + first].kind == KIN_ATEN_VALUE || g->args.at[call->args + first].kind == KIN_ATEN_LIST))
            first++;
        step = first + (first > 0 ? 3 : 2); /* in what is cut, a dim stands in front of start and end */
        kin_walk_word(w, step < call->nargs);
        if (step < call->nargs)
            say_ints(w, g, call->args + step, 1);
    }
}

/* What the program asked belongs to the structure, and what of, to the numbers. So do the sizes of all that its operators make: of most nothing is left in the plan, but the
 * operators look at them (a view as two rows wants an even number). */
static void
walk_program(kin_walk *w, const kin_aten *g, kin_sizes_questions *all)
{
    say_divisors(w, g);
    for (kin_aten_val v = 1; v < g->values.len; v++) {
        const kin_aten_value *value = kin_aten_at(g, v);
        kin_walk_word(w, value->ndim);
        kin_walk_numbers(w, g->ints.at + value->sizes, value->ndim);
    }
    for (uint32_t q = 0; q < all->len; q++)
        kin_walk_question_of(w, &all->at[q]);
}

void
launch_template_note(kernel_launcher *self, launch_version *version, const kin_capture *capture, PyObject *const *in)
{
    launch_templates *all = &self->sizes.templates;
    version->like = 0;
    if (!launch_sizes_are_on(self) || version->code == NULL || version->hints.len > 0 || version->no_writes || capture->asks_more)
        return;
    if (all->state != state_of(self)) {
        for (uint32_t i = 0; i < self->versions.len; i++)
            self->versions.at[i]->like = 0;
        launch_templates_deinit(all);
        all->state = state_of(self);
    }
    kin_text structure = {0}, none = {0};
    kin_walk w = {.structure = &structure}, inputs = {.structure = &none};
    walk_code(&w, version->code);
    uint32_t of_plan = w.numbers.len;
    kin_sizes_questions asked = {0};
    w.failed |= !kin_capture_questions(capture, &asked);
    walk_program(&w, capture->graph, &asked);
    if (!w.failed && !structure.failed && read_inputs(self, in, version->signature.n, &inputs))
        version->like = template_of(all, &structure, &inputs, &w);
    if (version->like > 0 && !kin_sizes_add(all->at.at[version->like - 1]->sizes, inputs.numbers.at, w.numbers.at))
        version->like = 0;
    version->nnumbers = w.numbers.len;
    version->nasked = w.numbers.len - of_plan;
    kin_vec_deinit(&asked);
    kin_walk_deinit(&w);
    kin_walk_deinit(&inputs);
    kin_text_deinit(&structure);
    kin_text_deinit(&none);
}

static bool
is_any(const launch_templates *all, bool (*such)(const kin_sizes *))
{
    for (uint32_t i = 0; i < all->at.len; i++)
        if (such(all->at.at[i]->sizes))
            return true;
    return false;
}

bool
launch_templates_want_more(const kernel_launcher *self)
{
    return is_any(&self->sizes.templates, kin_sizes_wants_more);
}

bool
launch_templates_known(const kernel_launcher *self)
{
    return is_any(&self->sizes.templates, kin_sizes_known);
}

/* A plan with that structure whose code exists; NULL: none. */
static const launch_version *
model_for(const kernel_launcher *self, uint32_t number, PyObject *const *in)
{
    for (uint32_t i = self->versions.len; i-- > 0;) {
        const launch_version *v = self->versions.at[i];
        if (v->like != number || v->code == NULL || v->again)
            continue;
        bool like = launch_signature_fits_ambient(&v->signature);
        for (uint32_t k = 0; k < v->signature.n && like; k++)
            like = launch_signature_is_like(&v->signature, k, in[k]) && v->signature.inputs[k].open == launch_number_is_open(self->open, k, in[k]);
        return like ? v : NULL;
    }
    return NULL;
}

static launch_code *
make_like(const launch_version *model, kin_walk *w)
{
    launch_code *code = copy_code(model->code);
    if (code == NULL)
        return NULL;
    walk_code(w, code);
    if (w->failed || w->next + model->nasked != w->numbers.len) {
        launch_code_free(code);
        return NULL;
    }
    return code;
}

bool
launch_template_find(kernel_launcher *self, PyObject *const *in, uint32_t n, launch_copy *copy)
{
    const launch_templates *all = &self->sizes.templates;
    kin_text none = {0};
    kin_walk inputs = {.structure = &none};
    if (!copy->looked && all->state == state_of(self) && all->at.len > 0 && read_inputs(self, in, n, &inputs))
        for (uint32_t t = all->at.len; t > 0 && copy->like == 0; t--) {
            copy->model = model_for(self, t, in);
            if (copy->model == NULL || kin_vec_reserve(&copy->walk.numbers, copy->model->nnumbers + 1) != KIN_OK)
                continue;
            copy->walk.numbers.len = copy->model->nnumbers;
            if (kin_sizes_eval(all->at.at[t - 1]->sizes, inputs.numbers.at, copy->walk.numbers.at))
                copy->like = t;
        }
    copy->looked = true;
    kin_walk_deinit(&inputs);
    kin_text_deinit(&none);
    return copy->like > 0;
}

/* The plan that was to be copied may have been evicted to make room. */
bool
launch_template_make(kernel_launcher *self, launch_version *version, PyObject *const *in, launch_copy *copy)
{
    if (!launch_template_find(self, in, version->signature.n, copy))
        return false;
    const launch_version *model = copy->model;
    if (model->code == NULL || model->like != copy->like)
        return false;
    version->code = make_like(model, &copy->walk);
    if (version->code == NULL)
        return false;
    version->like = copy->like;
    version->nnumbers = model->nnumbers;
    version->nasked = model->nasked;
    version->nnative = model->nnative;
    version->nextern = model->nextern;
    version->lower = model->lower;
    version->rewrite = model->rewrite;
    version->libraries = model->libraries;
    version->stats.kernels = version->stats.from_memory = model->stats.kernels;
    return true;
}

void
launch_copy_deinit(launch_copy *copy)
{
    kin_walk_deinit(&copy->walk);
}

/* -- verified ------------------------------------------------------------------------------------------------------------------ */

bool
launch_template_is_right(launch_version *version, const launch_version *made, kin_text *why)
{
    kin_text structures[2] = {{0}, {0}};
    kin_walk a = {.structure = &structures[0]}, b = {.structure = &structures[1]};
    bool right = made->code != NULL, same = false;
    if (right) {
        walk_code(&a, version->code);
        walk_code(&b, made->code);
        same = structures[0].len == structures[1].len && memcmp(structures[0].at, structures[1].at, structures[0].len) == 0;
        version->unlike = !same; /* the passes may decide otherwise for these sizes (what is stored, say) */
    } else {
        kin_text_addf(why, "there is no plan for these sizes: %s", made->reason);
    }
    for (uint32_t i = 0; i < a.numbers.len && same && right; i++)
        if (i >= b.numbers.len || a.numbers.at[i] != b.numbers.at[i]) {
            kin_text_addf(why, "number %u is %lld, not %lld", i, (long long)a.numbers.at[i], (long long)(i < b.numbers.len ? b.numbers.at[i] : 0));
            right = false;
        }
    for (unsigned k = 0; k < 2; k++)
        kin_text_deinit(&structures[k]);
    kin_walk_deinit(&a);
    kin_walk_deinit(&b);
    return right;
}

/* -- wider ranges -------------------------------------------------------------------------------------------------------------- */

static PyObject *
next_number(void *arg, PyObject *item)
{
    const int64_t **numbers = arg;
    return PyLong_CheckExact(item) ? PyLong_FromLongLong(*(*numbers)++) : Py_NewRef(item);
}

/* An input like this one with other sizes, or other ints: new reference. Its contents are never read. */
static PyObject *
input_like(PyObject *obj, bool open, const int64_t *numbers, uint32_t *next)
{
    kin_dtype dtype;
    const int64_t *at = numbers + *next;
    if (launch_may_be_sizes(obj) && !open) {
        PyObject *like = PyTuple_Check(obj) ? like_size(obj, kin_map_items(obj, next_number, &at)) : next_number(&at, obj);
        *next = (uint32_t)(at - numbers);
        return like;
    }
    if (!kin_is_tensor(obj))
        return Py_NewRef(obj);
    uint32_t ndim = (uint32_t)kin_tensor_dim(obj);
    const int64_t *sizes = numbers + *next, *strides = sizes + ndim;
    size_t row = ndim * sizeof *sizes;
    *next += 2 * ndim;
    if (memcmp(sizes, kin_tensor_sizes(obj), row) == 0 && memcmp(strides, kin_tensor_strides(obj), row) == 0)
        return Py_NewRef(obj);
    return kin_tensor_dtype(obj, &dtype) ? kin_tensor_new(dtype, ndim, sizes, strides, false) : NULL;
}

/* Inputs like those of the version, with these numbers: new references; NULL: they are not of its kind, or there is no memory. */
static PyObject **
inputs_like(const launch_version *version, PyObject *const *in, const int64_t *numbers)
{
    uint32_t n = version->signature.n, next = 0, made = 0;
    PyObject **far = calloc(n + 1, sizeof *far);
    for (; far != NULL && made < n; made++)
        if ((far[made] = input_like(in[made], version->signature.inputs[made].open, numbers, &next)) == NULL || !launch_signature_is_like(&version->signature, made, far[made]))
            break;
    PyErr_Clear();
    if (far != NULL && made == n)
        return far;
    launch_forget(far, n);
    return NULL;
}

PyObject **
launch_template_widen(const kernel_launcher *self, PyObject *const *in, uint32_t n, uint32_t *like)
{
    const launch_templates *all = &self->sizes.templates;
    PyObject **far = NULL;
    kin_text none = {0};
    kin_walk inputs = {.structure = &none};
    int64_t *numbers = all->state == state_of(self) && read_inputs(self, in, n, &inputs) ? calloc(inputs.numbers.len + 1, sizeof *numbers) : NULL;
    for (uint32_t t = all->at.len; numbers != NULL && t > 0 && far == NULL; t--) {
        const launch_version *model = model_for(self, t, in);
        if (model != NULL && kin_sizes_widen(all->at.at[t - 1]->sizes, inputs.numbers.at, numbers))
            far = inputs_like(model, in, numbers);
        *like = t;
    }
    free(numbers);
    kin_walk_deinit(&inputs);
    kin_text_deinit(&none);
    return far;
}

void
launch_template_in_vain(const kernel_launcher *self, uint32_t like)
{
    if (like <= self->sizes.templates.at.len)
        kin_sizes_in_vain(self->sizes.templates.at.at[like - 1]->sizes);
}

void
launch_forget(PyObject **objects, uint32_t n)
{
    for (uint32_t i = 0; objects != NULL && i < n; i++)
        Py_XDECREF(objects[i]);
    free(objects);
}
