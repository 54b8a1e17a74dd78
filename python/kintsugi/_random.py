"""The states of PyTorch's generators, around a call that is made twice."""

import torch


def random_state():
    """The states of PyTorch's generators, for restore_random_state()."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    return torch.get_rng_state(), *devices


def restore_random_state(state):
    """So that a call that is done again draws the numbers that it drew."""
    now = random_state()
    if len(now) == len(state) and not all(map(torch.equal, now, state)):
        torch.set_rng_state(state[0])
        if len(state) > 1:
            torch.cuda.set_rng_state_all(state[1:])
    return len(now) == len(state)
