"""What training leaves in memory, beside its tensors."""
import pytest
import torch
import torch.nn.functional as F
from launches import engine, kintsugi


def resident_code():
    """Bytes of the engine's file that are in memory."""
    total, own = 0, False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            words = line.split()
            if not words[0].endswith(":"):
                own = engine.__file__.endswith(words[-1].rsplit("/", 1)[-1]) and len(words) > 5
            elif own and words[0] == "Rss:":
                total += int(words[1]) * 1024
    return total


@pytest.mark.compiled_gradients
def test_the_compiler_leaves_memory_once_a_graph_runs():
    w = torch.randn(16, 16, requires_grad=True)
    compiled = kintsugi.compile(lambda x: F.gelu(x @ w).square().mean(), options={"async": False})
    seen = []
    for _ in range(12):
        compiled(torch.randn(8, 16)).backward()
        seen.append(resident_code())
    assert seen[-1] > 0
    assert seen[-1] < max(0.8 * max(seen), 6 << 20)
