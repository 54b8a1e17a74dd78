"""A Compiled object looks like the function behind it, can be copied and pickled, and dies like one."""

import copy
import functools
import gc
import inspect
import pickle
import weakref

import pytest

from kintsugi import _kintsugi
from kintsugi._kintsugi import Compiled


def plain(x, y: int = 2):
    """Adds."""
    return x + y


@Compiled
def decorated(x):
    return x * 2


class Counter:
    def __init__(self, start):
        self.start = start

    def plus(self, x):
        return self.start + x

    @Compiled
    def times(self, x):
        return self.start * x

    def __call__(self, x):
        return self.start - x


def test_attributes_are_those_of_the_function():
    compiled = Compiled(plain)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__code__", "__annotations__"):
        assert getattr(compiled, name) == getattr(plain, name), name
    assert compiled.fn is plain
    assert compiled.__wrapped__ is plain
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert inspect.unwrap(compiled) is plain
    assert "plain" in repr(compiled)
    with pytest.raises(AttributeError, match="'function' object has no attribute 'nothing'"):
        compiled.nothing


def test_own_attributes_stay_on_the_wrapper():
    compiled = Compiled(plain)
    compiled.extra = 5
    assert compiled.extra == 5
    assert compiled.__dict__["extra"] == 5
    assert not hasattr(plain, "extra")


def test_functools_wraps_and_update_wrapper_work():
    compiled = Compiled(plain)
    assert functools.update_wrapper(compiled, decorated.fn) is compiled

    @functools.wraps(compiled)
    def outer(*args):
        return compiled(*args)

    assert outer.__wrapped__ is compiled
    assert outer(1) == 3


def test_name_of_an_object_without_name():
    assert Compiled(Counter(1)).__name__ == "Counter"
    assert Compiled(Counter(1), name="my").__name__ == "my"


def test_constructor_checks_its_arguments():
    with pytest.raises(TypeError, match="not callable"):
        Compiled(5)
    with pytest.raises(TypeError):
        Compiled(plain, unknown=1)
    with pytest.raises(TypeError):
        Compiled(plain, True)


def test_a_compiled_function_is_not_wrapped_twice():
    assert Compiled(Compiled(plain)).fn is plain


def test_compiled_functions_bind_like_functions():
    counter = Counter(7)
    assert counter.times(3) == counter.times(3) == 21
    assert counter.times.__self__ is counter
    assert Counter.times(counter, 2) == 14
    assert Counter.times is Counter.__dict__["times"]


def test_compiled_methods_and_objects_do_not_bind():
    counter = Counter(7)

    class Holder:
        method = Compiled(counter.plus)
        call = Compiled(counter)

    assert Holder().method(1) == 8
    assert Holder().call(1) == 6


def test_static_and_class_methods():
    class Holder:
        @staticmethod
        @Compiled
        def static(x):
            return x + 1

        @classmethod
        @Compiled
        def cls(cls, x):
            return cls, x

    assert Holder.static(1) == Holder().static(1) == 2
    assert Holder.cls(3) == Holder().cls(3) == (Holder, 3)


def test_module_level_decorated_function_pickles_by_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is not decorated
    assert copy.deepcopy(decorated).fn is decorated.fn


def test_other_functions_pickle_by_compiling_again():
    again = pickle.loads(pickle.dumps(Compiled(plain, dynamic=True)))
    assert again(1) == 3
    assert getattr(again, "__wrapped__", None) is plain


def test_reduce_names_the_function_and_the_options():
    rebuild, (fn, kwargs) = Compiled(plain, fullgraph=True, dynamic=False).__reduce__()
    assert rebuild is _kintsugi._rebuild
    assert fn is plain
    assert kwargs == {"fullgraph": True, "dynamic": False, "backend": None, "options": None, "disable": False}


def test_copies_share_the_function_and_keep_options_and_attributes():
    compiled = Compiled(plain, name="n", dynamic=True)
    compiled.extra = []
    for other in (copy.copy(compiled), copy.deepcopy(compiled)):
        assert type(other) is Compiled
        assert other is not compiled
        assert other.fn is plain
        assert other.kwargs == compiled.kwargs
        assert other.extra is compiled.extra
        assert other.stats()["name"] == "n"
        assert other(2) == 4


def test_deepcopy_copies_the_object_behind_a_method():
    counter = Counter(5)
    for compiled in (Compiled(counter.plus), Compiled(counter)):
        other = copy.deepcopy(compiled)
        counter.start = 100
        assert other(1) in (6, 4)
        counter.start = 5


def test_weak_references():
    compiled = Compiled(lambda x: x)
    ref = weakref.ref(compiled)
    assert ref() is compiled
    del compiled
    assert ref() is None


def test_a_cycle_through_the_function_is_collected():
    def build():
        def f(x):
            return f.me, x

        f.me = Compiled(f)
        f.me(1)
        f.me(1)
        f.me.itself = f.me
        return weakref.ref(f.me), weakref.ref(f)

    compiled, function = build()
    gc.collect()
    assert compiled() is None
    assert function() is None


def test_arguments_are_not_kept_alive():
    class Thing:
        pass

    compiled = Compiled(lambda thing, *rest, **more: None)
    things = [Thing() for _ in range(3)]
    refs = [weakref.ref(thing) for thing in things]
    for _ in range(3):
        compiled(things[0], things[1], key=things[2])
    things.clear()
    assert [ref() for ref in refs] == [None] * 3


def test_stats_of_dropped_functions_disappear():
    before = len(_kintsugi.stats())
    compiled = Compiled(plain)
    assert len(_kintsugi.stats()) == before + 1
    del compiled
    assert len(_kintsugi.stats()) == before


def test_entry_objects_outlive_a_reset():
    compiled = Compiled(lambda x: (x, 1))
    compiled(1)
    (entry,) = compiled.entries()
    assert entry.hits == entry.stats()["hits"] == 0
    compiled(1)
    assert entry.hits == 1
    compiled.reset()
    assert compiled.entries() == []
    assert entry.hits == 1
    assert "Entry" in repr(entry)
    with pytest.raises(AttributeError):
        entry.nothing
    with pytest.raises(TypeError):
        type(entry)()


def test_dump_wants_a_entry():
    with pytest.raises(TypeError):
        _kintsugi.dump(5)
