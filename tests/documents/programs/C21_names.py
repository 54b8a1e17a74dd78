# title: the modules and names that the skill refers to
# equal: none
# expect: ^all there$
import torch._dynamo.decorators
import torch._dynamo.graph_break_hints
import torch._dynamo.utils
import torch._higher_order_ops
import torch.compiler

for where, name in ((torch._dynamo.decorators, "leaf_function"), (torch._dynamo.decorators, "nonstrict_trace"),
                    (torch.compiler, "disable"), (torch._dynamo, "error_on_graph_break"),
                    (torch._higher_order_ops, "print"), (torch._dynamo.utils, "CompileProfiler")):
    assert hasattr(where, name), name


def f(x):
    y = x + 1
    with torch._dynamo.error_on_graph_break(True):
        if y.sum() > 0:
            y = y * 2
    return y


try:
    torch.compile(f)(torch.ones(3))
    print("no error")
except torch._dynamo.exc.Unsupported:
    print("all there")
