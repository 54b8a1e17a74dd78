"""Every id of PyTorch's table of graph breaks has an answer, and where the answer is that nothing breaks here, programs show it."""

import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import json
import operator
import pathlib
import random
import types
import typing

import numpy as np
import pytest
import torch

import kintsugi
from kintsugi import _messages, _pytorch_ids

PROGRAMS = []


def shows(*ids):
    """Marks a function of a tensor that TorchDynamo ends a graph in for these reasons."""

    def note(function):
        PROGRAMS.append(pytest.param(function, ids, id="-".join(ids)))
        return function

    return note


def registry():
    path = pathlib.Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_every_id_of_this_torch_has_one_answer():
    rows = {name for row in _messages.rows() for name in row["stock"]}
    answers = {name for group in _pytorch_ids.groups() for name in group.ids}
    assert not rows & answers
    assert set(registry()) <= rows | answers, sorted(set(registry()) - rows - answers)


def test_titles_are_pytorchs():
    titles = {name: entries[-1]["Gb_type"].strip() for name, entries in registry().items()}
    for group in _pytorch_ids.groups():
        for name, title in group.ids.items():
            assert titles.get(name, title) == title


def test_programs_stand_for_ids_that_do_not_break():
    quiet = {name for group in _pytorch_ids.groups() for name in group.ids}
    for program in PROGRAMS:
        assert set(program.values[1]) <= quiet




@shows("GB0179")
def deepcopy_of_a_list(x):
    return x * sum(copy.deepcopy([1, [2, 3]])[1])




@shows("GB0023", "GB0193")
def operators_on_objects(x):
    return x * operator.lt((1, 2), (1, 3)) + operator.index(3)


@shows("GB0024", "GB8335", "GB0094")
def generators_with_send(x):
    def running():
        total = 0
        while True:
            total += (yield total)

    sums = running()
    next(sums)
    sums.send(2)
    return x * sums.send(3)




@shows("GB0097")
def bounded_deque(x):
    last = collections.deque(maxlen=2)
    for number in range(5):
        last.append(x * number)
    return sum(last)


@shows("GB0114", "GB0132", "GB0133")
def accumulate_with_a_function(x):
    return sum(itertools.accumulate([x, x + 1, x + 2], lambda a, b: a * b))


@shows("GB0115", "GB0134", "GB0152")
def groupby_with_a_key(x):
    total = 0
    for key, group in itertools.groupby([1, 1, 2, 3, 3], key=lambda n: n % 3 + 1):
        total = total + key * x * len(list(group))
    return total


@shows("GB0192")
def long_cycle(x):
    return sum(itertools.islice(itertools.cycle(range(300)), 700)) * x


@shows("GB0135", "GB0095", "GB0273")
def exceptions_with_attributes(x):
    try:
        error = ValueError("no")
        error.code = 4
        raise error.with_traceback(None)
    except ValueError as caught:
        return x * caught.code


@shows("GB0136", "GB0137")
def fields_of_ranges_and_slices(x):
    return x[slice(0, 3).indices(2)[1] - 1] * range(2, 9, 3).index(5)


class Entered:
    def __enter__(self):
        return 3

    def __exit__(self, *unused):
        return True


@shows("GB0142")
def own_context_manager(x):
    with Entered() as number:
        return x * number


@shows("GB0262", "GB0221", "GB0263")
def contextlib_helpers(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyError))
        x = x * stack.enter_context(contextlib.nullcontext(2))
        {}["missing"]
    return x + 1


@shows("GB0150", "GB9522")
def hasattr_of_a_partial(x):
    return x * (1 + hasattr(functools.partial(max, 1), "func") + hasattr(3, "real"))


@shows("GB0151")
def signatures(x):
    return x * len(inspect.signature(hasattr_of_a_partial).parameters)


@shows("GB0187", "GB0186", "GB0260")
def wraps_and_partials(x):
    @functools.wraps(contextlib_helpers)
    def wrapped(value, *, factor):
        return value * factor

    return functools.partial(wrapped, **{"factor": 2})(x) + len(wrapped.__name__)


@shows("GB0194", "GB0195", "GB4393")
def questions_about_types(x):
    return x * (1 + isinstance(x, (int, torch.Tensor)) + issubclass(type(x), torch.Tensor))


@shows("GB0203", "GB0204", "GB0183", "GB0278")
def dicts_of_other_keys(x):
    table = types.MappingProxyType({(1, 2): 3, frozenset((4,)): 5})
    return x * (sum(table.values()) + len(collections.OrderedDict.fromkeys([1, 2])) + ((1, 2) in table.keys()))


@shows("GB0197")
def list_that_holds_itself(x):
    items = [x]
    items.append(items)
    return items[1][1][0] * 2


Point = collections.namedtuple("Point", "x y")


@shows("GB0201")
def named_tuples(x):
    point = Point(x=x, y=[1, 2])
    return point._replace(y=3).y * point.x


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@shows("GB6890", "GB0871")
def members_of_enums(x):
    return x * {Colour.RED: 3, Colour(2): 4}[Colour["BLUE"]]


class Own:
    __slots__ = ("value", "__weakref__")

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return self.value == other.value

    def __lt__(self, other):
        return self.value < other.value

    def __len__(self):
        return self.value

    def __contains__(self, item):
        return item == self.value

    def __getitem__(self, index):
        if index >= self.value:
            raise IndexError
        return index

    def __neg__(self):
        return Own(-self.value)

    def __invert__(self):
        return Own(~self.value)

    def __str__(self):
        return f"own {self.value}"

    def __abs__(self):
        return Own(abs(self.value))

    def __pos__(self):
        return Own(self.value + 1)

    def __int__(self):
        return self.value

    def __float__(self):
        return float(self.value)

    def __repr__(self):
        return f"Own({self.value})"


@shows("GB0364", "GB0365", "GB0366", "GB0367", "GB4749", "GB0682")
def objects_as_keys(x):
    return x * {Own(3): 5}[Own(3)]


@shows("GB6012", "GB7906", "GB4411", "GB4880", "GB5904", "GB4240")
def objects_with_special_methods(x):
    return x * (len(Own(3)) + (3 in Own(3)) + Own(3)[1] + sum(Own(3)))


@shows("GB0755", "GB9548", "GB7510", "GB3775", "GB7286", "GB3006")
def objects_with_operators(x):
    return x * (int(-Own(3)) + float(abs(Own(-2))) + int(+Own(1)))


@shows("GB4234", "GB4399")
def inversion_and_text(x):
    return x * ((~Own(3)).value + len(str(Own(3)) + f"{Own(2)}"))


class Shaped(type):
    def __instancecheck__(cls, instance):
        return hasattr(instance, "shape")


WithShape = Shaped("WithShape", (), {})


@shows("GB2736")
def metaclass_that_answers_isinstance(x):
    return x * (1 + isinstance(x, WithShape))


SETTING = contextvars.ContextVar("SETTING", default=2)


@shows("GB6815")
def context_variables(x):
    token = SETTING.set(5)
    x = x * SETTING.get()
    SETTING.reset(token)
    return x * SETTING.get()


ELSEWHERE = {"__name__": "elsewhere"}
exec("def store(x):\n    global COUNT\n    COUNT = x.dim()\n    return x * COUNT", ELSEWHERE)


@shows("GB8949")
def globals_of_no_module(x):
    return ELSEWHERE["store"](x) + ELSEWHERE["COUNT"]


@shows("GB1273")
def tracebacks_are_written(x):
    try:
        raise ValueError("no")
    except ValueError as error:
        error.__traceback__.tb_next = None
        try:
            error.__traceback__.tb_lineno = 4
        except (AttributeError, TypeError):
            x = x * 2
    return x


@shows("GB5017", "GB9493", "GB2412", "GB9899")
def special_methods_in_c(x):
    items, table = [1], {}
    items.__init__([2, 3])
    table.__init__(a=1)
    return x * (len(items) + len(table) + collections.Counter("ab").__len__() + len([1].__repr__()) + iter(items).__length_hint__() + len(table.keys().mapping))


@shows("GB2444", "GB2069")
def comprehensions_with_cells(x):
    n = 3
    later = [lambda: n for n in range(2)]
    first = second = [x * m for m in range(3)]
    first, last = [x * m for m in range(2)]
    return later[1]() * (lambda: n)() * second[1] + first + last


@shows("GB0998", "GB5282", "GB8587")
def lazy_clones(x):
    y = x + 1
    before = torch._C._is_cow_tensor(y)
    z = torch._lazy_clone(y)
    y.add_(1)
    return y * (1 + before + 2 * torch._C._is_cow_tensor(y)) + z * torch._C._is_cow_tensor(z)


@shows("GB5491", "GB0056")
def data_of_another_shape(x):
    y = x.clone()
    y.data = torch.zeros(2, 2)
    return y + x.sum()


@shows("GB2852", "GB6053", "GB0005", "GB9198", "GB7968", "GB8315", "GB5380", "GB0459", "GB1275")
def texts_of_objects(x):
    items = [Own(3)]
    text = repr(items) + repr({1: Own(2)}) + repr({Own(1)}) + str(collections.defaultdict(list, a=Own(4))) + repr({5: 6}.values())
    return x * len(text)


@shows("GB4608", "GB6622", "GB5565", "GB1220", "GB9648")
def comparisons_of_objects(x):
    return x * (1 + ([Own(1)] < [Own(2)]) + ([Own(1), 2] == [Own(1), 2]) + (object() == 3) + (sorted([Own(2), Own(1)])[0].value))


@shows("GB9458", "GB9561", "GB3934", "GB2544")
def sequences_that_grow(x):
    items = [1, 2] * 2
    items *= 2
    items = items + [3]
    items += (4,)
    return x * sum(items)


@shows("GB4271")
def class_of_an_object_changes(x):
    thing = Plain()
    thing.__class__ = Other
    return x * thing.factor


class Plain:
    factor = 2


class Other(Plain):
    factor = 5


class Deleting(Plain):
    def __init__(self):
        super().__init__()
        self.gone = 1

    def __delattr__(self, name):
        super().__delattr__(name)

    @property
    def more(self):
        return super().factor + 1


@shows("GB0254", "GB0190", "GB0467", "GB5849", "GB7637", "GB6999")
def attributes_by_name(x):
    thing = Plain()
    for name in ("first", "second"):
        setattr(thing, name, 3)
    thing.__dict__["third"] = 4
    return x * (getattr(thing, "first") + vars(thing)["third"] + thing.factor)


class Answering:
    def __getattr__(self, name):
        return len(name)


@shows("GB0256")
def attributes_that_are_computed(x):
    return x * Answering().seven


@shows("GB0004", "GB0084", "GB0006", "GB0113", "GB0280", "GB0162", "GB2404")
def calls_through_super(x):
    thing = Deleting()
    del thing.gone
    return x * thing.more


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: int
    twice: int = 0

    def __post_init__(self):
        object.__setattr__(self, "twice", self.value * 2)


@shows("GB0368", "GB0180", "GB7502")
def frozen_dataclasses(x):
    return x * (Frozen(3).twice + len(dataclasses.fields(Frozen)))


class Options(typing.TypedDict, total=False):
    factor: int


@shows("GB0257", "GB9137", "GB0289")
def typing_constructs(x):
    options = Options(factor=3)
    return x * (options["factor"] + len(typing.get_args(typing.Union[int, str])))


@shows("GB0222")
def set_of_tensors(x):
    return sum({x}) + 1


@shows("GB0287", "GB9672", "GB9277", "GB0261", "GB0808")
def descriptors_by_hand(x):
    bound = Own.__len__.__get__(Own(3))
    return x * (bound() + str.upper.__get__("ab")().count("A"))


@shows("GB0297")
def random_numbers_from_a_generator(x):
    return x * random.Random(4).randint(1, 9)


@shows("GB0079", "GB6604", "GB0021", "GB0200")
def literals_of_all_kinds(x):
    items = [*range(3), *{4, 5}]
    first, *rest = items
    return x * (len(f"{first!r:>4}{rest}") + len({**{"a": 1}, "b": 2}) + len({1, 2, *items}))


@shows("GB5696", "GB2669", "GB6276", "GB9898", "GB7425")
def comprehensions(x):
    return sum([y * z for y in [x + n for n in range(3)] for z in {1, 2}])


@shows("GB0175", "GB4841", "GB0177")
def functions_of_builtins(x):
    return x * (max(map(len, ["ab", "c"])) + sum(filter(None, [0, 1])) + len(list(zip("ab", reversed("cd")))))




@shows("GB0171")
def assert_with_another_message(x):
    assert x.dim() == 1, ("not", 1)
    return x + 1


@shows("GB0143", "GB0781", "GB7786", "GB8435")
def slices_are_assigned(x):
    items = [1, 2, 3]
    items[1:] = (n * 2 for n in items)
    del items[0]
    return x * sum(items)


@shows("GB0038", "GB0218")
def slices_by_tensor_sizes(x):
    return x[: x.shape[0] - 1] * 2


@shows("GB0045", "GB0046")
def questions_about_inference(x):
    return x * (1 + x.is_inference() + torch.is_inference_mode_enabled())


@shows("GB0072")
def views_in_place(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.t_()
    return y + 1


@shows("GB0107", "GB0110")
def random_in_place(x):
    torch.manual_seed(0)
    return torch.empty(3).uniform_(0, 1) + torch.empty(3).random_(4) * x[0]


@shows("GB7650")
def own_random_generator(x):
    generator = torch.Generator().manual_seed(3)
    return x + torch.rand(x.shape, generator=generator)






@shows("GB0015", "GB0277", "GB0374")
def sparse_tensors(x):
    return torch.sparse.mm(torch.eye(3).to_sparse(), x.reshape(3, 1)).sum(0) * x[0]


@shows("GB0058", "GB0220", "GB0206")
def attributes_of_tensors(x):
    y = x.clone()
    y.tag = 3
    y.data = x.double()
    y.requires_grad = False
    return y * y.tag


@shows("GB0208")
def calls_that_return_no_tensor(x):
    return x * (torch.promote_types(torch.int8, torch.float32).itemsize + torch.result_type(x, 1).itemsize)


@shows("GB0225", "GB0264", "GB0235", "GB0237", "GB0229", "GB0228")
def parameters_made_inside(x):
    weight = torch.nn.Parameter(torch.ones(3), requires_grad=x.dim() == 2)
    return torch.zeros(3, requires_grad=False) + weight * x


@shows("GB0242", "GB0241")
def out_that_is_not_contiguous(x):
    out = torch.zeros(3, 2)[:, 0]
    torch.add(x, 1, out=out)
    return out * 2


@shows("GB0243")
def tuples_for_kernels(x):
    return x * sum(torch.nn.modules.utils._pair(2))


@shows("GB0246")
def one_hot_without_classes(x):
    return torch.nn.functional.one_hot(torch.tensor([0, 2, 1])).sum(0) * x


@shows("GB0036", "GB0037")
def sizes_from_data(x):
    return x[x > 0].sum() + torch.nonzero(x).float().sum()


@shows("GB0230")
def deterministic_algorithms(x):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(before, warn_only=True)
    return x + 1


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2


@shows("GB0144", "GB0139", "GB0138", "GB0205")
def own_autograd_functions(x):
    return Doubled.apply(x) + 1


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a * b

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


@shows("GB6297")
def same_input_twice(x):
    return Product.apply(x, x)


@shows("GB4778", "GB9528", "GB1584")
def closures_inside(x):
    def outer(n):
        def inner(value):
            return value * n

        return inner

    return outer(3)(x) + outer(2)(x)


@shows("GB0169", "GB0091")
def cells_are_written(x):
    count = 0

    def more():
        nonlocal count
        count += 1
        return count

    more()
    return x * more()


@shows("GB0014")
def recurrent_layers(x):
    return LSTM(x.reshape(1, 1, 3))[0].reshape(-1)


LSTM = torch.nn.LSTM(3, 3)


class Reading(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def __getattribute__(self, name):
        return super().__getattribute__(name)

    def forward(self, x):
        return self.layer(x) if "layer" in self._modules else x


READING = Reading().requires_grad_(False)


@shows("GB0031", "GB0032", "GB0121", "GB0161")
def modules_with_own_attribute_access(x):
    return READING(x)


LAYERS = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.ReLU()}).requires_grad_(False)


@shows("GB0153", "GB0281", "GB0202")
def modules_by_key(x):
    for name in sorted(LAYERS.keys()):
        x = LAYERS[name](x)
    return x


@shows("GB0191", "GB0141", "GB0176", "GB9316", "GB4501")
def identities(x):
    return x * (1 + (id(x) == id(x)) + (id(LAYERS) == id(READING)))


@shows("GB0030")
def comptime_prints_nothing(x):
    from torch._dynamo.comptime import comptime

    comptime.graph_break()
    return x + 1


@shows("GB4297")
def frame_is_asked_to_be_skipped(x):
    getattr(torch._dynamo, "skip_frame", str)("not here")  # torch 2.6 has no such function
    return x + 1


@pytest.mark.parametrize("function, ids", PROGRAMS)
def test_does_not_break(function, ids):
    x = torch.tensor([1.5, -2.0, 3.0])
    expected = function(x.clone())
    compiled = kintsugi.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(x.clone()), expected, rtol=0, atol=0)
    assert kintsugi.explain(function)(x.clone()).graph_break_count == 0


def test_tangents_of_inputs_are_kept():
    """GB0375"""
    forward_ad = torch.autograd.forward_ad
    function = lambda x: (x * x).sin()
    compiled = kintsugi.compile(function, fullgraph=True)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.tensor([1.5, -2.0, 3.0]), torch.ones(3))
        expected = forward_ad.unpack_dual(function(x)).tangent
        for _ in range(3):
            torch.testing.assert_close(forward_ad.unpack_dual(compiled(x)).tangent, expected)


@pytest.mark.parametrize("function, name", [
    (lambda x: max([x, x + 1], key=lambda t: t.sum()), "BUILTIN_CALL"),  # GB5687
    (lambda x: x * contextvars.ContextVar("unset").get(x), "OPAQUE_METHOD"),  # GB6066
    (lambda x: x * sum(outside_of_graphs(3)), "DISABLED_CALL"),  # GB7151
    (lambda x: x * bool(functools.cmp_to_key(lambda a, b: 0)(x)), "OPAQUE_CALLABLE"),  # GB4818
])
def test_breaks_here_as_well(function, name):
    x = torch.tensor([1.5, -2.0, 3.0])
    expected, compiled = function(x.clone()), kintsugi.compile(function, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(x.clone()), expected, rtol=0, atol=0)
    assert name in str(kintsugi.explain(function)(x).break_reasons)


@torch._dynamo.disable
def outside_of_graphs(n):
    yield from range(n)


def test_the_command_answers_each_id(capsys):
    from kintsugi import cli

    assert cli.main(["breaks", "GB0142"]) == 0
    told = capsys.readouterr().out
    assert "Unsupported context manager" in told and "no graph break here" in told
    assert cli.main(["breaks", "gb0170"]) == 0
    assert "DATA_DEPENDENT_BRANCH" in capsys.readouterr().out
    assert cli.main(["breaks", "GB123456"]) == 1
    assert "no id of PyTorch" in capsys.readouterr().err
