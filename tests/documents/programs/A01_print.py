# title: a module that prints a shape in forward
# equal: eager
# expect: Shape: torch.Size\(\[32, 128\]\)
# stats: breaks=0
import torch
import torch.nn as nn

torch.manual_seed(0)


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 128)

    def forward(self, x):
        x = self.linear(x)
        print(f"Shape: {x.shape}")
        return x.relu()


model = MyModel()
compiled_model = torch.compile(model)
x = torch.randn(32, 128)
output = compiled_model(x)
print("equal:", torch.allclose(output, model(x), atol=1e-5))
