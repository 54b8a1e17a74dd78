"""A variational autoencoder: random numbers between two halves, a loss of two parts, loss and model compiled together."""
import torch
import torch.nn.functional as F
from torch import nn, optim


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 40), nn.Linear(40, 8), nn.Linear(40, 8)
        self.fc3, self.fc4 = nn.Linear(8, 40), nn.Linear(40, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def main():
    torch.manual_seed(4)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)

    @torch.compile
    def objective(data):
        recon, mu, logvar = model(data)
        return loss_function(recon, data, mu, logvar)

    data = torch.rand(90, 1, 8, 8)
    for epoch in range(4):
        for i, batch in enumerate(data.split(20)):
            optimizer.zero_grad()
            loss = objective(batch)
            loss.backward()
            optimizer.step()
            print(f"train {epoch} {i} {loss.item() / len(batch):.9g}")
        with torch.no_grad():
            print(f"test {epoch} {objective(data).item():.9g}")


if __name__ == "__main__":
    main()
