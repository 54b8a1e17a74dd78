"""TENSOR_SUBCLASS: A tensor subclass takes over calls in a method that takes any arguments."""

import torch

from support import check


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *call, **more):
        return super().__torch_function__(*call, **more)


def f(x):
    return torch.sin(x)  # <- break


if __name__ == "__main__":
    check("TENSOR_SUBCLASS", f, lambda: (torch.ones(3).as_subclass(Tagged),))
