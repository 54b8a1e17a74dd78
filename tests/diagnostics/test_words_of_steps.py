"""Texts for people hold no numbers of values (`%21`): what has no name is written as what makes it."""

import re

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)


def decides(x, table):
    y = x * 2
    if table["limits"][0] < y.sum().item() + 1:
        y = y + 1
    if (y > 0).all():
        y = y.cos()
    for n in y.long().tolist():
        y = y + table["rows"][n % 2]
    return y


def test_no_numbers_of_values():
    text = str(kintsugi.explain(decides)(torch.ones(3), {"limits": [1, 2], "rows": [3, 4]}))
    assert "Break Reason" in text
    assert not re.search(r"%\d", text), text
    assert "debug context: KIN0005 TENSOR_ITEM if " in text, text
