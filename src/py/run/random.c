/* torch's random numbers in launches (running.h). The generator's state is restored if a run has to be given up. We draw numbers ourselves where that gives the
 * same ones as torch.
 *
 * The generator is read and written through the state that torch gives to programs, whose layout has never changed. Which algorithm an
 * operator uses differs between builds and processors (MKL has its own), so a few of its numbers are compared with ours, once.
 */
#include "py/run/running.h"

#include <string.h>

#include "core/tiles/mersenne.h"
#include "core/tiles/tile.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/imports.h"

/* torch.default_generator: borrowed. Generators that are arguments are not captured. */
static PyObject *
generator(void)
{
    static PyObject *found;
    return kin_import_once(&found, "torch", "default_generator");
}

bool
launch_keep_random(launch_running *r)
{
    if (r->random == NULL && generator() != NULL)
        r->random = PyObject_CallMethod(generator(), "get_state", NULL);
    return r->random != NULL;
}

void
launch_put_back_random(launch_running *r)
{
    if (r->random == NULL)
        return;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *done = PyObject_CallMethod(generator(), "set_state", "O", r->random);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, error, tb);
}

/* -- drawn by ourselves ----------------------------------------------------------------------------------------- */

/* What torch gives as a state, as far as words are concerned. */
typedef struct {
    uint64_t seed;
    int32_t left, seeded; /* left: words that have not been drawn + 1 */
    uint64_t next, words[KIN_MERSENNE_WORDS];
} state_words;
enum { STATE_BYTES = 5056 };

static state_words *
words_of(PyObject *state)
{
    kin_dtype dtype;
    if (!kin_is_tensor(state) || !kin_tensor_dtype(state, &dtype) || dtype != KIN_U8 || kin_tensor_dim(state) != 1 || kin_tensor_sizes(state)[0] != STATE_BYTES)
        return NULL;
    return kin_tensor_data(state);
}

static bool
draw_from(PyObject *from, double p, int64_t n, float *to)
{
    PyObject *state = PyObject_CallMethod(from, "get_state", NULL), *done = NULL;
    state_words *w = state == NULL ? NULL : words_of(state);
    kin_mersenne m = {.next = KIN_MERSENNE_WORDS};
    if (w != NULL && w->left >= 1 && w->left <= KIN_MERSENNE_WORDS) {
        for (int i = 0; i < KIN_MERSENNE_WORDS; i++)
            m.words[i] = (uint32_t)w->words[i];
        m.next = (uint32_t)(KIN_MERSENNE_WORDS + 1 - w->left);
        kin_tile_bernoulli(&m, p, n, to);
        for (int i = 0; i < KIN_MERSENNE_WORDS; i++)
            w->words[i] = m.words[i];
        w->left = (int32_t)(KIN_MERSENNE_WORDS + 1 - m.next);
        w->next = m.next;
        done = PyObject_CallMethod(from, "set_state", "O", state);
    }
    Py_XDECREF(state);
    Py_XDECREF(done);
    return done != NULL;
}

bool
launch_bernoulli(double p, int64_t n, float *to)
{
    return generator() != NULL && draw_from(generator(), p, n, to);
}

/* Draws of torch's operator: n of them in `to`. */
static bool
draw_by_torch(PyObject *from, double p, int64_t n, float *to)
{
    PyObject *tensor = kin_tensor_new(KIN_F32, 1, &n, (int64_t[]){1}, false);
    PyObject *method = tensor == NULL ? NULL : PyObject_GetAttrString(tensor, "bernoulli_"), *args = Py_BuildValue("(d)", p);
    PyObject *kwargs = Py_BuildValue("{s:O}", "generator", from);
    PyObject *done = method == NULL || args == NULL || kwargs == NULL ? NULL : PyObject_Call(method, args, kwargs);
    if (done != NULL)
        memcpy(to, kin_tensor_data(tensor), (size_t)n * sizeof *to);
    Py_XDECREF(done);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(method);
    Py_XDECREF(tensor);
    return done != NULL;
}

/* The same draws, and the same state behind them. */
static bool
draws_alike(void)
{
    enum { N = 700 };
    float ours[N], theirs[N];
    PyObject *a = kin_import_call("torch", "Generator", NULL), *b = kin_import_call("torch", "Generator", NULL);
    PyObject *seeded = a == NULL ? NULL : PyObject_CallMethod(a, "manual_seed", "i", 11), *other = b == NULL ? NULL : PyObject_CallMethod(b, "manual_seed", "i", 11);
    bool same = seeded != NULL && other != NULL;
    for (int64_t i = 0, n = N; same && i < 3; i++, n = n / 2 + 1)
        same = draw_from(a, 0.3, n, ours) && draw_by_torch(b, 0.3, n, theirs) && memcmp(ours, theirs, (size_t)n * sizeof *ours) == 0;
    PyObject *one = same ? PyObject_CallMethod(a, "get_state", NULL) : NULL, *two = same ? PyObject_CallMethod(b, "get_state", NULL) : NULL;
    same = same && one != NULL && two != NULL && memcmp(kin_tensor_data(one), kin_tensor_data(two), STATE_BYTES) == 0;
    Py_XDECREF(two);
    Py_XDECREF(one);
    Py_XDECREF(other);
    Py_XDECREF(seeded);
    Py_XDECREF(b);
    Py_XDECREF(a);
    PyErr_Clear();
    return same;
}

bool
launch_knows_random(void)
{
    static bool looked, knows;
    if (!looked) {
        looked = true;
        knows = kin_tile_here() && draws_alike();
    }
    return knows;
}
