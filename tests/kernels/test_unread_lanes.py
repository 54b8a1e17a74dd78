"""Vectors of which no lane is read: where they lie costs nothing, be it memory of somebody else or of nobody."""

import ctypes
import mmap
import time

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from launches import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")
BATCH, ROWS, WIDTH, IN_FRONT = 4, 400, 128, 2000


def _apart():
    """A tensor behind memory that may not be read."""
    front = IN_FRONT * WIDTH * 4 // mmap.PAGESIZE * mmap.PAGESIZE
    memory = mmap.mmap(-1, front + BATCH * ROWS * WIDTH * 4)
    tensor = torch.frombuffer(memory, dtype=torch.float32, count=BATCH * ROWS * WIDTH, offset=front).view(BATCH, ROWS, WIDTH)
    forbidden = ctypes.CDLL(None).mprotect(ctypes.c_void_p(tensor.data_ptr() - front), ctypes.c_size_t(front), 0)
    assert forbidden == 0
    return tensor, memory


def _inside():
    """One with memory of the same tensor on both sides."""
    whole = torch.zeros(IN_FRONT + BATCH * ROWS, WIDTH)
    return whole[IN_FRONT:].view(BATCH, ROWS, WIDTH), whole


def _best(function, *tensors):
    best = [1e9] * len(tensors)
    for _ in range(60):
        for i, tensor in enumerate(tensors):
            begin = time.perf_counter()
            function(tensor)
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def test_padding_does_not_care_what_lies_beside_a_tensor():
    pad = lambda x: F.pad(x * 2, (0, 0, IN_FRONT, 0))  # noqa: E731
    compiled = kintsugi.compile(pad)
    (apart, memory), (inside, whole) = _apart(), _inside()
    apart.normal_()
    inside.copy_(apart)
    for _ in range(12):
        assert torch.equal(compiled(apart), pad(apart))
        assert torch.equal(compiled(inside), pad(inside))
    slow, quick = _best(compiled, apart, inside)
    assert slow < 1.6 * quick, (slow, quick)
    assert memory and whole is not None
