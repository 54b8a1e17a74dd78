"""options={"validate": ...}: compiled graphs against their steps; what differs is told, not used again, and never reaches the program."""

import pytest
import torch
from launches import engine, kintsugi

from kintsugi import _validate

PASSES = ["lower", "simplify", "rewrite", "channels-last", "simplify-rewritten", "hoist", "split", "in-place", "own-outputs", "fuse"]


@pytest.fixture(autouse=True)
def _kernels(kernels):
    yield
    engine._set_fault("")


def program(x, w):
    y = torch.relu(x @ w + 1)
    return torch.tanh(y * 2) - y.sum(-1, keepdim=True)


def run(size, calls=6, options=None, fn=program):
    compiled = kintsugi.compile(fn, options=options if options is not None else {"validate": 3})
    generator = torch.Generator().manual_seed(size)
    x, w = torch.randn(size, size, generator=generator), torch.randn(size, size, generator=generator)
    with torch.no_grad():
        results = [(compiled(x.clone(), w), fn(x.clone(), w)) for _ in range(calls)]
    return compiled, results


def events(kind):
    return [event for event in kintsugi.events() if event["event"] == kind]


def rows(compiled):
    return [row for row in kintsugi.stats(compiled)["kernels"]]


def test_code_that_is_right_is_used():
    before = len(events("differ"))
    compiled, results = run(13)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in results)
    assert all(row["compiled"] for row in rows(compiled)) and len(events("differ")) == before


def is_planted(name, size):
    """Does a wrong result of this pass change what the program computes? Without validation it shows."""
    engine._set_fault(f"pass {name} wrong")
    _, results = run(size, options={})
    return not all(torch.allclose(a, b, atol=1e-3) for a, b in results)


@pytest.mark.parametrize("name", PASSES)
def test_a_miscompile_is_found_and_never_seen(name):
    size = 20 + PASSES.index(name)
    if not is_planted(name, size):
        pytest.skip("this pass has nothing to do in the program")
    before = len(events("differ"))
    assert engine._set_fault(f"pass {name} wrong")
    compiled, results = run(size + 20)
    engine._set_fault("")
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in results)
    found = events("differ")[before:]
    assert found and "output 1 of 1 differs by" in found[-1]["text"] and found[-1]["name"] == "program"
    assert all(not row["compiled"] and "differ from eager's" in row["reason"] for row in rows(compiled))


def test_a_share_of_launches():
    """A share of one is all launches; the first one is always among them."""
    assert engine._set_fault("pass fuse wrong")
    compiled, results = run(63, options={"validate": 1.0})
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in results)
    assert not rows(compiled)[0]["compiled"]


def test_inputs_that_are_written_to():
    def writes(x, w):
        x.mul_(2).add_(w)
        return x.sum()

    compiled = kintsugi.compile(writes, options={"validate": 2})
    x, w = torch.ones(7, 7), torch.full((7, 7), 3.0)
    y = x.clone()
    with torch.no_grad():
        for _ in range(5):
            assert torch.equal(compiled(x, w), writes(y, w)) and torch.equal(x, y)
    assert all(row["compiled"] for row in rows(compiled))


def test_random_numbers_are_drawn_once():
    def noisy(x):
        return torch.nn.functional.dropout(x, 0.5) * 2 + 1

    compiled = kintsugi.compile(noisy, options={"validate": 4})
    with torch.no_grad():
        for call in range(6):
            torch.manual_seed(call)
            ours = compiled(torch.ones(64))
            after = torch.rand(1)
            torch.manual_seed(call)
            assert torch.equal(ours, noisy(torch.ones(64))) and torch.equal(after, torch.rand(1))


def test_gradients_with_validation():
    weight = torch.randn(5, 5, requires_grad=True)
    compiled = kintsugi.compile(lambda x: torch.tanh(x @ weight).sum(), options={"validate": 2})
    x = torch.randn(5, 5)
    for _ in range(5):
        weight.grad = None
        compiled(x).backward()
        ours = weight.grad
        weight.grad = None
        torch.tanh(x @ weight).sum().backward()
        torch.testing.assert_close(ours, weight.grad)


@pytest.mark.parametrize("value", [-1, True, 0.0, 1.5, "all"])
def test_wrong_values(value):
    with pytest.raises(TypeError, match="validate"):
        kintsugi.compile(program, options={"validate": value})


def test_the_referee():
    a = torch.tensor([1.0, 2.0, 3.0])
    near, far = a * (1 + 3e-4), a * 1.01
    assert _validate.difference(a, a.clone()) == "" and "differs by" in _validate.difference(a, near)
    truth = a.double() * (1 + 2e-4)  # eager is off by as much as compiled code
    assert _validate.difference(a, near, truth) == "" and "differs by" in _validate.difference(a, far, truth)
    nan = torch.tensor([1.0, float("nan"), 3.0])
    assert _validate.difference(nan, nan.clone()) == "" and "NaNs" in _validate.difference(a, nan)
    assert "2 of 3 elements" in _validate.difference(torch.tensor([1, 2, 3]), torch.tensor([1, 3, 4]))
    assert "is float64[3], not float32[3]" in _validate.difference(a, a.double())


def test_numbers_that_tensors_gave_differ_in_last_digits():
    from kintsugi import _validate

    assert _validate.difference(0.021984737366437912, 0.021984754130244255) == _validate.difference(float("nan"), float("nan")) == ""
    assert _validate.difference(1.0, 1.001) == "is 1.001, not 1.0" and _validate.difference(0.0, 1e-9) and _validate.difference(1, 2) and _validate.difference(1.0, 1)
