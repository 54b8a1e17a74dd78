# title: fix: a custom operator around NumPy code
# equal: eager
# stats: breaks=0
import torch
import torch.library


@torch.library.custom_op("mylib::my_op", mutates_args=())
def my_op(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy())


@my_op.register_fake
def my_op_fake(x):
    return torch.empty_like(x)


@torch.compile(fullgraph=True)
def f(x):
    return my_op(x) * 2


print(f(torch.arange(3.0)).tolist())
