# title: dynamic=True and assume_static_by_default=False
# equal: eager
# stats: recordings<=2
import torch
import torch._dynamo

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
compiled_model = torch.compile(model, dynamic=True)
for n in (2, 3, 5, 7, 11):
    x = torch.randn(n, 8)
    print(n, torch.allclose(compiled_model(x), model(x), atol=1e-6))
torch._dynamo.config.assume_static_by_default = False
