"""A GAN: two models, two optimizers, the generator's output used detached and not."""
import torch
from torch import nn


def main():
    torch.manual_seed(3)
    generator = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(True), nn.Linear(32, 16), nn.Tanh())
    discriminator = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2, inplace=True), nn.Dropout(0.3), nn.Linear(32, 1), nn.Sigmoid())
    criterion = nn.BCELoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999), eps=1e-4)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999), eps=1e-4)

    def step(real):
        discriminator.zero_grad()
        label = torch.full((real.size(0), 1), 1.0)
        loss_real = criterion(discriminator(real), label)
        loss_real.backward()
        fake = generator(torch.randn(real.size(0), 8))
        loss_fake = criterion(discriminator(fake.detach()), label.fill_(0.0))
        loss_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        label.fill_(1.0)
        loss_g = criterion(discriminator(fake), label)
        loss_g.backward()
        optimizer_g.step()
        return loss_real.item() + loss_fake.item(), loss_g.item()

    step = torch.compile(step)
    for i in range(24):
        d, g = step(torch.randn(12, 16) * 0.5 + 1)
        print(f"step {i} {d:.9g} {g:.9g}")
    for model in (generator, discriminator):
        for name, value in model.state_dict().items():
            print(f"state {name} {value.double().abs().sum():.9g}")


if __name__ == "__main__":
    main()
