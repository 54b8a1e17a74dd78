# title: trying backends one after another
# equal: none
# expect: inductor: Success
# expect: aot_eager: Success
# expect: cudagraphs: Success
import torch

model = torch.nn.Linear(4, 4)
x = torch.randn(2, 4)
backends = ["inductor", "aot_eager", "cudagraphs"]
for backend in backends:
    try:
        compiled = torch.compile(model, backend=backend)
        output = compiled(x)
        print(f"{backend}: Success")
    except Exception as e:
        print(f"{backend}: Failed - {e}")
