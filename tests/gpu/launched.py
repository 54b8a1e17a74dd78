"""Prints which programs of test_programs.py mode="reduce-overhead" launches as CUDA graphs, and why the others are not."""
import torch

import kintsugi
from kintsugi import _cuda_graphs
from test_programs import PROGRAMS

_cuda_graphs.Graph.pays = lambda graph, inputs: True
for name, make in PROGRAMS.items():
    kintsugi.reset()
    kintsugi._kintsugi.events()
    before = sum(device.launches for device in _cuda_graphs._devices.values())
    fn, arguments = make()
    run = kintsugi.compile(fn, mode="reduce-overhead")
    with torch.no_grad():
        for i in range(6):
            try:
                run(*arguments(i))
            except Exception as error:
                print(f"{name}: call {i} raised {type(error).__name__}")
    launches = sum(device.launches for device in _cuda_graphs._devices.values()) - before
    reasons = {e.get("reason") or e.get("message") for e in kintsugi._kintsugi.events() if e["event"] in ("fallback", "bug")}
    print(f"{name}: {launches} launches", *sorted(map(str, reasons)), sep="; ")
