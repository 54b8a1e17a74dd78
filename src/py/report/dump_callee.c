/* What a node of a graph calls, under the name that graphs use: a function, a method, an operator. */
#include "py/report/dump_graph_priv.h"
#include "py/compat/kinds.h"

#include <string.h>

#include "core/bytecode/canon.h"

void
grapher_drop_callee(callee *c)
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
    return strncmp(kin_utf8(((PyFunctionObject *)callable)->func_qualname), "Tensor.", 7) == 0;
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
set_function(callee *c, PyObject *module, const char *prefix, const char *name)
{
    c->op = KIN_NODE_FUNCTION;
    c->kind = "call_function";
    c->target = PyUnicode_FromFormat("%s%s", prefix, name);
    c->callable = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    return c->target != NULL && (c->callable != NULL || module == NULL) ? 0 : -1;
}

static int
set_builtin(callee *c, const char *name)
{
    PyObject *builtins = PyImport_ImportModule("builtins");
    int status = builtins != NULL ? set_function(c, builtins, "", name) : -1;
    Py_XDECREF(builtins);
    return status;
}

/* A test that the graph makes: of a tensor, of a number; that a number is another one, or that a comparison of numbers fails. */
static int
set_assertion(grapher *x, const kin_step *s, callee *c)
{
    bool is_true = s->imm == KIN_CHECK_TRUE || (s->imm == KIN_CHECK_IS && kin_refs_get(x->d->refs, s->ref) == Py_True);
    if (!is_true) {
        PyObject *operators = PyImport_ImportModule("kintsugi._operators");
        int done = operators != NULL ? set_function(c, operators, "kintsugi.", s->imm == KIN_CHECK_EQ ? "check_equal" : "check_not") : -1;
        Py_XDECREF(operators);
        return done;
    }
    PyObject *torch = PyImport_ImportModule("torch");
    bool tensor = x->d->t->vals.at[x->d->t->vids.at[s->args]].note != 0;
    int status = torch != NULL ? set_function(c, torch, "torch.", tensor ? "_assert_async" : "_check") : -1;
    Py_XDECREF(torch);
    return status;
}

static int
find_operator(grapher *x, const kin_step *s, callee *c)
{
    const kin_operator *o;
    c->rest = 0;
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_BINARY:
        if ((o = kin_binary_operator(s->imm % KIN_BINARY_INPLACE)) == NULL)
            break;
        return s->imm < KIN_BINARY_INPLACE ? set_operator(x, c, KIN_NODE_INFIX, o->symbol, o->method) : set_function(c, x->operators, "operator.", o->in_place);
    case KIN_STEP_COMPARE:
        if ((o = kin_compare_operator(s->imm & ~KIN_COMPARE_TO_BOOL)) == NULL)
            break;
        return set_operator(x, c, KIN_NODE_INFIX, o->symbol, o->method);
    case KIN_STEP_UNARY:
        o = kin_unary_operator(s->imm);
        return set_operator(x, c, KIN_NODE_PREFIX, o != NULL ? o->symbol : "not ", o != NULL ? o->method : "not_");
    case KIN_STEP_SUBSCR: return set_operator(x, c, KIN_NODE_ITEM, "[]", "getitem");
    case KIN_STEP_SET_SUBSCR: return set_function(c, x->operators, "operator.", "setitem");
    case KIN_STEP_DEL_SUBSCR: return set_function(c, x->operators, "operator.", "delitem");
    case KIN_STEP_IS: return set_function(c, x->operators, "operator.", s->imm ? "is_not" : "is_");
    case KIN_STEP_TRUTH: return set_function(c, x->operators, "operator.", "truth");
    case KIN_STEP_CONTAINS:
        c->args[c->nfirst++] = x->d->t->vids.at[s->args + 1];
        c->args[c->nfirst++] = x->d->t->vids.at[s->args];
        c->rest = 2;
        return set_function(c, x->operators, "operator.", "contains");
    case KIN_STEP_CHECK: return set_assertion(x, s, c);
    case KIN_STEP_GETATTR: return set_builtin(c, "getattr");
    case KIN_STEP_SETATTR: return set_builtin(c, "setattr");
    case KIN_STEP_LEN: return set_builtin(c, "len");
    case KIN_STEP_ITER: return set_builtin(c, "iter");
    case KIN_STEP_NEXT: return set_builtin(c, "next");
    default: break;
    }
    return set_function(c, NULL, "", kin_step_name((kin_step_kind)s->kind));
}

int
grapher_find_target(grapher *x, const kin_step *s, callee *c)
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
