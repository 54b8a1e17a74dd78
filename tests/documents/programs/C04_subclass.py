# title: fix: a subclass overrides a library method that breaks
# equal: none
# expect: library 1 subclass 0
import torch
import torch._dynamo

torch.manual_seed(0)


class LibraryModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)

    def normalise(self, x):
        if x.norm() > 1:
            return x / x.norm()
        return x

    def forward(self, x):
        return self.normalise(self.proj(x))


class CompilableModel(LibraryModel):
    def normalise(self, x):
        norm = torch.linalg.vector_norm(x)
        return torch.where(norm > 1, x / norm, x)


x = torch.randn(3, 4)
counts = [torch._dynamo.explain(c())(x).graph_break_count for c in (LibraryModel, CompilableModel)]
print("library", counts[0], "subclass", counts[1])
torch.compile(CompilableModel(), fullgraph=True)(x)
