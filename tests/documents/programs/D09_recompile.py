# title: the compiled code is used again: a second call adds no graph
# equal: eager
# count-err: TRACED GRAPH = 1
import torch

torch._logging.set_logs(graph_code=True)


@torch.compile
def f(x):
    return torch.relu(x + 1) * 2


for _ in range(4):
    print(f(torch.ones(3)).tolist())
