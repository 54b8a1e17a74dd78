# title: config.verbose and config.log_level before compiling
# equal: eager
import torch
import torch._dynamo

torch._dynamo.config.verbose = True
torch._dynamo.config.log_level = "INFO"
model = torch.nn.Linear(4, 4)
torch.manual_seed(0)
compiled_model = torch.compile(model, backend="inductor")
x = torch.randn(2, 4)
print(torch.allclose(compiled_model(x), model(x), atol=1e-6))
