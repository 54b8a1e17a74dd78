/* Signatures: everything about a subgraph's inputs that compiled code may depend on, except tensor data. */
#ifndef KIN_PY_LAUNCH_SIGNATURE_H
#define KIN_PY_LAUNCH_SIGNATURE_H

#include "core/base/vec.h"
#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    PyObject *value;  /* not a tensor: the input must be equal to it (owned); NULL: a tensor */
    bool open;        /* ... a number that code reads at run time: the input must be of the same kind */
    PyTypeObject *type; /* of a tensor: torch.Tensor or Parameter */
    uint64_t keys;
    int32_t dtype, ndim;
    bool requires_grad;
    uint32_t dims;    /* first of its sizes, then strides, in signature.dims */
} launch_input;

typedef struct {
    uint32_t n;
    uint32_t ambient; /* kin_ambient_state */
    bool requires;    /* some tensor requires gradients */
    bool wants;       /* ... and they are on */
    uint32_t nopen;   /* inputs that are open */
    launch_input *inputs;
    KIN_VEC(int64_t) dims;
} launch_signature;

/* The kind of a number: operators treat all numbers of one kind alike. 0: the number is a kind of its own, as 0, 1 and infinity are. */
uint32_t launch_number_kind(PyObject *obj);
/* The least and the largest number of the kind that an int of this magnitude is of. */
void launch_int_kind(int64_t magnitude, int64_t *least, int64_t *most);
/* Is input i a number that is open? open: by input, which may be; NULL: none. */
static inline bool launch_number_is_open(const bool *open, uint32_t i, PyObject *obj) { return open != NULL && open[i] && launch_number_kind(obj) != 0; }

/* anywhere: tensors may be on other devices than the CPU. KIN_BREAK: input *which cannot be described. */
kin_status launch_signature_make(PyObject *const *in, uint32_t n, const bool *open, bool anywhere, launch_signature *out, uint32_t *which) KIN_MUST_CHECK;
bool launch_signature_fits(const launch_signature *s, PyObject *const *in);
/* The part that is not about single inputs. */
bool launch_signature_fits_ambient(const launch_signature *s);
bool launch_signature_fits_one(const launch_signature *s, uint32_t i, PyObject *obj);
/* An int, or a tuple or torch.Size of them (and of None). */
bool launch_may_be_sizes(PyObject *obj);
/* The same but for sizes and strides, and values that may be sizes. */
bool launch_signature_is_like(const launch_signature *s, uint32_t i, PyObject *obj);
void launch_signature_deinit(launch_signature *s);
/* Equal for inputs that fit the same signature. */
uint64_t launch_signature_hash(PyObject *const *in, uint32_t n, const bool *open);
/* Equal, besides, for inputs that differ in sizes of 2 and more only: code that takes sizes as arguments mostly serves all of them. */
uint64_t launch_signature_class(PyObject *const *in, uint32_t n, const bool *open);

#endif
