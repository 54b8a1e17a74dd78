"""Interpreters and builds of PyTorch that Kintsugi does not know: a sentence says so, results are eager's, the program ends as it would."""
import inspect
import os
import pathlib
import subprocess
import sys
import sysconfig
import textwrap

import pytest
import torch
import torch.utils.checkpoint

PROGRAM = """
import torch, kintsugi

@kintsugi.compile
def f(x, n=2):
    return torch.relu(x * n).sum()

class Layer(torch.nn.Module):
    @kintsugi.compile
    def forward(self, x):
        return x + 1

for i in range(5):
    x = torch.arange(6.0) - i
    assert torch.equal(f(x), torch.relu(x * 2).sum()) and torch.equal(f(x, n=3), torch.relu(x * 3).sum())
    assert torch.equal(Layer()(x), x + 1)
stats = kintsugi.stats(f)
print("recordings", stats["recordings"], "replays", stats["replays"], "eager", sum(stats["eager_calls"].values()))
"""


def run(before, **environ):
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(before) + PROGRAM], capture_output=True, text=True,
                           env={**os.environ, **environ}, timeout=300)
    assert child.returncode == 0, child.stderr
    return child


def runs_eagerly(sentence, before="", **environ):
    child = run(before, **environ)
    assert sentence in child.stderr, child.stderr
    assert child.stderr.count("kintsugi runs everything eagerly") == 1, child.stderr
    assert "recordings 0 replays 0 eager 10" in child.stdout


def test_nothing_is_said_where_everything_fits():
    child = run("")
    assert child.stderr == "" and "recordings 0" not in child.stdout


def test_moved_field_of_the_interpreter():
    runs_eagerly("keeps a field that a test names somewhere else", KIN_SIMULATE_MOVED="1")


def test_wrong_abi_tag():
    runs_eagerly("does not fit this interpreter", """
        import sys
        sys.modules["kintsugi._kintsugi"] = None
    """)


PACKAGE = pathlib.Path(__import__("kintsugi").__file__).parent
OWN = "_kintsugi" + sysconfig.get_config_var("EXT_SUFFIX")


def package_with(folder, write):
    """A package whose extension, under the name that this interpreter looks for, is what `write` makes of the path."""
    place = folder / "kintsugi"
    place.mkdir()
    for path in PACKAGE.iterdir():
        if path.suffix not in (".so", ".pyc"):
            (place / path.name).symlink_to(path)
    write(place / OWN)
    return str(folder)


@pytest.mark.parametrize("content", [b"", b"no library" * 1000])
def test_extension_that_is_no_library(content, tmp_path):
    runs_eagerly("does not fit this interpreter", PYTHONPATH=package_with(tmp_path, lambda path: path.write_bytes(content)))


def test_extension_of_another_version(tmp_path):
    """Builds for several versions lie side by side; one that carries another's name either cannot be loaded or says what it is."""
    others = sorted(path for path in PACKAGE.glob("_kintsugi.cpython-*.so") if path.name != OWN)
    if not others:
        pytest.skip("no build for another version is here")
    for number, other in enumerate(others):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs_eagerly("does not fit this interpreter", PYTHONPATH=package_with(folder, lambda path: path.symlink_to(other.resolve())))


CALLS = """
import warnings
{}
import torch, kintsugi

def callee(xs):
    return [x + 1 for x in xs]

def f(x):
    return sum(callee([x, x * 2])) * 3

def g(x):
    return torch.relu(x).sum()

cf, cg = kintsugi.compile(f), kintsugi.compile(g)
for i in range(5):
    x = torch.arange(6.0) - i
    assert torch.equal(cf(x), f(x)) and torch.equal(cg(x), g(x))
print([kintsugi.stats(c)["replays"] for c in (cf, cg)])
"""


@pytest.mark.parametrize("opcode, replays", [("LIST_APPEND", "[4, 4]"), ("LOAD_GLOBAL", "[0, 0]"), ("LIST_EXTEND", "[4, 4]")])
@pytest.mark.parametrize("before", ["", "warnings.simplefilter('error')"])
def test_unknown_opcode(opcode, replays, before):
    """One that a micro release brings: the functions that have it run eagerly, called from a recording or compiled themselves; one sentence names it."""
    child = subprocess.run([sys.executable, "-c", CALLS.format(before)], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "KIN_SIMULATE_UNKNOWN_OPCODE": opcode})
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == replays
    said = opcode != "LIST_EXTEND" and not before
    assert child.stderr.count("has an instruction that this build for CPython") == said


@pytest.mark.parametrize("change, sentence", [
    ("sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1", "free-threaded"),
    ("sys._jit = types.SimpleNamespace(is_enabled=lambda: True)", "JIT"),
    ("sys.version_info = (3, 15, 0, 'alpha', 1)", "CPython 3.15 is not among"),
    ("sys.implementation = types.SimpleNamespace(name='pypy', cache_tag='pypy311', version=sys.version_info)", "this is pypy"),
])
def test_other_interpreters(change, sentence):
    runs_eagerly(sentence, f"""
        import sys, sysconfig, types, torch
        {change}
    """)


def test_subinterpreter():
    """The extension refuses to be loaded there; the main interpreter goes on."""
    child = run("""
        import _xxsubinterpreters as interpreters
        other = interpreters.create()
        try:
            interpreters.run_string(other, "import kintsugi._kintsugi")
        except Exception as error:
            print("refused", error)
        interpreters.destroy(other)
    """ if sys.version_info < (3, 13) else """
        import _interpreters
        other = _interpreters.create()
        print("refused", _interpreters.exec(other, "import kintsugi._kintsugi").msg)
        _interpreters.destroy(other)
    """)
    assert "refused" in child.stdout and "nterpreter" in child.stdout


def test_handle_that_is_not_found():
    """The word of a Tensor object that refers to its TensorImpl: where it is not found, nothing of a tensor can be read."""
    child = run("""
        import torch
        torch.Tensor._cdata = property(lambda self: 12345)
    """)
    assert "the handle was not found in a Tensor object" in child.stderr and "recordings 0 replays 0 eager 10" in child.stdout
    assert child.stderr.count("kintsugi runs everything eagerly") == 1


def test_key_set_that_is_not_found():
    """Without the tensor's key set its sizes are asked for step by step: slower, and the same results."""
    child = run("""
        import torch, itertools
        numbers = itertools.count(7)
        class Keys:
            def raw_repr(self):
                return next(numbers)
        torch._C._dispatch_keys = lambda tensor: Keys()
    """)
    assert child.stdout.startswith("recordings")


@pytest.mark.parametrize("change", ["vars(module).pop('CallbackTrigger', None)", "module.callback_handler.install_callbacks = lambda new, words, here: None",
                                    "module.CallbackTrigger = None; module.callback_handler.install_callbacks = contextlib.nullcontext"])
def test_callbacks_of_another_version(change):
    """Before torch 2.8 those who register hear of compilations without being told of which."""
    child = run(f"""
        import contextlib
        import torch._dynamo.callback as module
        module.on_compile_start(lambda *args: None)
        {change}
    """)
    assert child.stderr == "" and "recordings 0" not in child.stdout


@pytest.mark.parametrize("environ", [{}, {"KIN_SIMULATE_MOVED": "1"}])
def test_warnings_as_errors(environ):
    """A program that turns warnings into errors still gets its results."""
    child = run("""
        import warnings, torch
        warnings.simplefilter("error")
        torch.Tensor._cdata = property(lambda self: 12345)
    """, **environ)
    assert "recordings 0 replays 0 eager 10" in child.stdout


def test_a_torch_that_does_not_tell_of_hooks_checkpoints_itself():
    """torch 2.6 does not say whether saved tensors have hooks: its own checkpoint runs, and no program sees what is lacking."""
    if "_top_saved_tensors_default_hooks" in inspect.getsource(torch.utils.checkpoint):
        pytest.skip("the checkpoint of this torch asks for the hooks itself (2.14)")
    program = """
import torch
del torch._C._autograd._top_saved_tensors_default_hooks
import kintsugi
from torch.utils.checkpoint import checkpoint
lin = torch.nn.Linear(4, 4)

def step(x):
    return checkpoint(lambda t: torch.relu(lin(t)), x, use_reentrant=False).sum()

compiled = kintsugi.compile(step)
for i in range(12):
    grads = []
    for f in (step, compiled):
        lin.zero_grad()
        f(torch.ones(2, 4) * (i + 1)).backward()
        grads.append(lin.weight.grad.clone())
    torch.testing.assert_close(*grads)
"""
    if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        program = program.replace("del torch._C._autograd._top_saved_tensors_default_hooks", "")
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env={**os.environ, "KINTSUGI_KERNELS": "1"})
    assert child.returncode == 0, child.stderr
