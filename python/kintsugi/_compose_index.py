"""Operators on indices that would look at data, without that look: assignment where a mask is true (`x[mask] = value`, for values that do not depend on
how often it is), and one_hot.

Called as the functions of `_compose` are, while a graph is captured. Each answers NotImplemented for arguments that it does not cover: the operator then
stays a call. What it raises is the reason why the operator cannot be captured at all.
"""

import torch

_aten = torch.ops.aten


def _place_of_mask(self, indices):
    """The dim of self where the only index, a mask, begins; None: there is another index, or it does not fit."""
    given = [(at, index) for at, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype != torch.bool or given[0][1].dim() == 0:
        return None
    at, mask = given[0]
    return at if tuple(self.shape[at : at + mask.dim()]) == tuple(mask.shape) else None


def _spread(self, at, mask, values):
    """mask and values such that they broadcast to self; None: the values are as many as the mask picks."""
    behind = self.dim() - at - mask.dim()
    sizes = [1] * (at + 1 + behind - values.dim()) + list(values.shape)
    picked = [*self.shape[:at], 1, *self.shape[self.dim() - behind :]]
    if len(sizes) != len(picked) or any(size not in (1, whole) for size, whole in zip(sizes, picked)):
        return None
    values = _aten.reshape.default(values, [*sizes[:at], *([1] * mask.dim()), *sizes[at + 1 :]])
    return _aten.reshape.default(mask, [*([1] * at), *mask.shape, *([1] * behind)]), values


def _index_put(self, indices, values, accumulate=False):
    at = _place_of_mask(self, indices)
    if at is None or values.dtype != self.dtype or self.numel() == 0:
        return NotImplemented
    if values.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("autograd goes back to the values by the elements that the mask picks, and how many these are depends on data")
    spread = _spread(self, at, indices[at], values)
    if spread is None:
        return NotImplemented
    mask, values = spread
    return _aten.where.self(mask, _aten.add.Tensor(self, values) if accumulate else values, self)


def _index_put_(self, indices, values, accumulate=False):
    if any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride())):
        return NotImplemented  # eager refuses to write to an element twice
    made = _index_put(self, indices, values, accumulate)
    return made if made is NotImplemented else _aten.copy_.default(self, made)


# -- with a gradient for the value -------------------------------------------------------------------------------------


def _split_key(self, key):
    """What self[key] = ... writes to with all for the mask, the mask, and the dim where it begins; None: the key is no mask between slices and numbers."""
    key = key if isinstance(key, tuple) else (key,)
    masks = [i for i, one in enumerate(key) if isinstance(one, torch.Tensor)]
    if len(masks) != 1 or key[masks[0]].dtype != torch.bool or key[masks[0]].dim() == 0:
        return None
    before, mask, after = key[: masks[0]], key[masks[0]], key[masks[0] + 1 :]
    if any(one is not Ellipsis and not isinstance(one, (slice, int)) or isinstance(one, bool) for one in (*before, *after)):
        return None
    view = self[(*before, *[slice(None)] * mask.dim(), *after)]
    kept = sum(isinstance(one, slice) for one in (after if Ellipsis in before else before))
    return view, mask, view.dim() - kept - mask.dim() if Ellipsis in before else kept


def assign(self, key, value):
    """self[key] = value for what stands for tensors, by operators through which autograd goes back to the value. NotImplemented: it is something else."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or not torch.is_grad_enabled() or not self.is_floating_point() or self.numel() == 0:
        return NotImplemented
    split = _split_key(self, key)
    spread = None
    if split is not None and _place_of_mask(split[0], [*[None] * split[2], split[1]]) is not None:
        spread = _spread(split[0], split[2], split[1], value.to(self.dtype))
    if spread is None:
        return NotImplemented
    split[0].copy_(torch.where(*spread, split[0]))
    return None


# -- one_hot -----------------------------------------------------------------------------------------------------------


def one_hot(self, num_classes=-1):
    """F.one_hot where the number of classes is given, without its look at the smallest and the largest index: scatter refuses those that are out of range."""
    if not isinstance(num_classes, int) or num_classes <= 0 or self.dtype != torch.int64 or self.numel() == 0:
        return NotImplemented
    return torch.zeros([*self.shape, num_classes], dtype=torch.int64, device=self.device).scatter_(-1, self.unsqueeze(-1), 1)


TABLE = {"aten.index_put.default": _index_put,
         "aten.index_put_.default": _index_put_,
         "aten._unsafe_index_put.default": _index_put}
