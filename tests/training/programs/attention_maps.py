"""A classifier whose compiled model gives scores and features; after the call a hook on the features keeps what comes back to them (Grad-CAM), and weighs them in a
penalty of the next step."""
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 16, 3, padding=1), nn.GELU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        features = self.body(x)
        return self.head(features.mean((2, 3))), features


def main():
    torch.manual_seed(8)
    net = Net()
    compiled = torch.compile(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    kept = {}
    for step in range(20):
        x, y = torch.randn(6, 3, 12, 12), torch.randint(0, 4, (6,))
        scores, features = compiled(x)
        if step % 4 == 0:
            features.register_hook(lambda g: kept.update(weight=g.mean((0, 2, 3))))
        loss = F.cross_entropy(scores, y) + (kept.get("weight", torch.zeros(16)) * features.mean((0, 2, 3))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        cam = F.relu((features.detach() * kept["weight"].view(1, -1, 1, 1)).sum(1))
        print(f"step {step} {loss.item():.9g} map {cam.sum().item() * 1e3:.6g}")
    print(f"state {sum(p.sum().item() for p in net.parameters()):.9g}")


if __name__ == "__main__":
    main()
