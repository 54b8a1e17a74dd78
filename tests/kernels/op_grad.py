"""Gradients of one sample of one operator (op_suite.py --grad): those of the compiled graph are eager's, within the tolerances of torch.testing.

The operator and copies of what it gives are one graph; its results are gone back from with tangents drawn once, three times: the recording, the call
that compiles forward and backward, one that uses them. Compared are results, gradients of all inputs, which of them are None, and what raises. What is out of
tolerance is measured against eager in float64: sums that are kept in float32 differ from eager's in bfloat16, and are closer to the truth.
"""
import torch


def leaves(tensors, wanting):
    """Copies that lie as these do and want gradients as they did."""
    made = []
    for t, wants in zip(tensors, wanting):
        copy = t.detach().clone() if t.layout is not torch.strided else torch.empty(0, dtype=t.dtype).set_(
            t.detach().untyped_storage().clone(), t.storage_offset(), t.size(), t.stride())
        made.append(copy.requires_grad_(wants))
    return made


def flat(value):
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def call(fn, tensors, wanting):
    """(results, gradients or None); what it raises, as text."""
    torch.manual_seed(3)
    inputs = leaves(tensors, wanting)
    results = flat(fn(*inputs))
    back = [r for r in results if r.requires_grad]
    generator = torch.Generator().manual_seed(5)
    tangents = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.dtype) for r in back]
    want = [t for t in inputs if t.requires_grad]
    if not back or not want:
        return [r.detach() for r in results], None
    return [r.detach() for r in results], list(torch.autograd.grad(back, want, tangents, allow_unused=True))


def different(wanted, got, same):
    """None, or what is different. same: op_suite's comparison of lists of tensors."""
    wrong = same(torch, wanted[0], got[0])
    if wrong or (wanted[1] is None) != (got[1] is None):
        return wrong or "gradients, or none"
    if wanted[1] is None:
        return None
    if [g is None for g in wanted[1]] != [g is None for g in got[1]]:
        return f"gradients {['None' if g is None else 'there' for g in got[1]]} instead of {['None' if g is None else 'there' for g in wanted[1]]}"
    # How a gradient lies is up to the operator's own backward; torch lays it out as the leaf lies where it accumulates.
    pairs = [(a, b) for a, b in zip(wanted[1], got[1]) if a is not None]
    plain = [[t.clone(memory_format=torch.contiguous_format) if t.layout is torch.strided else t for t in side] for side in zip(*pairs)] or [[], []]
    wrong = same(torch, *plain)
    return wrong and f"gradient: {wrong}"


# How far from float64, where eager is nearer: rounding. Sums of eager's own go in an order that depends on the processor, too.
ROUNDINGS, WORSE = 8, 3   # float32: of the largest element; times as far as eager, where small errors become large ones on the way
COARSE = 1e-2             # others: of the largest element


def allowed(truth, dtype, eager):
    """How far a tensor may be from the one in float64; eager: how far eager's is."""
    most = float(truth.abs().max())
    if dtype == torch.float32:
        return max(WORSE * eager, ROUNDINGS * torch.finfo(dtype).eps * most)
    return max(eager, COARSE * most) if dtype.is_floating_point else eager


def is_closer(fn, tensors, wanting, wanted, got):
    """Are these results and gradients as near to those in float64 as eager's, but for rounding?"""
    try:
        exact = call(fn, [t.detach().double() if t.is_floating_point() and t.layout is torch.strided else t.detach() for t in tensors], wanting)
        for truth, a, b in zip([*exact[0], *exact[1]], [*wanted[0], *wanted[1]], [*got[0], *got[1]], strict=True):
            if truth is not None and truth.numel() and not float((b.double() - truth).abs().max()) <= allowed(truth, b.dtype, float((a.double() - truth).abs().max())):
                return False
        return all(t.dtype != torch.float64 for t in tensors)
    except Exception:
        return False


def check(fn, tensors, wanting, undefined, same):
    """(difference or None, the compiled function); None when eager refuses the sample."""
    import kintsugi

    try:
        wanted = call(fn, tensors, wanting)
        again = call(fn, tensors, wanting)
    except Exception:
        return None
    undefined = undefined or different(wanted, again, same) is not None
    kintsugi.reset()
    compiled = kintsugi.compile(fn)
    for turn in range(3):
        try:
            got = call(compiled, tensors, wanting)
        except Exception as error:
            return f"call {turn}: {type(error).__name__}: {str(error)[:150]}", compiled
        wrong = None if undefined else different(wanted, got, same)
        if wrong is not None and not ("not close" in wrong and is_closer(fn, tensors, wanting, wanted, got)):
            return f"call {turn}: {wrong}", compiled
    return None, compiled
