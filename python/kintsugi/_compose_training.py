"""Operators that only training calls, in terms of smaller ones: batch norm with its running statistics, random numbers in place, and what
autograd goes back with.

Called as the functions of `_compose` are, while a graph is captured. Each answers NotImplemented, before it calls anything, for arguments
that it does not cover; the operator then stays a call.
"""

import math

import torch
from torch._prims_common import suggest_memory_format

_aten = torch.ops.aten

_WIDE = (torch.float32, torch.float64)
_HALF = (torch.bfloat16, torch.float16)


def _where(condition, value, other):
    """As the overload that takes a number: what that gives, only PyTorch's meta kernel knows, whose first call imports sympy (half a second)."""
    return _aten.where.self(condition, _like(other, value), other)


def _are_wide(*tensors):
    """Half precision is summed in float inside of the operators; there the operators stay."""
    return all(t is None or t.dtype in _WIDE for t in tensors)


def _like(x, value):
    return _aten.full.default([], value, dtype=x.dtype, device=x.device)


# -- random numbers --------------------------------------------------------------------------------------------------


def _draws_by_memory():
    """Does PyTorch draw numbers for a tensor in the order in which it lies in memory? (With MKL it draws them in the order of its indices.)"""
    drawn = [torch.empty(sizes, device="cpu").permute(dims).bernoulli_(0.5, generator=torch.Generator("cpu").manual_seed(7))
             for sizes, dims in (((9, 7, 5), (1, 0, 2)), ((9, 7, 5), (0, 1, 2)))]
    return torch.equal(drawn[0].permute(1, 0, 2), drawn[1])


DRAWS_BY_MEMORY = _draws_by_memory()


def _dims_by_memory(x):
    """Dims from the outermost in memory to the innermost, where they fill it without gaps; otherwise None."""
    dims = sorted((d for d in range(x.dim()) if x.shape[d] != 1), key=x.stride, reverse=True)
    step = 1
    for d in reversed(dims):
        if x.stride(d) != step:
            return None
        step *= x.shape[d]
    return [d for d in range(x.dim()) if x.shape[d] == 1] + dims


def _fill(self, draw, dims):
    """self with what is drawn for a tensor without gaps that has these dims of it, from the outermost to the innermost."""
    drawn = draw(_aten.expand.default(_like(self, 0.0), [self.shape[d] for d in dims]))
    return _aten.copy_.default(self, drawn if dims == sorted(dims) else _aten.permute.default(drawn, [dims.index(d) for d in range(self.dim())]))


def _bernoulli_(self, p=0.5, *, generator=None):
    """The same draw out of place: only the sizes of its argument matter, and the order of its dims in memory, in which PyTorch draws."""
    dims = None if generator is not None or not self.dtype.is_floating_point else _dims_by_memory(self)
    if dims is None or not (self.is_contiguous() or DRAWS_BY_MEMORY):
        return NotImplemented
    return _fill(self, lambda x: _aten.bernoulli.p(x, p), list(range(self.dim())) if self.is_contiguous() else dims)


def _drawn_by(op):
    """In place as out of place, for tensors without gaps in the order of their dims: how others are gone through differs between the operators."""

    def draw(self, *numbers, generator=None, **named):
        if generator is not None or self.dtype not in _WIDE or not self.is_contiguous() or named:
            return NotImplemented
        return _fill(self, lambda x: op(x, *numbers), list(range(self.dim())))

    return draw


def _uniform(x, low=0.0, high=1.0):
    """What lies between other numbers is rounded by PyTorch's own loop."""
    return _aten.rand_like.default(x) if (low, high) == (0, 1) else _aten.uniform.default(x, low, high)


# -- norms -----------------------------------------------------------------------------------------------------------


def _channels(x):
    """(dims that a batch norm sums over, sizes of one number for each channel, numbers in a sum)."""
    return [d for d in range(x.dim()) if d != 1], [1, x.shape[1]] + [1] * (x.dim() - 2), x.numel() // max(x.shape[1], 1)


def _strides_in(format, sizes):
    """Strides of a tensor of these sizes in the format. None is made: torch.empty would be one more operator of the graph. PyTorch's own functions for this
    import sympy."""
    inwards = [*range(len(sizes))] if format == torch.contiguous_format else [0, *range(2, len(sizes)), 1]
    strides, step = [0] * len(sizes), 1
    for d in reversed(inwards):
        strides[d] = step
        step *= max(sizes[d], 1)
    return tuple(strides)


def _in_format(value, x):
    """The value as a batch norm over x leaves it: in one of the memory formats, also where x lies in none."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(x.dim(), torch.contiguous_format)
    format = last if not x.is_contiguous() and (x.is_contiguous(memory_format=last) or suggest_memory_format(x) == last) else torch.contiguous_format
    if value.stride() == _strides_in(format, x.shape):
        return value
    return _aten.clone.default(value, memory_format=format)


def _native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training or not _are_wide(x, weight, bias, running_mean, running_var) or x.dim() < 2 or x.numel() == 0:
        return NotImplemented
    if running_mean is not None and (running_mean.dtype != x.dtype or running_var is None):
        return NotImplemented
    dims, sizes, n = _channels(x)
    var, mean = _aten.var_mean.correction(x, dims, correction=0, keepdim=True)
    invstd = _aten.rsqrt.default(_aten.add.Tensor(var, eps))
    out = _aten.mul.Tensor(_aten.sub.Tensor(x, mean), invstd)
    if weight is not None:
        out = _aten.mul.Tensor(out, _aten.view.default(weight, sizes))
    if bias is not None:
        out = _aten.add.Tensor(out, _aten.view.default(bias, sizes))
    flat = [x.shape[1]]
    mean = _aten.view.default(mean, flat)
    if running_mean is not None:
        # What one number's variance would be is not a number, as in eager.
        unbiased = _aten.mul.Tensor(_aten.view.default(var, flat), n / (n - 1) if n > 1 else math.nan)
        for running, new in ((running_mean, mean), (running_var, unbiased)):
            _aten.copy_.default(running, _aten.add.Tensor(_aten.mul.Tensor(running, 1 - momentum), _aten.mul.Tensor(new, momentum)))
    return _in_format(out, x), mean, _aten.view.default(invstd, flat)


def _native_batch_norm_backward(grad, x, weight, running_mean, running_var, save_mean, save_invstd, train, eps, mask):
    if not _are_wide(grad, x, weight, running_mean, running_var) or x.dim() < 2 or x.numel() == 0:
        return NotImplemented
    if not train and (running_mean is None or running_var is None):
        return NotImplemented
    dims, sizes, n = _channels(x)
    mean = _aten.view.default(save_mean if train else running_mean, sizes)
    invstd = _aten.view.default(save_invstd, sizes) if train else _aten.rsqrt.default(_aten.add.Tensor(_aten.view.default(running_var, sizes), eps))
    normal = _aten.mul.Tensor(_aten.sub.Tensor(x, mean), invstd)
    total = _aten.sum.dim_IntList(grad, dims, True)
    dot = _aten.sum.dim_IntList(_aten.mul.Tensor(grad, normal), dims, True)
    dx = dweight = dbias = None
    if mask[0]:
        dx = grad
        if train:
            dx = _aten.sub.Tensor(dx, _aten.div.Tensor(total, n))
            dx = _aten.sub.Tensor(dx, _aten.mul.Tensor(normal, _aten.div.Tensor(dot, n)))
        factor = invstd if weight is None else _aten.mul.Tensor(invstd, _aten.view.default(weight, sizes))
        dx = _aten.mul.Tensor(dx, factor)
    if mask[1]:
        dweight = _aten.view.default(dot, [x.shape[1]])
    if mask[2]:
        dbias = _aten.view.default(total, [x.shape[1]])
    return dx, dweight, dbias


def _native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, mask):
    if not _are_wide(grad, x, mean, rstd, weight) or x.numel() == 0:
        return NotImplemented
    first = x.dim() - len(normalized_shape)
    inner, outer = list(range(first, x.dim())), list(range(first))
    n = math.prod(normalized_shape)
    if n == 1:  # all of it is zero; a multiplication fused with a subtraction would leave what was rounded
        return NotImplemented
    normal = _aten.mul.Tensor(_aten.sub.Tensor(x, mean), rstd)
    dx = dweight = dbias = None
    if mask[0]:
        scaled = grad if weight is None else _aten.mul.Tensor(grad, weight)
        total = _aten.div.Tensor(_aten.sum.dim_IntList(scaled, inner, True), n)
        dot = _aten.div.Tensor(_aten.sum.dim_IntList(_aten.mul.Tensor(scaled, normal), inner, True), n)
        dx = _aten.mul.Tensor(_aten.sub.Tensor(_aten.sub.Tensor(scaled, total), _aten.mul.Tensor(normal, dot)), rstd)
    if mask[1]:
        dweight = _aten.mul.Tensor(grad, normal)
        dweight = _aten.sum.dim_IntList(dweight, outer) if outer else dweight
    if mask[2]:
        dbias = _aten.sum.dim_IntList(grad, outer) if outer else _aten.clone.default(grad)
    return dx, dweight, dbias


# -- activations -----------------------------------------------------------------------------------------------------


def _threshold_backward(grad, x, threshold):
    return _where(_aten.le.Scalar(x, threshold), 0, grad) if grad.dtype == x.dtype else NotImplemented


def _tanh_backward(grad, out):
    return _aten.mul.Tensor(grad, _aten.rsub.Scalar(_aten.mul.Tensor(out, out), 1)) if _are_wide(grad, out) else NotImplemented


def _sigmoid_backward(grad, out):
    if not _are_wide(grad, out):
        return NotImplemented
    return _aten.mul.Tensor(_aten.mul.Tensor(grad, _aten.rsub.Scalar(out, 1)), out)


def _silu_backward(grad, x):
    if not _are_wide(grad, x):
        return NotImplemented
    s = _aten.sigmoid.default(x)
    return _aten.mul.Tensor(_aten.mul.Tensor(grad, s), _aten.add.Tensor(_aten.mul.Tensor(x, _aten.rsub.Scalar(s, 1)), 1))


def _gelu_backward(grad, x, *, approximate="none"):
    if not _are_wide(grad, x):
        return NotImplemented
    if approximate == "none":
        below = _aten.mul.Tensor(_aten.add.Tensor(_aten.erf.default(_aten.mul.Tensor(x, math.sqrt(0.5))), 1), 0.5)
        density = _aten.mul.Tensor(_aten.exp.default(_aten.mul.Tensor(_aten.mul.Tensor(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return _aten.mul.Tensor(grad, _aten.add.Tensor(below, _aten.mul.Tensor(x, density)))
    factor, cubic = math.sqrt(2 / math.pi), 0.044715
    square = _aten.mul.Tensor(x, x)
    t = _aten.tanh.default(_aten.mul.Tensor(_aten.mul.Tensor(x, _aten.add.Tensor(_aten.mul.Tensor(square, cubic), 1)), factor))
    left = _aten.mul.Tensor(_aten.add.Tensor(t, 1), 0.5)
    slope = _aten.mul.Tensor(_aten.add.Tensor(_aten.mul.Tensor(square, 3 * cubic), 1), factor)
    right = _aten.mul.Tensor(_aten.mul.Tensor(_aten.mul.Tensor(x, 0.5), _aten.rsub.Scalar(_aten.mul.Tensor(t, t), 1)), slope)
    return _aten.mul.Tensor(grad, _aten.add.Tensor(left, right))


def _leaky_relu_backward(grad, x, slope, is_result):
    if not _are_wide(grad, x):
        return NotImplemented
    return _aten.where.self(_aten.gt.Scalar(x, 0), grad, _aten.mul.Tensor(grad, slope))


def _hardtanh_backward(grad, x, low, high):
    if not _are_wide(grad, x):
        return NotImplemented
    outside = _aten.logical_or.default(_aten.le.Scalar(x, low), _aten.ge.Scalar(x, high))
    return _where(outside, 0, grad)


# -- softmax and losses ----------------------------------------------------------------------------------------------


def _softmax_backward_data(grad, out, dim, input_dtype):
    if not _are_wide(grad, out) or input_dtype != grad.dtype or out.dim() == 0:
        return NotImplemented
    both = _aten.mul.Tensor(grad, out)
    return _aten.sub.Tensor(both, _aten.mul.Tensor(out, _aten.sum.dim_IntList(both, [dim], True)))


def _log_softmax_backward_data(grad, out, dim, input_dtype):
    if not _are_wide(grad, out) or input_dtype != grad.dtype or out.dim() == 0:
        return NotImplemented
    return _aten.sub.Tensor(grad, _aten.mul.Tensor(_aten.exp.default(out), _aten.sum.dim_IntList(grad, [dim], True)))


def _nll_loss_backward(grad, x, target, weight, reduction, ignore_index, total_weight):
    """-weight of the target where the class is the target, 0 elsewhere."""
    if x.dim() != 2 or target.dim() != 1 or not _are_wide(grad, x, weight):
        return NotImplemented
    classes = _aten.arange.default(x.shape[1], dtype=target.dtype, device=x.device)
    hit = _aten.eq.Tensor(_aten.unsqueeze.default(target, 1), classes)
    hit = _aten.logical_and.default(hit, _aten.unsqueeze.default(_aten.ne.Scalar(target, ignore_index), 1))
    part = _aten.neg.default(_aten.div.Tensor(grad, total_weight) if reduction == 1 else grad)
    part = _aten.unsqueeze.default(part, 1) if reduction == 0 else part
    part = part if weight is None else _aten.mul.Tensor(weight, part)
    return _aten.where.self(hit, _aten.expand.default(part, list(x.shape)), _like(part, 0))


def _mse_loss_backward(grad, x, target, reduction):
    if not _are_wide(grad, x, target) or x.dtype != target.dtype or x.shape != target.shape or x.numel() == 0:
        return NotImplemented
    factor = 2 / x.numel() if reduction == 1 else 2
    dx = _aten.mul.Tensor(_aten.mul.Tensor(_aten.sub.Tensor(x, target), factor), grad)
    return dx if dx.is_contiguous() else _aten.clone.default(dx, memory_format=torch.contiguous_format)


# -- attention -------------------------------------------------------------------------------------------------------

# Longest sequences whose weights are made as one tensor, in multiples of the depth of a head: kept for the backward they take half as much memory as
# query, key, value and result of that head together (in half precision as much: the weights are floats).
_LONGEST = 2


def _lies_by_heads(x):
    """[batch, heads, length, depth], in memory as it is or as [batch, length, heads, depth]; None: neither."""
    return False if x.is_contiguous() else True if x.transpose(1, 2).is_contiguous() else None


def _is_short_attention(query, key, value, dropout_p, mask):
    """Attention of short sequences is a few small products; the operator for long ones goes over blocks of them, on one thread."""
    if dropout_p != 0 or query.dim() != 4 or query.dtype not in (*_WIDE, *_HALF) or not query.dtype == key.dtype == value.dtype:
        return False
    longest = _LONGEST * query.shape[3]
    same = query.shape[:2] == key.shape[:2] and key.shape == value.shape and query.shape[3] == key.shape[3]
    if not same or query.numel() == 0 or key.numel() == 0 or query.shape[2] > longest or key.shape[2] > longest or _lies_by_heads(query) is None:
        return False
    return mask is None or (mask.dim() in (2, 4) and mask.dtype == query.dtype and not mask.requires_grad)


def _as_floats(*tensors):
    """What is computed with: half precision is floats inside of the operators, too."""
    return [_aten._to_copy.default(x, dtype=torch.float32) if x is not None and x.dtype in _HALF else x for x in tensors]


def _as_before(x, like):
    return x if x.dtype == like.dtype else _aten._to_copy.default(x, dtype=like.dtype)


def _by_heads(x):
    """As [batch * heads, length, depth], which products take."""
    x = x if x.is_contiguous() else _aten.clone.default(x, memory_format=torch.contiguous_format)
    return _aten.view.default(x, [x.shape[0] * x.shape[1], x.shape[2], x.shape[3]])


def _from_heads(x, batch, transposed):
    """Of [batch * heads, length, depth]: four dims again, in memory as [batch, length, heads, depth] where so asked."""
    x = _aten.view.default(x, [batch, x.shape[0] // batch, x.shape[1], x.shape[2]])
    if not transposed:
        return x
    return _aten.transpose.int(_aten.clone.default(_aten.transpose.int(x, 1, 2), memory_format=torch.contiguous_format), 1, 2)


def _scores(query, key, is_causal, mask, scale):
    """[batch, heads, length, length of the keys]: what softmax is taken of. -inf: not to be seen."""
    batch, heads, rows, depth = query.shape
    columns = key.shape[2]
    scores = _aten.bmm.default(_by_heads(query), _aten.transpose.int(_by_heads(key), 1, 2))
    scores = _aten.mul.Tensor(_aten.view.default(scores, [batch, heads, rows, columns]), 1 / math.sqrt(depth) if scale is None else scale)
    if mask is not None:
        scores = _aten.add.Tensor(scores, mask)
    if is_causal:
        row = _aten.unsqueeze.default(_aten.arange.default(rows, device=query.device), 1)
        later = _aten.gt.Tensor(_aten.arange.default(columns, device=query.device), row)
        scores = _where(later, -math.inf, scores)
    return scores


def _softmax(scores, mask):
    """(weights, largest score of each row, sum that its weights were divided by). Not by way of the logarithm of that sum, as the operator's backward goes: it is
    rounded by as much as large scores are, and where one weight is nearly 1, gradients of scores are what two equal sums leave."""
    most = _aten.amax.default(scores, [-1], True)
    if mask is not None:  # a row that sees nothing gives zeros, and 0 in place of the logarithm
        most = _where(_aten.eq.Scalar(most, -math.inf), 0.0, most)
    shares = _aten.exp.default(_aten.sub.Tensor(scores, most))
    total = _aten.sum.dim_IntList(shares, [-1], True)
    if mask is not None:
        total = _where(_aten.eq.Scalar(total, 0), 1.0, total)
    return _aten.div.Tensor(shares, total), most, total


def _flash_attention(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    """Only where gradients are wanted; without them there is a kernel for all of it."""
    wanted = query.requires_grad or key.requires_grad or value.requires_grad
    if not wanted or not _is_short_attention(query, key, value, dropout_p, attn_mask):
        return NotImplemented
    asked, given = query, (key, attn_mask, is_causal, scale)
    query, key, value, attn_mask = _as_floats(query, key, value, attn_mask)
    weights, most, total = _softmax(_scores(query, key, is_causal, attn_mask, scale), attn_mask)
    asked.kintsugi_weights = (given, weights)
    logsum = _aten.squeeze.dim(_aten.add.Tensor(most, _aten.log.default(total)), 3)
    logsum = _aten.transpose.int(_aten.clone.default(_aten.transpose.int(logsum, 1, 2), memory_format=torch.contiguous_format), 1, 2)
    out = _aten.bmm.default(_by_heads(weights), _by_heads(value))
    return _as_before(_from_heads(out, query.shape[0], _lies_by_heads(query)), asked), logsum


def _weights_of(query, key, is_causal, mask, scale):
    """Those that the forward made of the same tensors, which left them with its query. Made anew they would be calls of their own: nobody sees that calls are equal."""
    (other, *settings), weights = getattr(query, "kintsugi_weights", ((None,), None))
    return weights if other is key and settings[0] is mask and settings[1:] == [is_causal, scale] else None


def _flash_attention_backward(grad, query, key, value, out, logsum, dropout_p, is_causal, *, attn_mask=None, scale=None):
    if not _is_short_attention(query, key, value, dropout_p, attn_mask) or grad.dtype != query.dtype:
        return NotImplemented
    batch, heads, rows, depth = query.shape
    asked, weights = query, _weights_of(query, key, is_causal, attn_mask, scale)
    query, key, value, out, grad, attn_mask = _as_floats(query, key, value, out, grad, attn_mask)
    if weights is None:
        weights, _, _ = _softmax(_scores(query, key, is_causal, attn_mask, scale), attn_mask)
    flat, back = _by_heads(weights), _by_heads(grad)
    dvalue = _aten.bmm.default(_aten.transpose.int(flat, 1, 2), back)
    dweights = _aten.bmm.default(back, _aten.transpose.int(_by_heads(value), 1, 2))
    dot = _aten.sum.dim_IntList(_aten.mul.Tensor(grad, out), [-1], True)
    dscores = _aten.sub.Tensor(_aten.view.default(dweights, list(weights.shape)), dot)
    dscores = _aten.mul.Tensor(_aten.mul.Tensor(weights, dscores), 1 / math.sqrt(depth) if scale is None else scale)
    dscores = _by_heads(dscores)
    dquery = _aten.bmm.default(dscores, _by_heads(key))
    dkey = _aten.bmm.default(_aten.transpose.int(dscores, 1, 2), _by_heads(query))
    return tuple(_as_before(_from_heads(x, batch, True), asked) for x in (dquery, dkey, dvalue))


# -- parts -----------------------------------------------------------------------------------------------------------


def _slice_backward(grad, sizes, dim, start, end, step):
    return _aten.slice_scatter.default(_aten.new_zeros.default(grad, sizes), grad, dim, start, end, step)


def _select_backward(grad, sizes, dim, index):
    return _aten.select_scatter.default(_aten.new_zeros.default(grad, sizes), grad, dim, index)


# -- embeddings, and bags of them ------------------------------------------------------------------------------------

def _leave_if_sparse(weight, sparse):
    """Gradients of a graph are dense. An embedding whose gradients are to be sparse stays by itself, so that the calls around it are compiled."""
    if sparse and weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("gradients of an embedding are sparse")
    return NotImplemented


def _embedding(weight, indices, padding_idx=-1, by_frequency=False, sparse=False):
    return _leave_if_sparse(weight, sparse)


def _embedding_bag(weight, indices, offsets, by_frequency=False, mode=0, sparse=False, *others):
    return _leave_if_sparse(weight, sparse)


_SUM, _MEAN = 0, 1


def _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, by_frequency, mode, sparse, sample_weights,
                            padding_idx=-1):
    """Each row that was read gets the gradient of its bag. Which bag that is, PyTorch finds out in the same way: it counts the offsets up to the row."""
    if (by_frequency or sparse or mode not in (_SUM, _MEAN) or sample_weights is not None or not _are_wide(grad) or grad.dim() != 2
            or indices.dim() != 1 or indices.shape[0] == 0):
        return NotImplemented
    rows = indices.shape[0]
    if mode == _MEAN:
        sizes = _aten._to_copy.default(_aten.slice.Tensor(bag_size, 0, 0, grad.shape[0]), dtype=grad.dtype)
        grad = _aten.div.Tensor(grad, _aten.unsqueeze.default(sizes, 1))
    begins = _aten.index_add.default(_aten.new_zeros.default(offsets, [rows + 1]), 0, offsets, _aten.ones_like.default(offsets))
    bags = _aten.sub.Tensor(_aten.cumsum.default(_aten.slice.Tensor(begins, 0, 0, rows), 0), 1)
    return _aten.embedding_dense_backward.default(_aten.index_select.default(grad, 0, bags), indices, num_weights, padding_idx, False)


# -- complex numbers -------------------------------------------------------------------------------------------------

# What is conjugated or negated only says so, in eager as well as for the program's own calls; nobody but other operators sees what autograd makes of it, and gradients are as
# good with the elements that they have.
BACK = {"aten._conj.default": lambda x: _aten._conj_physical.default(x),
        "aten._neg_view.default": lambda x: _aten.neg.default(x)}

TABLE = {"aten.bernoulli_.float": _bernoulli_,
         "aten.cauchy_.default": _drawn_by(_aten.cauchy.default),
         "aten.exponential_.default": _drawn_by(_aten.exponential.default),
         "aten.geometric_.default": _drawn_by(_aten.geometric.default),
         "aten.log_normal_.default": _drawn_by(_aten.log_normal.default),
         "aten.normal_.default": _drawn_by(_aten.normal_functional.default),
         "aten.uniform_.default": _drawn_by(_uniform),
         "aten.native_batch_norm.default": _native_batch_norm,
         "aten.native_batch_norm_backward.default": _native_batch_norm_backward,
         "aten.native_layer_norm_backward.default": _native_layer_norm_backward,
         "aten.threshold_backward.default": _threshold_backward,
         "aten.tanh_backward.default": _tanh_backward,
         "aten.sigmoid_backward.default": _sigmoid_backward,
         "aten.silu_backward.default": _silu_backward,
         "aten.gelu_backward.default": _gelu_backward,
         "aten.leaky_relu_backward.default": _leaky_relu_backward,
         "aten.hardtanh_backward.default": _hardtanh_backward,
         "aten._softmax_backward_data.default": _softmax_backward_data,
         "aten._log_softmax_backward_data.default": _log_softmax_backward_data,
         "aten.nll_loss_backward.default": _nll_loss_backward,
         "aten.mse_loss_backward.default": _mse_loss_backward,
         "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash_attention,
         "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _flash_attention_backward,
         "aten.slice_backward.default": _slice_backward,
         "aten.select_backward.default": _select_backward,
         "aten.embedding.default": _embedding,
         "aten._embedding_bag.default": _embedding_bag,
         "aten._embedding_bag_backward.default": _embedding_bag_backward}
