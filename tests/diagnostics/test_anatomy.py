"""Kernels of a report: memory and arithmetic read off the plan of a graph."""

from kintsugi.diagnose import anatomy

PLAN = """\
b0: input 0 f32[131, 64]{64, 1}
b1: input 1 f32[64, 131]{131, 1}
b2: temp @0 f32[131, 131]{131, 1}
b3: output 0 bf16[131, 131]{131, 1}
extern 7 library.matmul(b0, b1) -> b2, on 131 columns kernel fused_max(b2, b2) range 0 grain 0
kernel fused_reduce_sum_sub(b2, b3) range 0 grain 0
return b3
arena 68672

fused_max:
  i0: 131
  i1: 131 inner vector, a window of it
  %1 = b0[i1 + 131*i0] : f32
  %2 = 1 : f32
  %3 = add %1, %2 : f32
  phase 0: b1[i1 + 131*i0] = %3

fused_reduce_sum_sub:
  i0: 131
  i1: 131 inner vector
  %1 = b0[i1 + 131*i0] : f32
  %2 = acc0 : f32
  %6 = sub %1, %2 : f32
  phase 0: acc0 = reduce_sum(%1)
  phase 1: b1[i1 + 131*i0] = %6
"""


def test_memory_and_arithmetic():
    product, kernel = anatomy._plan(PLAN)
    elements = 131 * 131
    assert product == ("library.matmul", 4 * (2 * 131 * 64 + elements), 2 * elements * 64 + elements)  # with the kernel that runs on its blocks
    assert kernel == ("fused_reduce_sum_sub", 6 * elements, 2 * elements)


def test_refused_fusions_are_priced(monkeypatch):
    monkeypatch.setattr(anatomy, "limits", lambda: {"gb_per_s": 10.0, "gflops": 1.0})
    row, other = anatomy._refused("f32[1000, 10] reduce_sum: not fused: why\nf32[1000, 10] reduce_sum: not fused: why\nsomething else\n")
    assert row == {"text": "f32[1000, 10] reduce_sum: not fused: why", "us": 8.0, "times": 2} and other["us"] is None


def test_limits_are_measured():
    found = anatomy.limits()
    assert 0.05 < found["gb_per_s"] < 5000 and 0.05 < found["gflops"] < 100_000
