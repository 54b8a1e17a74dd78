# title: backend="eager" still traces and rebuilds the graph
# equal: eager
# stats: breaks=0
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
x = torch.randn(3, 8)
compiled = torch.compile(model, backend="eager")
print([torch.equal(compiled(x), model(x)) for _ in range(3)])
