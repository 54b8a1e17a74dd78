"""What the training loops of this folder share."""
from torch import nn

PROGRAMS = {}


def program(fn):
    """A training loop: fn(wrap) is a generator of what each step shows; wrap compiles a function or a module."""
    PROGRAMS[fn.__name__] = fn
    return fn


def grads(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def state(model):
    return [v.clone() for v in model.state_dict().values()]


def mlp(*sizes, act=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])
