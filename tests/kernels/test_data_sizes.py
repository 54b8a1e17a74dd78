"""Thirty programs whose sizes data decides: eager's results over twenty inputs, one graph, and no recording for each size."""
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kintsugi

pytestmark = pytest.mark.usefixtures("kernels")
PROGRAMS = {}


def program(make, graphs=1, recordings=2):
    def keep(fn):
        PROGRAMS[fn.__name__] = fn, make, graphs, recordings
        return fn

    return keep


torch.manual_seed(0)
WIDE, NARROW, WORDS = nn.Linear(32, 64), nn.Linear(64, 8), nn.Embedding(100, 32)


def rows(i):
    return (torch.randn(20 + (i * 13) % 37, 32),)


def tokens(i):
    return (torch.randint(0, 100, (30 + (i * 7) % 50,)),)


def boxes(i):
    n = 40 + (i * 11) % 60
    corner = torch.rand(n, 2) * 50
    return torch.cat([corner, corner + torch.rand(n, 2) * 20 + 1], 1), torch.rand(n)


def ragged(i):
    lengths = torch.randint(1, 12, (6,))
    return torch.randn(int(lengths.sum()), 32), lengths


def overlaps(b):
    low, high = torch.max(b[:, None, :2], b[None, :, :2]), torch.min(b[:, None, 2:], b[None, :, 2:])
    sides = (high - low).clamp(min=0)
    shared, area = sides[..., 0] * sides[..., 1], (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    return shared / (area[:, None] + area[None] - shared)


@program(rows)
def nonzero(x):
    return NARROW(F.gelu(WIDE(x[(x[:, 0] > 0).nonzero().squeeze(1)]))).sum(0)


@program(rows)
def mask(x):
    return F.softmax(WIDE(x[x[:, 1] > 0]), -1).mean(0)


@program(rows)
def mask_of_elements(x):
    y = x[x > 0]
    return (y - y.mean()) / (y.std() + 1e-5)


@program(rows)
def mask_written(x):
    y = x.clone()
    m = y[:, 0] > 0
    y[m] = WIDE(y[m])[:, :32]
    return y * 2


@program(rows)
def masked_select(x):
    y = torch.masked_select(x, x > 0.5)
    return y.exp().log1p().sum() * y.shape[0]


@program(tokens)
def unique(t):
    u, inverse, counts = torch.unique(t, return_inverse=True, return_counts=True)
    return (F.gelu(WIDE(WORDS(u))) * counts.unsqueeze(1))[inverse].sum(0)


@program(tokens)
def unique_consecutive(t):
    u, counts = torch.unique_consecutive(t.sort()[0], return_counts=True)
    return WIDE(WORDS(u)).mul(counts[:, None]).sum(0)


@program(ragged)
def repeat_interleave(x, lengths):
    segment = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths)
    sums = torch.zeros(lengths.shape[0], 32).index_add(0, segment, x)
    return F.relu(WIDE(sums))[segment] + WIDE(x)


@program(ragged)
def split_by_list(x, lengths):
    return torch.stack([F.gelu(WIDE(part)).mean(0) for part in torch.split(x, lengths.tolist())])


@program(ragged)
def padded(x, lengths):
    return NARROW(WIDE(nn.utils.rnn.pad_sequence(torch.split(x, lengths.tolist()), batch_first=True))).softmax(1)


@program(ragged)
def longest(x, lengths):
    n = int(lengths.max())
    valid = torch.arange(n)[None] < lengths[:, None]
    out = torch.zeros(lengths.shape[0], n, 32)
    out[valid] = x
    return WIDE(out).masked_fill(~valid[..., None], 0).sum(1)


@program(ragged)
def segment_softmax(x, lengths):
    n = lengths.shape[0]
    segment, score = torch.repeat_interleave(torch.arange(n), lengths), WIDE(x)[:, 0]
    most = torch.full((n,), -1e9).scatter_reduce(0, segment, score, "amax")
    e = (score - most[segment]).exp()
    return e / torch.zeros(n).index_add(0, segment, e)[segment]


@program(ragged)
def slices_by_offsets(x, lengths):
    ends = F.pad(lengths.cumsum(0), (1, 0))
    return torch.stack([x[a:b].mean(0) for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)])


@program(rows)
def item_in_arithmetic(x):
    n = (x > 0).sum().item()
    return WIDE(x) * (n / x.numel()) + n


@program(rows)
def float_item(x):
    scale = x.abs().max().item()
    return (x / scale).tanh() * scale + WIDE(x).mean()


@program(rows)
def item_as_end(x):
    k = int((x[:, 0] > 0).sum())
    return WIDE(x[x[:, 0].argsort(descending=True)][:k]).sum(0)


@program(rows)
def checked_item(x):
    k = (x[:, 0] > 0).sum().item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return F.gelu(WIDE(x[:k])).sum(0) + WIDE(x).mean(0)


@program(rows)
def item_in_arange(x):
    at = torch.arange(int((x[:, 0] > 0).sum())) * 0.1
    return (at.sin() + at.cos()).sum() * x.mean()


@program(rows)
def item_in_zeros(x):
    return WIDE(torch.cat([x, torch.zeros((x[:, 0] > 0).sum().item(), 32)])).tanh().sum(0)


@program(rows)
def item_in_topk(x):
    values, at = x[:, 0].topk(max(1, int((x[:, 0] > 0).sum())))
    return WIDE(x[at] * values[:, None]).mean(0)


@program(boxes)
def detection_filter(b, scores):
    keep = scores > 0.5
    b, scores = b[keep], scores[keep]
    order = scores.argsort(descending=True)
    area = ((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]))[order]
    return b[order] * (area / area.max())[:, None], scores[order]


@program(boxes)
def detection_overlaps(b, scores):
    at = (scores > 0.3).nonzero().squeeze(1)
    return (overlaps(b[at]) * scores[at][None]).sum(1)


@program(boxes)
def fast_suppression(b, scores):
    scores, order = scores.sort(descending=True)
    b = b[order]
    keep = overlaps(b).triu(1).amax(0) < 0.5
    return b[keep], scores[keep]


@program(boxes)
def two_stages(b, scores):
    chosen = b[(scores > 0.6).nonzero().flatten().tolist()]
    return NARROW(F.relu(WIDE(F.pad(chosen, (0, 28))))).softmax(-1)


@program(rows)
def experts(x):
    weights = NARROW(WIDE(x))
    expert, out = weights.argmax(-1), torch.zeros(x.shape[0], 64)
    for k in range(4):
        at = (expert == k).nonzero().squeeze(1)
        out = out.index_add(0, at, WIDE(x[at]) * weights[at, k:k + 1])
    return out


@program(rows)
def bincount(x):
    counts = torch.bincount((x[:, 0] * 3).long().clamp(min=0))
    return counts.float() / counts.sum()


@program(rows)
def where_places(x):
    r, c = torch.where(x > 1)
    return torch.zeros_like(x).index_put((r, c), x[r, c].exp()) + x


@program(tokens)
def tolist_in_arithmetic(t):
    numbers = t[:4].tolist()
    return WORDS(t) * sum(numbers) + numbers[0]


@program(rows)
def argwhere(x):
    at = torch.argwhere(x[:, :4] > 0.5)
    return x[at[:, 0]] * at[:, 1:].float()


@program(rows)
def distances(x):
    y = x[x[:, 0] > 0]
    return torch.cdist(y, y).mean() + y.norm()


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_program(name):
    fn, make, graphs, recordings = PROGRAMS[name]
    torch.manual_seed(len(name))
    order = list(range(20))
    random.Random(7).shuffle(order)
    compiled = kintsugi.compile(fn)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in order:
            given = make(i)
            torch.testing.assert_close(compiled(*given), fn(*given), rtol=1e-4, atol=1e-4)
        stats = kintsugi.stats(compiled)
        assert stats["recordings"] <= recordings and stats["bail_outs"] == 0 and stats["branches"] == 0 and stats["eager_calls"] == {}
        assert kintsugi.explain(compiled)(*make(3)).graph_count == graphs
