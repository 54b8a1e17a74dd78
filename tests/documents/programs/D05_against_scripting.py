# title: against torch.jit.script: a number as an argument
# equal: none
# expect: compile 2: True
# expect-err: l_x_ \+ 3
import traceback as tb

import torch

torch._logging.set_logs(graph_code=True)


def f2(x, y):
    return x + y


def test_fns(fn1, fn2, args):
    return torch.allclose(fn1(*args), fn2(*args))


inp1 = torch.randn(5, 5)
inp2 = 3
script_f2 = torch.jit.script(f2)
try:
    script_f2(inp1, inp2)
except:
    tb.print_exc()
compile_f2 = torch.compile(f2)
print("compile 2:", test_fns(f2, compile_f2, (inp1, inp2)))
