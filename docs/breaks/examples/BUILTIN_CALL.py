"""BUILTIN_CALL: A builtin without a rule is handed tensors; mended with torch.maximum."""

import torch

import kintsugi


def f(x, y):
    return max(x * 2, y * 2) + 1


def mended(x, y):
    return torch.maximum(x * 2, y * 2) + 1


def main():
    for args in [(torch.tensor(3.0), torch.tensor(1.0))]:
        kintsugi.reset()
        expected, compiled = f(*args), kintsugi.compile(f)
        assert torch.equal(compiled(*args), expected) and torch.equal(compiled(*args), expected)
        assert torch.equal(kintsugi.compile(mended)(*args), expected)
    breaks = [reason.entry["why"] for reason in kintsugi.explain(f)(*args).break_reasons]
    assert breaks.count("BUILTIN_CALL") == 1, breaks
    assert kintsugi.explain(mended)(*args).graph_break_count == 0
    print("BUILTIN_CALL: ok")


if __name__ == "__main__":
    main()
