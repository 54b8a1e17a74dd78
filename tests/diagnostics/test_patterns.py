"""A table of patterns as users write them: what breaks the graph, at which line, where its data comes from, and what the fix is; and what does not break it here."""

import linecache

import pytest
import torch

import kintsugi
from kintsugi import _messages

HEAD = "import copy\nimport inspect\nimport math\nimport pickle\n\nimport numpy as np\nimport torch\n\n\n@torch.compiler.disable\ndef off(x):\n    return x * 3\n\n\ndef f(x, y):\n"

# name: (body of f(x, y), reason or None, first line of the fix or None). `#>` marks the line of the break, `#o` the one that its data comes from.
PATTERNS = {
    'if sum': ('if x.sum() > 0:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(x.sum() > 0, x * 2, x)'),
    'if name': ('c = x.sum() > 0  #o\nif c:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(c, x * 2, x)'),
    'if not': ('c = x.max() > 9  #o\nif not c:  #>\n    x = x + 1', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(torch.logical_not(c), x + 1, x)'),
    'if else': ('if x.mean() > 0:  #>\n    x = x * 2\nelse:\n    x = x - 1', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(x.mean() > 0, x * 2, x - 1)'),
    'two names': ('if x.mean() > 0:  #>\n    x = x * 2\n    y = y + 1', 'DATA_DEPENDENT_BRANCH', 'chosen = x.mean() > 0'),
    'if any': ('if (x > 9).any():  #>\n    x = torch.zeros_like(x)', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((x > 9).any(), torch.zeros_like(x), x)'),
    'if all': ('if (x > 0).all():  #>\n    x = x.log()', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((x > 0).all(), x.log(), x)'),
    'conditional expression': ('x = x * 2 if x.sum() > 0 else x  #>', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(x.sum() > 0, x * 2, x)'),
    'and': ('if x.sum() > 0 and y.sum() > 0:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((x.sum() > 0) & (y.sum() > 0), x * 2, x)'),
    'while': ('while x.sum() < 20:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', None),
    'return': ('if x.sum() > 0:  #>\n    return x * 2\nreturn x', 'DATA_DEPENDENT_BRANCH', 'return torch.where(x.sum() > 0, x * 2, x)'),
    'in-place body': ('if x.sum() > 0:  #>\n    x.add_(1)', 'DATA_DEPENDENT_BRANCH', None),
    'nested': ('for _ in range(2):\n    if x.sum() > 0:  #>\n        x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(x.sum() > 0, x * 2, x)'),
    'item branch': ('if x.sum().item() > 0:  #>\n    x = x * 2', 'TENSOR_ITEM', 'x = torch.where(x.sum() > 0, x * 2, x)'),
    'item name branch': ('n = x.sum().item()  #o\nif n > 0:  #>\n    x = x * 2', 'TENSOR_ITEM', 'n = x.sum()'),
    'float branch': ('n = float(x.sum())  #o\nif n > 0:  #>\n    x = x * 2', 'TENSOR_TO_NUMBER', 'n = x.sum()'),
    'tolist': ('v = x.tolist()  #>\nx = x * v[0]', 'TENSOR_TOLIST', 'v = x.unbind()'),
    'sum of tolist': ('v = sum(x.tolist())  #>\nx = x * v', 'TENSOR_TOLIST', 'v = x.sum()'),
    'sorted tolist': ('v = sorted(x.tolist())  #>\nx = x * v[0]', 'TENSOR_TOLIST', 'v = torch.sort(x).values.unbind()'),
    'numpy sort': ('x = torch.as_tensor(np.sort(x.numpy()))', None, None),
    'numpy cumsum': ('x = torch.as_tensor(np.cumsum(x.numpy()))', None, None),
    'assert': ('assert x.sum() > 0\nx = x * 2', None, None),
    'assert message': ("assert (x > -9).all(), 'small'\nx = x * 2", None, None),
    'equal': ('if torch.equal(x, y):  #>\n    x = x * 2', 'DATA_DEPENDENT_OP', 'x = torch.where((x == y).all(), x * 2, x)'),
    'allclose': ('c = torch.allclose(x, y)  #>\nx = x * 2 if c else x', 'DATA_DEPENDENT_OP', 'c = torch.isclose(x, y).all()'),
    'graph_break': ('x = x.sin()\ntorch._dynamo.graph_break()  #>\nx = x.cos()', 'EXPLICIT_BREAK', ''),
    'deepcopy': ('z = copy.deepcopy(x)  #>\nx = z * 2', 'TENSOR_DEEPCOPY', 'z = x.detach().clone()'),
    'copy': ('z = copy.copy(x)  #>\nx = z * 2', 'TENSOR_DEEPCOPY', None),
    'set data': ('x = x * 1\nx.data = y * 2\nx = x + 1', None, None),
    'disabled': ('x = off(x)  #>\nx = x + 1', 'DISABLED_CALL', None),
    'nonzero': ('i = x.nonzero()\nx = x[i[:, 0]]', None, None),
    'mask': ('x = x[x > 0]\nx = x * 2', None, None),
    'unique': ('x = x.unique()\nx = x * 2', None, None),
    'str': ('s = str(x)  #>\nx = x * len(s)', 'TENSOR_REPR', None),
    'format': ("s = f'{x.sum():.3f}'\nx = x * len(s)", None, None),
    'dict key': ('d = {float(x.sum()): 2}\nx = x * list(d.values())[0]', None, None),
    'exec': ("exec('z = 1')  #>\nx = x * 2", 'EXEC_EVAL', None),
    'open': ("open('/dev/null').close()\nx = x * 2", None, None),
    'sorted tensors': ('v = sorted(x.unbind())  #>\nx = v[0]', 'SORT_KEYS', None),
    'max of tensors': ('v = max(x.unbind())\nx = v * 2', None, None),
    'data_ptr': ('p = x.data_ptr()\nx = x * (2 if p else 3)', None, None),
    'data_ptr of a result': ('x = x.sin()\np = x.data_ptr()  #>\nx = x * (2 if p else 3)', 'DATA_POINTER', None),
    'is_contiguous id': ('p = id(x)\nx = x * (2 if p else 3)', None, None),
    'pickle': ('s = pickle.dumps(x)  #>\nx = x * len(s)', 'SERIALIZATION', None),
    'class': ('class A: pass  #>\nx = x * 2', 'CLASS_STATEMENT', None),
    'multinomial loop': ('for v in x.tolist():  #>\n    y = y + v\nx = y', 'TENSOR_TOLIST', 'for v in x.unbind():'),
    'match': ('match x.sum() > 0:\n    case True:\n        x = x * 2', None, None),
    'filter': ('v = [t for t in x.unbind() if t > 0]  #>\nx = x * len(v)', 'DATA_DEPENDENT_LOOP', None),
    'bool of a tensor': ('c = bool(x.sum() > 0)  #o\nx = x * 2 if c else x  #>', 'TENSOR_TO_NUMBER', None),
    'number as an index': ('i = int(x.argmax())  #o\nx = x * [1, 2, 3][i]  #>', 'TENSOR_TO_NUMBER', None),
    'or': ('if x.sum() > 0 or y.sum() > 0:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((x.sum() > 0) | (y.sum() > 0), x * 2, x)'),
    'elif': ('if x.sum() > 9:  #>\n    x = x * 2\nelif x.sum() > 0:\n    x = x + 1', 'DATA_DEPENDENT_BRANCH', None),
    'and with a Python number': ('n = 3\nif n > 2 and x.sum() > 0:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((n > 2) & (x.sum() > 0), x * 2, x)'),
    'and with a flag': ('train = True\nif x.sum() > 0 and train:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'if train:'),
    'is not None and': ('z = y\nif z is not None and x.sum() > 0:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'if z is not None:'),
    'pass else': ('if x.sum() > 9:  #>\n    pass\nelse:\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(x.sum() > 9, x, x * 2)'),
    'chain of comparisons': ('if 0 < x.sum() < 10:  #>\n    x = x * 2', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((0 < x.sum()) & (x.sum() < 10), x * 2, x)'),
    'item in a chain': ('if 0 < x.sum().item() < 10:  #>\n    x = x * 2', 'TENSOR_ITEM', 'x = torch.where((0 < x.sum()) & (x.sum() < 10), x * 2, x)'),
    'clip': ('n = x.norm()  #o\nif n > 1.0:  #>\n    x = x / n', 'DATA_DEPENDENT_BRANCH', 'x = torch.where(n > 1.0, x / n, x)'),
    'walrus': ('if (m := x.max()) > 1:  #>\n    x = x / m', 'DATA_DEPENDENT_BRANCH', 'x = torch.where((m := x.max()) > 1, x / m, x)'),
    'number chosen': ('s = 2.0 if x.mean() > 0 else 0.5  #>\nx = x * s', 'DATA_DEPENDENT_BRANCH', 's = torch.where(x.mean() > 0, 2.0, 0.5)'),
    'key chosen': ("k = 'a' if x.sum() > 0 else 'b'  #>\nx = {'a': x * 2, 'b': x}[k]", 'DATA_DEPENDENT_BRANCH', None),
    'function chosen': ('g = torch.sin if x.sum() > 0 else torch.cos  #>\nx = g(x)', 'DATA_DEPENDENT_BRANCH', None),
    'tuple returned': ('if x.sum() > 0:  #>\n    return x * 2, y\nreturn x, y', 'DATA_DEPENDENT_BRANCH', None),
    'break': ('for _ in range(4):\n    x = x * 1.5  #o\n    if x.max() > 3:  #>\n        break', 'DATA_DEPENDENT_BRANCH', None),
    'continue': ('for _ in range(3):\n    if x.max() > 3:  #>\n        continue\n    x = x * 1.5', 'DATA_DEPENDENT_BRANCH', None),
    'items of a tensor': ('for v in x:  #o\n    if v > 1:  #>\n        y = y + v', 'DATA_DEPENDENT_BRANCH', 'y = torch.where(v > 1, y + v, y)'),
    'while number': ('n = int(x[0])  #o\nwhile n > 0:  #>\n    x = x * 2\n    n -= 1', 'TENSOR_TO_NUMBER', None),
    'set of tolist': ('n = len(set(x.tolist()))  #>\nx = x * n', 'TENSOR_TOLIST', None),
    'in tolist': ('if 1.0 in x.tolist():  #>\n    x = x * 2', 'TENSOR_TOLIST', None),
    'in a tensor': ('if 1.0 in x:  #>\n    x = x * 2', 'OPAQUE_CALL', None),
    'index of a list': ('i = x.argmax()  #o\nx = [x, y, x][i]  #>', 'OPAQUE_CALL', None),
    'isnan': ('if math.isnan(x.sum()):  #>\n    x = x * 0', 'OPAQUE_CALL', 'x = torch.where(torch.isnan(x.sum()), x * 0, x)'),
    'isnan of an item': ('n = 2 if math.isnan(x.sum().item()) else 3  #>\nx = x * n', 'TENSOR_ITEM', 'n = torch.where(torch.isnan(x.sum()), 2, 3)'),
    'isfinite kept': ('c = math.isfinite(x.sum())  #>\nx = torch.where(torch.as_tensor(c), x, y)', 'OPAQUE_CALL', 'c = torch.isfinite(x.sum())'),
    'is_nonzero': ('if torch.is_nonzero(x.sum()):  #>\n    x = x * 2', 'DATA_DEPENDENT_OP', None),
    'any of a generator': ('if any(t > 1 for t in x.unbind()):  #>\n    x = x * 2', 'GENERATOR_ESCAPES', 'x = torch.where((x > 1).any(), x * 2, x)'),
    'any of the rows': ('if any(t > 1 for t in x):  #>\n    x = x * 2', 'GENERATOR_ESCAPES', 'x = torch.where((x > 1).any(), x * 2, x)'),
    'all of a generator': ('c = all(0 < t < 9 for t in x)  #>\nx = torch.where(torch.as_tensor(c), x, y)', 'GENERATOR_ESCAPES', 'c = ((0 < x) & (x < 9)).all()'),
    'break on a number': ('for _ in range(4):\n    x = x * 1.5\n    n = x.max().item()  #o\n    if n > 3:  #>\n        break', 'TENSOR_ITEM', None),
    'dir': ('n = len(dir(x))  #>\nx = x * n', 'BUILTIN_CALL', None),
    'resize': ('x = x.clone()  #o\nx.resize_(2)  #>\nx = x * 2', 'RESIZE', None),
    'repr': ('s = repr(x)  #>\nx = x * len(s)', 'TENSOR_REPR', None),
    'numpy array': ('a = np.array(x)\nx = x * float(a[0])', None, None),
    'eval': ("x = eval('x * 2')  #>", 'EXEC_EVAL', None),
    'raise': ("if x.sum() > 100:\n    raise ValueError('big')\nx = x * 2", None, None),  # the graph asserts it
    'item of a size': ('n = int(x[1])\nx = x + torch.zeros(n, 1).sum()', None, None),
    'number at the end': ('n = round(x.sum().item(), 2)\nx = x * n', None, None),
    'time': ('import time\nt = time.time()\nx = x * 2', None, None),
    'logging': ("import logging\nlogging.getLogger('a').info('x %s', x.sum())\nx = x * 2", None, None),
    'lock': ('import threading\nwith threading.Lock():\n    x = x * 2', None, None),
}


def _write(tmp_path, body):
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    if not body.splitlines()[-1].startswith("return"):
        text += "    return x, y\n"
    path = tmp_path / "program.py"
    path.write_text(text)
    linecache.clearcache()
    space = {}
    exec(compile(text, str(path), "exec"), space)
    return space["f"], text


def _args(sign=1.0):
    return torch.tensor([1.0, 2.0, 0.5]) * sign, torch.tensor([3.0, 1.0, 2.0])


def _line(text, mark):
    return next((number for number, line in enumerate(text.splitlines(), 1) if line.endswith(mark)), None)


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(tmp_path, name):
    body, why, fix = PATTERNS[name]
    fn, text = _write(tmp_path, body)
    causes = kintsugi.explain(fn)(*_args()).causes
    if why is None:
        assert not causes
        return
    first = causes[0]
    row = _messages.find_row(why)
    assert (first.why, first.id, first.line) == (why, row["id"], _line(text, "#>"))
    assert first.page.endswith(f"{row['stock'][0].lower()}.html") if row["stock"] else not first.page
    origin = _line(text, "#o")
    assert origin is None or origin in [line for _, line, _ in first.origin] or origin == first.line
    if fix is None:
        assert first.patch is None
        return
    assert (first.patch.lines[:1] or [""])[0].strip().startswith(fix)
    fixed = first.patch.apply(text)
    space = {}
    exec(compile(fixed, str(tmp_path / "fixed.py"), "exec"), space)
    for sign in (1.0, -1.0):
        torch.testing.assert_close(space["f"](*_args(sign)), fn(*_args(sign)))
