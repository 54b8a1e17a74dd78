"""Operators that do a whole attention layer or a whole transformer layer, in terms of smaller ones.

PyTorch's modules call them in evaluation, and inside they are calls of BLAS one after the other. In a graph, the parts fuse, their
products share an input, and weights are kept packed. While a subgraph is captured, these functions are called in place of the operators;
they call nothing but ATen operators, and answer NotImplemented, before the first, for arguments that they do not cover.
"""

import math

import torch

from . import _compose_index, _compose_training

_aten = torch.ops.aten


_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _is_plain(x, width):
    return x.dim() == 3 and x.dtype in _DTYPES and not x.is_nested and x.shape[2] == width and x.numel() > 0


def _hidden(mask, mask_type, batch, heads, length):
    """What no row may see, as bool, with four dims; None: nothing is hidden. NotImplemented: sizes that do not belong to the type.

    Whatever is not 0 hides, in masks of numbers too: that is what the operators make of them."""
    if mask is None:
        return None
    wanted = {0: ((length, length), [1, 1, length, length]), 1: ((batch, length), [batch, 1, 1, length]),
              2: ((batch, heads, length, length), [batch, heads, length, length])}.get(mask_type)
    if wanted is None or tuple(mask.shape) != wanted[0]:
        return NotImplemented
    mask = mask if mask.dtype == torch.bool else _aten.ne.Scalar(mask, 0)
    return mask if mask_type == 2 else _aten.view.default(mask, wanted[1]) if mask.is_contiguous() else _aten.reshape.default(mask, wanted[1])


def _linear(x, weight, bias):
    """x is [rows, width]."""
    return _aten.addmm.default(bias, x, _aten.t.default(weight))


def _heads(x, batch, length, heads):
    """[batch * length, width] as [batch, heads, length, depth]."""
    return _aten.transpose.int(_aten.view.default(x, [batch, length, heads, x.shape[1] // heads]), 1, 2)


def _dense(x, sizes):
    x = x if x.is_contiguous() else _aten.clone.default(x, memory_format=torch.contiguous_format)
    return _aten.view.default(x, sizes)


def _attend(q, k, v, hidden):
    flash = _aten._scaled_dot_product_flash_attention_for_cpu.default
    if hidden is None:
        return flash(q, k, v)[0]
    zero = _aten.full.default([], 0.0, dtype=q.dtype, device=q.device)
    out = flash(q, k, v, attn_mask=_aten.where.self(hidden, _aten.full.default([], -math.inf, dtype=q.dtype, device=q.device), zero))[0]
    # Rows that see nothing: the operators divide 0 by 0 there, attention gives zeros.
    return _aten.masked_fill.Scalar(out, _aten.all.dim(hidden, -1, True), math.nan)


def _attend_with_weights(q, k, v, hidden):
    batch, heads, length, depth = q.shape
    flat = [batch * heads, length, depth]
    scores = _aten.bmm.default(_dense(_aten.mul.Tensor(q, 1 / math.sqrt(depth)), flat), _aten.transpose.int(_dense(k, flat), 1, 2))
    if hidden is not None:
        scores = _aten.view.default(_aten.masked_fill.Scalar(_aten.view.default(scores, [batch, heads, length, length]), hidden, -math.inf),
                                    list(scores.shape))
    weights = _aten._softmax.default(scores, -1, False)
    out = _aten.bmm.default(weights, _dense(v, flat))
    return _aten.view.default(out, [batch, heads, length, depth]), _aten.view.default(weights, [batch, heads, length, length])


def _attention(x, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, need_weights, hidden):
    """([batch * length, width], weights or None) for x [batch, length, width]."""
    batch, length, width = x.shape
    rows = _dense(x, [batch * length, width])
    parts = []
    for i in range(3):
        weight = _aten.slice.Tensor(qkv_weight, 0, i * width, (i + 1) * width)
        bias = _aten.slice.Tensor(qkv_bias, 0, i * width, (i + 1) * width)
        parts.append(_heads(_linear(rows, weight, bias), batch, length, heads))
    if need_weights:
        out, weights = _attend_with_weights(*parts, hidden)
    else:
        out, weights = _attend(*parts, hidden), None
    out = _dense(_aten.transpose.int(out, 1, 2), [batch * length, width])
    return _linear(out, proj_weight, proj_bias), weights


def _native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None,
                                 need_weights=True, average_attn_weights=True, mask_type=None):
    if query is not key or key is not value or not _is_plain(query, embed_dim) or qkv_weight.dtype != query.dtype:
        return NotImplemented
    hidden = _hidden(mask, mask_type, query.shape[0], num_head, query.shape[1])
    if hidden is NotImplemented:
        return NotImplemented
    out, weights = _attention(query, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, need_weights, hidden)
    if need_weights and average_attn_weights:
        weights = _aten.div.Tensor(_aten.sum.dim_IntList(weights, [1]), num_head)
    return _aten.view.default(out, list(query.shape)), weights


def _transformer_encoder_layer_fwd(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
                                   norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                                   ffn_bias_2, mask=None, mask_type=None):
    if not _is_plain(src, embed_dim) or qkv_weight.dtype != src.dtype:
        return NotImplemented
    hidden = _hidden(mask, mask_type, src.shape[0], num_heads, src.shape[1])
    if hidden is NotImplemented:
        return NotImplemented

    def norm(x, weight, bias):
        return _aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]

    shape = list(src.shape)
    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    out, _ = _attention(x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, False, hidden)
    x = _aten.add.Tensor(_aten.view.default(out, shape), src)
    before = x = x if norm_first else norm(x, norm_weight_1, norm_bias_1)
    x = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    x = _linear(_dense(x, [shape[0] * shape[1], embed_dim]), ffn_weight_1, ffn_bias_1)
    x = _aten.gelu.default(x) if use_gelu else _aten.relu.default(x)
    x = _aten.add.Tensor(_aten.view.default(_linear(x, ffn_weight_2, ffn_bias_2), shape), before)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


BACK = _compose_training.BACK  # where autograd goes back only
TABLE = {**_compose_training.TABLE,
         **_compose_index.TABLE,
         "aten._native_multi_head_attention.default": _native_multi_head_attention,
         "aten._transformer_encoder_layer_fwd.default": _transformer_encoder_layer_fwd}
