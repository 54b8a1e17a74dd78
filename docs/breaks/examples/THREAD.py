"""THREAD: a thread is started; fixed by doing its work here."""

import threading

import torch

from support import check


def f(x):
    y = x.sin()
    done = []
    thread = threading.Thread(target=lambda: done.append(2))
    thread.start()  # <- break
    thread.join()
    return y * done[0]


def fixed(x):
    return x.sin() * 2


if __name__ == "__main__":
    check("THREAD", f, lambda: (torch.ones(3),), fixed)
