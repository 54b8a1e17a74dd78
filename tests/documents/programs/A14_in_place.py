# title: an input changed in place
# equal: eager
# stats: breaks=0
import torch

net = torch.nn.Linear(4, 4)
torch.nn.init.ones_(net.weight)
torch.nn.init.zeros_(net.bias)


class Bad(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net

    def forward(self, x):
        x.mul_(2)
        return self.net(x)


model = torch.compile(Bad(), fullgraph=True)
for _ in range(3):
    x = torch.ones(2, 4)
    print(model(x).tolist(), x.tolist())
