# title: torch.export as the strict check
# equal: none
# expect: Model successfully exported - no graph breaks!
# expect: Export failed
import torch
from torch.export import export


class Breaks(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


for model in (torch.nn.Linear(4, 4), Breaks()):
    try:
        exported = export(model, (torch.randn(2, 4),))
        print("Model successfully exported - no graph breaks!")
    except Exception as e:
        print(f"Export failed - graph breaks present: {str(e).splitlines()[0]}")
