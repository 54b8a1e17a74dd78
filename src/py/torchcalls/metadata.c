/* Attributes and methods of tensors that only read metadata, and which metadata they read. */
#include <string.h>

#include "py/torchcalls/torchcalls.h"
#include "py/compat/kinds.h"

typedef struct {
    const char *name;
    unsigned mask;
} meta_row;

static const meta_row meta_rows[] = {
    {"shape", KIN_META_SIZES}, {"size", KIN_META_SIZES}, {"numel", KIN_META_SIZES}, {"nelement", KIN_META_SIZES},
    {"dim", KIN_META_DIM}, {"ndimension", KIN_META_DIM}, {"ndim", KIN_META_DIM},
    {"stride", KIN_META_STRIDES | KIN_META_SIZES}, {"is_contiguous", KIN_META_STRIDES | KIN_META_SIZES},
    {"dtype", KIN_META_DTYPE}, {"is_floating_point", KIN_META_DTYPE}, {"is_complex", KIN_META_DTYPE},
    {"is_signed", KIN_META_DTYPE}, {"element_size", KIN_META_DTYPE}, {"itemsize", KIN_META_DTYPE},
    {"nbytes", KIN_META_DTYPE | KIN_META_SIZES | KIN_META_LAYOUT}, {"device", KIN_META_DEVICE}, {"is_cuda", KIN_META_DEVICE},
    {"is_cpu", KIN_META_DEVICE}, {"is_xpu", KIN_META_DEVICE}, {"is_mps", KIN_META_DEVICE},
    {"is_meta", KIN_META_DEVICE}, {"get_device", KIN_META_DEVICE}, {"requires_grad", KIN_META_REQUIRES_GRAD},
    {"storage_offset", KIN_META_OFFSET}, {"__len__", KIN_META_SIZES},
    {"is_nested", KIN_META_DIM}, /* no: whatever its metadata can be read of is none */
    {"layout", KIN_META_LAYOUT}, {"is_sparse", KIN_META_LAYOUT}, {"is_sparse_csr", KIN_META_LAYOUT}, {"is_mkldnn", KIN_META_LAYOUT},
    {"is_quantized", KIN_META_DTYPE}, {NULL, 0}};

unsigned
rec_meta_mask(const char *name)
{
    for (const meta_row *m = meta_rows; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m->mask;
    return 0;
}

/* Questions about the tensor itself that neither sizes, strides nor dtype answer, nor what stands for it while a graph is captured. */
bool
rec_meta_is_asked(const char *name)
{
    return strcmp(name, "is_inference") == 0 || strcmp(name, "_is_view") == 0;
}

/* Attributes that are tensors of their own. */
static bool
is_view(const char *name)
{
    static const char *const views[] = {"T", "mT", "H", "mH", "real", "imag", "data", NULL};
    return rec_in_list(name, views);
}

/* Of a tensor whose class has a __torch_dispatch__: that may answer. */
static bool
attr_of_dispatching(rec *r, kin_vid base, PyObject *descr, const char *name, attr_result *out)
{
    if (Py_TYPE(descr) != &PyGetSetDescr_Type || !rec_is_of_tensors(descr))
        return false;
    out->kind = ATTR_STEP;
    out->flags = (rec_fix_operands(r, &base, 1) == REC_RUNS_NO_CODE ? 0u : KIN_STEP_OPAQUE) | (is_view(name) ? KIN_STEP_TORCH : 0u);
    return true;
}

bool
rec_tensor_attr(rec *r, kin_vid base, PyObject *descr, PyObject *name, attr_result *out)
{
    const char *text = kin_utf8(name);
    if (rec_kind_of_tensor(O(r, base)) == REC_TENSOR_DISPATCHES)
        return attr_of_dispatching(r, base, descr, text, out);
    if (!rec_reads_as_tensor(O(r, base)))
        return false;
    r->skip_expected = r->skip_expected || !kin_is_plain_tensor(O(r, base)); /* the default of classes is Python code */
    unsigned mask = kin_tensor_is_readable(O(r, base), rec_meta_mask(text)) ? rec_meta_mask(text) : 0;
    if (mask & KIN_META_SIZES && rec_dynamic_dims(r, base) != 0 && rec_size_attr(r, base, text, out))
        return true;
    if (mask != 0 && rec_meta(r, base, mask)) {
        out->kind = ATTR_AWAIT_CONST;
        return true;
    }
    bool view = is_view(text);
    if (!view && strcmp(text, "grad") != 0 && Py_TYPE(descr) != &PyGetSetDescr_Type)
        return false;
    out->kind = ATTR_STEP;
    out->flags = view ? KIN_STEP_TORCH : 0;
    return true;
}
