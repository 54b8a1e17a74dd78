# title: basic usage: function, decorator, nested function, with graph_code logs
# equal: eager
# count-err: TRACED GRAPH = 3
# expect-err: torch\.sin\(l_x_\)
# expect-err: def forward\(self, L_x_: "f32\[3, 3\]\[3, 1\]cpu", L_y_
import torch

torch.manual_seed(0)
torch._logging.set_logs(graph_code=True)


def foo(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b


opt_foo1 = torch.compile(foo)
print(opt_foo1(torch.randn(3, 3), torch.randn(3, 3)))


@torch.compile
def opt_foo2(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b


print(opt_foo2(torch.randn(3, 3), torch.randn(3, 3)))


def inner(x):
    return torch.sin(x)


@torch.compile
def outer(x, y):
    a = inner(x)
    b = torch.cos(y)
    return a + b


print(outer(torch.randn(3, 3), torch.randn(3, 3)))
