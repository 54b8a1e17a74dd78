# title: pattern 2: branch on a mean, and its blend of both paths
# equal: eager
# expect: before 1 after 0
import torch
import torch._dynamo

torch.manual_seed(0)


class Before(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(8, 8)
        self.path_a = torch.nn.Linear(8, 8)
        self.path_b = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = self.encoder(x)
        if x.mean() > 0:
            x = self.path_a(x)
        else:
            x = self.path_b(x)
        return x


class After(Before):
    def forward(self, x):
        x = self.encoder(x)
        condition = (x.mean() > 0).float()
        result_a = self.path_a(x)
        result_b = self.path_b(x)
        x = condition * result_a + (1 - condition) * result_b
        return x


before, after = Before(), After()
x = torch.randn(4, 8)
counts = [torch._dynamo.explain(m)(x).graph_break_count for m in (before, after)]
print("before", counts[0], "after", counts[1])
for m in (before, after):
    c = torch.compile(m)
    print([torch.allclose(c(v), m(v), atol=1e-5) for v in (x, -x, x, -x)])
torch.compile(after, fullgraph=True)(x)
