"""Prices: what bridging a break computes, and that the predicted gain is of the size of the real one."""

import priced
import pytest
import torch

from kintsugi.diagnose import observe, program


@pytest.mark.parametrize("name", priced.CASES)
def test_programs_compute_what_the_function_does(name, kintsugi_clean):
    broken, fixed, args = priced.make(name)
    with observe.Session() as session, torch.no_grad():
        kintsugi_clean.compile(broken)(*args)
    found, = session.functions
    dump, values = program.capture(found, found.calls[-1], True)
    made = program.Program(dump, values)
    steps = [entry["step"] for entry in dump["breaks"]]
    assert steps
    with torch.no_grad():
        for bridged in ((), steps):
            results = made.write(bridged)(*made.args)
            wanted = broken(*args)
            assert any(r.shape == wanted.shape and (bridged or torch.allclose(r, wanted, equal_nan=True))
                       for r in results if isinstance(r, torch.Tensor))


def test_a_bridged_program_is_one_graph(kintsugi_clean):
    broken, _, args = priced.make("loop, small")
    with observe.Session() as session, torch.no_grad():
        kintsugi_clean.compile(broken)(*args)
    found, = session.functions
    dump, values = program.capture(found, found.calls[-1], True)
    made = program.Program(dump, values)
    counts = []
    for bridged in ((), [dump["breaks"][0]["step"]], [entry["step"] for entry in dump["breaks"]]):
        out = kintsugi_clean.explain(made.write(bridged))(*made.args)
        counts.append(out.graph_break_count)
    assert counts == [6, 5, 0]


def test_the_predicted_gain_is_of_the_size_of_the_real_one(monkeypatch):
    """Times on a machine that does other things as well: the median of some tries, and a factor of two."""
    import statistics

    import kintsugi

    with kintsugi.config.patch(kernels=True):
        ratios = [predicted / measured for _ in range(3) for _, predicted, measured, _, _ in priced.run(["loop, small"], seconds=0.1)]
    assert 0.5 < statistics.median(ratios) < 2, ratios


def test_calls_that_ran_eagerly_have_a_price():
    from kintsugi.diagnose import causes, price

    verdict = price.Verdict()
    verdict.eager, verdict.compiled = 50e-6, 10e-6
    eager, other = causes.Cause("eager", "", count=5), causes.Cause("break", "")
    price.fill_eager([eager, other], verdict, 20)
    assert eager.price_us == pytest.approx(10.0) and eager.share == pytest.approx(0.5) and eager.how == "modelled" and "5 of them took 40 us longer" in eager.notes[0]
    assert other.price_us is None
    verdict.compiled = 60e-6
    slower = causes.Cause("eager", "", count=5)
    price.fill_eager([slower], verdict, 20)
    assert slower.price_us is None
