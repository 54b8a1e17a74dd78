# title: modules: .compile() and torch.compile(module), outputs that want gradients
# equal: none
# expect: grad_fn=<
# partly: grad_fn=<\w*CompiledFunctionBackward\w*> | a first call is the one that is recorded: its values are right, its grad_fn is eager's; those of later calls are compiled
# expect-err: torch\._C\._nn\.linear
import torch

torch.manual_seed(0)
torch._logging.set_logs(graph_code=True)
t = torch.randn(10, 100)


class MyModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.nn.functional.relu(self.lin(x))


mod1 = MyModule()
mod1.compile()
print(mod1(torch.randn(3, 3)))
mod2 = MyModule()
mod2 = torch.compile(mod2)
print(mod2(torch.randn(3, 3)))
