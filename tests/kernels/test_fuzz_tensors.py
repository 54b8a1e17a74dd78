"""A few random tensor programs (KIN_TENSORS_COUNT of them), and the proof that the comparison sees what is wrong."""
import os

import pytest
import torch

import fuzz_tensors

COUNT = int(os.environ.get("KIN_TENSORS_COUNT", "30"))

# Found by random programs: (lines, results, inputs).
FOUND = {
    "read where it is put together": (["v0 = torch.tensor([1., 2., 3.])", "v1 = v0.prod(-1).sum()"], ["v0", "v1"], []),
    "written through a view that overlaps itself": (
        ["v0 = F.hardswish(i0)", "v1 = v0.unfold(1, 2, 1)", "v1.mul_(2)"], ["v1"], [lambda made: torch.randn(5, 3)]),
    "an input written through such a view": (
        ["v0 = i0.unfold(-1, 2, 1)", "v1 = i0.reshape(-1)", "v0.add_(1)"], ["v1"], [lambda made: torch.randn(3)]),
    "other operators under a mode": (
        ["v0 = F.one_hot(i0, 8)", "v1 = v0 * 2"], ["v0", "v1"], [lambda made: torch.randint(0, 8, (17, 2)).t()]),
    "layouts of attention": (
        ["v0 = (i0 + 1).expand(2, 3, 3)[None]", "v1 = F.scaled_dot_product_attention(v0, v0, v0)"], ["v1"], [lambda made: torch.randn(3, 3)]),
    "layouts of norms": (
        ["v0 = F.batch_norm(i0, torch.zeros(4), torch.ones(4))", "v1 = v0 + 1"], ["v0", "v1"],
        [lambda made: torch.randn(8, 3, 4, 16).permute(3, 2, 1, 0)]),
    "a result and what is detached from it": (["v0 = i0 @ i0", "v1 = v0.detach()", "v2 = v0.t()"], ["v0", "v1", "v2"],
                                              [lambda made: torch.randn(4, 4)]),
}


@pytest.mark.parametrize("trials", [0, 7])
@pytest.mark.parametrize("name", FOUND)
def test_found(name, trials):
    lines, results, inputs = FOUND[name]
    program = fuzz_tensors.Program(0, inputs, lines, results)
    program.mode, program.poisoned = "plain", False
    wrong, _ = fuzz_tensors.check(program, 8, trials)
    assert wrong is None, wrong


@pytest.mark.parametrize("seed", range(5000, 5000 + COUNT))
def test_program(seed):
    program = fuzz_tensors.generate(seed)
    if not fuzz_tensors.is_valid(program):
        pytest.skip("its numbers depend on the arguments")
    wrong, _ = fuzz_tensors.check(program)
    if wrong:
        pytest.fail(f"{wrong}\n{program.source()}", pytrace=False)


def test_most_run_as_kernels():
    programs = [fuzz_tensors.generate(seed) for seed in range(6000, 6010)]
    assert sum(fuzz_tensors.check(p)[1] > 0 for p in programs if fuzz_tensors.is_valid(p)) >= 6


def wrong_number(x):
    return x * 2 + 1 + 1e-2 * torch.arange(4)


def wrong_layout(x):
    return (x * 2 + 1).t().contiguous().t()


def wrong_input(x):
    x.add_(1)
    return (x - 1) * 2 + 1


@pytest.mark.parametrize("other", [wrong_number, wrong_layout, wrong_input])
def test_differences_are_seen(other):
    program = fuzz_tensors.Program(0, [lambda made: torch.randn(4, 4)], [], ["y"])
    assert fuzz_tensors.compare_call(lambda x: (x * 2 + 1,), lambda x: (x * 2 + 1,), program, 0) is None
    assert fuzz_tensors.compare_call(lambda x: (x * 2 + 1,), lambda x: (other(x),), program, 0) is not None


def test_sharing_is_seen():
    program = fuzz_tensors.Program(0, [lambda made: torch.randn(4, 4)], [], ["y", "z"])
    assert fuzz_tensors.compare_call(lambda x: (x * 2, x), lambda x: (x * 2, x.view(4, 4)), program, 0).startswith("identity")
    assert fuzz_tensors.compare_call(lambda x: (x * 2, x), lambda x: (x * 2, x.clone()), program, 0) is not None
    assert fuzz_tensors.compare_call(lambda x: (x.detach(), x), lambda x: (x.view(4, 4), x), program, 0).startswith("views")
