"""A step of MAML with torch.func: gradients inside of the function that is differentiated, for each task through vmap."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap


def main():
    torch.manual_seed(9)
    model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.Adam(parameters.values(), lr=1e-2, eps=1e-4)

    def loss_of(params, x, y):
        return F.mse_loss(functional_call(model, params, (x,)), y)

    def adapted(params, x, y, x_query, y_query):
        grads = grad(loss_of)(params, x, y)
        moved = {name: p - 0.05 * grads[name] for name, p in params.items()}
        return loss_of(moved, x_query, y_query)

    @torch.compile
    def outer(params, x, y, x_query, y_query):
        return vmap(adapted, in_dims=(None, 0, 0, 0, 0))(params, x, y, x_query, y_query).mean()

    for i in range(12):
        amplitude, phase = torch.rand(4, 1, 1) * 4 + 0.5, torch.rand(4, 1, 1) * 3
        x, x_query = torch.rand(4, 10, 1) * 10 - 5, torch.rand(4, 10, 1) * 10 - 5
        y, y_query = amplitude * torch.sin(x + phase), amplitude * torch.sin(x_query + phase)
        loss = outer(parameters, x, y, x_query, y_query)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {i} {loss.item():.9g}")


if __name__ == "__main__":
    main()
