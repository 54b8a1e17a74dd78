# title: the if replaced by cond: one graph
# equal: eager
# count-err: TRACED GRAPH = 1
# expect-err: \bcond\b
import torch
from functorch.experimental.control_flow import cond

torch._logging.set_logs(graph_code=True)
inp1 = torch.ones(10)
inp2 = torch.ones(10)


@torch.compile(fullgraph=True)
def bar_fixed(a, b):
    x = a / (torch.abs(a) + 1)

    def true_branch(y):
        return y * -1

    def false_branch(y):
        # NOTE: torch.cond doesn't allow aliased outputs
        return y.clone()

    x = cond(b.sum() < 0, true_branch, false_branch, (b,))
    return x * b


print(bar_fixed(inp1, inp2))
print(bar_fixed(inp1, -inp2))
