# title: the whole debugging script of step 6
# equal: none
# expect: Eager mode: .* ms
# expect: Compiled mode: .* ms
# expect: Speedup: .*x
# expect-not: Warning
import time
from contextlib import contextmanager

import torch
import torch._dynamo
import torch.nn as nn


@contextmanager
def compile_diagnostics():
    original_verbose = torch._dynamo.config.verbose
    original_suppress_errors = torch._dynamo.config.suppress_errors
    torch._dynamo.config.verbose = True
    torch._dynamo.config.suppress_errors = False
    torch._dynamo.config.log_level = "DEBUG"
    try:
        yield
    finally:
        torch._dynamo.config.verbose = original_verbose
        torch._dynamo.config.suppress_errors = original_suppress_errors


class TestModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))

    def forward(self, x):
        return self.net(x)


def benchmark_model(model, x, warmup=50, iterations=200):
    for _ in range(warmup):
        _ = model(x)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(iterations):
        _ = model(x)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    return elapsed / iterations


device = "cuda" if torch.cuda.is_available() else "cpu"
model = TestModel().to(device)
x = torch.randn(128, 256).to(device)
eager_time = benchmark_model(model, x)
print(f"Eager mode: {eager_time*1000:.3f} ms")
with compile_diagnostics():
    compiled_model = torch.compile(model, mode="max-autotune")
    compiled_time = benchmark_model(compiled_model, x)
    print(f"Compiled mode: {compiled_time*1000:.3f} ms")
speedup = eager_time / compiled_time
print(f"Speedup: {speedup:.2f}x")
explanation = torch._dynamo.explain(model)(x)
if explanation.graph_break_count > 0:
    print(f"\nWarning: {explanation.graph_break_count} graph breaks detected!")
    print("Reasons:")
    for reason in explanation.break_reasons:
        print(f"  - {reason}")
