# title: measure: CompileProfiler as a backend
# equal: none
# expect: (?i)graph
import torch
import torch._dynamo.utils


def fn(x):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y


with torch._dynamo.utils.CompileProfiler() as prof:
    compiled_fn = torch.compile(fn, backend=prof)
    compiled_fn(torch.ones(3))
    print(prof.report())
