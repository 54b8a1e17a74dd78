"""How results lie that meta kernels do not know.

What an operator without a shape rule returns is learned from its meta kernel, which is written for sizes and dtypes: fed with
channels-last images it often answers as if they were row-major. A program may ask (`is_contiguous()`), and what is compiled in the
operator's place lays its results out as they were foreseen. So where an argument does not lie row-major the operator itself is asked.
"""

import types
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

# Most elements that an operator is run on only to see how its results lie.
_MOST = 1 << 26


def _row_major(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _is_plain(tensor):
    return tensor.stride() == _row_major(tensor.shape)


def _on_cpu(tensor):
    """Memory for such a tensor, which nobody touches."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, result):
    """As the library that PyTorch chooses for these sizes leaves the result; nothing is computed."""
    x, weight = _on_cpu(x), _on_cpu(weight)
    options = (stride, padding, dilation, transposed, output_padding, groups)
    library = torch._C._select_conv_backend(x, weight, None if bias is None else _on_cpu(bias), *options, None)
    one_dim = x.dim() == 3  # computed as two; the image is made row-major before that
    if one_dim:
        x, weight = x.contiguous().unsqueeze(2), weight.unsqueeze(2)
    format = torch._C._conv_determine_backend_memory_format(x, weight, library)
    sizes = list(result.shape)
    if one_dim:
        sizes.insert(2, 1)
    if groups > 1 and "Slow" in str(library) and all(n == 1 for n in sizes[2:]):
        format = torch.contiguous_format  # groups are joined, and without places they have no format
    laid = torch.empty(sizes, dtype=result.dtype, device="meta", memory_format=format)
    return laid.squeeze(2) if one_dim else laid


def _zeros(tensor):
    return _on_cpu(tensor).zero_()


def _as_run(op, args, kwargs, result):
    """As the operator leaves them when it runs, on zeros."""
    tensors = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
    if any(t.numel() == 0 for t in tensors) or sum(t.numel() for t in tensors) > _MOST:
        return result
    args, kwargs = tree_map_only(torch.Tensor, _zeros, (args, kwargs))
    if "device" in kwargs:
        kwargs["device"] = "cpu"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = op(*args, **kwargs)
    new = iter(tree_leaves(run))
    return tree_map_only(torch.Tensor, lambda t: _laid(t, next(new)), result)


def _laid(foreseen, run):
    if foreseen.shape != run.shape or foreseen.dtype != run.dtype:
        return foreseen
    return torch.empty_strided(run.shape, run.stride(), dtype=run.dtype, device="meta")


def results(name, op, args, kwargs, result):
    """The meta tensors that `op` answered, or others that lie as the CPU's kernel leaves them."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if all(map(_is_plain, tensors)) or isinstance(op, types.FunctionType):
        return result  # a function of ours (_recurrent.py) says it itself
    made = [t for t in tree_leaves(result) if t is not None]
    shared = {t.untyped_storage()._cdata for t in tensors}
    if not all(isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in shared for t in made):
        return result  # views lie as they say
    if len({t.untyped_storage()._cdata for t in made}) != len(made):
        return result
    try:
        if name == "aten.convolution.default":
            return _convolution(*args, result)
        return _as_run(op, args, kwargs, result)
    except Exception:  # zeros may be no indices of it
        return result
