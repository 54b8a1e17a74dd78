"""f(x + 1, *found) is one call of a graph, wherever the operands behind the star were found: the call before it need not be over."""
import pytest
import torch
from launches import kintsugi

NOTHING = ()
AXIS = (0,)


class Found(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.nothing, self.axis, self.listed, self.named = (), (0,), [0], {}

    def forward(self, x):
        y = torch.abs(x * 2, *self.nothing, **self.named)
        y = torch.cumsum(y + 1, *self.axis)
        return torch.cumsum(y + 1, *self.listed).sin()


def in_globals(x):
    return torch.cumsum(torch.abs(x * 2, *NOTHING) + 1, *AXIS).sin()


def in_defaults(x, args=(), kwargs={}, function=torch.abs):
    return function(x * 2, *args, **kwargs).sin()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("fn", [Found(), in_globals, in_defaults], ids=["module", "globals", "defaults"])
def test_one_part(fn):
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled(x), fn(x))
    assert {row["parts"] for row in kintsugi.stats(compiled)["kernels"]} == {1}


@pytest.mark.usefixtures("kernels")
def test_other_operands_later():
    module = Found()
    compiled = kintsugi.compile(module)
    for change in (lambda: None, lambda: setattr(module, "axis", (1,)), lambda: module.listed.__setitem__(0, 1), lambda: None):
        change()
        x = torch.randn(4, 5)
        torch.testing.assert_close(compiled(x), module(x))
