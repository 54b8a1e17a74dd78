"""The columns of src/core/aten/aten.def against PyTorch: schemas, and what eager does with awkward data."""

import warnings

import pytest
import torch
from arguments import ARGUMENTS, Maker
from rows import ROWS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

# Tagged as random because of a dropout that their rules refuse.
DROPOUT = {"_scaled_dot_product_flash_attention_for_cpu.default", "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"}
# Their kernels write where the integers say, without a look.
TRUSTING = {"nll_loss_backward.default", "max_pool2d_with_indices_backward.default", "embedding_dense_backward.default"}
# Their kernels divide by a size without a look.
DIVIDING = {"_weight_norm_interface.default", "_scaled_dot_product_flash_attention_for_cpu.default"}
CALLED = [row for row in ROWS if row.name in ARGUMENTS]
SEEDS = range(12)


def overload(name):
    packet, which = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), which)


def ids(row):
    return row.name


def test_each_operator_has_one_row():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)) and all(overload(name) for name in names)


def test_random_as_the_schemas_say():
    random = {row.name for row in ROWS if "RANDOM" in row.traits}
    tagged = {row.name for row in ROWS if torch.Tag.nondeterministic_seeded in overload(row.name).tags}
    assert random == tagged - DROPOUT


@pytest.mark.parametrize("row", [row for row in ROWS if "LAYOUT_ONLY" in row.traits and row.name not in ("detach.default", "transpose.int")], ids=ids)
def test_layout_only_in_place(row):
    packet, which = row.name.split(".")
    op = getattr(getattr(torch.ops.aten, packet.rstrip("_") + "_"), which)
    x = torch.arange(6.0).view(1, 2, 3)
    args = {"as_strided.default": ([3, 2], [1, 3]), "squeeze.dim": (0,), "squeeze.dims": ([0],), "unsqueeze.default": (0,),
            "transpose_.default": (1, 2)}.get(row.name, ())
    x = x[0] if row.name == "t.default" else x
    before, start = (x.shape, x.stride()), x.data_ptr()
    assert op(x, *args) is x and x.data_ptr() == start and (x.shape, x.stride()) != before
    assert torch.equal(torch.as_strided(x, (6,), (1,)), torch.arange(6.0))


@pytest.mark.parametrize("name", [row.name for row in ROWS if "WRITES_IN_TRAINING" in row.traits])
def test_writes_in_training(name):
    def changed(training):
        mean, var = torch.zeros(3), torch.ones(3)
        overload(name)(torch.randn(4, 3), None, None, mean, var, training, 0.1, 1e-5)
        return bool(mean.any())

    assert not any(a.alias_info for a in overload(name)._schema.arguments)
    assert changed(True) and not changed(False)


def accepted(row, seed):
    """(arguments, results) that eager accepts; None where it refuses them."""
    torch.manual_seed(seed)
    args, kwargs = ARGUMENTS[row.name](Maker(f"{row.name} {seed}"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (args, kwargs), overload(row.name)(*args, **kwargs)
    except Exception:
        return None


@pytest.mark.parametrize("row", CALLED, ids=ids)
def test_views(row):
    for made in filter(None, (accepted(row, seed) for seed in SEEDS)):
        owners = {t.untyped_storage()._cdata for t in tree_leaves(made[0]) if isinstance(t, torch.Tensor)}
        given = {id(t) for t in tree_leaves(made[0])}
        for t in tree_leaves(made[1]):
            if isinstance(t, torch.Tensor) and id(t) not in given and t.untyped_storage()._cdata in owners:
                assert t._is_view() != ("NO_VIEW" in row.traits)


def awkward(t):
    """A tensor like t of values that are at the ends of what there is."""
    if not isinstance(t, torch.Tensor):
        return t
    n = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride())) if t.numel() else 0
    if t.dtype == torch.bool:
        values = [False, True]
    elif t.dtype.is_floating_point:
        values = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 3.5, torch.finfo(t.dtype).max]
    else:
        values = [torch.iinfo(t.dtype).min, torch.iinfo(t.dtype).max, 0, 3]
    chosen = torch.tensor(values, dtype=t.dtype)[torch.randint(len(values), (n,))]
    return chosen.as_strided(t.shape, t.stride())


def is_trusted(row, t):
    return row.name in TRUSTING and isinstance(t, torch.Tensor) and not t.is_floating_point()


def raises(row, seed):
    """None: eager refuses these arguments whatever they hold; else whether it refuses awkward data and whether results are integers."""
    made = accepted(row, seed)
    if made is None:
        return None
    args, kwargs = tree_map(lambda t: t if is_trusted(row, t) else awkward(t), made[0])
    floats = all(t.is_floating_point() for t in tree_leaves(made[1]) if isinstance(t, torch.Tensor))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            overload(row.name)(*args, **kwargs)
    except Exception as error:
        return str(error) or "error", floats
    return "", floats


@pytest.mark.parametrize("row", CALLED, ids=ids)
def test_raises(row):
    found = [said for said in (raises(row, seed) for seed in SEEDS) if said is not None]
    wrong = [error for error, floats in found if error and "RAISES" not in row.traits and (floats or "RAISES_ON_INTS" not in row.traits)]
    assert not wrong, wrong[0]


def emptied(t, size):
    return t.new_empty([0 if n == size else n for n in t.shape]) if isinstance(t, torch.Tensor) else t


def refuses(call, *given):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*given[0], **given[1])
    except Exception as error:
        return str(error) or "error"
    return ""


@pytest.mark.parametrize("row", [row for row in CALLED if row.name not in DIVIDING and "backward" not in row.name], ids=ids)
def test_raises_on_empty(row, caplog):
    """What eager refuses because one of the sizes is 0 and fake tensors do not. (Kernels for gradients trust those of the forward pass.)"""
    caplog.set_level("CRITICAL")  # fake tensors tell what they refuse
    if {"RAISES", "RAISES_ON_EMPTY"} & row.traits:
        return
    for made in filter(None, (accepted(row, seed) for seed in SEEDS)):
        for size in {n for t in tree_leaves(made[0]) if isinstance(t, torch.Tensor) for n in t.shape}:
            given = tree_map(lambda t, size=size: emptied(t, size), made[0])
            error = refuses(overload(row.name), *given)
            if error:
                with FakeTensorMode() as fake:
                    like = tree_map(lambda t, fake=fake: fake.from_tensor(t) if isinstance(t, torch.Tensor) else t, given)
                    assert refuses(overload(row.name), *like), error
