"""C functions and operators that hash, compare, convert or print what they are handed, or what lies in it.

Each is recorded with operands that run no code, and later meets an object whose methods do: they change a dict, an
attribute and a list that the function has read before and reads again. What it reads must be what eager reads.
"""
import pytest
import torch

from kintsugi._kintsugi import Compiled


class State:
    pass


class Meddler:
    """Every method changes the state and answers False or raises."""
    state = None

    def act(self):
        s = Meddler.state
        if s is not None:
            s.table["k"] += 1
            s.n += 1
            s.row.append(1)

    def refuse(self, *_):
        self.act()
        raise ValueError

    def __eq__(self, other):
        self.act()
        return False

    def __hash__(self):
        self.act()
        return 5

    __lt__ = __gt__ = __index__ = __int__ = __float__ = __len__ = __iter__ = __str__ = __repr__ = __format__ = refuse
    __add__ = __radd__ = __bool__ = __contains__ = __getitem__ = __call__ = __reversed__ = keys = refuse


# e: the object; l, t, d: a list, a tuple and a dict with it; ld, ls: a dict and a set of one int; s: an empty set
BODIES = """l.index(5) | l.count(5) | l.remove(5) | [e].index(5) | t.index(5) | t.count(5) | l.index(5, 0) | {}[e] | {5: 1}[e]
| {5: 1}.pop(e) | [1, 2][e] | [1, 2][e:] | int(e) | float(e) | len(e) | list(e) | sum([e]) | sum(e) | sum(l) | sum(t) | max([e, e])
| max(l) | min(l) | max(t) | max(5, e) | min(t, (9,)) | sorted(l) | sorted([1, e]) | sorted([(1, e), (1, e)]) | [*l].sort()
| any(l) | all(l) | any([e]) | set(l) | set([e]) | frozenset(l) | {e} | {*l} | {t} | {e: 1} | {t: 1} | {(e,): 1} | {5: e}
| {k: 1 for k in l} | {k for k in l} | dict.fromkeys(l) | s.add(e) | s.add(t) | ls.add(e) | ls.discard(e) | ls.update(l) | ls.remove(e)
| ld.pop(e, 0) | ld.setdefault(e, 0) | ld.update({e: 1}) | {5}.union(l) | {5}.issuperset(l) | {5: 1}.get(e) | {5: 1}.get(t) | t in d
| d.get(t) | d[t] | 5 in l | 5 not in l | 5 in t | t in [(5,)] | e in [7.5] | e in (1.5,) | l == [5] | l != [5] | l < [5] | t == (5,)
| (5,) == t | t < (9,) | [l] == [[5]] | {'a': e} == {'a': 5} | l + [1] == [5, 1] | [*t] == [5] | str(l) | repr(l) | str(t) | f'{l}'
| f'{t}' | f'{e}' | '%s' % t | '%s' % [e] | '{}'.format(e) | ','.join(l) | ','.join([e]) | hash(t) | hash((e,)) | 1 + e | e + 1
| [*e] | {**e} | e[0] | e() | range(e) | torch.zeros(e) | torch.zeros(3)[e] | e < 1 | abs(e) | divmod(e, 2) | round(e) | iter(e)
| reversed(e) | list(zip(e, e)) | list(map(int, l)) | [1].insert(e, 1) | [1].pop(e) | [1] * e | 'a' * e | isinstance(1, e)"""
OPERANDS = {"int": 7, "object": State(), "tuple": (1, 2), "list": [1]}


def function(body):
    space = {"torch": torch}
    exec(f"""def f(e, l, state, x):
    a, b, n = state.table["k"], state.n, len(state.row)
    t, s, d, ld, ls = tuple(l), set(), {{(5,): 1}}, {{5: 1}}, {{5}}
    try:
        r = {body}
        r = "done"
    except Exception as error:
        r = type(error).__name__
    return r, a, b, n, state.table["k"], state.n, len(state.row), (x * state.table["k"] + state.n).tolist()
""", space)
    return space["f"]


def outcomes(f, first):
    out = []
    for quiet in (True, True, False, False, True):
        state = Meddler.state = State()
        state.table, state.n, state.row = {"k": 1}, 1, []
        e = first if quiet else Meddler()
        out.append(f(e, [e], state, torch.ones(2)))
        Meddler.state = None
    return out


@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.parametrize("body", [b.strip() for b in BODIES.split("|")])
def test_code_that_was_not_there_when_recorded(body, kind):
    expected = outcomes(function(body), OPERANDS[kind])
    compiled = Compiled(function(body))
    assert outcomes(compiled, OPERANDS[kind]) == expected
    assert not any("internal error" in v["reason"] for v in compiled.stats()["variants"])
