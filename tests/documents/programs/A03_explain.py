# title: torch._dynamo.explain on a data-dependent if
# equal: none
# expect: Graph break count: 1
# expect: Data-dependent
import torch
import torch.nn as nn

torch.manual_seed(0)


class ProblematicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3)
        self.conv2 = nn.Conv2d(64, 128, 3)

    def forward(self, x):
        x = self.conv1(x)
        if x.max() > 0.5:
            x = x * 2
        x = self.conv2(x)
        return x


model = ProblematicModel()
explanation = torch._dynamo.explain(model)(torch.randn(1, 3, 32, 32))
print("Graph break count:", explanation.graph_break_count)
print("Break reasons:", explanation.break_reasons)
