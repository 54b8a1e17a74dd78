"""What explain() prints is in words of the program: what PyTorch's own code does on the way is counted, not listed."""
import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop"])
def test_a_training_step_lists_the_effects_of_the_program(name):
    """Effects inside of an optimizer's step (record_function, questions about devices) were listed as if the program had them."""
    model = torch.nn.Linear(3, 3)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        print("loss")
        loss.backward()
        optimizer.step()
        return loss
    for _ in range(2):
        step(torch.ones(2, 3))
    found = kintsugi.explain(step)(torch.ones(2, 3))
    text = str(found)
    effects = text.partition("Deferred Effects")[2].partition("torch.compiler.is_compiling() was asked")[0]
    assert "print('loss')" in effects and "record_function" not in effects and "graph_break" not in effects
    assert f"of library code: torch {len(found.deferred_effects) - 1} (listed in .deferred_effects)" in effects
    assert "__dynamo_disable" not in text and "zero_grad" in text.partition("Ops 1:")[2].splitlines()[1]


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        print(fn.__name__)
        return super().__torch_function__(fn, types, args, kwargs or {})


def test_calls_that_a_class_of_tensors_takes_over_are_listed_by_name():
    """They were all called Tensor.__torch_function__, and a name in C "slot_24"."""
    found = kintsugi.explain(lambda x: (x * 2).sum())(torch.ones(3).as_subclass(Told))
    assert found.ops_per_graph == [[torch.Tensor.mul, torch.Tensor.sum]]
    text = str(found)
    assert "Tensor.mul\n" in text and "slot_" not in text and ".mul.__name__)" in text and "classmethod(" in text and "<classmethod(" not in text


class Place:
    __slots__ = ("near", "far")


def test_slots_are_named_in_guards():
    place = Place()
    place.near, place.far = 2, 3
    text = str(kintsugi.explain(lambda p, x: x * p.far)(place, torch.ones(3)))
    assert "L['p'].far == 3" in text


@pytest.mark.parametrize("fn", [lambda x, g: x + next(g), lambda x, g: x + next(g, 0), lambda x, g: x + sum(g)], ids=["next", "next_or", "sum"])
def test_a_generator_from_outside_is_called_one(fn):
    """It had been a builtin without a tracing rule, with `torch.sort` as the remedy."""
    found = kintsugi.explain(fn)(torch.ones(3), (torch.ones(3) * i for i in range(4)))
    assert found.graph_break_count == 1 and "Attempt to trace generator" in found.break_reasons[0].reason
    assert "torch.sort" not in str(found)
