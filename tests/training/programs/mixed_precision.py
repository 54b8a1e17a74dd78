"""Mixed precision as its recipe has it, the whole step compiled: a scaler, unscaled gradients that are clipped, a schedule, an average of the weights."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 5))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=24)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)

    @torch.compile
    def train_step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach(), norm

    for step in range(24):
        x, y = torch.randn(16, 24), torch.randint(0, 5, (16,))
        if step in (7, 15):
            x[0, 0] = float("inf")
        loss, norm = train_step(x, y)
        scheduler.step()
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.lerp_(p, 0.1)
        print(f"step {step} {loss.nan_to_num().item():.9g} norm {norm.nan_to_num(posinf=0).item():.9g} scale {scaler.get_scale():g}")
    print(f"state {sum(p.abs().sum().item() for p in average.parameters()):.9g}")


if __name__ == "__main__":
    main()
