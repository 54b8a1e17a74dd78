/* Copies a plan with gradients for other sizes (py/launch/template.c): which parts are structure, which are numbers. A copy shares the capture except for
 * the calls, whose arguments hold sizes.
 */
#include "py/training/training_priv.h"

#include <stdlib.h>
#include <string.h>

/* -- the walk ------------------------------------------------------------------------------------------------------ */

static void
walk_call(kin_walk *w, kin_capture_call *call, void (*object)(kin_walk *, PyObject **))
{
    kin_walk_word(w, (uintptr_t)call->op);
    object(w, &call->args);
    object(w, &call->kwargs);
    object(w, &call->made);
}

static void
walk_calls(kin_walk *w, launch_training *t, void (*object)(kin_walk *, PyObject **))
{
    kin_capture_joint *j = &t->capture.joint;
    kin_walk_word(w, j->ncalls);
    for (uint32_t i = 0; i < j->ncalls; i++)
        walk_call(w, &t->capture.calls.at[i], object);
    kin_walk_word(w, j->wholes.len);
    for (uint32_t i = 0; i < j->wholes.len; i++) {
        kin_walk_word(w, (uint64_t)j->wholes.at[i].first << 32 | j->wholes.at[i].end);
        walk_call(w, &j->wholes.at[i].call, object);
    }
}

static void
walk_tangents(kin_walk *w, launch_training *t)
{
    for (uint32_t i = 0; i < t->nresults; i++) {
        launch_tangent *one = &t->tangents[i];
        kin_walk_word(w, (uint64_t)one->dtype << 32 | one->ndim);
        kin_walk_numbers(w, one->sizes, one->ndim);
        kin_walk_numbers(w, one->strides, one->ndim);
    }
}

#define SAY(vec) (kin_walk_word(w, (vec).len), kin_walk_say(w, (vec).at, (vec).len * sizeof *(vec).at))

void
launch_training_walk(PyObject *training, kin_walk *w, void (*code)(kin_walk *, launch_code *), void (*object)(kin_walk *, PyObject **))
{
    launch_training *t = (launch_training *)training;
    const kin_capture_joint *j = &t->capture.joint;
    uint32_t nouts = t->forward->nouts, ninputs = t->capture.graph->ninputs;
    uint64_t words[] = {t->nresults, t->ngiven, t->nwanting, t->ngradients, t->nkept, t->nhanded, t->nwatched, nouts, ninputs, (uint64_t)PyList_GET_SIZE(t->capture.fakes)};
    kin_walk_say(w, words, sizeof words);
#define SAY_ARRAY(array, n) kin_walk_say(w, t->array, (n) * sizeof *t->array);
    LAUNCH_TRAINING_ARRAYS(SAY_ARRAY)
#undef SAY_ARRAY
    SAY(t->capture.numbers);
    SAY(j->results);
    SAY(j->arriving);
    SAY(j->from);
    SAY(j->saving);
    walk_tangents(w, t);
    walk_calls(w, t, object);
    code(w, t->backward);
}

/* -- the copy ------------------------------------------------------------------------------------------------------ */

static void *
copy_of(const void *from, size_t bytes, bool *ok)
{
    void *copy = malloc(bytes + 1);
    *ok = *ok && copy != NULL;
    if (copy != NULL)
        memcpy(copy, from, bytes);
    return copy;
}

static void
hold_call(kin_capture_call *call)
{
    Py_INCREF(call->op);
    Py_INCREF(call->args);
    Py_XINCREF(call->kwargs);
    Py_XINCREF(call->made);
}

static bool
copy_calls(launch_training *t, const kin_capture *from)
{
    kin_capture *c = &t->capture;
    memset(&c->calls, 0, sizeof c->calls);
    memset(&c->joint.wholes, 0, sizeof c->joint.wholes);
    if (kin_vec_reserve(&c->calls, from->joint.ncalls + 1) != KIN_OK || kin_vec_reserve(&c->joint.wholes, from->joint.wholes.len + 1) != KIN_OK)
        return false;
    for (; c->calls.len < from->joint.ncalls; c->calls.len++) {
        c->calls.at[c->calls.len] = from->calls.at[c->calls.len];
        hold_call(&c->calls.at[c->calls.len]);
    }
    for (; c->joint.wholes.len < from->joint.wholes.len; c->joint.wholes.len++) {
        c->joint.wholes.at[c->joint.wholes.len] = from->joint.wholes.at[c->joint.wholes.len];
        hold_call(&c->joint.wholes.at[c->joint.wholes.len].call);
    }
    return true;
}

void
launch_training_release(launch_training *t)
{
    if (t->like == NULL) {
        kin_capture_deinit(&t->capture);
        return;
    }
    for (uint32_t i = 0; i < t->capture.calls.len; i++)
        kin_capture_call_deinit(&t->capture.calls.at[i]);
    for (uint32_t i = 0; i < t->capture.joint.wholes.len; i++)
        kin_capture_call_deinit(&t->capture.joint.wholes.at[i].call);
    kin_vec_deinit(&t->capture.calls);
    kin_vec_deinit(&t->capture.joint.wholes);
    Py_DECREF(t->like);
}

bool
launch_training_copy(PyObject *training, launch_code *forward, launch_code *backward)
{
    const launch_training *from = (const launch_training *)training;
    uint32_t nouts = from->forward->nouts, ninputs = from->capture.graph->ninputs;
    launch_training *t = (launch_training *)Py_TYPE(training)->tp_alloc(Py_TYPE(training), 0);
    if (t == NULL)
        return false;
    bool ok = true;
    t->capture = from->capture;
    t->has_capture = true;
    t->like = Py_NewRef(from->like != NULL ? from->like : training);
    t->begun = LAUNCH_SETTLED;
    t->nresults = from->nresults;
    t->ngiven = from->ngiven;
    t->nwanting = from->nwanting;
    t->ngradients = from->ngradients;
    t->ngroups = from->ngroups;
    t->nkept = from->nkept;
    t->nhanded = from->nhanded;
    t->nwatched = from->nwatched;
    t->tangents = copy_of(from->tangents, t->nresults * sizeof *t->tangents, &ok);
#define COPY_ARRAY(array, n) t->array = copy_of(from->array, (n) * sizeof *t->array, &ok);
    LAUNCH_TRAINING_ARRAYS(COPY_ARRAY)
#undef COPY_ARRAY
    ok = copy_calls(t, &from->capture) && ok;
    if (!ok) {
        Py_DECREF(t);
        return false;
    }
    t->backward = backward;
    launch_training_join(t, forward);
    return true;
}
