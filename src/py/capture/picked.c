/* What a mask picks, x[mask]: its size depends on data, so as a tensor it would divide the graph. Where it is used for nothing but what is done to each element by itself, until
 * the same mask says where they are put, or until they are summed, kintsugi/_compose_picked.py has something else stand for it.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"

#include <string.h>

enum { MOST = 32 };

typedef struct {
    kin_vid at[MOST];
    uint32_t n;
} vid_list;

static bool
has(const vid_list *list, kin_vid vid)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == vid)
            return true;
    return false;
}

static bool
is_one_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The name of torch's function or method that the step calls, if it is one that may be; NULL. *sums: it gives a tensor like others. */
static const char *
called(const stepper *x, const kin_step *s, bool *sums)
{
    static const char *const each[] = {"abs", "add", "add_", "clamp", "clamp_", "div", "div_", "exp", "log", "mul", "mul_", "neg", "pow", "relu", "sigmoid", "sqrt", "square", "sub", "sub_", "tanh", NULL};
    static const char *const sum[] = {"mean", "sum", NULL};
    PyObject *fn = s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_TORCH && s->ref == 0 && s->nargs > 1 ? capture_operand(x, x->t->vids.at[s->args]) : NULL;
    if (fn == NULL || !(PyCFunction_Check(fn) || Py_IS_TYPE(fn, &PyMethodDescr_Type)))
        return NULL;
    const char *name = kin_callable_name(fn);
    *sums = s->nargs == 2 && is_one_of(name, sum);
    return *sums || is_one_of(name, each) ? name : NULL;
}

/* A function of torch.nn.functional that sums what it computes of each row, or each element: borrowed; NULL. */
static PyObject *
called_loss(const stepper *x, const kin_step *s)
{
    static const char *const losses[] = {"binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "l1_loss", "mse_loss", "nll_loss", "smooth_l1_loss", NULL};
    PyObject *fn = s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_TORCH && s->nargs > 2 ? capture_operand(x, x->t->vids.at[s->args]) : NULL;
    PyObject *module = fn != NULL && PyFunction_Check(fn) ? ((PyFunctionObject *)fn)->func_module : NULL;
    bool known = module != NULL && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "torch.nn.functional") == 0;
    return known && is_one_of(kin_callable_name(fn), losses) ? fn : NULL;
}

/* Which kind of use of them is the step? Those that give elements picked are added. */
static bool
follow(const stepper *x, const kin_step *s, vid_list *picked, bool *ends)
{
    const kin_vid *args = x->t->vids.at + s->args;
    bool takes = false, sums = false;
    for (uint32_t a = 0; a < s->nargs; a++)
        takes = takes || has(picked, args[a]);
    if (!takes)
        return true;
    if (s->kind == KIN_STEP_SET_SUBSCR) {
        *ends = true;
        return s->nargs == 3 && !has(picked, args[0]) && !has(picked, args[1]);
    }
    if (s->kind == KIN_STEP_CHECK)
        return s->imm == KIN_CHECK_META || s->imm == KIN_CHECK_TYPE || s->imm == KIN_CHECK_VERSION;
    bool call = called(x, s, &sums) != NULL;
    sums = sums || called_loss(x, s) != NULL;
    *ends = *ends || sums;
    if (sums)
        return true;
    bool operator = (s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_UNARY) && s->flags & KIN_STEP_TORCH;
    if ((!call && !operator) || s->out == 0 || capture_is_given(x, s->out) || picked->n == MOST)
        return false;
    picked->at[picked->n++] = s->out;
    return true;
}

/* Is what the step makes used for nothing else? */
static bool
may_be_picked(const stepper *x, const kin_step *s)
{
    vid_list picked = {{s->out}, 1};
    bool ends = false;
    if (capture_is_given(x, s->out))
        return false;
    for (uint32_t i = x->c.step + 1; i <= x->subgraph->last; i++)
        if (x->subgraph->runs[i - x->subgraph->first] && !follow(x, &x->t->steps.at[i], &picked, &ends))
            return false;
    return ends;
}

static bool
is_fake(const stepper *x, kin_vid vid)
{
    PyObject *obj = vid != 0 ? capture_operand(x, vid) : NULL;
    return obj != NULL && kin_capture_number(obj) != UINT32_MAX;
}

static int
done(stepper *x, const kin_step *s, PyObject *made)
{
    if (made == NULL)
        return -1;
    int result = made != Py_NotImplemented;
    if (result && s->out != 0)
        Py_XSETREF(x->slots[s->out], Py_NewRef(made));
    Py_DECREF(made);
    return result;
}

/* Something that a mask picked? */
static bool
is_picked(const stepper *x, kin_vid vid)
{
    static PyObject *class;
    PyObject *obj = vid != 0 && x->picks ? capture_operand(x, vid) : NULL;
    return obj != NULL && (PyObject *)Py_TYPE(obj) == kin_import_once(&class, "kintsugi._compose_picked", "Picked");
}

int
capture_test_picked(stepper *x, const kin_step *s, uint32_t step)
{
    kin_vid vid = s->nargs > 0 ? x->t->vids.at[s->args] : 0;
    if (!is_picked(x, vid))
        return -1;
    PyObject *picked = x->slots[vid], *like = PyObject_CallMethod(picked, "like", NULL);
    bool pass = like != NULL && PyTuple_Check(like);
    for (Py_ssize_t i = 0; pass && i < PyTuple_GET_SIZE(like); i++) {
        x->slots[vid] = PyTuple_GET_ITEM(like, i);
        pass = capture_test(x, s, step);
    }
    x->slots[vid] = picked;
    Py_XDECREF(like);
    return pass;
}

static int
use_in_loss(stepper *x, const kin_step *s)
{
    static PyObject *kept;
    PyObject *operands[MOST], *names = s->ref != 0 ? kin_refs_get(&x->v->refs, s->ref) : NULL, *loss = kin_import_once(&kept, "kintsugi._compose_picked", "loss");
    for (uint32_t a = 0; a < s->nargs && a < MOST; a++)
        operands[a] = capture_operand(x, x->t->vids.at[s->args + a]);
    size_t nkw = names != NULL ? (size_t)PyTuple_GET_SIZE(names) : 0;
    return done(x, s, loss == NULL || s->nargs > MOST ? NULL : PyObject_Vectorcall(loss, operands, s->nargs - nkw, names));
}

static int
use(stepper *x, const kin_step *s)
{
    static PyObject *put, *call;
    const kin_vid *args = x->t->vids.at + s->args;
    bool sums;
    if (s->kind == KIN_STEP_SET_SUBSCR)
        return done(x, s, kin_import_once(&put, "kintsugi._compose_picked", "put") == NULL ? NULL :
                    PyObject_CallFunctionObjArgs(put, capture_operand(x, args[0]), capture_operand(x, args[1]), capture_operand(x, args[2]), NULL));
    if (called_loss(x, s) != NULL)
        return use_in_loss(x, s);
    const char *name = called(x, s, &sums);
    if (name == NULL)
        return 0; /* an operator of the class */
    PyObject *operands[MOST] = {PyUnicode_FromString(name)};
    for (uint32_t a = 1; a < s->nargs && a < MOST; a++)
        operands[a] = capture_operand(x, args[a]);
    PyObject *made = operands[0] == NULL || s->nargs > MOST || kin_import_once(&call, "kintsugi._compose_picked", "call") == NULL ? NULL : PyObject_Vectorcall(call, operands, s->nargs, NULL);
    Py_XDECREF(operands[0]);
    return done(x, s, made);
}

int
capture_picked(stepper *x, const kin_step *s)
{
    static PyObject *pick;
    const kin_vid *args = x->t->vids.at + s->args;
    for (uint32_t a = 0; x->picks && a < s->nargs; a++)
        if (is_picked(x, args[a]))
            return use(x, s);
    if (x->data || s->kind != KIN_STEP_SUBSCR || !(s->flags & KIN_STEP_TORCH) || !is_fake(x, args[0]) || !is_fake(x, args[1]) || !may_be_picked(x, s))
        return 0;
    x->picks = true;
    return done(x, s, kin_import_once(&pick, "kintsugi._compose_picked", "pick") == NULL ? NULL :
                PyObject_CallFunctionObjArgs(pick, capture_operand(x, args[0]), capture_operand(x, args[1]), NULL));
}
