"""What stands between the calls of a graph and does not part it: a custom backend gets as many graphs as explain() counts."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


@pytest.fixture(autouse=True)
def fresh():
    kintsugi.reset()
    yield
    torch.set_grad_enabled(True)


def nested_modes(w, x):
    with torch.no_grad():
        y = w * x
        with torch.enable_grad():
            z = w * y
        frozen = z + 1
    return z.sum(), frozen, torch.is_grad_enabled()


def switched_by_hand(w, x):
    y = w * x
    torch.set_grad_enabled(False)
    z = y * 2
    torch.set_grad_enabled(True)
    return (y + z).sum(), z, torch.is_grad_enabled()


def left_switched(w, x):
    y = (w * x).sum()
    torch.set_grad_enabled(False)
    return y, w * 2, torch.is_grad_enabled()


def raises_inside(w, x):
    y = w * x
    with torch.no_grad():
        z = y.view(7, 7)
    return y.sum(), z, True


@pytest.mark.parametrize("backend", ["counts", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [nested_modes, switched_by_hand, left_switched, raises_inside])
@pytest.mark.parametrize("enabled", [True, False])
def test_switching_gradients_is_a_node(program, backend, enabled):
    """One graph with torch._C._set_grad_enabled in it, as in stock; gradients, and the mode that is left behind, are eager's."""
    seen = []

    def counts(gm, inputs):
        seen.append([str(node.target) for node in gm.graph.nodes if node.op.startswith("call")])
        return gm

    def run(fn):
        w = torch.arange(4.0).requires_grad_()
        with torch.set_grad_enabled(enabled):
            try:
                loss, other, mode = fn(w, torch.ones(4))
            except RuntimeError as error:
                return str(error), torch.is_grad_enabled()
            after = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
        if loss.requires_grad:
            loss.backward()
        return loss.detach(), loss.requires_grad, other.detach(), other.requires_grad, mode, after, w.grad

    def flat(result):
        return [v.tolist() if isinstance(v, torch.Tensor) else v for v in result]
    compiled = kintsugi.compile(program, backend=counts if backend == "counts" else backend, fullgraph=True)
    for _ in range(4):
        assert flat(run(compiled)) == flat(run(program))
    if backend == "counts" and program is not raises_inside:
        assert len(seen) == 1, seen
