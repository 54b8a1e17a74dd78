"""What a program asks a tensor about itself, where neither sizes, strides nor dtype tell: asked again in each call, also behind compiled code."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def made_without_gradients():
    with torch.inference_mode():
        return torch.ones(2, 3)


PAIRS = {
    "is_inference": (torch.ones(2, 3), made_without_gradients()),
    "_is_view": (torch.ones(2, 3), torch.ones(2, 3)[:]),
    "is_conj": (torch.ones(2, 3, dtype=torch.complex64), torch.ones(2, 3, dtype=torch.complex64).conj()),
    "is_neg": (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.complex64).conj().imag),
    "is_shared": (torch.ones(2, 3), torch.ones(2, 3).share_memory_()),
}


@pytest.mark.parametrize("backend", ["eager", "kintsugi"])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("inside", [False, True])
def test_the_answer_decides(name, backend, inside):
    def asks(x, y):
        v = x.view(3, 2) if inside else x
        return y + 1 if getattr(v, name)() else y - 1

    compiled = kintsugi.compile(asks, backend=backend)
    y = torch.ones(4)
    for i in (0, 1, 0, 0, 1, 1, 0, 1):
        assert torch.equal(compiled(PAIRS[name][i], y), asks(PAIRS[name][i], y))


@pytest.mark.parametrize("backend", ["eager", "kintsugi"])
def test_the_function_decides(backend):
    def asks(x):
        return x + 1 if torch.is_inference(x) else x - 1

    compiled = kintsugi.compile(asks, backend=backend)
    for i in (0, 1, 0, 0, 1, 1, 0, 1):
        assert torch.equal(compiled(PAIRS["is_inference"][i]), asks(PAIRS["is_inference"][i]))


KINDS = {
    "dense": lambda: torch.ones(4, 3),
    "sparse": lambda: torch.eye(4, 3).to_sparse(),
    "compressed": lambda: torch.eye(4, 3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
}
ABOUT_LAYOUT = ["is_nested", "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "layout"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "kintsugi"])
@pytest.mark.parametrize("name", ABOUT_LAYOUT)
def test_kinds_of_layouts_are_told_apart(name, backend):
    def asks(x, y):
        answer = getattr(x, name)
        return (y + 1 if answer in (True, torch.sparse_coo, torch.jagged) else y - 1), answer

    compiled = kintsugi.compile(asks, backend=backend)
    y = torch.ones(4)
    for kind in ("dense", *KINDS, *reversed(KINDS), "dense"):
        got, answer = compiled(KINDS[kind](), y)
        expected, theirs = asks(KINDS[kind](), y)
        assert torch.equal(got, expected) and answer == theirs, kind


@pytest.mark.parametrize("sizes", [(2, 2), (2, 5)], ids=["one size", "other sizes"])
def test_bytes_of_a_sparse_tensor(sizes):
    """nbytes raises for it: dtype and sizes do not tell."""
    def asks(x):
        try:
            return x.nbytes
        except RuntimeError as error:
            return str(error)

    compiled = kintsugi.compile(asks)
    tensors = [torch.ones(n, 3) for n in sizes] + [torch.ones(2, 3).to_sparse()]
    for i in (0, 1, 1, 2, 2, 0, 2):
        assert compiled(tensors[i]) == asks(tensors[i])
