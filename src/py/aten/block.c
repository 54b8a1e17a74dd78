/* Tensors over blocks (block.h). torch's C ABI makes tensors over foreign memory only with storages that cannot be resized. So
 * an empty tensor is made, whose storage is an ordinary one, and the words of that storage are replaced: data, deleter, context
 * and size. The positions of these words are found by comparing storages with known contents, and tried out before
 * they are used. If anything does not fit, no storage is ever changed.
 */
#include "py/aten/block.h"

#include <pthread.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/tensor_priv.h"

/* -- the process's blocks: there to the end, as storages may outlive everything ------------------------------------- */

static kin_blocks *blocks;

static void
before_fork(void)
{
    kin_blocks_lock(blocks);
}

static void
after_fork(void)
{
    kin_blocks_unlock(blocks);
}

kin_blocks *
kin_process_blocks(void)
{
    static bool looked;
    if (!looked) {
        looked = true;
        blocks = kin_blocks_new((size_t)1 << 30);
        if (blocks != NULL && pthread_atfork(before_fork, after_fork, after_fork) != 0) {
            kin_blocks_free(blocks);
            blocks = NULL;
        }
    }
    return blocks;
}

static void
give(void *block)
{
    kin_block_give(blocks, block);
}

enum { WORDS = 16 /* of a storage that are looked at */ };

static struct {
    unsigned data, free, context, bytes; /* word numbers */
    bool looked, works;
} at;

static uintptr_t *
words_of(PyObject *tensor)
{
    return (uintptr_t *)(uintptr_t)kin_tensor_storage(tensor);
}

/* -- where the words are ------------------------------------------------------------------------------------------- */

typedef struct {
    const uintptr_t *own[2], *foreign; /* storages: of torch's memory, of somebody else's */
    uintptr_t own_data[2], foreign_data, bytes[3];
} samples;

/* In order: data, then who frees it and the context, either of them first. */
static bool
find_words(const samples *s)
{
    for (unsigned w = 0; w + 2 < WORDS; w++) {
        if (s->own[0][w] != s->own_data[0] || s->own[1][w] != s->own_data[1] || s->foreign[w] != s->foreign_data)
            continue;
        for (unsigned c = w + 1; c <= w + 2; c++) {
            unsigned f = c == w + 1 ? w + 2 : w + 1;
            bool context = s->own[0][c] == s->own_data[0] && s->own[1][c] == s->own_data[1] && s->foreign[c] == 0;
            bool frees = s->own[0][f] != 0 && s->own[0][f] == s->own[1][f] && s->own[0][f] != s->foreign[f];
            if (context && frees) {
                at.data = w;
                at.context = c;
                at.free = f;
                return true;
            }
        }
    }
    return false;
}

static bool
find_bytes(const samples *s)
{
    for (unsigned w = at.data + 3; w < WORDS; w++)
        if (s->own[0][w] == s->bytes[0] && s->own[1][w] == s->bytes[1] && s->foreign[w] == s->bytes[2]) {
            at.bytes = w;
            return true;
        }
    return false;
}

static bool
calibrate(void)
{
    static const int64_t stride = 1, n[3] = {1237, 2411, 5};
    float memory[5];
    PyObject *t[3] = {kin_tensor_new(KIN_F32, 1, &n[0], &stride, false), kin_tensor_new(KIN_F32, 1, &n[1], &stride, false),
                      kin_tensor_over(memory, KIN_F32, 1, &n[2], &stride)};
    bool ok = t[0] != NULL && t[1] != NULL && t[2] != NULL;
    if (ok) {
        samples s = {.own = {words_of(t[0]), words_of(t[1])}, .foreign = words_of(t[2]),
                     .own_data = {(uintptr_t)kin_tensor_data(t[0]), (uintptr_t)kin_tensor_data(t[1])},
                     .foreign_data = (uintptr_t)memory, .bytes = {4 * 1237, 4 * 2411, 4 * 5}};
        ok = find_words(&s) && find_bytes(&s);
    }
    for (int i = 0; i < 3; i++)
        Py_XDECREF(t[i]);
    PyErr_Clear();
    return ok;
}

/* -- making -------------------------------------------------------------------------------------------------------- */

typedef void (*free_fn)(void *);

static PyObject *
make_over(void *block, free_fn frees, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, size_t bytes)
{
    static const int64_t none = 0, one = 1;
    PyObject *empty = kin_tensor_new(dtype, 1, &none, &one, false), *tensor = NULL;
    uintptr_t *words = empty == NULL ? NULL : words_of(empty);
    if (words != NULL && words[at.data] == 0 && words[at.context] == 0 && words[at.bytes] == 0) {
        words[at.data] = words[at.context] = (uintptr_t)block;
        memcpy(&words[at.free], &frees, sizeof frees);
        words[at.bytes] = bytes;
        tensor = kin_tensor_view(empty, ndim, sizes, strides, 0); /* may fail: then the block goes with `empty` */
    } else {
        frees(block);
    }
    Py_XDECREF(empty);
    PyErr_Clear();
    return tensor;
}

/* -- trying it out ------------------------------------------------------------------------------------------------- */

static unsigned freed;

static void
count_free(void *block)
{
    freed += block != NULL;
    free(block);
}

/* Grown by resize_(), it has let go of the block and kept its elements. */
static bool
can_be_resized(PyObject *tensor)
{
    PyObject *done = PyObject_CallMethod(tensor, "resize_", "i", 4096);
    const float *data = done == NULL ? NULL : kin_tensor_data(tensor);
    Py_XDECREF(done);
    return data != NULL && freed == 1 && data[0] == 3.0f && data[5] == 7.0f;
}

static bool
try_one(bool resize)
{
    static const int64_t sizes[2] = {3, 2}, strides[2] = {1, 3};
    float *memory = aligned_alloc(64, 64);
    freed = 0;
    if (memory == NULL)
        return false;
    memory[0] = 3.0f;
    memory[5] = 7.0f;
    PyObject *tensor = make_over(memory, count_free, KIN_F32, 2, sizes, strides, 6 * sizeof *memory);
    bool ok = tensor != NULL && kin_tensor_is_ordinary(tensor) && kin_tensor_data(tensor) == memory && freed == 0 &&
              kin_tensor_offset(tensor) == 0 && kin_tensor_sizes(tensor)[0] == 3 && kin_tensor_strides(tensor)[1] == 3 &&
              (!resize || can_be_resized(tensor));
    Py_XDECREF(tensor);
    PyErr_Clear();
    return ok && freed == 1;
}

static bool
look(void)
{
    return calibrate() && try_one(false) && try_one(true);
}

PyObject *
kin_tensor_in_block(kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, size_t bytes)
{
    if (bytes < KIN_BLOCK_LEAST)
        return NULL;
    if (!at.looked) {
        at.looked = true;
        at.works = look();
    }
    kin_blocks *all = at.works ? kin_process_blocks() : NULL;
    void *block = all == NULL ? NULL : kin_block_take(all, bytes);
    return block == NULL ? NULL : make_over(block, give, dtype, ndim, sizes, strides, bytes);
}
