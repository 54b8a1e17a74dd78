# title: GB0083, GB0029: hooks of modules, compiled autograd
# equal: eager
import torch
import torch._dynamo

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
model[0].register_forward_hook(lambda m, i, o: o * 2)
model.register_full_backward_hook(lambda m, gi, go: print("backward", tuple(go[0].shape)))
torch._dynamo.config.compiled_autograd = True
compiled = torch.compile(model)
x = torch.randn(2, 4)
for _ in range(2):
    compiled(x).sum().backward()
print(f"{model[0].weight.grad.sum():.4f}")
