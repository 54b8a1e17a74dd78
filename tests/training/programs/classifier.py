"""An image classifier as in PyTorch's examples: train, test, scheduler, a checkpoint in the middle that training goes on from."""
import io

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(576, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        print(f"train {epoch} {batch_idx} {loss.item():.9g}")


def test(model, device, loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    print(f"test {test_loss:.9g} {correct}")


def main():
    torch.manual_seed(1)
    device = torch.device("cpu")
    images, labels = torch.randn(104, 1, 16, 16), torch.randint(0, 10, (104,))
    train_loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
    model = Net().to(device)
    compiled = torch.compile(model)
    optimizer = optim.Adadelta(model.parameters(), lr=0.5)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, 5):
        train(compiled, device, train_loader, optimizer, epoch)
        test(compiled, device, train_loader)
        scheduler.step()
        if epoch == 2:
            file = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                        "random": torch.get_rng_state()}, file)
            file.seek(0)
            state = torch.load(file)
            model = Net()
            model.load_state_dict(state["model"])
            optimizer = optim.Adadelta(model.parameters(), lr=0.5)
            optimizer.load_state_dict(state["optimizer"])
            scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
            scheduler.load_state_dict(state["scheduler"])
            torch.set_rng_state(state["random"])
            compiled = torch.compile(model)
    for name, value in model.state_dict().items():
        print(f"state {name} {value.double().abs().sum():.9g}")


if __name__ == "__main__":
    main()
