# title: fix: ignore_logging_functions drops the call
# equal: none
# expect-not: dropped
# expect: \[4.0, 4.0\]
import torch
import torch._dynamo

torch._dynamo.config.ignore_logging_functions = [print]


@torch.compile
def f(x):
    y = x + 1
    print("dropped")
    return y * 2


import sys

for _ in range(3):
    sys.stdout.write(f"{f(torch.ones(2)).tolist()}\n")
