"""A few random programs over sizes that vary (KIN_SIZES_COUNT of them), and the proof that the comparison sees what is wrong."""
import os

import fuzz_sizes
import pytest
import torch

pytestmark = pytest.mark.usefixtures("kernels")
COUNT = int(os.environ.get("KIN_SIZES_COUNT", "25"))


@pytest.mark.parametrize("seed", range(8000, 8000 + COUNT))
def test_program(seed):
    wrong, _ = fuzz_sizes.check(seed)
    if wrong:
        pytest.fail(wrong, pytrace=False)


def test_most_run_as_kernels():
    assert sum(fuzz_sizes.check(seed, fuzz_sizes.SIZES[:6])[1] > 0 for seed in range(9000, 9008)) >= 5


def test_differences_are_seen():
    x = torch.ones(2, 3)
    assert fuzz_sizes.difference(((x,), None), ((x,), None)) is None
    assert fuzz_sizes.difference(((x + 0.1,), None), ((x,), None)) is not None
    assert fuzz_sizes.difference(((x.t().contiguous().t(),), None), ((x,), None)) is not None
    assert fuzz_sizes.difference((None, IndexError("x")), ((x,), None)) is not None
    assert fuzz_sizes.difference((None, IndexError("x")), (None, RuntimeError("y"))) is not None
    assert fuzz_sizes.difference((None, IndexError("x")), (None, IndexError("y"))) is None
