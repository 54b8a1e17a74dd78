/* torch.compiler.is_compiling(): the answer depends on who asks (docs/design/is-compiling.md).
 *
 * The program itself gets True, as documented. Libraries ask in order to avoid code that another compiler cannot handle. torch.optim
 * gets False, because with True its arithmetic differs and so would its results. Other libraries get True, since their alternative code
 * often is one graph where the usual code is several. If it turns out slower than eager calls (py/module/dispatch.c), the next
 * recording gives them False. So does it where the alternative is an operator written elsewhere, which runs as it is: the code that asked is told
 * False from then on, in this process, unless that has more graph breaks, or one graph is asked for.
 */
#include <string.h>

#include "py/recorder/rec.h"
#include "py/compat/kinds.h"

static PyObject *compiler_dict, *flag_name; /* namespace of torch.compiler, and the name in it */
static PyObject *own_name; /* the flag of is_dynamo_compiling(); torch.export also sets the other one */

/* torch.compiler.is_dynamo_compiling() is `return False`, and PyTorch's own compiler replaces its calls. Here the function gets
 * code that reads the flag. */
static bool
answer_for_dynamo(void)
{
    const char *text = "def is_dynamo_compiling():\n    return _kintsugi_is_compiling\n";
    PyObject *asks = PyDict_GetItemString(compiler_dict, "is_dynamo_compiling"), *names = PyDict_New();
    PyObject *done = names == NULL ? NULL : PyRun_String(text, Py_file_input, names, names);
    PyObject *ours = done == NULL ? NULL : PyDict_GetItemString(names, "is_dynamo_compiling");
    PyObject *code = ours == NULL ? NULL : PyObject_GetAttrString(ours, "__code__");
    bool ok = code != NULL && (asks == NULL || !PyFunction_Check(asks) || PyObject_SetAttrString(asks, "__code__", code) == 0);
    Py_XDECREF(code);
    Py_XDECREF(done);
    Py_XDECREF(names);
    return ok;
}

bool
rec_compiling_init(PyObject *compiler_module)
{
    flag_name = PyUnicode_InternFromString("_is_compiling_flag");
    own_name = PyUnicode_InternFromString("_kintsugi_is_compiling");
    compiler_dict = compiler_module == NULL ? NULL : Py_XNewRef(PyModule_GetDict(compiler_module));
    return flag_name != NULL && own_name != NULL && compiler_dict != NULL && PyDict_SetItem(compiler_dict, own_name, Py_False) == 0 && answer_for_dynamo();
}

static void
set_flag(bool value, bool own)
{
    if (PyDict_SetItem(compiler_dict, flag_name, value ? Py_True : Py_False) < 0 || PyDict_SetItem(compiler_dict, own_name, own ? Py_True : Py_False) < 0)
        PyErr_Clear();
}

void
rec_set_compiling(bool on)
{
    /* A count, not a value to save and restore: calls of several threads end in any order. */
    static uint32_t inside;
    static bool outside;
    if (on ? inside++ != 0 : --inside != 0)
        return;
    if (on)
        outside = PyDict_GetItem(compiler_dict, flag_name) == Py_True;
    set_flag(on || outside, on);
}

bool
rec_is_compiling_flag(PyObject *dict, PyObject *key)
{
    return dict == compiler_dict && PyUnicode_Check(key) && (PyUnicode_Compare(key, flag_name) == 0 || PyUnicode_Compare(key, own_name) == 0);
}

/* -- who asks ---------------------------------------------------------------------------------------------------- */

/* is_compiling, is_torchdynamo_compiling, is_tracing, ...: functions that ask on behalf of their callers. */
static bool
passes_on(const rec_frame *f)
{
    const char *name = kin_utf8(f->code->co_name);
    return strstr(name, "compiling") != NULL || strcmp(name, "is_tracing") == 0;
}

static bool
is_in(const PyCodeObject *code, const char *part)
{
    return strstr(kin_utf8(code->co_filename), part) != NULL;
}

static const rec_frame *
find_asker(const rec *r)
{
    const rec_frame *f = r->top;
    while (f->back != NULL && passes_on(f))
        f = f->back;
    return f;
}

bool
rec_is_of_optimizer(const PyCodeObject *code)
{
    return is_in(code, "/torch/optim/");
}

static kin_asker
class_of(const PyCodeObject *code)
{
    if (rec_is_of_optimizer(code))
        return KIN_ASKER_OPTIMIZER;
    return is_in(code, "site-packages") || is_in(code, "dist-packages") ? KIN_ASKER_LIBRARY : KIN_ASKER_PROGRAM;
}

static bool
libraries_are_slower(const rec *r)
{
    return r->opt->dynamic_sources != NULL && PySet_Contains(r->opt->dynamic_sources, REC_STR(KIN_ASKERS_SLOWER)) > 0;
}

/* -- detours ------------------------------------------------------------------------------------------------------- */

/* Code that took a way over an operator written elsewhere when it was told: the graph breaks there were; TOLD_FOR_GOOD: there are more without. */
static PyObject *detours;
enum { TOLD_FOR_GOOD = -1, NO_DETOUR = -2 };

static long
detour_of(PyObject *code)
{
    PyObject *found = detours == NULL ? NULL : PyDict_GetItem(detours, code);
    return found == NULL ? NO_DETOUR : PyLong_AsLong(found);
}

static bool
set_detour(PyObject *code, long breaks)
{
    PyObject *number = PyLong_FromLong(breaks);
    bool ok = number != NULL && (detours != NULL || (detours = PyDict_New()) != NULL) && PyDict_SetItem(detours, code, number) == 0;
    Py_XDECREF(number);
    PyErr_Clear();
    return ok;
}

/* Where one graph is asked for, the detour is what the library has made for that. */
static bool
may_choose(const rec *r)
{
    return !r->opt->custom && !r->opt->fullgraph;
}

void
rec_note_detour(rec *r)
{
    if (r->told != NULL && may_choose(r) && class_of(r->top->code) == KIN_ASKER_LIBRARY &&
        detour_of((PyObject *)r->told) == NO_DETOUR)
        r->v->detour = rec_ref(r, (PyObject *)r->told);
}

bool
kin_detour_settle(const kin_entry *v)
{
    long breaks = (long)v->trace.nbreaks;
    if (v->detour != 0)
        return set_detour(kin_refs_get(&v->refs, v->detour), breaks);
    for (uint32_t i = 0; i < v->asked.len; i++) {
        const kin_asked *asked = &v->asked.at[i];
        PyObject *code = kin_refs_get(&v->refs, asked->code);
        long before = asked->who == KIN_ASKER_LIBRARY && !asked->answer ? detour_of(code) : NO_DETOUR;
        if (before >= 0 && breaks > before)
            return set_detour(code, TOLD_FOR_GOOD);
    }
    return false;
}

kin_vid
rec_answer_compiling(rec *r)
{
    const rec_frame *f = find_asker(r);
    kin_asker who = class_of(f->code);
    bool answer = who == KIN_ASKER_PROGRAM || (who == KIN_ASKER_LIBRARY && !libraries_are_slower(r) && (!may_choose(r) || detour_of((PyObject *)f->code) < 0));
    if (who == KIN_ASKER_LIBRARY)
        r->told = answer ? f->code : NULL;
    kin_asked asked = {.code = rec_ref(r, (PyObject *)f->code), .line = PyCode_Addr2Line(f->code, (int)f->offset), .who = (uint8_t)who,
                       .answer = answer};
    bool known = false;
    for (uint32_t i = 0; i < r->v->asked.len && !known; i++)
        known = r->v->asked.at[i].code == asked.code && r->v->asked.at[i].line == asked.line && r->v->asked.at[i].answer == answer;
    if (!known && kin_vec_push(&r->v->asked, asked) != KIN_OK)
        rec_bug(r, "no memory");
    if (!answer)
        rec_hide_compiling(r);
    return rec_const(r, answer ? Py_True : Py_False);
}

void
rec_hide_compiling(rec *r)
{
    set_flag(false, false);
    r->hides_compiling = true;
}

void
rec_show_compiling(rec *r)
{
    set_flag(true, true);
    r->hides_compiling = false;
}
