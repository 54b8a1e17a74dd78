"""Products and attention that we do ourselves: against eager, and whether it was us."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from launches import OWN_PRODUCTS, engine, kintsugi, versions


@pytest.fixture(autouse=True)
def profile(kernels):
    engine.set_profile(True)
    with torch.no_grad():
        yield
    engine.set_profile(False)


def operations(compiled):
    """What its launches did, by name and sizes, in order."""
    return [op for v in versions(compiled) if v["profile"] for op in v["profile"][1:]]


def same(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(wanted.nan_to_num(0, 0, 0).abs().max())), equal_nan=True)
    assert got.stride() == wanted.stride()


def run(fn, *args):
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        same(compiled(*args), fn(*args))
    return operations(compiled)


def heads(batch, number, length, depth, seed=0):
    return torch.randn(batch, length, number, depth, generator=torch.Generator().manual_seed(seed)).transpose(1, 2)


def test_profile_tells_what_ran():
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
    compiled = kintsugi.compile(model)
    x = torch.randn(33, 64)
    for _ in range(5):
        compiled(x)
    ops = operations(compiled)
    assert [op["name"].split(" [")[0] for op in ops if op["extern"]] == ["library.matmul", "library.matmul"]
    assert all(op["runs"] >= 2 and 0 < op["best_ns"] <= op["sum_ns"] for op in ops)
    assert "library.matmul [33, 64] [64, 96] then fused_mul" in [op["name"] for op in ops]


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 13, 14, 15, 28, 141, 300])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(rows, bias):
    for columns, deep in ((31, 40), (32, 769), (100, 1600)):
        layer = nn.Linear(deep, columns, bias=bias)
        run(lambda x, layer=layer: layer(x) * 2, torch.randn(rows, deep))


def test_product_of_results():
    run(lambda x, y: (x + 1) @ (y * 2), torch.randn(70, 90), torch.randn(90, 50))
    run(lambda x, y: (x + 1).t() @ (y * 2).t(), torch.randn(90, 70), torch.randn(50, 90))
    run(lambda x, y: (x + 1)[::2, ::3] @ (y * 2)[:, 1::2], torch.randn(70, 90), torch.randn(30, 90))


@pytest.mark.parametrize("m, k, n", [(5, 60, 200), (50, 70, 12), (33, 17, 100), (130, 800, 40), (3, 90, 200)])
def test_many_products(m, k, n):
    a, b = torch.randn(6, m, k), torch.randn(6, k, n)
    ops = run(lambda a, b: torch.bmm(a * 2, b + 1).exp().sum(-1), a / k, b)
    assert any(op["name"].startswith("library.matmul [6, ") for op in ops) or not OWN_PRODUCTS or m == 3
    run(lambda a, b: torch.bmm(a * 2, (b + 1).mT) + 1, a, b.mT.contiguous())
    run(lambda a, b: (a.mT * 2).mT @ b.expand(6, k, n), a, b[:1])


def test_attention_in_parts():
    """Scores, softmax and sums as a model writes them."""
    def attend(q, k, v):
        scores = (q * 0.5) @ k.transpose(-2, -1)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 30, 64)

    ops = run(attend, heads(2, 4, 30, 16), heads(2, 4, 70, 16, 1), heads(2, 4, 70, 16, 2))
    assert [op["name"].split()[0] for op in ops].count("library.matmul") == 2 or not OWN_PRODUCTS


def is_ours(ops):
    return any(op["name"].startswith("library.attention") for op in ops) or not OWN_PRODUCTS


@pytest.mark.parametrize("length, keys", [(5, 5), (60, 60), (33, 700), (200, 31)])
@pytest.mark.parametrize("kind", ["plain", "causal", "floats", "bools", "of keys", "nothing seen"])
def test_attention(kind, length, keys):
    masks = {"floats": torch.randn(2, 1, length, keys), "bools": torch.rand(length, keys) > 0.4, "of keys": torch.randn(2, 1, 1, keys),
             "nothing seen": torch.randn(2, 4, length, keys)}
    mask = masks.get(kind)
    if kind == "nothing seen":
        mask[:, :, :3] = -torch.inf
    if kind == "of keys":
        mask[0, :, :, :2] = -torch.inf

    def attend(q, k, v):
        return scaled_dot_product_attention(q * 2, k, v, attn_mask=mask, is_causal=kind == "causal") + 1

    assert is_ours(run(attend, heads(2, 4, length, 24, 1), heads(2, 4, keys, 24, 2), heads(2, 4, keys, 24, 3)))


def test_attention_of_other_layouts_and_scales():
    def attend(q, k, v):
        return scaled_dot_product_attention(q.contiguous(), k[:, :, ::2], v[:, :, 5:40, 7:19], scale=0.7).transpose(1, 2).reshape(2, 50, 48) * 2

    assert is_ours(run(attend, heads(2, 4, 50, 12), heads(2, 4, 70, 12, 1), heads(2, 4, 70, 24, 2)))


def test_attention_of_shared_heads():
    def attend(q, k, v):
        return scaled_dot_product_attention(q * 2, k + 1, v * 3, enable_gqa=True) + 1

    run(attend, heads(1, 6, 40, 16), heads(1, 2, 40, 16, 1), heads(1, 2, 40, 16, 2))


def test_attention_with_nan_and_inf():
    q, k, v = heads(1, 2, 20, 16), heads(1, 2, 30, 16, 1), heads(1, 2, 30, 16, 2)
    q[0, 0, 3, 5], k[0, 1, 4, 0], v[0, 0, 7, 7] = torch.nan, torch.inf, torch.nan
    run(lambda q, k, v: scaled_dot_product_attention(q * 2, k, v) + 1, q, k, v)


def test_attention_of_one_row_stays():
    def attend(q, k):
        return scaled_dot_product_attention(q * 2, k, k) + 1

    assert not any(op["name"].startswith("library.attention") for op in run(attend, heads(1, 2, 1, 16), heads(1, 2, 9, 16, 1)))


def named(ops, name):
    return [op for op in ops if op["name"].startswith(name)]


class Attention(nn.Module):
    def __init__(self, width, **kwargs):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.kwargs = kwargs

    def forward(self, x):
        out, weights = self.attention(x, x, x, **self.kwargs)
        return out + 1, weights


@pytest.mark.parametrize("kwargs", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
def test_multihead_attention_is_taken_apart(kwargs):
    model = Attention(48, **kwargs).eval()
    compiled = kintsugi.compile(model)
    for x in (torch.randn(2, 33, 48), torch.randn(33, 2, 48).transpose(0, 1), torch.randn(2, 33, 48)):
        for _ in range(3):
            for got, wanted in zip(compiled(x), model(x), strict=True):
                assert (got is None) == (wanted is None)
                if wanted is not None:
                    same(got, wanted)
    ops = operations(compiled)
    assert named(ops, "library.matmul [66, 48] [48, 144]") and not named(ops, "aten._native_multi")


def test_multihead_attention_with_a_mask():
    mask = torch.ones(20, 20).tril() == 0
    model = Attention(48, attn_mask=mask, need_weights=False).eval()
    x = torch.randn(2, 20, 48)
    compiled = kintsugi.compile(model)
    for _ in range(4):
        same(compiled(x)[0], model(x)[0])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer_encoder(activation, norm_first):
    layer = nn.TransformerEncoderLayer(48, 4, 90, activation=activation, norm_first=norm_first, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    compiled = kintsugi.compile(model)
    x, padding = torch.randn(3, 17, 48), torch.zeros(3, 17, dtype=torch.bool)
    for _ in range(4):
        same(compiled(x), model(x))
    ops = operations(compiled)
    assert len(named(ops, "library.matmul [51, 48] [48, 144]")) >= 1 and not named(ops, "aten._transformer")
    padding[1, 9:] = True
    for _ in range(4):
        same(compiled(x, src_key_padding_mask=padding), model(x, src_key_padding_mask=padding))


def test_graphs_of_one_call():
    """They are compiled when the call is a product."""
    layer = nn.Linear(64, 200)
    compiled, plain = kintsugi.compile(lambda x: layer(x)), kintsugi.compile(lambda x: x.sin())
    x = torch.randn(50, 64)
    for _ in range(4):
        same(compiled(x), layer(x))
        same(plain(x), x.sin())
    assert named(operations(compiled), "library.matmul [50, 64] [64, 200]")
    assert operations(plain) == []


@pytest.fixture
def blas():
    engine._set_products(False)
    yield
    engine._set_products(True)


def test_through_blas(blas):
    """As where BLAS is faster."""
    for rows in (1, 2, 5, 40):
        layer = nn.Linear(70, 90)
        ops = run(lambda x, layer=layer: layer(x).relu(), torch.randn(rows, 70))
        assert rows < 40 or named(ops, f"library.matmul [{rows}, 70] [70, 90]")
    ops = run(lambda a, b: torch.bmm(a * 2, b) + 1, torch.randn(3, 20, 30), torch.randn(3, 30, 40))
    assert named(ops, "aten.bmm")
    ops = run(lambda q: scaled_dot_product_attention(q * 2, q, q) + 1, heads(1, 2, 20, 16))
    assert named(ops, "library.attention" if OWN_PRODUCTS else "aten._scaled_dot")


def test_packed_by_the_one_and_by_the_other():
    """Weights packed by us stay usable when products go through BLAS later, and the other way round."""
    layer, x = nn.Linear(64, 96), torch.randn(20, 64)
    compiled = kintsugi.compile(lambda x: layer(x) + 1)
    for own in (True, False, True):
        engine._set_products(own)
        for _ in range(3):
            same(compiled(x), layer(x) + 1)
        layer.weight.mul_(0.5)
        same(compiled(x), layer(x) + 1)
    engine._set_products(True)


# -- what follows a product -----------------------------------------------------------------------------------------


FOLLOWING = {
    "residual": lambda m, x, r: r + m(x) * 0.5,
    "gelu": lambda m, x, r: torch.nn.functional.gelu(m(x), approximate="tanh"),
    "norm": lambda m, x, r: torch.nn.functional.layer_norm(m(x) + r, (m.out_features,)),
    "gate": lambda m, x, r: torch.nn.functional.silu(m(x).chunk(2, -1)[0]) * m(x).chunk(2, -1)[1],
    "row": lambda m, x, r: m(x) * r[..., :1],
    "both": lambda m, x, r: ((m(x).relu() > r).float(), m(x).sum(-1)),
    "whole": lambda m, x, r: (m(x), m(x).exp()),
    "half": lambda m, x, r: m(x).bfloat16(),
    "heads": lambda m, x, r: (m(x) + r).unflatten(-1, (4, -1)).transpose(1, 2).contiguous(),
}


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("columns", [192, 200])
@pytest.mark.parametrize("own", [True, False])
def test_what_follows(name, columns, own):
    engine._set_products(own)
    try:
        for rows in (2, 7, 150):
            layer = nn.Linear(96, columns)
            compiled = kintsugi.compile(lambda x, r, layer=layer: FOLLOWING[name](layer, x, r))
            x, r = torch.randn(2, rows, 96), torch.randn(2, rows, columns)
            x[0, 0, 0] = float("nan")
            x[1, 1, 3] = float("inf")
            for _ in range(4):
                got, wanted = compiled(x, r), FOLLOWING[name](layer, x, r)
                for g, w in zip(got if isinstance(got, tuple) else (got,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                    same(g, w)
            together = any(" then fused" in op["name"] for op in operations(compiled))
            if name in ("residual", "gelu", "norm", "row") or (name == "gate" and columns == 192):
                assert together
            if name == "heads":
                assert not together
    finally:
        engine._set_products(True)


@pytest.mark.parametrize("factors", [{"alpha": 0.125}, {"beta": 2, "alpha": 3}, {"beta": 0}, {"alpha": 0}, {"beta": 0.1}])
def test_factors(factors):
    a, b, c = torch.randn(4, 30, 70), torch.randn(4, 70, 50), torch.randn(4, 1, 50)
    c[0, 0, 0] = float("nan")
    ops = run(lambda a, b, c: torch.baddbmm(c, a, b, **factors).relu() + 1, a, b, c)
    run(lambda a, b, c: torch.addmm(c, a, b, **factors) * 2, a[0], b[1], c[0, 0])
    run(lambda a, b, c: torch.addmm(c, a, b, **factors) * 2, a[0, :2], b[1], c[:2, 0])
    assert not OWN_PRODUCTS or bool(named(ops, "library.matmul [4, 30, 70] [4, 70, 50] then fused")) == (factors.get("alpha") != 0)


def test_a_residual_that_is_the_left_side():
    """What is multiplied must not be written over while it is still read."""
    layer = nn.Linear(128, 128)
    run(lambda x: layer(layer(x * 2) + x * 2) + x, torch.randn(300, 128))
    run(lambda x: (x * 2) + layer(x * 2), torch.randn(300, 128))


def test_three_with_biases():
    """Query, key and value as one product; the key without a bias."""
    q, k, v = nn.Linear(64, 96), nn.Linear(64, 96, bias=False), nn.Linear(64, 32)
    compiled = kintsugi.compile(lambda x: (q(x) * k(x), v(x)))
    x = torch.randn(40, 64)
    for _ in range(4):
        for got, wanted in zip(compiled(x), (q(x) * k(x), v(x)), strict=True):
            same(got, wanted)
    ops = operations(compiled)
    assert not OWN_PRODUCTS or named(ops, "library.matmul [40, 64] [64, 224]")


class Bottleneck(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.down, self.up = nn.Conv2d(64, 32, 1), nn.Conv2d(32, 64, 1, bias=False)
        self.short, self.norm = nn.Conv2d(64, 64, 1, stride=stride), nn.BatchNorm2d(64)
        self.middle = nn.Conv2d(32, 32, 3, stride=stride, padding=1)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return (self.norm(self.up(self.middle(self.down(x).relu()).relu())) + self.short(x)).relu()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [3, 7, 20])
@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions_of_single_pixels(stride, size, batch):
    model = nn.Sequential(Bottleneck(stride), Bottleneck(1)).eval()
    strange = torch.randn(batch, 64, size, size)
    strange[0, 0, 0, 0] = float("nan")
    strange[-1, 3, 1, 1] = float("inf")
    for layout in (torch.contiguous_format, torch.channels_last):
        compiled = kintsugi.compile(lambda x: model(x))
        for i in range(7):
            x = (torch.randn(batch, 64, size, size) if i < 5 else strange).to(memory_format=layout)
            got, wanted = compiled(x), model(x)
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
            assert got.stride() == wanted.stride()
        if OWN_PRODUCTS and size == 20:
            assert len(named(operations(compiled), "library.matmul")) == 6


@pytest.mark.parametrize("act", [nn.SiLU(), nn.Hardswish(), nn.GELU(), nn.ReLU6()])
@pytest.mark.parametrize("groups,channels,kernel,size", [(1, 24, 3, 9), (1, 64, 3, 30), (1, 200, 1, 8), (1, 700, 3, 6), (48, 48, 3, 17), (4, 64, 3, 9)])
def test_what_follows_a_convolution(act, groups, channels, kernel, size):
    conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups)
    again = nn.Conv2d(channels, 8, 3)
    compiled = kintsugi.compile(lambda x, scale: again(act(conv(x)) * scale + x))
    x, scale = torch.randn(2, channels, size, size).to(memory_format=torch.channels_last), torch.rand(2, channels, 1, 1)
    for _ in range(4):
        torch.testing.assert_close(compiled(x, scale), again(act(conv(x)) * scale + x), rtol=1e-4, atol=1e-4)
    together = named(operations(compiled), "library.conv+bias") + named(operations(compiled), "library.matmul")
    assert not OWN_PRODUCTS or groups == 4 or any(" then fused_" in op["name"] for op in together)


def test_a_gate_behind_a_convolution():
    """Of channels, of which the first are read together with the last."""
    conv, after = nn.Conv1d(32, 128, 3, padding=1), nn.Conv1d(64, 32, 1)
    run(lambda x: after(torch.nn.functional.glu(conv(x), 1)) * 2, torch.randn(2, 32, 40))


def test_large_products_of_what_changes_each_call():
    """They are BLAS's where it is as fast: with what follows, and whichever way both sides lie."""
    def fn(a, b, c):
        return torch.relu(a @ b + c), a.t() @ a, b[:, ::2].t() @ b
    compiled = kintsugi.compile(fn)
    for _ in range(4):
        a, b, c = torch.randn(300, 512), torch.randn(512, 700), torch.randn(700)
        for mine, theirs in zip(compiled(a, b, c), fn(a, b, c), strict=True):
            assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def experts(x, up, down, chosen):
    """A mixture of experts as transformers writes it: rows sorted by expert, products of groups of rows, rows put back."""
    sorted_by, order = torch.sort(chosen.reshape(-1))
    rows = torch.histc(sorted_by.float(), bins=4, min=0, max=3)
    ends = torch.cumsum(rows, dim=0, dtype=torch.int32)
    gate, value = torch.nn.functional.grouped_mm(x[order // 2], up.transpose(-2, -1), offs=ends).chunk(2, dim=-1)
    made = torch.nn.functional.grouped_mm(torch.nn.functional.silu(gate) * value, down.transpose(-2, -1), offs=ends)
    return torch.zeros_like(x).index_add(0, order // 2, made)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [False, True])
def test_products_of_groups_are_part_of_the_graph(dtype, grad):
    torch.manual_seed(0)
    torch.set_grad_enabled(grad)  # until the fixture's end
    compiled = kintsugi.compile(experts)
    weights = [torch.randn(4, 2 * 48, 32, dtype=dtype).div(6).requires_grad_(grad), torch.randn(4, 32, 48, dtype=dtype).div(6).requires_grad_(grad)]
    inputs = [(torch.randn(n, 32, dtype=dtype), torch.randint(0, 4, (n, 2))) for n in (5, 9, 3, 17, 1, 20, 12, 8)]
    for _ in range(4):
        for x, chosen in inputs:
            results = [fn(x, *weights, chosen) for fn in (experts, compiled)]
            if grad:
                gradients = [torch.autograd.grad(y.float().pow(2).sum(), weights) for y in results]
                results = [torch.cat([y.flatten(), *(g.flatten() for g in given)]) for y, given in zip(results, gradients)]
            tolerance = 1e-4 if dtype == torch.float32 else 0.05
            torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance * float(results[0].detach().abs().max()))
        kintsugi.wait_for_kernels()
    assert sum(row["launches"] for row in kintsugi.stats(compiled)["kernels"]) > 0
    assert kintsugi.stats(compiled)["variants"][0]["graphs"] == 1 and {row["parts"] for row in kintsugi.stats(compiled)["kernels"]} == {1}
