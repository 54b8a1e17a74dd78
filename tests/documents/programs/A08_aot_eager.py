# title: aot_eager with fullgraph; contiguous() is no break
# equal: eager
# expect-not: Graph break detected
import torch
import torch.nn as nn
from torch._dynamo.backends.common import aot_autograd

torch.manual_seed(0)


class DebugModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(100, 100)
        self.linear2 = nn.Linear(100, 10)

    def forward(self, x):
        x = self.linear1(x)
        x = torch.relu(x)
        x = x.contiguous()
        x = self.linear2(x)
        return x


model = DebugModel()
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
x = torch.randn(32, 100)
try:
    output = compiled(x)
    print("ok", torch.allclose(output, model(x)))
except Exception as e:
    print(f"Graph break detected: {e}")
