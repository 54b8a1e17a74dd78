"""Where some inputs differ in each call, as a cache that grows does, the calls that do not are compiled."""

import pytest
import torch
import torch.nn.functional as F

from launches import kintsugi, versions

pytestmark = pytest.mark.usefixtures("kernels")


class Block(torch.nn.Module):
    def __init__(self, grows):
        super().__init__()
        self.qkv, self.out, self.up, self.down = (torch.nn.Linear(*s) for s in ((32, 96), (32, 32), (32, 64), (64, 32)))
        self.grows = grows

    def forward(self, x, k, v, at):
        q, new_k, new_v = self.qkv(x).view(1, 1, 3, 4, 8).permute(2, 0, 3, 1, 4)
        k, v = self.grows(k, v, new_k, new_v, at)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 1, 32))
        return x + self.down(F.gelu(self.up(x))), k, v


def joined(k, v, new_k, new_v, at):
    return torch.cat([k, new_k], 2), torch.cat([v, new_v], 2)


def assigned(k, v, new_k, new_v, at):
    k[:, :, at:at + 1] = new_k
    v[:, :, at:at + 1].copy_(new_v)
    return k[:, :, :at + 1], v[:, :, :at + 1]


@pytest.mark.parametrize("grows, fixed", [(joined, 0), (assigned, 64)])
def test_all_but_what_grows_is_compiled(grows, fixed):
    block = Block(grows).eval()
    compiled = kintsugi.compile(block)
    ours = [torch.zeros(1, 4, fixed or 1, 8) for _ in range(2)]
    theirs = [t.clone() for t in ours]
    with torch.no_grad():
        for at in range(24):
            x = torch.randn(1, 1, 32)
            a, *new_ours = compiled(x, *ours, at)
            b, *new_theirs = block(x, *theirs, at)
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            for p, q in zip(new_ours, new_theirs):
                torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
                assert p.stride() == q.stride() and p._version == q._version
            if not fixed:
                ours, theirs = new_ours, new_theirs
    made = [v for v in versions(compiled) if v["compiled"] or v["reason"].startswith("compiled code was slower")]
    assert made and max(v["runs"] for v in made) >= 1, [v["reason"] for v in versions(compiled)]
