import torch, kintsugi
from torch import nn
m = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).cuda().eval()
x = torch.randn(4, 16, device="cuda")
with torch.no_grad():
    f = kintsugi.compile(m)
    for _ in range(4): f(x)
    s = kintsugi.stats(f)
    print({k: v for k, v in s.items() if k in ("calls", "recordings", "replays", "eager_calls")})
    print([{k: r[k] for k in ("state", "reason", "launches", "native_calls") if k in r} for r in s["kernels"]])
    print(kintsugi.explain(m)(x))
    print([e for e in kintsugi._kintsugi.events() if e.get("event") in ("bug", "fallback")])
