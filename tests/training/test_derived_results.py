"""Results that share memory with an input or with each other: what eager knows of their gradients beyond that they are views (detach, views made while gradients are off, hooks
on views, gradients for views)."""
import pytest
import torch
from launches import kintsugi


def of_detached(x, p):
    return p["w"].detach()[:2], x * 2


def of_detached_transposed(x, p):
    with torch.no_grad():
        v = p["w"].detach().t()
    return v


def written_through_detached_view(x, p):
    v = p["w"].detach()[1:]
    v.add_(1)
    return v.t()


def input_detached_and_written(x, p):
    v = x.detach()
    v.mul_(p["b"])
    return v


def input_detached_part_written(x, p):
    v = x.detach()[:]
    v[0] = p["b"]
    return v, x.requires_grad


def result_detached_and_written(x, p):
    h = x @ p["w"]
    d = h.detach()
    d.add_(p["b"])
    return h, d


def part_of_detached_written(x, p):
    h = x @ p["w"]
    d = h.detach()
    d[1:].mul_(p["b"])
    return h, d[:2]


def viewed_detached_written(x, p):
    h = x.unsqueeze(0) @ p["w"]
    v, u = h.view(-1), h.detach().view(-1)
    u.mul_(p["b"][0])
    return v, u


def view_of_view_made_without(x, p):
    with torch.no_grad():
        v = p["w"].view(-1, 2)
    return v.movedim(0, -1)


def result_viewed_without(x, p):
    h = x @ p["w"]
    with torch.no_grad():
        v = h.view(-1, 2)
    return v * 2, v.t(), h


def requires_for_input(x, p):
    y = x * 2
    x.requires_grad_()
    return y


def requires_for_view(x, p):
    y = (x * 2).t()
    y.requires_grad_()
    return y


def input_written_behind_view(x, p):
    v = x.movedim(0, -1)
    x.masked_fill_(x > 0, p["b"].mean())
    return v


def view_written_by_mask(x, p):
    v = x.view(-1)
    v[x.view(-1) > 0] = p["b"].mean()


def gradient_for_view(x, p):
    v = p["w"].expand(2, 6, 6)
    (g,) = torch.autograd.grad((v * v).sum(), v, retain_graph=True)
    return g.clone(), v


def gradient_for_view_of_result(x, p):
    h = x @ p["w"]
    v = h[:2]
    (g,) = torch.autograd.grad((v * v).sum(), v, retain_graph=True)
    return g, v, h


def gradient_for_views_in_list(x, p):
    h = x @ p["w"]
    parts = h.split(2)
    g = torch.autograd.grad(sum((q * q).sum() for q in parts), [parts[0], parts[1]], retain_graph=True)
    return g[0], g[1], h


def view_keeps_gradient(x, p):
    h = x @ p["w"]
    v = h[:2]
    loss = (v * v).sum()
    v.retain_grad()
    loss.backward()
    return v.grad


def hook_on_view(x, p):
    v = p["w"].t()
    loss = (v * v).sum()
    v.register_hook(lambda g: g * 3)
    loss.backward()


def hook_on_view_of_result(x, p):
    h = x @ p["w"]
    v, seen = h[:2], []
    loss = (v * v).sum() + h.sum()
    v.register_hook(lambda g: seen.append(g) or g * 2)
    loss.backward()
    return seen[0]


def gradient_for_written_result(x, p):
    v = x * 2 - p["b"]
    v.add_(x)
    (g,) = torch.autograd.grad((v * v).sum(), v, retain_graph=True)
    return g, v


def hook_on_written_result(x, p):
    v = x * 2 - p["b"]
    v[0] = p["b"]
    loss = (v * v).sum()
    v.register_hook(lambda g: g * 3)
    loss.backward()


def detached_before_write(x, p):
    h = x.detach().sin()
    used = torch.where(h > 0, x, p["b"])
    d, v = h.detach(), h.t()
    print(end="")
    h.add_(p["b"])
    return d, v, h, used


PROGRAMS = [of_detached, of_detached_transposed, written_through_detached_view, input_detached_and_written, input_detached_part_written, result_detached_and_written,
            part_of_detached_written, viewed_detached_written, view_of_view_made_without, result_viewed_without, requires_for_input, requires_for_view,
            input_written_behind_view, view_written_by_mask, gradient_for_view, gradient_for_view_of_result, gradient_for_views_in_list, view_keeps_gradient, hook_on_view,
            hook_on_view_of_result, gradient_for_written_result, hook_on_written_result,
            detached_before_write]


def called(function, wants):
    seen = []
    for i in range(5):
        torch.manual_seed(i)
        p = {"w": torch.randn(6, 6).requires_grad_(), "b": torch.randn(6).requires_grad_()}
        leaf = torch.randn(4, 6).requires_grad_(wants)
        x = leaf * 2
        given = function(x, p)
        given = [x, *(given if isinstance(given, tuple) else (given,))]
        tensors = [t for t in given if isinstance(t, torch.Tensor)]
        marks = [(t.requires_grad, t.is_leaf) if isinstance(t, torch.Tensor) else t for t in given]
        total = sum(((k + 1) * t.sin()).sum() for k, t in enumerate(tensors) if t.requires_grad)
        raised = None
        try:
            if isinstance(total, torch.Tensor):
                total.backward()
        except RuntimeError as e:
            raised = str(e)[:40]
        seen.append((marks, raised, [None if t is None else t.detach().clone() for t in (leaf.grad, p["w"].grad, p["b"].grad, p["w"], *tensors)]))
    return seen


@pytest.mark.parametrize("wants", [False, True], ids=["input", "input with gradients"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager(program, wants):
    for one, other in zip(called(program, wants), called(kintsugi.compile(program), wants), strict=True):
        assert other[:2] == one[:2]
        torch.testing.assert_close(other[2], one[2])
