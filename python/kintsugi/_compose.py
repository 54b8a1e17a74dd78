"""Operators that do a whole attention layer or a whole transformer layer, in terms of smaller ones.

PyTorch's modules call them in evaluation, and inside they are calls of BLAS one after the other. In a graph, the parts fuse, their
products share an input, and weights are kept packed. While a unit is captured, these functions are called in place of the operators;
they call nothing but ATen operators, and answer NotImplemented, before the first, for arguments that they do not cover.
"""

import math

import torch

_aten = torch.ops.aten


def _is_plain(x, width):
    return x.dim() == 3 and x.dtype == torch.float32 and not x.is_nested and x.shape[2] == width and x.numel() > 0


def _linear(x, weight, bias):
    """x is [rows, width]."""
    return _aten.addmm.default(bias, x, _aten.t.default(weight))


def _heads(x, batch, length, heads):
    """[batch * length, width] as [batch, heads, length, depth]."""
    return _aten.transpose.int(_aten.view.default(x, [batch, length, heads, x.shape[1] // heads]), 1, 2)


def _dense(x, sizes):
    x = x if x.is_contiguous() else _aten.clone.default(x, memory_format=torch.contiguous_format)
    return _aten.view.default(x, sizes)


def _attend_with_weights(q, k, v):
    batch, heads, length, depth = q.shape
    flat = [batch * heads, length, depth]
    scores = _aten.bmm.default(_dense(_aten.mul.Tensor(q, 1 / math.sqrt(depth)), flat), _aten.transpose.int(_dense(k, flat), 1, 2))
    weights = _aten._softmax.default(scores, -1, False)
    out = _aten.bmm.default(weights, _dense(v, flat))
    return _aten.view.default(out, [batch, heads, length, depth]), _aten.view.default(weights, [batch, heads, length, length])


def _attention(x, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, need_weights):
    """([batch * length, width], weights or None) for x [batch, length, width]."""
    batch, length, width = x.shape
    rows = _dense(x, [batch * length, width])
    parts = []
    for i in range(3):
        weight = _aten.slice.Tensor(qkv_weight, 0, i * width, (i + 1) * width)
        bias = _aten.slice.Tensor(qkv_bias, 0, i * width, (i + 1) * width)
        parts.append(_heads(_linear(rows, weight, bias), batch, length, heads))
    if need_weights:
        out, weights = _attend_with_weights(*parts)
    else:
        out, weights = _aten._scaled_dot_product_flash_attention_for_cpu.default(*parts)[0], None
    out = _dense(_aten.transpose.int(out, 1, 2), [batch * length, width])
    return _linear(out, proj_weight, proj_bias), weights


def _native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None,
                                 need_weights=True, average_attn_weights=True, mask_type=None):
    if mask is not None or query is not key or key is not value or not _is_plain(query, embed_dim) or qkv_weight.dtype != torch.float32:
        return NotImplemented
    out, weights = _attention(query, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, need_weights)
    if need_weights and average_attn_weights:
        weights = _aten.div.Tensor(_aten.sum.dim_IntList(weights, [1]), num_head)
    return _aten.view.default(out, list(query.shape)), weights


def _transformer_encoder_layer_fwd(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
                                   norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                                   ffn_bias_2, mask=None, mask_type=None):
    if mask is not None or not _is_plain(src, embed_dim) or qkv_weight.dtype != torch.float32:
        return NotImplemented

    def norm(x, weight, bias):
        return _aten.native_layer_norm.default(x, [embed_dim], weight, bias, eps)[0]

    shape = list(src.shape)
    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    out, _ = _attention(x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, False)
    x = _aten.add.Tensor(_aten.view.default(out, shape), src)
    before = x = x if norm_first else norm(x, norm_weight_1, norm_bias_1)
    x = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    x = _linear(_dense(x, [shape[0] * shape[1], embed_dim]), ffn_weight_1, ffn_bias_1)
    x = _aten.gelu.default(x) if use_gelu else _aten.relu.default(x)
    x = _aten.add.Tensor(_aten.view.default(_linear(x, ffn_weight_2, ffn_bias_2), shape), before)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


TABLE = {"aten._native_multi_head_attention.default": _native_multi_head_attention,
         "aten._transformer_encoder_layer_fwd.default": _transformer_encoder_layer_fwd}
