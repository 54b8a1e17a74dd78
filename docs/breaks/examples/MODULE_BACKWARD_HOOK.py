"""MODULE_BACKWARD_HOOK: a full backward hook of a module; fixed with a hook of the tensor."""

import torch

from support import check


class Net(torch.nn.Module):
    def __init__(self, hooked):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        if hooked:
            self.linear.register_full_backward_hook(lambda module, grad_in, grad_out: None)

    def forward(self, x):
        return self.linear(x.sin()).cos()  # <- break


hooked, plain = Net(True), Net(False)


def f(x):
    return hooked(x)


def fixed(x):
    return plain(x)


if __name__ == "__main__":
    check("MODULE_BACKWARD_HOOK", f, lambda: (torch.ones(3),), fixed)
