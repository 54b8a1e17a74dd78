"""An iterator that was asked at its end gives nothing ever after, also where its list or dict grows later."""
import pytest

import kintsugi
from kintsugi import _kintsugi as engine


def read(use):
    def program(values):
        it = iter(values)
        first = use(it)
        values.append(4)
        return first, list(it), next(it, "end")
    return program


def read_twice(values):
    it = iter(values)
    first = list(it)
    values.append(4)
    return first, list(it), it


def own_list(values):
    own = [1, *values]
    it = iter(own)
    first = [v for v in it]
    own.append(4)
    return first, [v for v in it], it.__length_hint__()


def one_by_one(values):
    it = iter(values)
    first = next(it, 0), next(it, 0), next(it, "end")
    values.append(4)
    return first, next(it, "end")


def not_asked_at_its_end(values):
    it = iter(values)
    first = [next(it) for _ in range(2)]
    values.append(4)
    return first, list(it)


def numbered(values):
    it = enumerate(values)
    first = list(it)
    values.append(4)
    return first, list(it)


def side_by_side(values):
    it = zip(values, values)
    first = [pair for pair in it]
    values.append(4)
    return first, [pair for pair in it]


def keys(values):
    own = dict.fromkeys(values)
    it = iter(own)
    first = list(it)
    own["more"] = 1
    return first, list(it)


PROGRAMS = {"list": read(list), "tuple": read(tuple), "sum": read(sum), "any": read(lambda it: any(v > 5 for v in it)), "extend": read(lambda it: [].extend(it)),
            "in": read(lambda it: 77 in it), "star": read(lambda it: [*it]), "read twice": read_twice, "own list": own_list, "one by one": one_by_one,
            "not asked": not_asked_at_its_end, "enumerate": numbered, "zip": side_by_side, "dict": keys}


def seen(function, values):
    result = function(values)
    values.append(100)
    return [list(v) if hasattr(v, "__next__") else v for v in result], values


@pytest.mark.parametrize("leave", [None, 1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_ended_iterators_stay_at_their_end(name, leave):
    function = PROGRAMS[name]
    engine.force_exit(leave)
    try:
        compiled = kintsugi.compile(function)
        for values in ([1, 2], [1, 2], [1, 2, 3], [1, 2], [1, 2]):
            assert seen(compiled, list(values)) == seen(function, list(values))
    finally:
        engine.force_exit(None)
