"""Python's max(), min() and range() of what tensors hold: one graph, which asserts what was recorded; other data take the other way."""
import pytest
import torch
import torch.utils.flop_counter  # noqa: F401  says at its import when Triton is missing

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)

UP = torch.linspace(-1.0, 2.0, 6)
NAN = torch.tensor([float("nan"), 1.0])


def repeated(x, n):
    for i in range(int(n)):
        x = x + i
    return x


PROGRAMS = {
    "max_with_int": (lambda x: max(x.sum(), 0) + x, [(UP,), (-UP,), (NAN,)]),
    "number_first": (lambda x: max(0.5, x.mean()) * x, [(UP,), (UP + 3,), (NAN,)]),
    "is_returned": (lambda x: max(x.sum(), 0), [(UP,), (-UP,)]),
    "clamp": (lambda x: min(max(x.sum(), 0.0), 1.0), [(UP,), (-UP,), (UP / 8,)]),
    "two_dtypes": (lambda a, b: max(a, b), [(torch.tensor(1.0), torch.tensor(2)), (torch.tensor(3.0), torch.tensor(2))]),
    "of_a_list": (lambda x: min([x.sum(), x.mean(), 0.25]) * 2, [(UP,), (-UP,), (UP * 4,)]),
    "of_a_generator": (lambda x: max(part.sum() for part in x.split(2)), [(UP,), (-UP,)]),
    "range": (repeated, [(UP, torch.tensor(n)) for n in (3, 1, 0, 4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_follows_the_data(name, capfd):
    fn, calls = PROGRAMS[name]
    backends = []

    def backend(gm, inputs):
        backends.append(gm)
        return gm
    kintsugi.reset()
    for options in ({"backend": backend, "fullgraph": True}, {"backend": "eager"}):
        compiled = kintsugi.compile(fn, **options)
        for args in calls * 3:
            expected, got = fn(*args), compiled(*args)
            assert type(got) is type(expected)
            assert torch.equal(torch.as_tensor(got).nan_to_num(7), torch.as_tensor(expected).nan_to_num(7))
        stats = kintsugi.stats(compiled)
        assert stats["breaks"] == 0 and stats["recordings"] == 1
    assert 0 < len(backends) <= 2 * len(calls)
    assert capfd.readouterr().err == ""  # an assertion of a graph that does not hold is no error of the user's
