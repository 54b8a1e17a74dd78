# title: the lesson's program: eager against compiled, then fullgraph
# equal: eager
# expect: Outputs match within tolerance
# expect: Fullgraph compilation succeeded
import torch
import torch.nn as nn
from torch._dynamo.backends.common import aot_autograd

torch.manual_seed(0)


class SimpleModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(10, 20)
        self.linear2 = nn.Linear(20, 5)

    def forward(self, x):
        x = self.linear1(x)
        x = torch.relu(x)
        x = self.linear2(x)
        return x


model = SimpleModel()
x = torch.randn(4, 10)
with torch.no_grad():
    eager_output = model(x)
    print(f"Eager output shape: {eager_output.shape}")
    print(f"Eager output mean: {eager_output.mean().item():.4f}")
compiled_model = torch.compile(model, backend="inductor", fullgraph=False)
with torch.no_grad():
    compiled_output = compiled_model(x)
    print(f"Compiled output shape: {compiled_output.shape}")
    print(f"Compiled output mean: {compiled_output.mean().item():.4f}")
max_diff = torch.max(torch.abs(eager_output - compiled_output)).item()
print(f"Max difference small: {max_diff < 1e-6}")
if max_diff > 1e-4:
    print("WARNING: Numerical divergence detected!")
else:
    print("✓ Outputs match within tolerance")
compiled_model_fullgraph = torch.compile(model, backend="inductor", fullgraph=True)
try:
    with torch.no_grad():
        test_output = compiled_model_fullgraph(x)
    print("✓ Fullgraph compilation succeeded (no graph breaks)")
except Exception as e:
    print(f"✗ Fullgraph failed: {type(e).__name__}: {str(e)[:100]}")
