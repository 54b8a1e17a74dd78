/* From a capture to code that can be run (run.h): lowered, compiled, and tied to the objects of the program. */
#include <stdlib.h>
#include <string.h>

#include "py/aten/tensor.h"
#include "py/launch/run.h"

/* The JIT of this process; kept until its end, as machine code may be running at any time. */
static kin_jit *the_jit;

static kin_jit *
get_jit(kin_text *why)
{
    if (the_jit == NULL)
        the_jit = kin_jit_new(&(kin_jit_options){0}, why);
    return the_jit;
}

/* -- outputs of the unit ---------------------------------------------------------------------------------------- */

typedef struct {
    const kin_capture *capture;
    const kin_unit *unit;
    PyObject *const *in;
    launch_code *code;
    KIN_VEC(kin_aten_val) outs; /* values that are outputs of the graph, each stand-in once */
} maker;

/* What a stand-in is when it is handed out: an input, or an output of the graph, which it becomes. */
static kin_status
place_stand_in(maker *m, uint32_t number)
{
    launch_give *g = &m->code->by_stand_in[number];
    if (g->shape != NULL || g->kind == LAUNCH_GIVE_OUT)
        return KIN_OK;
    g->kind = LAUNCH_GIVE_OUT;
    g->index = m->outs.len;
    return kin_vec_push(&m->outs, m->capture->values[number]);
}

static kin_status
place_inside(maker *m, PyObject *obj)
{
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX)
        return number < m->capture->ninputs ? KIN_OK : place_stand_in(m, number);
    if (PyTuple_Check(obj) || PyList_CheckExact(obj))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(obj); i++)
            KIN_TRY(place_inside(m, PySequence_Fast_GET_ITEM(obj, i)));
    return KIN_OK;
}

static kin_status
plan_gives(maker *m)
{
    launch_code *code = m->code;
    code->nstand_ins = (uint32_t)PyList_GET_SIZE(m->capture->stand_ins);
    code->by_stand_in = calloc(code->nstand_ins + 1, sizeof *code->by_stand_in);
    code->give = calloc(m->capture->nout + 1, sizeof *code->give);
    code->input_of = calloc(m->unit->nin + 1, sizeof *code->input_of);
    if (code->by_stand_in == NULL || code->give == NULL || code->input_of == NULL)
        return KIN_NOMEM;
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < m->unit->nin; i++)
        if (kin_is_tensor(m->in[i])) {
            code->by_stand_in[tensor] = (launch_give){.kind = LAUNCH_GIVE_INPUT, .index = i};
            code->input_of[tensor++] = i;
        }
    for (uint32_t i = 0; i < m->capture->nout; i++) {
        PyObject *obj = m->capture->out[i];
        uint32_t number = kin_capture_number(obj);
        KIN_TRY(place_inside(m, obj));
        code->give[i] = number != UINT32_MAX ? code->by_stand_in[number]
                                             : (launch_give){.kind = LAUNCH_GIVE_OTHER, .shape = Py_NewRef(obj)};
        code->ngive = i + 1;
    }
    for (uint32_t i = 0; i < m->outs.len; i++)
        kin_aten_output(m->capture->graph, m->outs.at[i]);
    return m->capture->graph->failed ? KIN_NOMEM : KIN_OK;
}

/* -- outputs of the graph --------------------------------------------------------------------------------------- */

static PyObject *
tuple_of(const int64_t *numbers, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

static kin_status
plan_outs(maker *m, const kin_lowered *lowered)
{
    launch_code *code = m->code;
    const kin_aten *g = m->capture->graph;
    code->outs = calloc(lowered->outs.len + 1, sizeof *code->outs);
    if (code->outs == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < lowered->outs.len; i++) {
        const kin_lower_out *o = &lowered->outs.at[i];
        uint32_t index = o->kind == KIN_OUT_INPUT ? code->input_of[o->index] : o->index;
        code->outs[i] = (launch_out){.kind = o->kind, .whole = o->whole, .index = index, .offset = o->offset,
                                     .sizes = tuple_of(g->ints.at + o->sizes, o->ndim),
                                     .strides = tuple_of(g->ints.at + o->strides, o->ndim)};
        code->nouts = i + 1;
        if (code->outs[i].sizes == NULL || code->outs[i].strides == NULL) {
            PyErr_Clear();
            return KIN_NOMEM;
        }
    }
    return lowered->outs.len == m->outs.len ? KIN_OK : KIN_BUG;
}

/* -- the program ------------------------------------------------------------------------------------------------ */

static bool
has_effect(const kin_ir *ir, uint32_t number)
{
    for (kin_irn n = 1; n < ir->nodes.len; n++)
        if (ir->nodes.at[n].op == KIN_IR_EXTERN && kin_ir_attrs(ir, n)[0] == number)
            return (kin_ir_attrs(ir, n)[1] & KIN_IR_EXTERN_EFFECT) != 0;
    return true;
}

static kin_status
tie_externs(maker *m, const kin_ir *ir)
{
    launch_code *code = m->code;
    const kin_program *p = code->program;
    code->externs = calloc(p->externs.len + 1, sizeof *code->externs);
    if (code->externs == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < p->externs.len; i++) {
        uint32_t number = p->externs.at[i].number;
        if (number >= m->capture->calls.len)
            return KIN_BUG;
        const kin_capture_call *call = &m->capture->calls.at[number];
        code->externs[i] = (launch_extern){.op = Py_NewRef(call->op), .args = Py_NewRef(call->args),
                                           .kwargs = Py_XNewRef(call->kwargs), .effect = has_effect(ir, number)};
    }
    return KIN_OK;
}

/* By op, the buffers whose tensors can go after it. */
static kin_status
plan_deaths(launch_code *code)
{
    const kin_program *p = code->program;
    code->dies = calloc(p->ops.len + 1, sizeof *code->dies);
    code->ndies = calloc(p->ops.len + 1, sizeof *code->ndies);
    if (code->dies == NULL || code->ndies == NULL)
        return KIN_NOMEM;
    for (uint32_t b = 0; b < p->buffers.len; b++) {
        uint32_t op = p->last_use[b];
        if (op >= p->ops.len || p->buffers.at[b].kind != KIN_BUF_EXTERN)
            continue;
        uint32_t *grown = realloc(code->dies[op], (code->ndies[op] + 1) * sizeof *grown);
        if (grown == NULL)
            return KIN_NOMEM;
        code->dies[op] = grown;
        grown[code->ndies[op]++] = b;
    }
    return KIN_OK;
}

static kin_status
compile_lowered(maker *m, const kin_lowered *lowered, launch_version *version, kin_text *why)
{
    kin_jit *jit = get_jit(why);
    if (jit == NULL)
        return KIN_BREAK;
    kin_text notes = {0};
    kin_status status = kin_program_compile(jit, lowered->ir, &m->code->program, &version->stats, &notes);
    if (status != KIN_OK && notes.len > 0)
        kin_text_addf(why, "%.150s", notes.at);
    kin_text_deinit(&notes);
    KIN_TRY(status);
    KIN_TRY(tie_externs(m, lowered->ir));
    KIN_TRY(plan_outs(m, lowered));
    return plan_deaths(m->code);
}

static kin_status
make_code(maker *m, launch_version *version, kin_text *why)
{
    kin_lowered lowered = {0};
    KIN_TRY(plan_gives(m));
    KIN_TRY(kin_lower(m->capture->graph, &(kin_lower_options){0}, &lowered, why));
    version->nnative = lowered.nnative;
    version->nextern = lowered.nextern;
    kin_status status = compile_lowered(m, &lowered, version, why);
    kin_lowered_deinit(&lowered);
    return status;
}

kin_status
launch_code_make(const kin_capture *capture, const kin_unit *unit, PyObject *const *in, launch_version *version, kin_text *why)
{
    maker m = {.capture = capture, .unit = unit, .in = in, .code = calloc(1, sizeof *m.code)};
    kin_status status = m.code == NULL ? KIN_NOMEM : make_code(&m, version, why);
    kin_vec_deinit(&m.outs);
    if (status != KIN_OK) {
        launch_code_free(m.code);
        return status;
    }
    version->code = m.code;
    return KIN_OK;
}
