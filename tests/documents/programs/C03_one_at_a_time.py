# title: detect: fullgraph=True raises at the first break; fixed, at the next
# equal: none
# expect: ^1 Unsupported if x\.sum\(\) > 0:$
# expect: ^2 Unsupported if x\.mean\(\) > 0:$
# expect: ^3 passes$
import torch


def both(x):
    if x.sum() > 0:
        x = x + 1
    if x.mean() > 0:
        x = x * 2
    return x


def second(x):
    x = torch.where(x.sum() > 0, x + 1, x)
    if x.mean() > 0:
        x = x * 2
    return x


def none(x):
    x = torch.where(x.sum() > 0, x + 1, x)
    return torch.where(x.mean() > 0, x * 2, x)


for number, f in enumerate((both, second, none), 1):
    try:
        torch.compile(f, fullgraph=True)(torch.ones(3))
        print(number, "passes")
    except torch._dynamo.exc.Unsupported as e:
        lines = [line.strip() for line in str(e).splitlines()]
        print(number, type(e).__name__, next(line for line in lines if line.startswith("if ")))
