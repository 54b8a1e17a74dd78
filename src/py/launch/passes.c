/* What the passes of core/pipeline did, for events and reports, and the faults that tests inject into them (launch_priv.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "py/launch/launch_priv.h"

/* -- for tests ----------------------------------------------------------------------------------------------------- */

static kin_plant plant;

kin_plant
launch_plant(void)
{
    return plant;
}

bool
launch_set_plant(const char *text)
{
    static const char *const kinds[] = {"", "memory", "break", "malformed", "wrong"}; /* as kin_plant_kind */
    char name[32], kind[16];
    plant = (kin_plant){0};
    if (sscanf(text, "pass %31s %15s", name, kind) != 2)
        return false;
    for (unsigned k = KIN_PLANT_MEMORY; k <= KIN_PLANT_WRONG; k++)
        if (strcmp(kinds[k], kind) == 0)
            plant = (kin_plant){.kind = (kin_plant_kind)k, .pass = kin_pass_find(name)};
    return plant.kind != KIN_PLANT_NONE && plant.pass < kin_npasses;
}

bool
launch_verifies(void)
{
    static int wanted = -1;
    if (wanted < 0) {
        const char *text = getenv("KINTSUGI_VERIFY");
        wanted = text != NULL && text[0] != 0 && strcmp(text, "0") != 0;
    }
    return wanted > 0;
}

/* -- events -------------------------------------------------------------------------------------------------------- */

static void
begin(const kernel_launcher *self, kin_event_kind kind)
{
    const kin_launch_context *context = &self->context;
    kin_event_begin(context->log, kind);
    kin_event_str(context->log, "name", launch_name_of(context));
}

void
launch_say_bug(const kernel_launcher *self, const char *pass, const char *message)
{
    kin_event_log *log = self->context.log;
    begin(self, KIN_EVENT_BUG);
    kin_event_str(log, "where", pass);
    kin_event_str(log, "why", "INTERNAL");
    kin_event_str(log, "message", message);
    kin_event_end(log);
}

void
launch_say_passes(const kernel_launcher *self, const launch_version *version)
{
    kin_event_log *log = self->context.log;
    begin(self, KIN_EVENT_PASSES);
    kin_event_int(log, "entry", self->context.entry);
    kin_event_int(log, "graph", self->graph);
    for (unsigned p = 0; p < kin_npasses; p++) {
        double ns = 0;
        bool ran = false;
        for (uint32_t i = 0; i < version->passes.len; i++)
            if (version->passes.at[i].pass == p) {
                ran = true;
                ns += version->passes.at[i].ns;
            }
        if (ran)
            kin_event_num(log, kin_passes[p].name, ns);
    }
    kin_event_end(log);
}

/* -- reports ------------------------------------------------------------------------------------------------------- */

static const char *
name_of_part(unsigned part)
{
    return part == KIN_PART_ONCE ? "once" : "main";
}

PyObject *
launch_describe_passes(const launch_version *version)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < version->passes.len; i++) {
        const kin_pass_note *note = &version->passes.at[i];
        PyObject *one = Py_BuildValue("{s:s,s:s,s:O,s:d}", "name", kin_passes[note->pass].name, "part", name_of_part(note->part), "changed",
                                      note->changed ? Py_True : Py_False, "ns", note->ns);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* Called after each pass; the list is dropped if something fails. */
static void
keep_text(void *arg, const kin_compilation *c, const kin_pass *pass)
{
    PyObject **list = arg, *one = NULL;
    kin_text text = {0};
    if (*list != NULL && kin_compilation_print(c, &text))
        one = Py_BuildValue("{s:s,s:s,s:s}", "name", pass->name, "part", name_of_part(kin_compilation_part(c)), "text", text.at == NULL ? "" : text.at);
    if (*list != NULL && (one == NULL || PyList_Append(*list, one) < 0))
        Py_CLEAR(*list);
    Py_XDECREF(one);
    kin_text_deinit(&text);
}

/* What texts do not say of library calls: {number: {"call": the captured call, "least", "most": limits of what it gives, and of recurrent layers what
 * kin_recurrent says of them}}, in the first row. False with an exception. */
static bool
add_libraries(PyObject *list, const kin_rewritten *library)
{
    PyObject *all = PyDict_New();
    for (uint32_t i = 0; all != NULL && i < library->calls.len; i++) {
        const kin_library_call *call = &library->calls.at[i];
        bool limits = call->post == KIN_POST_LIMIT, relu = call->post == KIN_POST_RELU;
        PyObject *number = PyLong_FromUnsignedLong(library->first + i);
        PyObject *one = Py_BuildValue("{s:k,s:d,s:d,s:s,s:O,s:O}", "call", (unsigned long)call->call, "least", limits ? call->least : relu ? 0.0 : -INFINITY, "most",
                                      limits ? call->most : INFINITY, "cell", kin_cell_name((kin_cell)call->cell), "reverse", call->reverse ? Py_True : Py_False, "keeps",
                                      call->keeps ? Py_True : Py_False);
        if (number == NULL || one == NULL || PyDict_SetItem(all, number, one) < 0)
            Py_CLEAR(all);
        Py_XDECREF(number);
        Py_XDECREF(one);
    }
    bool ok = all != NULL && (PyList_GET_SIZE(list) == 0 || PyDict_SetItemString(PyList_GET_ITEM(list, 0), "libraries", all) == 0);
    Py_XDECREF(all);
    return ok;
}

static PyObject *
run_again(const launch_version *version)
{
    kin_text why = {0};
    PyObject *list = PyList_New(0);
    kin_aten *graph = kin_aten_parse(version->aten, &why);
    if (graph != NULL && list != NULL) {
        kin_pipeline_result made;
        kin_pipeline_options options = {.lower = version->lower, .rewrite = version->rewrite, .frozen = version->frozen,
                                        .libraries = version->libraries, .watch = keep_text, .arg = &list, .plant = plant};
        kin_status status = kin_pipeline_run(graph, &options, &made, &why);
        (void)status; /* whatever it reached is reported */
        if (list != NULL && !add_libraries(list, &made.library))
            Py_CLEAR(list);
        kin_pipeline_result_deinit(&made);
    }
    kin_aten_free(graph);
    kin_text_deinit(&why);
    if (list == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    return list;
}

PyObject *
kin_launch_pass_texts(const kin_entry *v, uint32_t subgraph, uint32_t version)
{
    uint32_t at = 0;
    for (uint32_t i = 0; v->subgraphs != NULL && i < v->subgraphs->at.len; i++) {
        const kernel_launcher *self = launch_of_subgraph(&v->subgraphs->at.at[i]);
        if (self == NULL || at++ != subgraph)
            continue;
        const launch_version *found = version < self->versions.len ? self->versions.at[version] : NULL;
        return found == NULL || found->aten == NULL || found->frozen == NULL ? PyList_New(0) : run_again(found);
    }
    return PyList_New(0);
}
