"""DATA_DEPENDENT_ASSERT: An assert on tensor data; mended with torch._assert_async."""

import torch

import kintsugi


def f(x):
    y = x.exp()
    assert (y > 0).all()
    return y + 1


def mended(x):
    y = x.exp()
    torch._assert_async((y > 0).all())
    return y + 1


def main():
    for args in [(torch.ones(3),)]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("DATA_DEPENDENT_ASSERT") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("DATA_DEPENDENT_ASSERT: ok")


if __name__ == "__main__":
    main()
