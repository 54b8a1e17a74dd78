"""TENSOR_SUBCLASS: A tensor subclass runs user code at every operation; mended by handing in a plain tensor."""

import torch

import kintsugi


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


seen = []


def f(x):
    return x.sin()


def main():
    for args in [(torch.ones(3).as_subclass(Logged),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("TENSOR_SUBCLASS") == 1, breaks
    print("TENSOR_SUBCLASS: ok")


if __name__ == "__main__":
    main()
