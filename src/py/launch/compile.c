/* Compiles a subgraph for the inputs of a call: capture, then the pipeline (launch_priv.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/kinds.h"
#include "py/launch/launch_priv.h"
#include "py/replay/subgraphs.h"

/* -- calls that are left out ------------------------------------------------------------------------------------- */

/* An input that signatures cannot describe (a list, say): the calls that use it are excluded from the subgraph. */
static kin_status
exclude_users(kin_entry *v, const kin_subgraph *subgraph, kin_vid vid)
{
    const kin_trace *t = &v->trace;
    launch_numbers users = {0};
    kin_status status = KIN_OK;
    for (uint32_t i = subgraph->first; status == KIN_OK && i <= subgraph->last; i++)
        for (uint32_t a = 0; status == KIN_OK && a < t->steps.at[i].nargs; a++)
            if (t->vids.at[t->steps.at[i].args + a] == vid && kin_subgraph_calls(&t->steps.at[i]))
                status = kin_vec_push(&users, i);
    if (status == KIN_OK)
        status = users.len == 0 ? KIN_BREAK : launch_exclude(v, users.at, users.len, "an argument of it is no tensor or number");
    kin_vec_deinit(&users);
    return status;
}

static void
refuse(kernel_launcher *self, launch_version *version, const char *reason)
{
    snprintf(version->reason, sizeof version->reason, "%s", reason);
    if (self->ahead)
        return;
    launch_say(self, version->reason);
}

/* -- outputs ---------------------------------------------------------------------------------------------------- */

static void
forget_texts(launch_version *version)
{
    char **texts[] = {&version->not_fused, &version->listing, &version->halves[0], &version->halves[1]};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        free(*texts[i]);
        *texts[i] = NULL;
    }
}

static void
keep_text(launch_version *version, const kin_aten *graph)
{
    kin_text text = {0};
    if (kin_aten_print(graph, &text))
        version->aten = text.at;
    else
        kin_text_deinit(&text);
}

static void
say_compiled(const kernel_launcher *self, const launch_version *version)
{
    kin_event_log *log = self->context.log;
    kin_event_begin(log, KIN_EVENT_LOWER);
    kin_event_str(log, "name", launch_name_of(&self->context));
    kin_event_int(log, "entry", self->context.entry);
    kin_event_int(log, "graph", self->graph);
    kin_event_str(log, "backend", "kintsugi");
    kin_event_num(log, "compile_ns", version->total_ns);
    kin_event_num(log, "capture_ns", version->capture_ns);
    kin_event_num(log, "llvm_ns", version->stats.llvm_ns);
    kin_event_int(log, "kernels", version->stats.kernels);
    kin_event_int(log, "compiled", version->stats.compiled);
    kin_event_int(log, "from_disk", version->stats.from_disk);
    kin_text missed = {0};
    kin_compile_stats_say(&version->stats, &missed);
    kin_event_str(log, "cache", missed.len > 0 ? missed.at : "");
    kin_text_deinit(&missed);
    kin_event_int(log, "native", version->nnative);
    kin_event_int(log, "extern", version->nextern);
    kin_event_end(log);
}

static void
compile_capture(kernel_launcher *self, const kin_entry *v, launch_version *version, const kin_capture *capture,
                const kin_subgraph *subgraph, PyObject *const *in)
{
    kin_text why = {0};
    version->stuck = UINT32_MAX;
    forget_texts(version);
    launch_operands operands;
    kin_status status = launch_operands_make(&version->signature, in, &operands) ? launch_code_make(self, v, capture, subgraph, operands.in, version, &why) : KIN_NOMEM;
    launch_operands_end(&operands);
    version->decided = status == KIN_BREAK && launch_numbers_decided(self, version, capture, in);
    if (self->meeting || version->decided) {
        kin_text_deinit(&why);
        return;
    }
    if (status == KIN_BREAK && capture->writes && version->ticket == NULL) { /* it may be possible without those calls */
        version->no_writes = version->again = true;
        kin_text_deinit(&why);
        return;
    }
    free(version->aten);
    version->aten = NULL;
    if (launch_tells(self))
        keep_text(version, capture->graph);
    if (status != KIN_OK && version->ticket == NULL)
        refuse(self, version, why.len > 0 ? why.at : status == KIN_NOMEM ? "out of memory" : "it cannot be compiled");
    kin_text_deinit(&why);
}

/* "input 0 is f32[4, 16][16, 1]cuda:0: kernels are for tensors on the CPU" */
static void
say_input(kernel_launcher *self, uint32_t which, PyObject *obj)
{
    PyObject *note = kin_is_tensor(obj) ? kin_tensor_note(obj) : NULL;
    const char *device = kin_note_device(note);
    if (device != NULL && strncmp(device, "cuda", 4) == 0)
        snprintf(self->gone, sizeof self->gone, "input %u is %.60s: kernels are for tensors on the CPU; mode=\"reduce-overhead\" launches graphs as CUDA graphs", which,
                 kin_utf8(note));
    else
        snprintf(self->gone, sizeof self->gone, "input %u is a %.80s", which, Py_TYPE(obj)->tp_name);
    PyErr_Clear();
    Py_XDECREF(note);
}

/* An input cannot be described. */
static void
give_up(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, uint32_t which, PyObject *obj)
{
    say_input(self, which, obj);
    if (kin_is_tensor(obj) || exclude_users(v, subgraph, subgraph->in[which]) != KIN_OK)
        launch_say(self, self->gone);
}

bool
launch_takes(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    for (uint32_t i = 0; i < subgraph->nin; i++) {
        if (!kin_is_tensor(in[i]) || kin_tensor_is_ordinary(in[i]))
            continue;
        if (self->versions.len == 0)
            give_up(self, v, subgraph, i, in[i]);
        return false;
    }
    return true;
}

/* -- all of it -------------------------------------------------------------------------------------------------- */

/* Keeps the capture until its kernels have been compiled in the background; if memory is short, it is captured again. */
static void
hold(launch_version *version, kin_capture *capture)
{
    snprintf(version->reason, sizeof version->reason, "kernels are still being compiled in the background");
    version->held = malloc(sizeof *version->held);
    if (version->held != NULL)
        *version->held = *capture;
    else
        kin_capture_deinit(capture);
}

static void
let_go(launch_version *version)
{
    if (version->held != NULL)
        kin_capture_deinit(version->held);
    free(version->held);
    version->held = NULL;
}

static void
compile_captured(kernel_launcher *self, launch_version *version, kin_capture *capture, kin_entry *v,
                 const kin_subgraph *subgraph, PyObject *const *in)
{
    double start = kin_clock_ns();
    (void)kin_aten_measure(capture->graph, &version->work);
    compile_capture(self, v, version, capture, subgraph, in);
    version->total_ns += kin_clock_ns() - start;
    if (version->ticket != NULL || (self->meeting && self->keeps_met && !version->decided)) {
        hold(version, capture);
        return;
    }
    const kin_capture *kept = capture;
    if (version->code != NULL) {
        launch_sizes_count_made(self, version);
        launch_say_passes(self, version);
        say_compiled(self, version);
    }
    if (version->code != NULL && version->code->training != NULL)
        kept = launch_training_keep(version->code->training, capture, version->stats.compiled + version->stats.from_disk > 0);
    if (version->code != NULL && !kept->by_data && !self->checking)
        launch_template_note(self, version, kept, in);
    kin_capture_deinit(capture);
    if (version->stuck != UINT32_MAX && !self->ahead && !version->decided && launch_exclude(v, &version->stuck, 1, version->reason) != KIN_OK)
        self->full = true;
}

static bool
has_many(PyObject *tensor)
{
    int64_t n = 1;
    for (int64_t d = 0; d < kin_tensor_dim(tensor); d++)
        n *= kin_tensor_sizes(tensor)[d];
    return n >= KIN_TIER_LITTLE_DATA;
}

/* For a single call on little data PyTorch's own kernel is as fast, unless the call is one that core/kernels does differently. */
static bool
has_enough_work(const kin_trace *t, const kin_subgraph *subgraph, const kin_aten *g, PyObject *const *in)
{
    uint32_t calls = 0;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        calls += kin_subgraph_calls(&t->steps.at[i]) && !(t->steps.at[i].flags & KIN_STEP_SUNK);
    for (uint32_t i = 0; calls <= 1 && i < subgraph->nin; i++)
        if (kin_is_tensor(in[i]) && has_many(in[i]))
            return true;
    for (uint32_t c = 0; calls <= 1 && c < g->calls.len; c++)
        if (kin_aten_op_is(kin_aten_op_of(&g->calls.at[c]), KIN_ATEN_LIBRARY))
            return true;
    return calls > 1;
}

/* Is the value used for more than a comparison with None? */
static bool
is_used(const kin_trace *t, kin_vid vid)
{
    for (uint32_t i = 0; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        bool asks = s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_IS || s->imm == KIN_CHECK_IS_NOT);
        for (uint32_t a = 0; !asks && a < s->nargs; a++)
            if (t->vids.at[s->args + a] == vid)
                return true;
    }
    return false;
}

/* Does the program use the node (grad_fn) of a result? It would find the graph's node where eager has that of the last operator: deprecated hooks of
 * modules are registered on it. A tensor that is read from the heap may be a result. */
static bool
shows_nodes(const kin_entry *v, const kin_subgraph *subgraph)
{
    const kin_trace *t = &v->trace;
    for (uint32_t i = subgraph->first; i < t->steps.len; i++) {
        const kin_step *s = &t->steps.at[i];
        PyObject *name = s->kind == KIN_STEP_GETATTR ? kin_refs_get(&v->refs, s->ref) : NULL;
        if (!kin_text_is(name, "grad_fn"))
            continue;
        kin_vid of = t->vids.at[s->args];
        bool ours = t->vals.at[of].kind == KIN_VAL_SRC;
        for (uint32_t k = 0; !ours && k < subgraph->nout; k++)
            ours = subgraph->out[k] == of;
        if (ours && is_used(t, s->out))
            return true;
    }
    return false;
}

/* Calls that leave the subgraph early, at a test of what a size is, say (`if batch == 1`), are no reason to divide what serves the others, and to compile it again.
 * Unless they are the greater part; while little has code, the first ones may be the exceptions. */
static bool
leaves_early(kernel_launcher *self, const kin_trace *t, const kin_subgraph *subgraph, uint32_t test)
{
    uint32_t before = 0, calls = 0, serves = launch_sizes_are_on(self) ? KIN_TIER_EXITS_EARLY : 0;
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if (kin_subgraph_calls(&t->steps.at[i]) && !(t->steps.at[i].flags & KIN_STEP_SUNK)) {
            calls++;
            before += i < test;
        }
    for (uint32_t i = 0; i < self->versions.len; i++)
        serves += self->versions.at[i]->code != NULL;
    return serves > self->left_early++ && before <= KIN_TIER_EXIT_EARLY_SHARE * calls;
}

static kin_status
note_raising(kernel_launcher *self, const kin_capture *capture)
{
    for (uint32_t i = 0; i < capture->raising.len; i++)
        if (!kin_step_is_in(self->raising.at, self->raising.len, capture->raising.at[i]))
            KIN_TRY(kin_vec_push(&self->raising, capture->raising.at[i]));
    return KIN_OK;
}

static void
capture_and_compile(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    kin_capture capture;
    double start = kin_clock_ns();
    unsigned may = !version->no_writes && subgraph->at == 0 && subgraph->hides_writes ? KIN_CAPTURE_WRITES : 0;
    if (launch_wants_gradient(subgraph, in) && shows_nodes(v, subgraph)) {
        refuse(self, version, "the program does something with autograd's node of a result (grad_fn), which would be the graph's");
        return;
    }
    if (launch_wants_gradient(subgraph, in))
        may |= KIN_CAPTURE_GRADIENTS | KIN_CAPTURE_JOINT | (launch_library_has(KIN_LIBRARY_RECURRENT) ? KIN_CAPTURE_LAYERS : 0);
    kin_status status = launch_numbers_capture(self, version, v, subgraph, in, may, &capture);
    if (status == KIN_OK)
        status = note_raising(self, &capture);
    if (status == KIN_OK && subgraph->deferred && !self->ahead && launch_put_barriers(v, subgraph, capture.raising.at, capture.raising.len) != KIN_OK && !self->meeting)
        status = KIN_BREAK; /* what is only met does not run */
    if (status == KIN_OK && !self->context.warm && !has_enough_work(&v->trace, subgraph, capture.graph, in)) {
        version->small = true;
        snprintf(version->reason, sizeof version->reason, "a single call on little data: PyTorch's own kernel is as fast");
        kin_capture_deinit(&capture);
        return;
    }
    if (status == KIN_OK) {
        version->total_ns = version->capture_ns = kin_clock_ns() - start;
        compile_captured(self, version, &capture, v, subgraph, in);
        return;
    }
    if (self->ahead) { /* no call had these sizes */
        kin_capture_deinit(&capture);
        return;
    }
    bool early = capture.failed_test != 0 && leaves_early(self, &v->trace, subgraph, capture.failed_test - 1);
    if (early && self->left_early > 1) /* that was said of the first */
        snprintf(version->reason, sizeof version->reason, "%s", capture.reason);
    else if (capture.reason[0] != 0)
        refuse(self, version, capture.reason);
    else {
        version->again = v->replan; /* the launcher may stay */
        snprintf(version->reason, sizeof version->reason, "one of its calls may raise after a later side effect has run: compiled in parts from the next call on");
    }
    if (capture.failed_test != 0 && !early && launch_put_barrier(v, capture.failed_test - 1) != KIN_OK)
        self->full = true;
    if (capture.refused.len > 0 && launch_exclude(v, capture.refused.at, capture.refused.len, capture.reason) != KIN_OK)
        self->full = true;
    kin_capture_deinit(&capture);
}

/* A capture creates thousands of objects and drops them at its end, so garbage collection would be wasted. */
static void
compile_version(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    bool collects = PyGC_Disable();
    do
        capture_and_compile(self, version, v, subgraph, in);
    while (version->decided);
    if (collects)
        PyGC_Enable();
}

void
launch_compile_ready(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                     PyObject *const *in)
{
    if (!launch_ticket_done(version->ticket)) {
        v->waits++;
        return;
    }
    launch_ticket_release(version->ticket);
    version->ticket = NULL;
    version->reason[0] = 0;
    if (version->held == NULL) {
        compile_version(self, version, v, subgraph, in);
        return;
    }
    kin_capture capture = *version->held;
    free(version->held);
    version->held = NULL;
    double start = kin_clock_thread_ns();
    compile_captured(self, version, &capture, v, subgraph, in);
    if (self->sizes.met || version != self->versions.at[0])
        launch_sizes_note_made(self, version, kin_clock_thread_ns() - start);
}

/* With KINTSUGI_VERIFY=1: checks that a copied plan equals what the passes make for these sizes. */
static void
verify_copied(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    launch_version *made = calloc(1, sizeof *made);
    uint32_t which;
    kin_text why = {0};
    self->checking = self->ahead = true;
    if (made != NULL && launch_signature_make(in, subgraph->nin, self->open, false, &made->signature, &which) == KIN_OK) {
        compile_version(self, made, v, subgraph, in);
        if (!launch_template_is_right(version, made, &why))
            launch_say_bug(self, "template", why.len > 0 ? why.at : "");
    }
    self->checking = self->ahead = false;
    launch_version_free(made);
    kin_text_deinit(&why);
}

static void
make_version(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, launch_copy *copy)
{
    double start = kin_clock_thread_ns();
    version->copied = launch_template_make(self, version, in, copy);
    if (version->copied) {
        version->total_ns = kin_clock_thread_ns() - start;
        say_compiled(self, version);
    } else {
        compile_version(self, version, v, subgraph, in);
    }
    self->nplans += !version->copied;
    if (version->copied && launch_verifies())
        verify_copied(self, version, v, subgraph, in);
    launch_note_cost(self, version);
    launch_sizes_note_made(self, version, kin_clock_thread_ns() - start);
}

static launch_version *
add_version(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, launch_copy *copy)
{
    launch_signature signature;
    uint32_t which = 0;
    kin_status status = launch_signature_make(in, subgraph->nin, self->open, false, &signature, &which);
    if (status == KIN_BREAK)
        give_up(self, v, subgraph, which, in[which]);
    if (status != KIN_OK)
        return NULL;
    launch_version *version = launch_sizes_enter(self, &signature, in);
    if (version == NULL) {
        launch_signature_deinit(&signature);
        return NULL;
    }
    make_version(self, version, v, subgraph, in, copy);
    return version;
}

/* Sizes that lie outside of the ranges met: one plan at the end of a wider range, and the plans for all in it can be copied, that for these inputs too. */
static void
widen(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, launch_copy *copy)
{
    uint32_t like = 0;
    PyObject **far = launch_template_widen(self, in, subgraph->nin, &like);
    launch_copy none = {.looked = true};
    if (far == NULL)
        return;
    self->ahead = true;
    launch_version *further = add_version(self, v, subgraph, far, &none);
    if (further != NULL && further->code == NULL)
        further->retired = true; /* its code is made when a call needs it */
    self->ahead = false;
    launch_copy_deinit(&none);
    launch_forget(far, subgraph->nin);
    launch_copy_deinit(copy);
    *copy = (launch_copy){0};
    if (!launch_template_find(self, in, subgraph->nin, copy))
        launch_template_in_vain(self, like);
}

launch_version *
launch_compile_if_it_pays(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    launch_copy copy = {0};
    launch_numbers_learn(self, subgraph, in);
    if (launch_sizes_widening_pays(self) && !launch_sizes_wait(self, in, subgraph->nin) && !launch_template_find(self, in, subgraph->nin, &copy))
        widen(self, v, subgraph, in, &copy);
    launch_version *version = launch_compile_pays(self, v, subgraph, in, &copy) ? add_version(self, v, subgraph, in, &copy) : NULL;
    launch_copy_deinit(&copy);
    if (version == NULL)
        launch_look_what_varies(self, v, subgraph, in);
    return version;
}

void
launch_meet(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    launch_version *version = calloc(1, sizeof *version);
    uint32_t which;
    if (version == NULL || launch_signature_make(in, subgraph->nin, self->open, false, &version->signature, &which) != KIN_OK) {
        free(version);
        return;
    }
    self->meeting = self->sizes.met = true;
    compile_version(self, version, v, subgraph, in);
    self->meeting = false;
    launch_note_cost(self, version);
    if (self->keeps_met)
        self->met = version;
    else
        launch_version_free(version);
}

void
launch_compile_again(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                     PyObject *const *in)
{
    version->again = version->retired = version->copied = false;
    version->like = 0;
    version->abtest = (kin_abtest){0}; /* compared with the steps again */
    version->retry_at = 0;
    version->reason[0] = 0;
    free(version->aten);
    version->aten = NULL;
    double start = kin_clock_thread_ns();
    compile_version(self, version, v, subgraph, in);
    launch_note_cost(self, version);
    launch_sizes_note_made(self, version, kin_clock_thread_ns() - start);
}

void
launch_version_deinit(launch_version *version)
{
    launch_signature_deinit(&version->signature);
    launch_code_free(version->code);
    kin_vec_deinit(&version->hints);
    launch_ticket_release(version->ticket);
    let_go(version);
    forget_texts(version);
    free(version->aten);
    kin_vec_deinit(&version->passes);
    free(version->frozen);
}

void
launch_version_free(launch_version *version)
{
    if (version == NULL)
        return;
    launch_version_deinit(version);
    free(version);
}
