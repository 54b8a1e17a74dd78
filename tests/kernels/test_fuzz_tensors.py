"""A few random tensor programs (KIN_TENSORS_COUNT of them), and the proof that the comparison sees what is wrong."""
import os

import pytest
import torch

import fuzz_tensors

COUNT = int(os.environ.get("KIN_TENSORS_COUNT", "30"))
FOUND = (10, 125, 192, 1437, 1880)  # once different


@pytest.mark.parametrize("seed", [*FOUND, *range(5000, 5000 + COUNT)])
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
    program = fuzz_tensors.Program(0, [lambda: torch.randn(4, 4)], [], ["y"])
    assert fuzz_tensors.compare_call(lambda x: (x * 2 + 1,), lambda x: (x * 2 + 1,), program, 0) is None
    assert fuzz_tensors.compare_call(lambda x: (x * 2 + 1,), lambda x: (other(x),), program, 0) is not None


def test_sharing_is_seen():
    program = fuzz_tensors.Program(0, [lambda: torch.randn(4, 4)], [], ["y", "z"])
    assert fuzz_tensors.compare_call(lambda x: (x * 2, x), lambda x: (x * 2, x.view(4, 4)), program, 0).startswith("identity")
    assert fuzz_tensors.compare_call(lambda x: (x * 2, x), lambda x: (x * 2, x.clone()), program, 0) is not None
    assert fuzz_tensors.compare_call(lambda x: (x.detach(), x), lambda x: (x.view(4, 4), x), program, 0).startswith("views")
