/* Validation: compares the results of compiled code with those of the steps that it replaces, on the program's own inputs, if the user asks
 * for it (option "validate"); python/kintsugi/_validate.py defines when two results are the same. Such a launch runs both; the
 * program gets the results of the steps, so a wrong result never reaches it. Inputs that are written to are restored in between.
 *
 * With KINTSUGI_VERIFY=1 the first launch of a copied plan that cannot be compared with the passes' is compared so, too, and its gradients.
 */
#include "py/launch/launch_priv.h"
#include "py/compat/kinds.h"

#include <stdio.h>
#include <string.h>

bool
launch_wants_validation(const kernel_launcher *self, launch_version *version)
{
    const kin_launch_context *context = &self->context;
    if (version->again)
        return false;
    if (version->unlike)
        return true;
    if (context->validate == 0 && context->validate_every == 0)
        return false;
    uint64_t number = version->validations++;
    return number < context->validate || (context->validate_every > 0 && number % context->validate_every == 0);
}

static PyObject *
list_of(PyObject *const *values, uint32_t n)
{
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list != NULL && i < n; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(values[i] != NULL ? values[i] : Py_None));
    return list;
}

static PyObject *
list_written(const launch_code *code, PyObject *const *in)
{
    PyObject *list = PyList_New(code->nwrites);
    for (uint32_t w = 0; list != NULL && w < code->nwrites; w++)
        PyList_SET_ITEM(list, w, Py_NewRef(in[code->writes[w].input]));
    return list;
}

static PyObject *
call_helper(const char *name, PyObject *args)
{
    PyObject *module = args != NULL ? PyImport_ImportModule("kintsugi._validate") : NULL;
    PyObject *function = module != NULL ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *result = function != NULL ? PyObject_CallObject(function, args) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(module);
    Py_XDECREF(args);
    return result;
}

/* The results of the steps in float64, if they can run in it: a list, or NULL without exception. */
static PyObject *
run_widened(kin_entry *v, const kin_subgraph *subgraph, PyObject *wide)
{
    PyObject **out = calloc(subgraph->nout + 1, sizeof *out), *list = NULL;
    double ns;
    if (out != NULL && kin_capture_do(v, subgraph, ((PyListObject *)wide)->ob_item, out, &ns) == KIN_LAUNCH_DONE)
        list = list_of(out, subgraph->nout);
    for (uint32_t i = 0; out != NULL && i < subgraph->nout; i++)
        Py_XDECREF(out[i]);
    free(out);
    PyErr_Clear();
    return list;
}

/* The results as a list; behind them the gradients of the inputs, if asked for. */
static PyObject *
list_results(const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out, bool gradients)
{
    PyObject *results = list_of(out, subgraph->nout);
    PyObject *inputs = results != NULL && gradients ? list_of(in, subgraph->nin) : NULL;
    PyObject *more = inputs != NULL ? call_helper("with_gradients", Py_BuildValue("(ON)", results, inputs)) : NULL;
    if (more == NULL)
        return results;
    Py_DECREF(results);
    return more;
}

typedef struct {
    PyObject *wide; /* inputs as float64, made before anything ran */
    PyObject *ours, *ours_written;
    bool copied;    /* it is asked whether the copy of a plan is right */
    bool gradients; /* ... also backward */
} side;

static void
release(side *s)
{
    Py_XDECREF(s->wide);
    Py_XDECREF(s->ours);
    Py_XDECREF(s->ours_written);
}

/* How the results differ, as text: new str, None if they do not, NULL with an exception. */
static PyObject *
compare(kin_entry *v, const kin_subgraph *subgraph, const launch_code *code, const side *s, PyObject *const *in, PyObject *const *out)
{
    PyObject *theirs = list_results(subgraph, in, out, s->gradients), *written = list_written(code, in);
    PyObject *text = call_helper("compare", theirs == NULL || written == NULL ? NULL
                                                : Py_BuildValue("(OOOOO)", theirs, s->ours, written, s->ours_written, Py_None));
    if (text != NULL && text != Py_None && s->wide != Py_None) { /* which one is right? */
        PyObject *referee = run_widened(v, subgraph, s->wide);
        if (referee != NULL)
            Py_SETREF(text, call_helper("compare", Py_BuildValue("(OOOOO)", theirs, s->ours, written, s->ours_written, referee)));
        Py_XDECREF(referee);
    }
    Py_XDECREF(theirs);
    Py_XDECREF(written);
    return text;
}

static void
refute(kernel_launcher *self, launch_version *version, bool copied, const char *text)
{
    snprintf(version->reason, sizeof version->reason, "its results differ from eager's: %s", text);
    if (copied)
        launch_say_bug(self, "template", version->reason);
    kin_event_begin(self->context.log, KIN_EVENT_DIFFER);
    kin_event_str(self->context.log, "name", launch_name_of(&self->context));
    kin_event_int(self->context.log, "entry", self->context.entry);
    kin_event_int(self->context.log, "graph", self->graph);
    kin_event_str(self->context.log, "text", text);
    kin_event_end(self->context.log);
    if (launch_drop(version))
        launch_say(self, version->reason);
}

/* The code has run and what it wrote has been restored: runs the steps, then compares. */
static kin_launch
run_steps(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, const side *s, PyObject *const *in,
          PyObject **out)
{
    double ns;
    kin_launch done = kin_capture_do(v, subgraph, in, out, &ns);
    bool lies_as_captured = done != KIN_LAUNCH_DONE || !s->copied || version->code->training != NULL || launch_gives_the_same(version->code, subgraph->nin, in, out);
    PyObject *text = done == KIN_LAUNCH_DONE ? compare(v, subgraph, version->code, s, in, out) : NULL;
    if (text == NULL && done == KIN_LAUNCH_DONE)
        PyErr_Clear(); /* a failure of the comparison says nothing about the code */
    version->code->running--;
    if (text != NULL && text != Py_None)
        refute(self, version, s->copied, kin_utf8(text));
    else if (!lies_as_captured)
        refute(self, version, s->copied, "another layout, or other memory is shared");
    Py_XDECREF(text);
    return done;
}

kin_launch
launch_validate(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
                PyObject **out)
{
    side s = {.copied = version->unlike, .gradients = version->unlike && version->code->training != NULL && version->code->nwrites == 0};
    version->unlike = false;
    if (launch_acts(version) || !launch_may_write(version->code, in)) /* it cannot be run twice */
        return launch_run_code(self, version, in, out);
    launch_kept *kept = launch_keep_written(version->code, in);
    PyObject *inputs = kept != NULL ? list_of(in, subgraph->nin) : NULL;
    s.wide = call_helper("widen", inputs != NULL ? Py_BuildValue("(N)", inputs) : NULL);
    kin_launch done = s.wide != NULL ? launch_run_code(self, version, in, out) : KIN_LAUNCH_NOT;
    PyErr_Clear();
    if (done == KIN_LAUNCH_DONE && version->code != NULL) {
        s.ours = list_results(subgraph, in, out, s.gradients);
        PyObject *written = list_written(version->code, in);
        s.ours_written = call_helper("keep", written != NULL ? Py_BuildValue("(N)", written) : NULL);
        PyErr_Clear();
        if (s.ours != NULL && s.ours_written != NULL) {
            for (uint32_t i = 0; i < subgraph->nout; i++)
                Py_CLEAR(out[i]);
            version->code->running++; /* the steps must not free it */
            launch_put_back_written(kept, version->code, in);
            done = run_steps(self, version, v, subgraph, &s, in, out);
        }
    }
    launch_kept_free(kept);
    release(&s);
    return done;
}
