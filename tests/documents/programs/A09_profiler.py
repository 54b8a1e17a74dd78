# title: torch.profiler over a compiled loop of layers
# equal: none
# expect: Self CPU
# expect: breaks 0
import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)


class SlowModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(10)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i % 2 == 0:
                x = x.clone()
        return x


device = "cuda" if torch.cuda.is_available() else "cpu"
model = SlowModel().to(device)
compiled_model = torch.compile(model)
x = torch.randn(128, 512).to(device)
for _ in range(10):
    _ = compiled_model(x)
activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
with profile(activities=activities, record_shapes=True) as prof:
    for _ in range(20):
        output = compiled_model(x)
print(prof.key_averages().table(sort_by=f"{device}_time_total", row_limit=10))
print("breaks", torch._dynamo.explain(model)(x).graph_break_count)
