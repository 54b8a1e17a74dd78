"""Layers of nn.LSTM and nn.GRU while forward and backward are captured as one graph: for each layer and direction one operator, and one that goes back.

The operators are those of torch's oneDNN layers, with a number of the cell that torch does not have: core/rewrite/match_recurrent.c knows them by it and
puts kernels of our own in their place. What such a layer keeps is all that the one that goes back needs.
"""

import torch

_aten = torch.ops.aten

_OURS = 16  # added to torch's numbers of cells
_LSTM, _GRU = 2, 3
_CELLS = {"lstm": (_LSTM, 4, 5), "gru": (_GRU, 3, 4)}  # number, gates, values that each step keeps (core/kernels/recurrent.h)
_MODE_FORWARD, _MODE_BACKWARD = 9, 14  # which argument is the number of the cell


# -- operators ---------------------------------------------------------------------------------------------------------


def _layer(x, w_input, w_state, b_input, b_state, h, c, reverse, sizes, mode, width, layers, biases, both, batch_first, train):
    """The forward operator: on meta tensors what it returns, else by torch's own layers, which autograd knows."""
    lstm = mode - _OURS == _LSTM
    if x.is_meta:
        kept = x.new_empty(*x.shape[:2], _CELLS["lstm" if lstm else "gru"][2] * width)
        return x.new_empty(*x.shape[:2], width), h.new_empty(h.shape), h.new_empty(h.shape if lstm else 0), kept
    weights = [w_input, w_state, b_input, b_state] if biases else [w_input, w_state]
    given, function = (x.flip(0) if reverse else x), (torch.lstm if lstm else torch.gru)
    first = h.unsqueeze(0)
    out, *last = function(given, (first, c.unsqueeze(0)) if lstm else first, weights, biases, 1, 0.0, True, False, False)
    last = [one.squeeze(0) for one in last]
    return out.flip(0) if reverse else out, last[0], last[1] if lstm else h.new_empty(0), x.new_empty(0)


def _layer_backward(x, w_input, w_state, b_input, b_state, h, c, *others):
    """What it returns; only kernels of our own know what the layer has kept."""
    if not x.is_meta:
        raise NotImplementedError("kintsugi: gradients of a recurrent layer without a kernel")
    return tuple(t.new_empty(t.shape) for t in (x, w_input, w_state, b_input, b_state, h, c))


# What stands for the operator of that name where its arguments are ours, and which of them tells.
OPERATORS = {
    "aten.mkldnn_rnn_layer.default": (_layer, _MODE_FORWARD),
    "aten.mkldnn_rnn_layer_backward.default": (_layer_backward, _MODE_BACKWARD),
}


def operator(name, args):
    function, mode = OPERATORS[name]
    return function if args[mode] >= _OURS else None


# -- layers ------------------------------------------------------------------------------------------------------------


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w_input, w_state, b_input, b_state, h, c, cell, reverse, biases):
        out, last_h, last_c, kept = _aten.mkldnn_rnn_layer.default(
            x, w_input, w_state, b_input, b_state, h, c, reverse, [], _OURS + cell, h.shape[1], 1, biases, False, False, True)
        ctx.save_for_backward(x, w_input, w_state, b_input, b_state, h, c, out, kept)
        ctx.set_materialize_grads(False)
        ctx.of = (cell, reverse, biases)
        taken = [0] if x.is_contiguous() else []  # eager lays it out anew
        ctx.saved_in_eager = [*taken, *range(1, 8)] if cell == _LSTM else [*taken, 1, 2, 5]
        return (out, last_h, last_c) if cell == _LSTM else (out, last_h)

    @staticmethod
    def backward(ctx, back, back_h, back_c=None):
        *given, out, kept = ctx.saved_tensors
        h, c = given[5:]
        cell, reverse, biases = ctx.of
        back = torch.zeros_like(out) if back is None else back
        back_h = torch.zeros_like(h) if back_h is None else back_h
        back_c = torch.zeros_like(c) if back_c is None else back_c
        made = _aten.mkldnn_rnn_layer_backward.default(
            *given, out, h, c, back, back_h, back_c, reverse, _OURS + cell, h.shape[1], 1, biases, True, False, [], False, kept)
        there = (True, True, True, biases, biases, True, cell == _LSTM)  # what stands in another's place gets nothing
        return *(grad if wanted and of else None for grad, wanted, of in zip(made, ctx.needs_input_grad, there, strict=False)), None, None, None


def _is_plain(tensor, *sizes):
    return isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and tuple(tensor.shape) == sizes


def _suits(name, x, states, weights, biases, layers, directions):
    """Are these layers without projections, of sizes that fit, and not empty?"""
    _, gates, _ = _CELLS[name]
    h, each, parts = states[0], 4 if biases else 2, layers * directions
    if len(states) != (2 if name == "lstm" else 1) or x.dim() != 3 or h.dim() != 3 or 0 in (x.numel(), h.numel()) or len(weights) != parts * each:
        return False
    batch, width, features = x.shape[1], h.shape[2], x.shape[2]
    if not _is_plain(x, *x.shape) or not all(_is_plain(s, parts, batch, width) for s in states):
        return False
    for part in range(parts):
        columns, own = gates * width, weights[part * each : (part + 1) * each]
        taken = features if part < directions else width * directions
        if not _is_plain(own[0], columns, taken) or not _is_plain(own[1], columns, width) or not all(_is_plain(b, columns) for b in own[2:]):
            return False
    return True


def layers(name, x, states, weights, biases, count, dropout, train, both, batch_first):
    """torch.lstm or torch.gru on what stands for tensors; NotImplemented, before anything is called, for arguments that it does not cover."""
    directions, states = 2 if both else 1, list(states) if isinstance(states, (tuple, list)) else [states]
    if name not in _CELLS or torch.is_autocast_enabled("cpu") or not isinstance(x, torch.Tensor) or x.dim() != 3:
        return NotImplemented
    turned = x.transpose(0, 1) if batch_first else x
    if not _suits(name, turned, states, weights, biases, count, directions):
        return NotImplemented
    x, each, last = turned, 4 if biases else 2, []
    for layer in range(count):
        made = []
        for way in range(directions):
            part = layer * directions + way
            own = list(weights[part * each : (part + 1) * each])
            own += own if not biases else []  # in the places of biases, which are not read
            first = [state[part] for state in states]
            out, *ends = _Layer.apply(x, *own, first[0], first[-1], _CELLS[name][0], way == 1, biases)
            made.append(out)
            last.append(ends)
        x = torch.cat(made, -1) if both else made[0]
        if dropout != 0 and train and layer + 1 < count:
            x = torch.dropout(x, dropout, True)
    ends = tuple(torch.stack(list(of)) for of in zip(*last, strict=True))
    return (x.transpose(0, 1) if batch_first else x, *ends)
