"""Numbers that Python asks of tensors made of numbers alone (n = torch.tensor(3); x[: n - 1]) are known when the graph is captured: the call that asks stays in the graph."""
import pytest
import torch
from launches import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")


def end_of_slice(x):
    n = torch.tensor(3)
    return (x * 2)[: n - 1].sin()


def limit(x):
    n = torch.tensor(3)
    return torch.clamp(x * 2, 0, n * 2 - 1) + 1


def of_the_size(x):
    n = torch.tensor(min(x.size(0), 100))
    return (x * 2)[: n - 1].sin() + torch.clamp(x[1:100] * 3, 0, n * 2 - 1)


def of_a_minimum(x):
    n = torch.clamp(torch.tensor(x.size(0)) * 2 - 3, max=11)
    return torch.clamp(x * 20, 0, n * 1) + 1


def divided(x):
    n = torch.tensor(x.size(0)) // 2
    return (x * 2)[:n].sin()


def of_a_list(x):
    n = torch.tensor([1, x.size(0) - 1, 2])
    return (x * 2)[n[0] : n[1]].sin()


def of_a_dim(x):
    n = torch.tensor(1)
    return (x * 2).sum(n.item()) + 1


WHOLE = [end_of_slice, limit, of_the_size, of_a_minimum]
SIZES = [5, 5, 9, 6, 7, 30, 12, 4, 17, 3, 8, 100, 120, 64]


@pytest.mark.parametrize("fn", [*WHOLE, divided, of_a_list, of_a_dim], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_as_eager(fn, dynamic):
    compiled = kintsugi.compile(fn, dynamic=dynamic, name=f"known {fn.__name__} {dynamic}")
    for n in SIZES:
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))
    rows = kintsugi.stats(compiled)["kernels"]
    assert fn not in WHOLE or {row["parts"] for row in rows} == {1}, rows
    assert not [event for event in kintsugi.events() if event["event"] == "bug" and event["name"].startswith("known ")]


def test_numbers_that_differ_from_call_to_call():
    def fn(x, k):
        n = torch.clamp(torch.tensor(k), max=10)
        return torch.clamp(x * 20, 0, n) + 1

    compiled = kintsugi.compile(fn)
    for k in [12, 13, 40, 20, 15, 5, 3, 60, 11, 2, 10, 9]:
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x, k), fn(x, k))


def test_what_is_written_to_is_asked_for():
    def fn(x, y):
        n = torch.tensor(3)
        n.add_(1)
        m = torch.tensor(2)
        view = m.view(1)
        view[0] = y.shape[0]
        return torch.clamp(x * 2, 0, n) + torch.clamp(x * 3, 0, m)

    compiled = kintsugi.compile(fn)
    for rows in (3, 4, 3, 5, 6, 3):
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x, torch.ones(rows)), fn(x, torch.ones(rows)))


def test_data_stays_data():
    def fn(x, n):
        return torch.clamp(x * 2, 0, n + torch.tensor(1)).sin()

    compiled = kintsugi.compile(fn)
    for k in (1, 2, 3, 2, 1, 7):
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x, torch.tensor(k)), fn(x, torch.tensor(k)))


@torch.jit.script
def scripted(x, most: int):
    return torch.tensor(min(max(x.size(0), 4), most))


def test_what_torchscript_makes():
    def fn(x):
        n = scripted(x, 20)
        return torch.clamp(x * 30, 0, n * 2 - 1) + x[: n - 2].sum()

    compiled = kintsugi.compile(fn)
    for n in [5, 5, 9, 6, 7, 30, 12, 4, 2, 17, 3, 8, 100, 20, 21, 64]:
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), fn(x))
    assert {row["parts"] for row in kintsugi.stats(compiled)["kernels"]} == {1}


def test_beside_open_numbers():
    def fn(x, scale, k):
        n = torch.tensor(x.shape[1])
        m = torch.tensor([k, 3])
        return torch.clamp(x * scale, 0, n + 1) + torch.clamp(x * scale, 0, m[0] + 1)

    compiled = kintsugi.compile(fn)
    for i in range(12):
        x = torch.randn(6, 4) * 20
        torch.testing.assert_close(compiled(x, 1.5 + i, i % 5), fn(x, 1.5 + i, i % 5))
