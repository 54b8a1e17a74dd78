"""What a custom backend gives is used from the very call on that it was called in, also where that call writes: to tensors, attributes, globals, cells,
items. What the recording wrote is put back, and the call made once more with the graphs; whatever cannot be put back is done once."""
import pytest
import torch
from torch import nn

kintsugi = pytest.importorskip("kintsugi")
from counting_backend import Counting  # noqa: E402


def v(n=6):
    return torch.arange(float(n)) / 3 - 0.7


def norm():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    return model, lambda i: (torch.randn(2, 1, 5, 5),), lambda: [*model.buffers(), *(b._version for b in model.buffers())]


def counted_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.on = 0, False

        def forward(self, x):
            self.calls += 1
            self.on = not self.on
            return x * self.calls if self.on else x - self.calls
    model = Model()
    return model, lambda i: (v(),), lambda: (model.calls, model.on)


def moving_average():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.ones(6))

        def forward(self, x):
            self.mean = self.mean * 0.9 + x
            return x * self.mean
    model = Model()
    return model, lambda i: (v() + i,), lambda: model.mean


def cell_and_items():
    n, found = 0, {"n": 1}

    def fn(x):
        nonlocal n
        n += 1
        found["n"] += 2
        return x * n + found["n"]
    return fn, lambda i: (v(),), lambda: (n, found)


def places_in_a_list():
    places = [1, 2]

    def fn(x):
        places[0], places[1] = places[1], places[0]
        return x + places[0]
    return fn, lambda i: (v(),), lambda: places


def written_arguments():
    def fn(x, y):
        x.add_(y)
        y[0] = 5
        x[1:3].mul_(2)
        return torch.mul(x, 2, out=y)
    state = v(), v()
    return fn, lambda i: state, lambda: state


def same_argument():
    state = v()

    def fn(x, y):
        x.add_(y)
        return x * y
    return fn, lambda i: (state, state), lambda: state


def random_write():
    state = torch.zeros(6)

    def fn(x):
        state.normal_()
        return x + state
    return fn, lambda i: (v(),), lambda: state


def foreach():
    state = [torch.zeros(3), torch.ones(2)]

    def fn(x):
        torch._foreach_add_(state, 1.5)
        return state[0] * x, state[1] + 1
    return fn, lambda i: (v(3),), lambda: state


def cache():
    kept, state = torch.zeros(1, 8, 4), {"at": 0}

    def fn(x):
        at = state["at"]
        kept[:, at:at + 1] = x
        state["at"] = at + 1
        return kept[:, :at + 1].sum(1)
    return fn, lambda i: (torch.randn(1, 1, 4),), lambda: (kept, state)


def broken_between():
    state = torch.zeros(6)

    def fn(x):
        state.add_(x)
        y = state * 2
        torch._dynamo.graph_break()
        state.mul_(2)
        return y + state
    return fn, lambda i: (v(),), lambda: state


PUT_BACK = [norm, counted_calls, cell_and_items, written_arguments, same_argument, random_write, cache, broken_between]


def gradients_of_an_argument():
    w = v().requires_grad_()

    def fn(x):
        x.mul_(w)
        return x.sum()
    return fn, lambda i: (v(),), lambda: w


def own_generator():
    generator, state = torch.Generator(), torch.zeros(6)
    generator.manual_seed(3)

    def fn(x):
        state.normal_(generator=generator)
        return x + state
    return fn, lambda i: (v(),), lambda: (state, generator.get_state())


def other_size():
    state = torch.zeros(2)

    def fn(x):
        state.resize_(6)
        state.copy_(x)
        return state + 1
    return fn, lambda i: (v(),), lambda: state


def new_names():
    state = {}

    def fn(x):
        state["a"] = len(state)
        state.pop("b", None)
        return x + state["a"]
    return fn, lambda i: (v(),), lambda: state


def appended():
    state, found = torch.zeros(6), []

    def fn(x):
        state.add_(x)
        found.append(1)
        return state * len(found)
    return fn, lambda i: (v(),), lambda: (state, found)


def reported():
    state = torch.zeros(6)

    def fn(x):
        state.add_(x)
        print("here")
        return state + 1
    return fn, lambda i: (v(),), lambda: state


DONE_ONCE = [moving_average, places_in_a_list, foreach, gradients_of_an_argument, own_generator, other_size, new_names, appended, reported]


def state_of(observe):
    return repr([(t.tolist(), t.requires_grad, t._version) if isinstance(t, torch.Tensor) else t for t in torch.utils._pytree.tree_leaves(observe())])


def run(program, compile):
    torch.manual_seed(0)
    fn, args, observe = program()
    fn, found = compile(fn), []
    for i in range(4):
        torch.manual_seed(i)
        found.append((repr(torch.utils._pytree.tree_map(lambda t: t.tolist(), fn(*args(i)))), state_of(observe)))
    return found


@pytest.mark.parametrize("program", PUT_BACK + DONE_ONCE)
def test_results_and_state_are_those_of_eager(program, capfd):
    backend = Counting()
    assert run(program, lambda fn: kintsugi.compile(fn, backend=backend)) == run(program, lambda fn: fn)
    printed = capfd.readouterr().out
    assert program is not reported or printed == "here\n" * 8


@pytest.mark.parametrize("program", PUT_BACK)
def test_the_first_call_runs_what_the_backend_gave(program):
    backend = Counting()
    fn, args, _ = program()
    compiled = kintsugi.compile(fn, backend=backend)
    compiled(*args(0))
    assert backend.runs == len(backend.inputs) > 0


def test_a_backend_sees_the_state_before_the_call_and_one_that_raises_leaves_it():
    state, seen = torch.zeros(3), []

    def fn(x):
        state.add_(x)
        return state * 2

    def backend(gm, inputs):
        seen.extend(t.tolist() for t in inputs)
        raise ValueError("no")
    compiled = kintsugi.compile(fn, backend=backend)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        compiled(torch.ones(3))
    assert sorted(seen) == [[0.0] * 3, [1.0] * 3] and state.tolist() == [0.0] * 3


def test_aot_autograd_sees_one_update_of_running_statistics():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.load_state_dict(plain.state_dict())
    compiled = kintsugi.compile(model, backend="aot_eager")
    for i in range(3):
        x = torch.randn(5, 4)
        a, b = plain(x), compiled(x)
        a.square().sum().backward()
        b.square().sum().backward()
        torch.testing.assert_close(a, b)
        for ours, theirs in zip([*model.buffers(), *(p.grad for p in model.parameters())], [*plain.buffers(), *(p.grad for p in plain.parameters())]):
            torch.testing.assert_close(ours, theirs)


def test_a_decision_on_what_was_written_is_made_again():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.ready = False

        def forward(self, x):
            if not self.ready:
                self.ready = True
                return x + 10
            return x * 2
    backend, model = Counting(), Model()
    compiled = kintsugi.compile(model, backend=backend)
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [11.0, 2.0, 2.0] and backend.runs == 3
