"""torch._check and its relatives about tensors are nodes of a graph, as they are about numbers; one that fails raises where it stands."""

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def all_positive(x):
    y = x * 2
    torch._check_tensor_all(y > 0, lambda: "not positive")
    return y.sin() + 1


def all_positive_with(x):
    y = x * 2
    torch._check_tensor_all_with(ValueError, y > 0, lambda: "not positive")
    return y.sin() + 1


def number_with(x):
    torch._check_with(ValueError, x.sum().item() > 0, lambda: "not positive")
    return x.sin() + 1


@pytest.mark.parametrize("program, error", [(all_positive, RuntimeError), (all_positive_with, ValueError), (number_with, ValueError)])
def test_check(program, error):
    x = torch.rand(4) + 0.5
    counted = kintsugi.explain(program)(x)
    assert (counted.graph_count, counted.graph_break_count) == (1, 0), str(counted)
    compiled = kintsugi.compile(program, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x), program(x))
    for _ in range(2):
        with pytest.raises(error, match="not positive"):
            compiled(-x)
    assert torch.equal(compiled(x), program(x))
