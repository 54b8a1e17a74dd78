# title: graph_breaks logs, and the error of fullgraph=True
# equal: none
# expect-err: torch\._dynamo\.exc\.Unsupported: Data-dependent branching
# expect-err: gb0170
# expect-err: if b\.sum\(\) < 0:
import traceback as tb

import torch
import torch._dynamo

torch._logging.set_logs(graph_breaks=True)


def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


opt_bar = torch.compile(bar)
opt_bar(torch.ones(10), torch.ones(10))
opt_bar(torch.ones(10), -torch.ones(10))
torch._dynamo.reset()
opt_bar_fullgraph = torch.compile(bar, fullgraph=True)
try:
    opt_bar_fullgraph(torch.randn(10), torch.randn(10))
except:
    tb.print_exc()
