# title: pattern 1 after: print only where torch._dynamo.is_compiling() is false
# equal: none
# expect: ^equal: True$
# expect-not: After layer1
# stats: breaks=0
import torch
import torch._dynamo

torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = torch.nn.Linear(8, 8)
        self.layer2 = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer1(x)
        if not torch._dynamo.is_compiling():
            print(f"After layer1: {x.shape}")
        x = self.layer2(x)
        return x


model = Model()
x = torch.randn(2, 8)
compiled = torch.compile(model, fullgraph=True)
result = compiled(x)
expected = model.layer2(model.layer1(x))
print("equal:", torch.allclose(result, expected, atol=1e-6))
