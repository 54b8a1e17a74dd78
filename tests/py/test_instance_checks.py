"""isinstance() with classes whose metaclass decides: what it reads is followed, or it is asked again."""
import numbers
import typing

import pytest
import torch
from torch import nn

import kintsugi

PARAMETER_OR_BUFFER = nn.Parameter | nn.Buffer


def marked(**attributes):
    t = torch.ones(3)
    for name, value in attributes.items():
        setattr(t, name, value)
    return t


def inferred():
    with torch.inference_mode():
        return torch.ones(3)


OBJECTS = [torch.ones(3), torch.ones(3), marked(_is_param=True), torch.ones(3), marked(_is_param=False), marked(_is_buffer=True),
           marked(_is_buffer=0, persistent=True), nn.Parameter(torch.ones(3)), nn.Buffer(torch.ones(3)), nn.Buffer(torch.ones(3), persistent=False),
           torch.ones(3).double(), torch.ones(3).long(), torch.ones(3).half(), torch.ones(3, device="meta"), torch.eye(3).to_sparse(),
           torch._efficientzerotensor((3,)), torch.ones(3, dtype=torch.complex64).conj(), inferred(), 3, None, "text",
           torch.ones(3).untyped_storage()]


class Counting(type):
    asked = 0

    def __instancecheck__(cls, instance):
        Counting.asked += 1
        return Counting.asked % 2 == 0

    def __subclasscheck__(cls, other):
        Counting.asked += 1
        return Counting.asked % 2 == 0


class Odd(metaclass=Counting):
    pass


@typing.runtime_checkable
class HasDim(typing.Protocol):
    def dim(self): ...


@typing.runtime_checkable
class HasMark(typing.Protocol):
    mark: int


@typing.runtime_checkable
class HasGo(typing.Protocol):
    def go(self): ...


class Plain:
    pass


CHECKS = {
    "protocol": lambda v: isinstance(v, HasDim), "protocol of a datum": lambda v: isinstance(v, HasMark),
    "protocols": lambda v: isinstance(v, (int, HasDim, HasMark)), "typing's": lambda v: isinstance(v, typing.Sized) and isinstance(v, typing.Sequence),
    "parameter": lambda v: isinstance(v, nn.Parameter), "buffer": lambda v: isinstance(v, nn.Buffer),
    "union": lambda v: isinstance(v, nn.Parameter | nn.Buffer), "kept union": lambda v: isinstance(v, PARAMETER_OR_BUFFER),
    "tuple": lambda v: isinstance(v, (nn.Parameter, nn.Buffer)), "nested tuple": lambda v: isinstance(v, (int, (nn.Buffer, nn.Parameter))),
    "union of three": lambda v: isinstance(v, int | nn.Buffer | None), "uninitialised": lambda v: isinstance(v, nn.UninitializedParameter),
    "float": lambda v: isinstance(v, torch.FloatTensor), "two legacy": lambda v: isinstance(v, (torch.DoubleTensor, torch.LongTensor)),
    "legacy or not": lambda v: isinstance(v, (torch.HalfTensor, int, nn.Parameter)), "type": lambda v: v.type() if isinstance(v, torch.Tensor) else 0,
    "type name": lambda v: torch.typename(v), "type is": lambda v: isinstance(v, torch.Tensor) and v.type() == "torch.FloatTensor",
    "storage": lambda v: isinstance(v, torch.FloatStorage), "abc": lambda v: isinstance(v, numbers.Number), "own": lambda v: isinstance(v, Odd),
    "own in a tuple": lambda v: isinstance(v, (int, Odd)), "subclass": lambda v: issubclass(type(v), nn.Parameter),
    "own subclass": lambda v: issubclass(type(v), Odd), "integral": lambda v: isinstance(v, numbers.Integral | nn.Parameter),
}


def outcome(function, v):
    try:
        return function(v)
    except Exception as e:   # noqa: BLE001
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("name", CHECKS)
def test_objects_in_turns(name):
    function = CHECKS[name]
    for start in range(len(OBJECTS)):
        compiled = kintsugi.compile(function)
        for v in [OBJECTS[start]] * 3 + OBJECTS[start:] + OBJECTS[:start]:
            Counting.asked = 0
            expected = outcome(function, v)
            Counting.asked = 0
            assert outcome(compiled, v) == expected, (name, start, v)


def test_one_tensor_whose_flags_change():
    def function(v):
        return isinstance(v, nn.Parameter), isinstance(v, nn.Buffer), isinstance(v, PARAMETER_OR_BUFFER)
    v, compiled = torch.ones(3), kintsugi.compile(function)
    for name in ("_is_param", "_is_buffer"):
        for value in (None, None, None, True, True, False, True, "gone", None, 1, 0):
            if value == "gone":
                delattr(v, name)
            elif value is not None:
                setattr(v, name, value)
            assert compiled(v) == function(v), (name, value)


def test_a_module_whose_buffers_change():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.ones(2))
            self.p, self.q = nn.Parameter(torch.ones(2)), torch.ones(2)

        def forward(self, x):
            kinds = [n for n in ("b", "p", "q") if isinstance(getattr(self, n), nn.Parameter | nn.Buffer)]
            return kinds, [n for n, _ in self.named_buffers()], list(self.state_dict()), x + len(kinds)

    m = M()
    compiled = kintsugi.compile(m)
    for call in range(12):
        if call == 4:
            m.b = nn.Buffer(torch.ones(2), persistent=False)
        if call == 6:
            m.q._is_param = True
        if call == 8:
            m.q = torch.ones(2)
        if call == 10:
            m.register_buffer("late", torch.ones(2))
        assert str(compiled(torch.ones(1))) == str(m(torch.ones(1))), call


def test_no_graph_ends_there():
    def function(x):
        y = x * 2
        if isinstance(y, (nn.Parameter, torch.FloatTensor)) and not isinstance(x, nn.Parameter | nn.Buffer):
            y = y + 1
        return y
    found = kintsugi.explain(function)(torch.ones(3))
    assert found.graph_count == 1 and found.graph_break_count == 0


def test_a_protocol_that_a_tensor_has_ends_no_graph():
    def function(x):
        return x + (1 if isinstance(x, HasDim) else 2)
    compiled = kintsugi.compile(function, fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(3)).equal(torch.full((3,), 2.0))


def test_a_protocol_whose_answer_changes():
    def function(o, x):
        return x + (1 if isinstance(o, HasMark) else 2) + (10 if isinstance(o, HasGo) else 20)
    compiled, o, x = kintsugi.compile(function), Plain(), torch.ones(2)
    for call in range(8):
        if call == 2:
            o.mark = 1
        if call == 4:
            o.go = lambda: None
        if call == 6:
            del o.mark
            Plain.go = lambda self: None
        assert compiled(o, x).equal(function(o, x)), call
    del Plain.go


class Shapes(type):
    def __instancecheck__(cls, instance):
        return hasattr(instance, "shape") and instance.dim() == 1


class Listing(type):
    def __instancecheck__(cls, instance):
        return [instance][:isinstance(instance, torch.Tensor)]


class Asking(type):
    def __instancecheck__(cls, instance):
        return instance.sum() > 0


class Refusing(type):
    def __instancecheck__(cls, instance):
        raise TypeError(f"not {type(instance).__name__}")


class Calling(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch.Tensor) or super().__instancecheck__(instance)


OWN = {meta.__name__: meta(meta.__name__, (), {}) for meta in (Shapes, Listing, Asking, Refusing, Calling)}


@pytest.mark.parametrize("name", OWN)
def test_a_metaclass_that_answers_in_python(name):
    def function(x, v):
        return x * (1 + isinstance(v, OWN[name]))
    x = torch.ones(2)
    objects = [torch.ones(2), -torch.ones(2), torch.ones(2, 2), 3, "text", OWN[name](), object]
    for start in range(len(objects)):
        compiled = kintsugi.compile(function)
        for v in [objects[start]] * 3 + objects[start:] + objects[:start]:
            assert str(outcome(lambda v: compiled(x, v), v)) == str(outcome(lambda v: function(x, v), v))


def test_no_graph_ends_where_a_metaclass_answers():
    def function(x):
        return x * (1 + isinstance(x, OWN["Shapes"]))
    compiled = kintsugi.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [2, 2] and compiled(torch.ones(1, 2)).tolist() == [[1, 1]]
    assert kintsugi.explain(function)(torch.ones(2)).graph_break_count == 0


AMONG_OTHERS = {
    "before": lambda v: isinstance(v, (OWN["Shapes"], int, list)), "after": lambda v: isinstance(v, (int, (str, OWN["Shapes"]))),
    "union": lambda v: isinstance(v, str | OWN["Shapes"]), "twice": lambda v: isinstance(v, (OWN["Shapes"], OWN["Listing"])),
    "counted": lambda v: isinstance(v, (int, Odd, str)),
}


@pytest.mark.parametrize("name", AMONG_OTHERS)
def test_a_metaclass_that_answers_among_other_classes(name):
    def function(x, v):
        return x * (1 + AMONG_OTHERS[name](v)), Counting.asked

    x = torch.ones(2)
    objects = [x, torch.ones(2, 2), 3, "text", OWN["Shapes"](), Odd(), [x], x, 3, None, torch.ones(2, 2), "text"]
    for start in range(len(objects)):
        Counting.asked = 0
        expected = [str(function(x, v)) for v in objects[start:] * 2]
        Counting.asked = 0
        compiled = kintsugi.compile(function)
        assert [str(compiled(x, v)) for v in objects[start:] * 2] == expected


@pytest.mark.parametrize("name", ["before", "after", "union", "counted"])
def test_no_graph_ends_where_a_metaclass_answers_among_other_classes(name):
    def function(x):
        return x.sin() * (1 + AMONG_OTHERS[name](x))
    compiled = kintsugi.compile(function, backend="eager", fullgraph=True)
    Counting.asked = 0
    got = [compiled(torch.ones(2)) for _ in range(3)]
    Counting.asked = 0
    assert all(torch.equal(a, function(torch.ones(2))) for a in got)


class Holding:
    def __contains__(self, item):
        return item.sum() > 0


@pytest.mark.parametrize("function", [lambda x: x * (1 + isinstance(x, OWN["Asking"])), lambda x: x * (1 + (x in Holding())),
                                      lambda x: x * (1 + (x not in Holding()))])
def test_answers_that_are_tensors_end_the_graph_visibly(function):
    compiled = kintsugi.compile(function)
    for x in [torch.ones(2), torch.ones(2), -torch.ones(2), torch.ones(2), -torch.ones(2)]:
        assert torch.equal(compiled(x), function(x))
    assert kintsugi.explain(function)(torch.ones(2)).graph_break_count == 1
    with pytest.raises(kintsugi.Unsupported, match="DATA_DEPENDENT_BRANCH"):
        kintsugi.compile(function, fullgraph=True)(torch.ones(2))
