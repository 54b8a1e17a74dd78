"""Operators that do a whole attention or transformer layer, taken apart: masks of every kind against eager."""

import math

import pytest
import torch
from torch import nn

from launches import engine, kintsugi, runs, versions

pytestmark = pytest.mark.filterwarnings("ignore")
BATCH, LENGTH, WIDTH, HEADS = 3, 17, 48, 4


@pytest.fixture(autouse=True)
def without_gradients(kernels):
    engine.set_profile(True)
    with torch.no_grad():
        yield
    engine.set_profile(False)


def masks():
    torch.manual_seed(0)
    rows, keys = torch.rand(LENGTH, LENGTH) > 0.5, torch.rand(BATCH, LENGTH) > 0.6
    rows[1] = True  # a row that sees nothing
    keys[0] = True
    each = torch.rand(BATCH * HEADS, LENGTH, LENGTH) > 0.5
    return {"none": {}, "rows": {"attn_mask": rows}, "keys": {"key_padding_mask": keys}, "both": {"attn_mask": rows, "key_padding_mask": keys},
            "numbers": {"attn_mask": torch.zeros(LENGTH, LENGTH).masked_fill(rows, -math.inf)}, "each": {"attn_mask": each}}


def attention(**options):
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    return lambda x, **mask: module(x, x, x, **mask, **options)


def layer(**options):
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, **options).eval()
    return lambda x, attn_mask=None, key_padding_mask=None: module(x, src_mask=attn_mask, src_key_padding_mask=key_padding_mask)


CALLS = {"attention": lambda: attention(need_weights=False), "weights": lambda: attention(), "each weight": lambda: attention(average_attn_weights=False),
         "layer": lambda: layer(), "norm first": lambda: layer(norm_first=True, activation="gelu")}


@pytest.mark.parametrize("mask", list(masks()))
@pytest.mark.parametrize("call", CALLS)
def test_masks(call, mask):
    torch.manual_seed(1)
    fn, given, x = CALLS[call](), masks()[mask], torch.randn(BATCH, LENGTH, WIDTH)
    wanted, compiled = fn(x, **given), kintsugi.compile(fn)
    for _ in range(6):
        torch.testing.assert_close(compiled(x, **given), wanted, rtol=1e-5, atol=5e-6, equal_nan=True)
    assert runs(compiled) > 0
    names = [op["name"] for v in versions(compiled) if v["profile"] for op in v["profile"][1:] if op["extern"]]
    assert names and not [name for name in names if name.startswith(("aten._native", "aten._transformer"))]
