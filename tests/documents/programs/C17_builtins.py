# title: recipes: torch.max for max, torch.abs for abs, argsort for sorted
# equal: eager
import torch


@torch.compile(fullgraph=True)
def f(x, y):
    return torch.max(x, y), torch.abs(x), torch.argsort(x), abs(x)


for t in f(torch.tensor([3.0, -1.0, 2.0]), torch.zeros(3)):
    print(t.tolist())
