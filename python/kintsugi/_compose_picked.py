"""What a mask picks, x[mask], while a graph is captured: how many elements these are depends on data, but where all that is done to them is done to each by itself, and they are
then put back where the same mask is true, or summed, the whole tensor can stand for them, and the mask is asked at the end.

What is not picked is 1 instead (0 among integers), so that nothing is done to it that gives NaN, of which a gradient of 0 would make NaN: x[mask] may have been made for that reason.
"""

import math
import operator

import torch


def _like(x, value):
    return torch.full([], value, dtype=x.dtype, device=x.device)


class Picked:
    """The elements of `whole` where the mask, as it was then, is true."""

    def __init__(self, whole, mask, version):
        self.whole, self.mask, self.version = whole, mask, version

    def spread(self):
        return self.mask.reshape([*self.mask.shape, *[1] * (self.whole.dim() - self.mask.dim())])

    def is_of(self, mask):
        return mask is self.mask and mask._version == self.version

    def like(self):
        """What x[mask] could be, of two sizes."""
        one, behind = self.whole.sum(dtype=self.whole.dtype), self.whole.shape[self.mask.dim() :]
        return tuple(one.expand([n, *behind]).clone(memory_format=torch.contiguous_format) for n in (2, 3))

    def _operand(self, other):
        if isinstance(other, Picked):
            if not self.is_of(other.mask) or other.version != self.version or other.whole.shape != self.whole.shape:
                raise NotImplementedError("masks pick what is computed with each other")
            return other.whole
        if isinstance(other, (int, float)) or (isinstance(other, torch.Tensor) and other.dim() == 0 and not other.requires_grad):
            return other
        raise NotImplementedError("what a mask picks is computed with another tensor")

    def apply(self, op, *others):
        """New elements in place of these, each from its own."""
        if not self.whole.is_floating_point() and op not in (operator.add, operator.sub, operator.mul):
            raise NotImplementedError("what a mask picks of integers is computed with")
        whole = op(self.whole, *[self._operand(other) for other in others])
        if whole.shape != self.whole.shape or whole.dtype != self.whole.dtype:
            raise NotImplementedError("what a mask picks becomes something else")
        return Picked(whole, self.mask, self.version)

    def become(self, op, *others):
        self.whole = self.apply(op, *others).whole
        return self

    def __neg__(self):
        return self.apply(operator.neg)


def _binary(name):
    op = getattr(operator, name)
    setattr(Picked, f"__{name}__", lambda self, other: self.apply(op, other))
    setattr(Picked, f"__r{name}__", lambda self, other: self.apply(lambda x, y: op(y, x), other))
    setattr(Picked, f"__i{name}__", lambda self, other: self.become(op, other))


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _binary(_name)


def pick(self, mask):
    """self[mask]; NotImplemented: it is something else."""
    if self.dtype not in (torch.float32, torch.float64, torch.int64, torch.int32) or mask.dtype != torch.bool or mask.dim() == 0 or mask.shape != self.shape[: mask.dim()]:
        return NotImplemented
    picked = Picked(self, mask, mask._version)
    picked.whole = torch.where(picked.spread(), self, _like(self, 1 if self.is_floating_point() else 0))  # class 0 of a loss
    return picked


def put(self, mask, value):
    """self[mask] = value, which the same mask picked."""
    if not value.is_of(mask) or mask.shape != self.shape[: mask.dim()] or value.whole.shape != self.shape or self.dtype != value.whole.dtype:
        raise NotImplementedError("what a mask picks is put elsewhere")
    if any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride())):
        raise NotImplementedError("elements that share memory are written to")
    self.copy_(torch.where(value.spread(), value.whole, self))


def _sum(picked):
    return torch.where(picked.spread(), picked.whole, _like(picked.whole, 0)).sum()


def _mean(picked):
    if not picked.whole.is_floating_point():
        raise NotImplementedError("the mean of integers")
    each = math.prod(picked.whole.shape[picked.mask.dim() :])
    return _sum(picked) / (picked.mask.sum() * each).to(picked.whole.dtype)


def _loss_of_classes(fn, scores, classes, mask, reduction, ignore_index=-100, **others):
    """Of rows of scores and the class of each."""
    if classes.whole.dtype != torch.int64 or (mask.dim(), mask.dim() + 1) != (classes.whole.dim(), scores.whole.dim()):
        raise NotImplementedError("what a mask picks is an operand of a loss")
    rows, at, mask = scores.whole.reshape(-1, scores.whole.shape[-1]), classes.whole.reshape(-1), mask.reshape(-1)
    each = fn(rows, at, ignore_index=ignore_index, reduction="none", **others)
    total = torch.where(mask, each, _like(each, 0)).sum()
    return total if reduction == "sum" else total / (mask & (at != ignore_index)).sum().to(each.dtype)


def loss(fn, x, y, **others):
    """A loss of torch.nn.functional of what is picked of two tensors."""
    reduction = others.pop("reduction", "mean")
    known = {"ignore_index", "label_smoothing", "beta", "delta"}
    if not (isinstance(x, Picked) and isinstance(y, Picked) and x.is_of(y.mask) and x.version == y.version) or reduction not in ("mean", "sum") or not known.issuperset(others):
        raise NotImplementedError("what a mask picks is an operand of a loss")
    if fn.__name__ in ("cross_entropy", "nll_loss"):
        return _loss_of_classes(fn, x, y, x.mask, reduction, **others)
    if x.whole.shape != y.whole.shape or x.whole.dtype != y.whole.dtype or not x.whole.is_floating_point():
        raise NotImplementedError("what a mask picks is an operand of a loss")
    each = Picked(fn(x.whole, y.whole, reduction="none", **others), x.mask, x.version)
    return _sum(each) if reduction == "sum" else _mean(each)


def call(name, picked, *others):
    """A method or function of torch of this name."""
    if name in ("sum", "mean"):
        return (_sum if name == "sum" else _mean)(picked)
    if not isinstance(picked, Picked):
        raise NotImplementedError("what a mask picks is an operand of a call")
    return (picked.become if name.endswith("_") else picked.apply)(getattr(torch.Tensor, name.rstrip("_")), *others)
