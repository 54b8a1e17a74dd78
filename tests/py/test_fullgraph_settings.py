"""Every name of PyTorch's own settings acts, or says once that it does not, or is refused (python/kintsugi/_settings.py)."""
import logging
import pathlib

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

from kintsugi import _settings  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def installed():
    import torch._dynamo.config
    import torch._inductor.config

    kintsugi.install()
    _settings._said.clear()
    yield
    kintsugi.uninstall()


@pytest.mark.parametrize("owner", _settings.TABLE)
def test_every_name_is_in_the_table_and_on_the_page(owner):
    page = (ROOT / "docs" / "settings.md").read_text()
    if f"PyTorch {torch.__version__.partition('+')[0]} has" not in page:
        pytest.skip("the page is about another PyTorch, which has other names")
    for name in _settings.names(owner):
        status, why = _settings.find(owner, name)
        assert status in (_settings.ACTS, _settings.NONE, _settings.REFUSED) and why
        assert f"`{name}`" in page, f"{owner}.{name}: run `make settings`"


def test_no_effect_is_said_once(installed, caplog):
    with caplog.at_level(logging.WARNING, "kintsugi"):
        for _ in range(2):
            with torch._dynamo.config.patch(capture_scalar_outputs=True):
                pass
            with torch._inductor.config.patch(max_autotune=True):
                pass
        with torch._dynamo.config.patch(suppress_errors=True):
            assert kintsugi.config.suppress_errors
    said = [record.getMessage() for record in caplog.records if record.name == "kintsugi"]
    assert len(said) == 2 and "capture_scalar_outputs = True" in said[0] and "always part of the graph" in said[0]
    assert "max_autotune = True" in said[1]


def test_another_name_of_a_setting_acts_as_that_one(installed, caplog):
    limit = torch._dynamo.config.recompile_limit
    with caplog.at_level(logging.WARNING, "kintsugi"), torch._dynamo.config.patch(cache_size_limit=limit + 3):
        assert kintsugi.config.recompile_limit == limit + 3
    assert not [record for record in caplog.records if record.name == "kintsugi"]
    assert _settings.find("torch._dynamo.config", "cache_size_limit") == _settings.find("torch._dynamo.config", "recompile_limit")
    assert _settings.find("torch._dynamo.config", "fail_on_cache_limit_hit")[0] == _settings.ACTS


def test_dynamic_false_records_each_size_up_to_the_limit(installed, caplog):
    def fn(x):
        return x.view(x.shape[0], 1) * 3

    compiled, limit = torch.compile(fn, dynamic=False), kintsugi.config.recompile_limit
    with caplog.at_level(logging.WARNING, "torch._dynamo"):
        for n in range(2, 2 + limit):
            compiled(torch.rand(n))
        stats = kintsugi.stats(compiled)
        assert stats["recordings"] == limit and not stats["eager_calls"]
        assert not [r for r in caplog.records if "recompile_limit" in r.getMessage()]
        for n in (40, 41):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n, 1), 3.0))
        kintsugi.events()
    assert sum(kintsugi.stats(compiled)["eager_calls"].values()) == 2
    assert len([r for r in caplog.records if "recompile_limit" in r.getMessage()]) == 1


def test_refused_setting_raises(installed):
    with pytest.raises(RuntimeError, match="custom backend"):
        torch._inductor.config.post_grad_custom_post_pass = lambda graph: None
    assert torch._inductor.config.post_grad_custom_post_pass is None


def sizes_of(gm):
    return [node for node in gm.graph.find_nodes(op="placeholder") if node.type is torch.SymInt]


@pytest.mark.parametrize("setting, calls", [({}, 2), ({"assume_static_by_default": False}, 1), ({"automatic_dynamic_shapes": False}, 3)])
def test_sizes_by_default(installed, setting, calls):
    """Sizes are fixed and then free, free from the start, always fixed."""
    seen = []

    def backend(gm, inputs):
        seen.append(len(sizes_of(gm)))
        return gm
    with torch._dynamo.config.patch(**setting):
        compiled = torch.compile(lambda x: x * 2 + x.shape[0], backend=backend)
        for n in (3, 4, 5):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0 + n))
    assert len(seen) == calls, seen
    assert bool(seen[-1]) == (calls < 3)


def test_static_sizes_are_all_recorded():
    """dynamic=False: each size is a recording of its own up to the limit; none of them runs eagerly."""
    compiled = kintsugi.compile(lambda x: x * 2 + x.shape[0], dynamic=False)
    for _ in range(3):
        for n in range(2, 9):
            assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0 + n))
    stats = kintsugi.stats(compiled)
    assert stats["recordings"] == 7 and sum(stats["eager_calls"].values()) == 0, stats


def test_listed_backends_are_accepted(installed):
    for name in {*torch._dynamo.list_backends(), *torch._dynamo.list_backends(()), *torch.compiler.list_backends()}:
        torch.compile(lambda x: x, backend=name)


@pytest.mark.parametrize("name", ["aot_eager_decomp_partition", "pre_dispatch_eager", "eager_noexcept"])
def test_stocks_own_debugging_backends_get_the_graphs(name):
    compiled = kintsugi.compile(lambda x: torch.sin(x) * 2 + 1, backend=name)
    for _ in range(3):
        x = torch.randn(5)
        torch.testing.assert_close(compiled(x), torch.sin(x) * 2 + 1)
    assert kintsugi.stats(compiled)["replays"] == 2


def test_optimize_of_dynamo(installed):
    """torch._dynamo.optimize and optimize_assert, as older programs write torch.compile."""
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm

    @torch._dynamo.optimize(backend)
    def fn(x):
        if x.sum() > 0:
            x = x + 1
        return x * 2

    assert torch.equal(fn(torch.ones(2)), torch.full((2,), 4.0)) and len(seen) == 2
    assert isinstance(torch._dynamo.optimize(nopython=True)(torch.nn.Linear(2, 2)), torch.nn.Module)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch._dynamo.optimize_assert("eager")(lambda x: x + 1 if x.sum() > 0 else x)(torch.ones(2))
