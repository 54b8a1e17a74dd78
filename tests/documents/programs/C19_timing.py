# title: measure: the timing loop
# equal: none
# expect: Average iteration: \d+\.\d\dms
import time

import torch


@torch.compile
def compiled_fn(x):
    return (x.sin() + x.cos()).sum()


args = (torch.randn(100, 100),)
for _ in range(3):
    compiled_fn(*args)
if torch.cuda.is_available():
    torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(100):
    compiled_fn(*args)
if torch.cuda.is_available():
    torch.cuda.synchronize()
elapsed = (time.perf_counter() - start) / 100
print(f"Average iteration: {elapsed*1000:.2f}ms")
