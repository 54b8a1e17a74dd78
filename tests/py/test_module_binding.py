"""Arguments are bound in C exactly as CPython binds them."""

import inspect
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintsugi import _kintsugi


def make(parameters):
    """A function with these parameters that returns them in the order of its local variables."""
    scope = {}
    exec(f"def f({parameters}): pass", scope)
    f = scope["f"]
    code = f.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    exec(f"def f({parameters}): return [{', '.join(code.co_varnames[:count])}]", scope)
    return scope["f"]


def eager(f, args, kwargs):
    try:
        return f(*args, **kwargs)
    except TypeError:
        return None


SIGNATURES = [
    "", "a", "a, b", "a, b=2", "a=1, b=2", "*args", "a, *args", "a, b=2, *args", "**kw", "a, **kw", "a, b=2, **kw",
    "*, k", "*, k=3", "a, *, k", "a, b=2, *, k, m=5", "a, /", "a, b, /", "a, /, b", "a, b=2, /, c=3", "a, /, **kw",
    "a, /, *args, **kw", "a, b=2, /, c=3, *args, k, m=5, **kw", "*args, k=1, **kw",
]
POSITIONALS = [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4, 5)]
KEYWORDS = [{}, *({name: name * 2 for name in names} for names in itertools.chain(
    itertools.combinations("abkz", 1), itertools.combinations("abckm", 2), [("k", "m", "z"), ("c", "b", "a")]))]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_binding_agrees_with_cpython(signature):
    f = make(signature)
    for args, kwargs in itertools.product(POSITIONALS, KEYWORDS):
        assert _kintsugi._bind(f, *args, **kwargs) == eager(f, args, kwargs), (args, kwargs)


def test_binding_agrees_with_inspect():
    f = make("a, b=2, /, c=3, *args, k, m=5, **kw")
    bound = inspect.signature(f).bind(1, k=7, z=8, y=9)
    bound.apply_defaults()
    got = dict(zip(["a", "b", "c", "k", "m", "args", "kw"], _kintsugi._bind(f, 1, k=7, z=8, y=9)))
    assert got == dict(bound.arguments)
    assert list(got["kw"]) == ["z", "y"]


def test_defaults_are_read_at_each_call():
    f = make("a, b=2, *, k=3")
    assert _kintsugi._bind(f, 1) == [1, 2, 3]
    f.__defaults__ = (10, 20)
    assert _kintsugi._bind(f) == [10, 20, 3]
    f.__defaults__ = None
    assert _kintsugi._bind(f, 1) is None
    f.__defaults__ = (7, 8, 9)  # more than there are parameters
    assert _kintsugi._bind(f, 1) == f(1) == [1, 9, 3]
    f.__kwdefaults__["k"] = "changed"
    assert _kintsugi._bind(f, 1) == [1, 9, "changed"]
    del f.__kwdefaults__["k"]
    assert _kintsugi._bind(f, 1) is None


def test_keyword_that_is_no_exact_str_is_left_to_cpython():
    class Name(str):
        pass

    f = make("a, **kw")
    assert _kintsugi._bind(f, **{Name("a"): 1}) is None


def test_equal_but_not_interned_keyword_is_found():
    f = make("alpha, beta=2")
    name = "".join(["al", "pha"])
    assert _kintsugi._bind(f, **{name: 5}) == [5, 2]


names = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=7)


@st.composite
def signatures(draw):
    left = draw(names)
    cut = sorted(draw(st.tuples(st.integers(0, len(left)), st.integers(0, len(left)))))
    positional_only, positional, keyword_only = left[:cut[0]], left[cut[0]:cut[1]], left[cut[1]:]
    first_default = draw(st.integers(0, cut[1]))
    parts = [f"{name}={i}" if i >= first_default else name for i, name in enumerate(positional_only + positional)]
    if positional_only:
        parts.insert(len(positional_only), "/")
    star = draw(st.booleans())
    if star:
        parts.append("*args")
    elif keyword_only:
        parts.append("*")
    parts += [f"{name}='{name}'" if draw(st.booleans()) else name for name in keyword_only]
    if draw(st.booleans()):
        parts.append("**kw")
    return ", ".join(parts)


@settings(max_examples=200, deadline=None)
@given(signatures(), st.lists(st.integers(), max_size=8),
       st.dictionaries(st.sampled_from("abcdefgh"), st.integers(), max_size=4))
def test_binding_of_any_signature(signature, args, kwargs):
    f = make(signature)
    assert _kintsugi._bind(f, *args, **kwargs) == eager(f, args, kwargs)


@pytest.mark.parametrize("signature", SIGNATURES)
def test_replayed_calls_bind_like_the_function(signature):
    """The same through real calls: recorded first, replayed then; refused calls raise CPython's own error."""
    f = make(signature)
    for args, kwargs in itertools.product(POSITIONALS, KEYWORDS[:6]):
        compiled = _kintsugi.Compiled(f)
        try:
            want = f(*args, **kwargs)
        except TypeError as error:
            with pytest.raises(TypeError) as caught:
                compiled(*args, **kwargs)
            assert str(caught.value) == str(error)
            assert compiled.stats()["eager_calls"] == {"the arguments do not match the signature": 1}
            continue
        for _ in range(3):
            assert compiled(*args, **kwargs) == want
        stats = compiled.stats()
        assert (stats["recordings"], stats["replays"]) == (1, 2), stats
