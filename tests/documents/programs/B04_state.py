# title: stateful layers over a loop: batch norm statistics and dropout in eval mode
# equal: eager
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.5))
compiled = torch.compile(model)
for step in range(4):
    torch.manual_seed(step)
    out = compiled(torch.randn(2, 3, 8, 8))
    out.sum().backward()
print(f"{model[1].running_mean.sum():.5f} {model[1].running_var.sum():.5f} {model[0].weight.grad.sum():.3f}", int(model[1].num_batches_tracked))
model.eval()
x = torch.randn(2, 3, 8, 8)
print(torch.allclose(compiled(x), model(x), atol=1e-6))
