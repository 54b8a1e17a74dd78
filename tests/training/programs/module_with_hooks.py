"""A module with a trainer of its own kind: hooks around each part of a step, manual logging, an average of the weights, autocast."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
        self.logged = {}

    def forward(self, x):
        return self.body(x)

    def log(self, name, value):
        self.logged[name] = value.detach()

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        self.log("accuracy", (logits.argmax(1) == y).float().mean())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def on_before_backward(self, loss):
        self.seen = getattr(self, "seen", 0) + 1

    def on_after_backward(self):
        self.total = sum(p.grad.abs().sum() for p in self.parameters())


class Trainer:
    def __init__(self, module, autocast=False):
        self.module, self.autocast = module, autocast
        self.optimizer, self.scheduler = module.configure_optimizers()
        self.average = copy.deepcopy(module)
        self.training_step = torch.compile(module.training_step)

    def closure(self, batch, i):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.training_step(batch, i)
        self.optimizer.zero_grad()
        self.module.on_before_backward(loss)
        loss.backward()
        self.module.on_after_backward()
        return loss

    def fit(self, batches):
        for i, batch in enumerate(batches):
            loss = self.optimizer.step(lambda: self.closure(batch, i))
            self.scheduler.step()
            with torch.no_grad():
                for slow, p in zip(self.average.parameters(), self.module.parameters()):
                    slow.lerp_(p, 0.1)
            print(f"step {i} {loss.item():.9g} {self.module.total.item():.9g} {self.module.logged['loss'].item():.9g} {self.module.seen}")
        print(f"average {sum(p.abs().sum() for p in self.average.parameters()).item():.9g}")


def main():
    torch.manual_seed(8)
    batches = [(torch.randn(10, 12), torch.randint(0, 4, (10,))) for _ in range(20)]
    Trainer(Module()).fit(batches)


if __name__ == "__main__":
    main()
