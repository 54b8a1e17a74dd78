/* Tensors through PyTorch's C ABI: type tests and metadata, without running Python.
 * The library is found with dlopen(RTLD_NOLOAD) after `import torch`; nothing here links to it.
 */
#ifndef KIN_PY_TENSOR_H
#define KIN_PY_TENSOR_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>
#include <string.h>

#include "py/compat/kinds.h"

enum { /* which metadata a record speaks about */
    KIN_META_DTYPE = 1, KIN_META_DEVICE = 2, KIN_META_SIZES = 4, KIN_META_STRIDES = 8,
    KIN_META_REQUIRES_GRAD = 16, KIN_META_DIM = 32, KIN_META_LAYOUT = 64, KIN_META_KEYS = 128,
    KIN_META_OFFSET = 256, KIN_META_NUMEL = 512
};
/* What a graph that is called again with the tensor depends on. */
#define KIN_META_CALL                                                                                    \
    (KIN_META_DTYPE | KIN_META_DEVICE | KIN_META_SIZES | KIN_META_STRIDES | KIN_META_REQUIRES_GRAD | \
     KIN_META_DIM | KIN_META_LAYOUT | KIN_META_KEYS)

/* Finds symbols and calibrates the handle's offset inside a Tensor object; KIN_PYERR when torch is unusable. */
kin_status kin_aten_init(PyObject *torch_module) KIN_MUST_CHECK;

/* Exact torch.Tensor or torch.nn.Parameter (no subclasses with __torch_function__/__torch_dispatch__). */
bool kin_is_plain_tensor(PyObject *obj);
/* Any instance of torch.Tensor. */
bool kin_is_tensor(PyObject *obj);
/* Any instance of torch.Tensor that keeps sizes, strides and offset in words of its own, over one storage (whose memory may be
 * gone): not a nested, sparse, quantised, MKL-DNN, lazy, batched or functional one, and none with a __torch_dispatch__.
 * Everything below that reads such words asks this first; all else is left to torch, by steps. */
bool kin_tensor_is_strided(PyObject *obj);
/* Can the metadata in the mask be read of it? Sizes can of sparse and quantised tensors too. */
bool kin_tensor_is_readable(PyObject *obj, unsigned mask);
/* A strided tensor of exactly one of the two classes. */
bool kin_is_plain_strided(PyObject *obj);
/* A subclass of ours whose instances do so too, whatever their keys say. */
void kin_aten_own_class(PyTypeObject *type);
/* torch.Tensor itself. */
bool kin_is_tensor_type(PyObject *type);
bool kin_is_class_of_tensors(PyObject *type); /* torch.Tensor, or a subclass */

/* A bytes object describing the parts of `tensor` named by `mask` (new reference; an exception if it is not readable), and the
 * test against it. */
PyObject *kin_meta_make(PyObject *tensor, unsigned mask);
/* ... with the sizes whose bits are set in `open` left open: `as` says how. Strides are not to be asked for then. */
enum { KIN_SIZE_ANY = -2, KIN_SIZE_SOME = -1 }; /* any size; any but 0 and 1 */
PyObject *kin_meta_make_open(PyObject *tensor, unsigned mask, uint64_t open, int64_t as);
uint64_t kin_meta_open(PyObject *record);
bool kin_meta_requires_grad(PyObject *record, bool *asked);
/* The size in the record; negative when it is open or not asked for. */
int64_t kin_meta_size(PyObject *record, int dim);
/* Is the record missed by sizes, and at most strides? Then the bits of the sizes that differ. */
bool kin_meta_only_sizes(PyObject *tensor, PyObject *record, uint64_t *differ);
bool kin_meta_match(PyObject *tensor, PyObject *record);
/* ... but for the dispatch keys, which fake tensors have of their own. */
bool kin_meta_match_kind(PyObject *tensor, PyObject *record);
unsigned kin_meta_mask(PyObject *record);
/* First difference in words, e.g. "size mismatch at index 0. expected 3, actual 4" (new str). */
PyObject *kin_meta_explain(PyObject *tensor, PyObject *record);

bool kin_has_plain_content(PyObject *tensor); /* an exact torch.Tensor or Parameter in the main memory, which is what it seems */
/* A bytes object with what an ordinary small tensor in the main memory holds (new reference), and the test against it. NULL without an
 * exception: it is no such tensor. */
PyObject *kin_content_make(PyObject *tensor);
bool kin_content_match(PyObject *tensor, PyObject *record);

/* A tensor in a few characters: "f32[3, 4][4, 1]cpu" (new str). */
PyObject *kin_tensor_note(PyObject *tensor);
/* The device that a note ends with, "cuda:0"; NULL: it is no note of a tensor (NULL, another object). */
static inline const char *
kin_note_device(PyObject *note)
{
    const char *device = strrchr(kin_utf8(note), ']');
    return device != NULL ? device + 1 : NULL;
}

/* -1 and NULL for what is not readable. */
int64_t kin_tensor_dim(PyObject *tensor);
const int64_t *kin_tensor_sizes(PyObject *tensor);
const int64_t *kin_tensor_strides(PyObject *tensor);

#endif
