"""Small programs for the diagnostics: written to a folder of the test, for they are looked at line by line."""

LAYERS = '''\
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        if x.sum() > 1e9:
            x = x * 2
        return x


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


model = torch.compile(Model())
with torch.no_grad():
    for _ in range(2):
        model(torch.ones(3, 4))
'''

ORIGIN = '''\
import torch


def decide(x, y):
    x = torch.sin(x)
    gt = y.sum() > 0
    print("decided")
    if gt:
        x = x * 2
    return x


def example_inputs():
    return torch.ones(3), torch.ones(3)


if __name__ == "__main__":
    torch.compile(decide)(*example_inputs())
'''

RECOMPILES = '''\
import torch


@torch.compile
def scale(x, factor, name="a"):
    y = x * factor
    return y if name == "a" else -y


x = torch.ones(3)
scale(x, "2" and 2)
scale(x, 3)
scale(x, 3, name="b")
'''
