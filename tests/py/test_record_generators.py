"""Generators that live inside a compiled call leave no generator in the program, and exits find them as they were; C
functions that call back leave nothing but what the callbacks did."""

import functools

import pytest
import torch

from kintsugi import _kintsugi
from kintsugi._kintsugi import Compiled


def scaled(xs, factor, *, shift=0):
    for x in xs:
        yield x * factor + shift


def counted(xs):
    n = 0
    for x in xs:
        n += 1
        yield n, x


def nested(xs):
    for n, x in counted(xs):
        yield x + n


def with_handler(xs):
    for x in xs:
        try:
            yield x
        finally:
            pass


LOG = []


def logging(xs):
    for x in xs:
        LOG.append(float(x.sum()))
        yield x + 1


def in_place(xs):
    for x in xs:
        x.add_(1)
        yield x


def draws(xs):
    for x in xs:
        yield x + torch.rand(3)


def all_of_constants(xs):
    return xs[0] * (2 if all(isinstance(v, torch.Tensor) for v in xs) else 3)


def any_of_constants(xs):
    return xs[0] * (2 if any(i == 1 for i in range(5)) else 3)


def tuple_of(xs):
    return tuple(x + 1 for x in xs)


def list_of(xs):
    return list(scaled(xs, 3, shift=1))


def sum_of(xs):
    return sum(x * 2 for x in xs)


def sum_from(xs):
    return sum((x * 2 for x in xs), xs[0])


def dict_of(xs):
    return dict((f"k{i}", x + i) for i, x in enumerate(xs))


def text_of(xs):
    return xs[0] + len(",".join(str(i) for i in range(len(xs))))


def numbers_of(xs):
    return xs[0] * max(i * 2 for i in range(4)) + min(i + 1 for i in range(4)) + sum(i for i in range(4))


def sorted_of(xs):
    return [xs[i] + 1 for i in sorted((i * 2) % 3 for i in range(3))]


def set_of(xs):
    return xs[0] + len(set(i % 2 for i in range(5)))


def loop(xs):
    out = []
    for y in scaled(xs, 3):
        out.append(y + 1)
    return out


def loop_broken_off(xs):
    for y in scaled(xs, 3):
        z = y + 1
        break
    return z * 2


def by_hand(xs):
    g = scaled(xs, 3)
    a = next(g)
    b = next(g)
    rest = list(g)
    return a + b, rest, next(g, None)


def inner_generator(xs):
    return [y * 2 for y in nested(xs)]


def two_at_once(xs):
    a, b = scaled(xs, 2), scaled(xs, 3)
    return next(a) + next(b), next(b) - next(a), list(a), list(b)


def closure(xs):
    k = xs[0] + 1
    return tuple(x * k for x in xs)


INLINED = [all_of_constants, any_of_constants, tuple_of, list_of, sum_of, sum_from, dict_of, text_of, numbers_of,
           sorted_of, set_of, loop, loop_broken_off, by_hand, inner_generator, two_at_once, closure]


def returned(xs):
    g = scaled(xs, 2)
    return next(g), g


def handed_on(xs):
    g = scaled(xs, 2)
    a = next(g)
    return a, [y + 1 for y in map(torch.neg, g)]


def over_handler(xs):
    return tuple(with_handler(xs))


def over_effects(xs):
    return tuple(logging(xs))


def over_in_place(xs):
    return tuple(in_place(xs))


def over_random(xs):
    return tuple(draws(xs))


OTHERS = [returned, handed_on, over_handler, over_effects, over_in_place, over_random]


class Scorer:
    def __init__(self, sign):
        self.sign = sign

    def score(self, pair):
        return self.sign * pair[1]


def sorted_by_key(xs):
    order = sorted(enumerate([3, 1, 2]), key=lambda pair: pair[1])
    return [xs[i] + rank for rank, (i, _) in enumerate(order)]


def sorted_backwards(xs):
    order = sorted([(0, 1), (1, 2), (2, 1)], key=lambda pair: pair[1], reverse=True)
    return [xs[i] + rank for rank, (i, _) in enumerate(order)]


def sorted_by_method(xs):
    scorer = Scorer(-1)
    return [xs[i] * 2 for i, _ in sorted([(0, 1), (1, 3), (2, 2)], key=scorer.score)]


def sorted_by_shape(xs):
    return [x + 1 for x in sorted(xs + [xs[0][:1]], key=lambda x: x.shape[0])]


def extremes(xs):
    big = max(xs, key=lambda x: x.dim())
    small = min(range(3), key=lambda i: (i - 1) ** 2)
    return big + small


def reduced(xs):
    return functools.reduce(lambda a, b: a * 2 + b, xs), functools.reduce(lambda a, b: a + b, xs, xs[0])


def list_of_map(xs):
    return list(map(lambda x: x * 2, xs)), tuple(map(lambda a, b: a - b, xs, xs[1:]))


def sum_of_map(xs):
    return sum(map(lambda x: x * x, xs)), all(map(lambda x: x.dim() == 1, xs))


def list_of_filter(xs):
    return [x + 1 for x in list(filter(lambda x: x.shape[0] == 3, xs))]


def text_of_map(xs):
    return xs[0] + len(" ".join(map(lambda i: str(i), range(3))))


def pairs_of_map(xs):
    return list(map(lambda pair: pair[0] * pair[1], zip(xs, xs[1:])))


CALLBACKS = [sorted_by_key, sorted_backwards, sorted_by_method, sorted_by_shape, extremes, reduced, list_of_map,
             sum_of_map, list_of_filter, text_of_map, pairs_of_map]


def sorted_by_data(xs):
    return sorted(xs, key=lambda x: float(x.sum()))


def loop_over_map(xs):
    return [y + 1 for y in map(lambda x: x * 2, xs)]


def map_kept(xs):
    m = map(lambda x: x * 2, xs)
    a = next(m)
    return a, list(m)


def callback_with_effect(xs):
    return list(map(lambda x: LOG.append(1) or x + 1, xs))


def callback_raises(xs):
    try:
        return list(map(lambda x: x[7], xs))
    except IndexError as e:
        return xs[0], str(e)


OTHER_CALLBACKS = [sorted_by_data, loop_over_map, map_kept, callback_with_effect, callback_raises]


def tensors():
    return [torch.arange(3.0), torch.ones(3), torch.full((3,), 5.0)]


def plain(value):
    """The value with generators exhausted and tensors as lists."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(plain(v) for v in value)
    if hasattr(value, "send"):
        return [plain(v) for v in value]
    return value


def run(fn, call=None):
    """Result, arguments afterwards and effects of one call."""
    LOG.clear()
    torch.manual_seed(7)
    xs = tensors()
    value = plain((call or fn)(xs))
    return value, plain(xs), list(LOG), torch.rand(1).item()


def steps(compiled):
    return [s for v in compiled.entries() for s in _kintsugi.dump(v)["steps"]]


@pytest.mark.parametrize("fn", INLINED + OTHERS + CALLBACKS + OTHER_CALLBACKS, ids=lambda f: f.__name__)
def test_replay_is_like_eager(fn):
    compiled = Compiled(fn)
    expected = run(fn)
    for _ in range(4):
        assert run(fn, compiled) == expected
    stats = compiled.stats()
    assert stats["recordings"] == 1
    assert stats["replays"] == 3


@pytest.mark.parametrize("fn", INLINED, ids=lambda f: f.__name__)
def test_no_generator_runs(fn):
    compiled = Compiled(fn)
    run(fn, compiled)
    program = steps(compiled)
    assert not any("opaque" in s["flags"] or "break" in s["flags"] for s in program)
    built = [s for s in program if s["text"].startswith(("%", "L[")) and " = generator(" in s["text"]]
    assert built and all("sunk" in s["flags"] for s in built)
    assert compiled.stats()["breaks"] == 0


@pytest.mark.parametrize("fn", INLINED + OTHERS + CALLBACKS + OTHER_CALLBACKS, ids=lambda f: f.__name__)
def test_every_exit(fn):
    expected = run(fn)
    compiled = Compiled(fn)
    run(fn, compiled)
    try:
        for k in range(80):
            _kintsugi.force_exit(k)
            assert run(fn, compiled) == expected, k
    finally:
        _kintsugi.force_exit(None)


@pytest.mark.parametrize("fn", CALLBACKS, ids=lambda f: f.__name__)
def test_no_callback_is_opaque(fn):
    compiled = Compiled(fn)
    run(fn, compiled)
    assert [s["text"] for s in steps(compiled) if "opaque" in s["flags"] or "break" in s["flags"]] == []
    assert compiled.stats()["breaks"] == 0


def test_effects_refuse_the_region():
    compiled = Compiled(over_effects)
    run(over_effects, compiled)
    assert any("opaque" in s["flags"] for s in steps(compiled))


def test_an_exception_in_the_body_is_raised_as_in_eager():
    def total(xs, ys):
        return sum(x @ y for x, y in zip(xs, ys))

    good = [torch.ones(2, 2), torch.ones(2, 2)]
    compiled = Compiled(total)
    for _ in range(2):
        assert torch.equal(compiled(good, good), total(good, good))
    bad = [torch.ones(2, 2), torch.ones(3, 3)]
    for fn in (total, compiled):
        with pytest.raises(RuntimeError) as info:
            fn(good, bad)
        assert [entry.name for entry in info.traceback][-2:] == ["total", "<genexpr>"]


def test_generator_state_after_an_exit():
    def take(xs, flag):
        g = scaled(xs, 2)
        a = next(g)
        if flag.sum() > 0:
            return a, list(g)
        return a, next(g), g.gi_frame.f_locals["x"]

    compiled = Compiled(take)
    xs = tensors()
    for flag in (torch.ones(1), torch.ones(1), -torch.ones(1), torch.ones(1), -torch.ones(1)):
        assert plain(compiled(xs, flag)) == plain(take(xs, flag))


def test_consumers_with_operands_that_they_do_not_take():
    """What next, sum, send, close, sorted ... do with an object that asks others depends on how many operands they get; the exception of a wrong call is eager's."""
    def use(x):
        z, told = zip((i for i in range(3)), range(3)), []
        for call in (lambda: type(i for i in ()).close(z), lambda: type(i for i in ()).send(z), lambda: next(z, 1, 2), lambda: sum(z, 3, 4), lambda: max(z, key=1)):
            try:
                call()
            except TypeError as e:
                told.append(str(e))
        numbers = lambda: (i for i in (3, 1, 2))  # noqa: E731
        return x + 1, told, list(z), sum(numbers(), 5), max(numbers(), key=lambda v: -v), sorted(numbers(), key=lambda v: -v, reverse=True), next(numbers(), 7), next(iter(()), 7)

    compiled = Compiled(use)
    for _ in range(3):
        assert repr(compiled(torch.ones(2))) == repr(use(torch.ones(2)))
