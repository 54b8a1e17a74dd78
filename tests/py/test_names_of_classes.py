"""A class of the program may be called as one of C is: what is known of that one does not hold for it."""
import functools
import weakref

import pytest
import torch

import kintsugi

LOG = []


def named(name, *bases, **body):
    return type(name, bases, body)


def count_down(self):
    self.left -= 1
    LOG.append(self.left)
    if self.left < 0:
        raise StopIteration
    return self.left


def iterator(name):
    return named(name, object, __init__=lambda self, left: setattr(self, "left", left), __iter__=lambda self: self, __next__=count_down)


ListIterator, DequeIterator = iterator("list_iterator"), iterator("collections._deque_iterator")
Size = named("torch.Size", tuple, __add__=lambda self, other: LOG.append("add") or ("own", *other), __format__=lambda self, spec: LOG.append("text") or "own")
Device = named("torch.device", object, __eq__=lambda self, other: LOG.append("eq") or len(LOG) % 2 == 0, __hash__=None)
Finfo = named("torch.finfo", object, __init__=lambda self, x: LOG.append("made"))
Array = named("numpy.ndarray", list, __iter__=lambda self: LOG.append("iter") or iter((1, 2)))
Partial = named("functools.partial", object, __init__=lambda self, fn: setattr(self, "fn", fn), __call__=lambda self, x: LOG.append("call") or self.fn(x))
Default = named("collections.defaultdict", dict, __missing__=lambda self, key: LOG.append("missing") or 2)
SIZE, DEVICE, ARRAY, PARTIAL, DEFAULT = Size((1, 2)), Device(), Array([5, 6]), Partial(torch.neg), Default(a=1)
DTYPE = named("torch.dtype", object)()


def loop(cls):
    def goes_over(x):
        for i in cls(2):
            x = x + i
        return x
    return goes_over


PROGRAMS = {
    "list_iterator": loop(ListIterator),
    "deque_iterator": loop(DequeIterator),
    "size_add": lambda x: (x + 1, SIZE + (3,)),
    "size_text": lambda x: (x + 1, f"{SIZE}"),
    "device": lambda x: x + 1 if DEVICE == 1 else x - 1,
    "finfo": lambda x: (x + 1, type(Finfo(x)).__name__),
    "array": lambda x: (x + 1, tuple(ARRAY), [*ARRAY]),
    "partial": lambda x: PARTIAL(x) + 1,
    "default": lambda x: x + DEFAULT["b"] + DEFAULT["a"],
    "dtype": lambda x: (x + 1, DTYPE is not None),
}


def run(fn):
    LOG.clear()
    seen = []
    for i in range(5):
        out = fn(torch.arange(3.0) + i)
        out = tuple(o.tolist() if isinstance(o, torch.Tensor) else o for o in out) if isinstance(out, tuple) else out.tolist()
        seen.append((out, tuple(LOG)))
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_own_class_with_the_name_of_one_of_c(name):
    assert run(kintsugi.compile(PROGRAMS[name])) == run(PROGRAMS[name])


def test_the_classes_of_c_are_still_known():
    part, table = functools.partial(torch.add, alpha=2), {"dtype": torch.float32}

    def f(x):
        return part(x, x).to(table["dtype"]), x.shape + (1,), f"{x.shape}", x.device == torch.device("cpu")

    compiled = kintsugi.compile(f)
    for i in range(4):
        x = torch.arange(3.0) + i
        got, want = compiled(x), f(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    stats = kintsugi.stats(compiled)
    assert stats["replays"] == 3 and stats["variants"][0]["breaks"] == 0


def counting(name):
    def init(self):
        self.calls = 0

    def call(self, x):
        self.calls += 1
        return torch.sin(x) + self.calls

    return type(name, (), {"__init__": init, "__call__": call})()


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("name", ["ScriptFunction", "torch._C.ScriptFunction", "OpOverload", "BackwardHookFunction", "Parameter", "Tensor"])
def test_callable_of_a_class_called_like_torchs(name, kernels):
    """What it does besides computing happens once in each call."""
    def run(compiled):
        counter = counting(name)
        fn = kintsugi.compile(lambda x: counter(x) * 2, options={"kernels": kernels, "warm": kernels}) if compiled else lambda x: counter(x) * 2
        return [fn(torch.ones(4))[0].item() for _ in range(6)], counter.calls

    (got, calls), (want, wanted_calls) = run(True), run(False)
    assert got == pytest.approx(want) and calls == wanted_calls


def test_tensors_that_a_class_holds_get_no_weak_reference():
    """Programs see weak references to tensors, and torch.utils.swap_tensors refuses tensors that have one."""
    class Mine(torch.Tensor):
        pass

    class Model(torch.nn.Module):
        held = torch.ones(3).as_subclass(Mine)

        def forward(self, x):
            return x + 1

    model = Model()
    compiled = kintsugi.compile(model)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert weakref.getweakrefcount(Model.__dict__["held"]) == 0
    torch.utils.swap_tensors(Model.__dict__["held"], torch.zeros(3).as_subclass(Mine))


def test_subclass_of_parameter_with_its_name():
    """The flag that makes a tensor a torch.nn.Parameter says nothing of a class below it, whatever that one is called."""
    class Parameter(torch.nn.Parameter):
        pass

    class Mine(torch.Tensor):
        pass

    def fn(p, x):
        return x + 1 if isinstance(p, Parameter) else x + 2

    for p in (torch.nn.Parameter(torch.ones(3).as_subclass(Mine)), torch.nn.Parameter(torch.ones(3)), Parameter(torch.ones(3))):
        compiled = kintsugi.compile(fn)
        for _ in range(3):
            assert torch.equal(compiled(p, torch.ones(3)), fn(p, torch.ones(3)))
