"""The package's own behaviour, on a fake engine: arguments, wrappers, reports, errors. Each runs in a process of its
own, because the real extension may be loaded in this one."""

import os
import subprocess
import sys
import textwrap

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON_DIR = os.path.join(HERE, "..", "..", "python")
PREAMBLE = """
import sys
sys.path[:0] = [{here!r}, {python!r}]
import fake_engine
engine = fake_engine.use()
import kintsugi
import torch
"""


def run(code, **env):
    code = PREAMBLE.format(here=HERE, python=PYTHON_DIR) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done


GRAPH = """
GRAPH = {"inputs": [{"vid": 1, "source": "L['x']", "path": "L['x']", "name": "L_x_", "note": "f32[3][1]cpu"}],
         "nodes": [{"vid": 2, "op": "call_function", "target": "torch.sin", "callable": torch.sin, "args": ({"vid": 1},),
                    "kwargs": {}, "name": "sin", "note": "f32[3][1]cpu", "filename": "m.py", "line": 4, "function": "f",
                    "code_line": "return torch.sin(x)"},
                   {"vid": 3, "op": "call_method", "target": "sum", "callable": None,
                    "args": ({"vid": 2}, [0]), "kwargs": {"keepdim": True}, "name": "sum_1", "note": "f32[1][1]cpu",
                    "filename": "m.py", "line": 5, "function": "f", "code_line": "x.sum()"}],
         "outputs": [3], "code": "class GraphModule(torch.nn.Module):\\n    ..."}
DUMP = {"name": "f", "filename": "m.py", "firstlineno": 1, "record_ns": 1e6, "graphs": [GRAPH],
        "facts": [{"text": "check_tensor(L['x'], f32[3][1]cpu)", "source": "L['x']", "kind": "tensor", "guard": "TENSOR_MATCH", "filename": "m.py",
                   "line": 4, "function": "f"}],
        "breaks": [{**fake_engine.ROW, "filename": "m.py", "line": 5, "function": "f", "user_stack": [("m.py", 5, "f")],
                    "context": "", "step": 3}],
        "effects": [{"text": "call(print)", "kind": "call", "filename": "m.py", "line": 6, "function": "f"}], "handed_out": [], "asked": [], "exact_sizes": [], "steps": []}
engine.next_dump = DUMP
def f(x):
    return x + 1
"""


def test_import_is_cheap():
    code = f"""
import sys
sys.path.insert(0, {PYTHON_DIR!r})
import kintsugi
assert "torch" not in sys.modules and "kintsugi._kintsugi" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_decorator_forms():
    run("""
        @kintsugi.compile
        def f(x): return x + 1
        @kintsugi.compile(fullgraph=True, name="g")
        def g(x): return x + 2
        assert f(1) == 2 and g(1) == 3
        assert isinstance(f, engine.Compiled) and g.kwargs["fullgraph"] is True and g.__name__ == "g"
        assert kintsugi.stats(f) == {"calls": 1, "kernels": []}
        assert kintsugi.stats()["g"] == {"calls": 1, "kernels": []}
        kintsugi.reset()
        assert engine.resets == 1
    """)


def test_eager_backends_ignore_what_they_have_no_use_for():
    run("""
        import logging, torch
        told = []
        logging.getLogger("kintsugi").addHandler(type("H", (logging.Handler,), {"emit": lambda self, r: told.append(r.getMessage())})())
        for backend in ("eager", "aot_eager"):
            for kwargs in (dict(mode="bogus"), dict(mode="reduce-overhead"), dict(options={"speed": 1}), dict(options={"triton.cudagraphs": True})):
                assert kintsugi.compile(lambda x: x + 1, backend=backend, **kwargs)(torch.ones(2)).tolist() == [2, 2]
                assert told.pop().startswith(f"compile(backend={backend!r}) ignores ") and not told
            for kwargs in (dict(mode="default"), dict(options={"warm": True}), dict(options={}), {}):
                assert kintsugi.compile(lambda x: x + 1, backend=backend, **kwargs)(torch.ones(2)).tolist() == [2, 2]
                assert not told
    """)


def test_arguments_are_checked():
    run("""
        import pytest
        for kwargs, error, words in [
            (dict(fullgraph=1), TypeError, "compile(fullgraph=1): expected True or False"),
            (dict(dynamic="yes"), TypeError, "compile(dynamic='yes')"),
            (dict(dynamic=1), TypeError, "compile(dynamic=1): expected None, True or False"),
            (dict(disable="yes"), TypeError, "compile(disable='yes'): expected True or False"),
            (dict(mode=3), TypeError, "compile(mode=3): expected one of: default, reduce-overhead"),
            (dict(mode="bogus"), RuntimeError, "compile(mode='bogus'): Unrecognized"),
            (dict(mode="bogus"), RuntimeError, "Unrecognized mode=bogus, should be one of: default"),
            (dict(mode="default", options={}), RuntimeError, "Either mode or options can be specified"),
            (dict(options=3), TypeError, "compile(options=3): expected a dict"),
            (dict(options={1: 2}), TypeError, "compile(options={1: 2}): expected a dict with option names as keys"),
            (dict(backend="inductr"), ValueError, "compile(backend='inductr'): Invalid backend: 'inductr', did you mean: 'inductor'?"),
            (dict(backend="foo"), ValueError, "compile(backend='foo'): Invalid backend: 'foo'. Expected one of: aot_eager, "),
            (dict(backend=3), TypeError, "compile(backend=3): expected a name (aot_eager"),
            (dict(name=3), TypeError, "compile(name=3)"),
        ]:
            with pytest.raises(error) as caught:
                kintsugi.compile(lambda x: x, **kwargs)
            assert words in str(caught.value), caught.value
        with pytest.raises(TypeError, match="expected a function or a torch.nn.Module, got int"):
            kintsugi.compile(3)
        for name, meaning in [("kintsugi", None), ("inductor", None), ("cudagraphs", None), ("eager", "eager"),
                              ("aot_eager", "eager")]:
            assert kintsugi.compile(lambda x: x, backend=name).kwargs["backend"] == meaning
    """)


def test_other_functions_check_their_arguments(tmp_path):
    run("""
        import functools, pytest
        from kintsugi import backends
        from kintsugi.cli import main
        for call, error, words in [
            (lambda: kintsugi.explain(3), TypeError, "explain(3): expected a function or a torch.nn.Module, got int"),
            (lambda: kintsugi.stats(3), TypeError, "stats(3): expected what kintsugi.compile returned, or nothing"),
            (lambda: kintsugi.stats(print), TypeError, "): expected what kintsugi.compile returned, or nothing"),
            (lambda: kintsugi.disable(3), TypeError, "disable(3): expected a function or a torch.nn.Module, got int"),
            (lambda: kintsugi.disable(print, 3), TypeError, "disable(recursive=3): expected True or False"),
            (lambda: kintsugi.disable(print, reason=3), TypeError, "disable(reason=3): expected a str"),
            (lambda: kintsugi.disable(reason=3), TypeError, "disable(reason=3): expected a str"),
            (lambda: kintsugi.graph_break(3), TypeError, "graph_break(msg=3): expected a str"),
            (lambda: kintsugi.reset(3), TypeError, "reset() takes 0 positional arguments but 1 was given"),
            (lambda: backends.register_backend(3), TypeError, "register_backend(compiler_fn=3): expected a function"),
            (lambda: backends.register_backend(functools.partial(print)), TypeError, "register_backend(name=None): expected a str"),
            (lambda: backends.register_backend(print, name=3), TypeError, "register_backend(name=3): expected a str"),
            (lambda: setattr(kintsugi.config, "recompile_limit", "8"), ValueError,
             "kintsugi.config.recompile_limit = '8': expected a number from 0 on"),
            (lambda: setattr(kintsugi.config, "disable", 1), ValueError, "kintsugi.config.disable = 1: expected True or False"),
            (lambda: kintsugi.config.patch(disabled=True).__enter__(), AttributeError, "no setting 'disabled'; it has: strict_breaks"),
            (lambda: kintsugi.nothing, AttributeError, "module 'kintsugi' has no attribute 'nothing'"),
        ]:
            with pytest.raises(error) as caught:
                call()
            assert words in str(caught.value), caught.value
        assert kintsugi.config.disable is False
        assert main(["run", "no such script.py"]) == 2
        assert main(["breaks", "nope"]) == 1
    """)


def test_module_wrapper():
    run("""
        import copy, pickle
        class M(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = torch.nn.Linear(3, 3)
                self.scale = 2
            def forward(self, x): return self.lin(x) * self.scale
            def extra(self): return "extra"
        m = M()
        c = kintsugi.compile(m)
        x = torch.ones(2, 3)
        assert isinstance(c, torch.nn.Module) and c._orig_mod is m
        assert torch.equal(c(x), m(x))
        assert c.lin is m.lin and c.extra() == "extra" and c.scale == 2
        c.scale = 5
        assert m.scale == 5
        c.eval()
        assert m.training is False and c.training is False and m.lin.training is False
        c.train()
        assert m.training is True
        assert set(c.state_dict()) == {"_orig_mod.lin.weight", "_orig_mod.lin.bias"}
        assert [p for p in c.parameters()][0] is m.lin.weight
        d = copy.deepcopy(c)
        assert d._orig_mod is not m and torch.equal(d(x), c(x)) and d._kintsugi_compiled is not c._kintsugi_compiled
        seq = kintsugi.compile(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()))
        assert len(seq) == 2 and type(seq[0]) is torch.nn.ReLU and bool(seq)
        p = pickle.loads(pickle.dumps(seq))
        assert type(p) is type(seq) and torch.equal(p(x), seq(x))
        calls = []
        c.register_forward_hook(lambda *a: calls.append(1))
        c(x)
        assert calls == [1]
        try:
            c.nothing
        except AttributeError as error:
            assert "nothing" in str(error)
        else:
            raise AssertionError
        assert kintsugi.stats(c)["calls"] == 3
    """)


def test_config():
    run("""
        import pytest
        kintsugi.compile(lambda: 0)
        kintsugi.config.recompile_limit = 3
        assert engine.options_set["recompile_limit"] == 3
        with kintsugi.config.patch(strict_breaks=True):
            assert kintsugi.config.strict_breaks and engine.options_set["strict_breaks"] is True
        assert engine.options_set["strict_breaks"] is False
        with pytest.raises(ValueError, match="expected a number from 0 on"):
            kintsugi.config.recompile_limit = -1
        with pytest.raises(AttributeError, match="no setting 'recompile_limits'; it has: strict_breaks"):
            kintsugi.config.recompile_limits = 1
        assert "cache_dir = " in kintsugi.config.describe()
    """)


def test_explain():
    run(GRAPH + """
out = kintsugi.explain(f)(torch.ones(3))
assert (out.graph_count, out.graph_break_count, out.op_count) == (1, 1, 2)
assert out.ops_per_graph == [[torch.sin, "sum"]]
assert out.break_reasons[0].reason.startswith("Data-dependent branching\\n  Explanation: Python must know.\\n  Hint: ")
assert out.break_reasons[0].user_stack[-1].lineno == 5
assert str(out.break_reasons[0]) == "Data-dependent branching (m.py:5 in f)"
assert out.out_guards[0].kind == "TENSOR_MATCH" and out.frames[0]["outcome"] == "recorded"
text = str(out)
assert text.startswith("Graph Count: 1\\nGraph Break Count: 1\\nOp Count: 2\\nBreak Reasons:\\n  Break Reason 1:\\n    Reason: Data-")
assert "gb/gb0170.html" in text and "call(print)" in text and "      m.py:5 in f" in text
x = torch.randn(3)
assert torch.equal(out.graphs[0](x)[0], torch.sin(x).sum([0], keepdim=True))
""")


def test_fx_structures():
    run("""
        import operator
        from kintsugi import fx
        const = torch.full((3,), 2.0)
        node = lambda vid, op, target, callable, args, name, **kwargs: {
            "vid": vid, "op": op, "target": target, "callable": callable, "args": args, "kwargs": kwargs, "name": name,
            "note": None, "filename": "", "line": 0, "function": "", "code_line": ""}
        graph = {"inputs": [{"vid": 1, "name": "L_x_", "note": "f32[3][1]cpu"}], "outputs": [5], "code": "", "nodes": [
            node(2, "operator", "*", operator.mul, ({"vid": 1}, const), "mul"),
            node(3, "call_function", "torch.stack", torch.stack, ([{"vid": 1}, {"vid": 2}],), "stack", dim=0),
            node(4, "operator", "[]", operator.getitem, ({"vid": 3}, (slice(None, None, None), slice({"vid": 9}, 2))), "item")
            if False else node(4, "operator", "[]", operator.getitem, ({"vid": 3}, (Ellipsis, slice(0, 2))), "item"),
            node(5, "call_method", "neg", None, ({"vid": 4},), "neg")]}
        gm = fx.to_graph_module(graph)
        x = torch.arange(3.0)
        assert torch.equal(gm(x)[0], -torch.stack([x, x * 2])[..., 0:2])
        assert fx.parse_note("bf16[2, 3][3, 1]cuda:0") == (torch.bfloat16, [2, 3], [3, 1], "cuda:0")
        assert fx.parse_note("int") is None
        fake = fx.example_inputs(graph)[0]
        assert fake.shape == (3,) and fake.dtype == torch.float32 and type(fake).__name__ == "FakeTensor"
        bad = {**graph, "nodes": [node(2, "call_function", "mystery", None, (), "m")], "outputs": []}
        try:
            fx.to_graph_module(bad)
        except fx.ConversionError as error:
            assert "mystery" in str(error)
        else:
            raise AssertionError
    """)


def test_unsupported_is_also_the_stock_error():
    run("""
        import torch._dynamo.exc
        from kintsugi._errors import EngineError
        try:
            raise EngineError("DATA_DEPENDENT_BRANCH", [("m.py", 10, "f")], "if")
        except torch._dynamo.exc.Unsupported as error:
            assert isinstance(error, kintsugi.Unsupported) and isinstance(error, RuntimeError)
            assert str(error).startswith("Data-dependent branching\\n  Explanation: ")
            assert "from user code:\\n" in str(error) and 'File "m.py", line 10, in f' in str(error)
            assert error.stock_ids == ["GB0170"] and error.hints and error.user_stack[-1].lineno == 10
            assert error.gb_type == "Data-dependent branching"
        free = EngineError("something else")
        assert str(free) == "something else" and free.reason == "something else"
        assert EngineError(0).why == "DATA_DEPENDENT_BRANCH"
    """)


@pytest.mark.parametrize("how", ["env", "set_logs"])
def test_logs(how):
    switch = 'torch._logging.set_logs(graph_code=True, graph_breaks=True, guards=True)\n' if how == "set_logs" else ""
    env = {"TORCH_LOGS": "graph_code,graph_breaks,guards"} if how == "env" else {}
    done = run(GRAPH + switch + """
def caller():
    kintsugi.compile(f)(torch.ones(3))
caller()
engine.log(event="limit", name="f", filename="m.py", line=1, limit=8, last="n == 1")
engine.listener()
""", **env)
    err = done.stderr
    assert err.count("Graph break in user code at m.py:5") == 1
    assert "[0/0] [__graph_breaks] Graph Break Reason: Data-dependent branching" in err
    assert "[__graph_code] TRACED GRAPH" in err and "===== __compiled_fn_1_" in err
    assert "GuardManager: source=L['x']" in err and "TENSOR_MATCH: check_tensor" in err
    assert "in caller" in err, "the traceback begins outside the compiled function"
    assert "hit config.recompile_limit (8)" in err


def test_nothing_is_printed_unasked():
    done = run(GRAPH + "kintsugi.compile(f)(torch.ones(3))")
    assert done.stdout == "" and done.stderr == ""


def test_recompile_log():
    done = run("""
        kintsugi.compile(lambda: 0)
        engine.log(event="recompile", name="f", filename="m.py", line=2, failures="- n == 4\\nn == 3")
        engine.listener()
    """, TORCH_LOGS="recompiles")
    assert "Recompiling function f in m.py:2" in done.stderr and "    - 0/1: n == 4" in done.stderr and "    - 0/0: n == 3" in done.stderr


def test_install():
    run("""
        original = torch.compile
        kintsugi.install()
        kintsugi.install()
        f = torch.compile(lambda x: x + 1, backend="inductor", mode="max-autotune")
        assert isinstance(f, engine.Compiled) and f(1) == 2
        assert isinstance(torch.compile(fullgraph=True)(lambda x: x), engine.Compiled)
        m = torch.nn.Linear(2, 2)
        m.compile()
        assert isinstance(m._compiled_call_impl, engine.Compiled)
        m(torch.ones(2))
        assert m._compiled_call_impl.calls == 1
        import torch._dynamo
        assert torch._dynamo.explain is kintsugi.explain and torch._dynamo.reset is kintsugi.reset
        torch._dynamo.config.log_level = "INFO"
        assert torch._dynamo.config.log_level == "INFO"
        assert torch._dynamo.config.cache_dir == kintsugi.config.cache_dir
        torch._dynamo.config.recompile_limit = 5
        assert kintsugi.config.recompile_limit == 5
        import pytest
        with pytest.raises(AttributeError):
            torch._dynamo.config.no_such_setting = 1
        with torch._dynamo.utils.CompileProfiler() as prof:
            torch.compile(lambda x: x, backend=prof)(1)
        assert "Torchdynamo Profiler Report" in prof.report() and "No graph breaks detected." in prof.report()
        from torch._dynamo.backends.common import aot_autograd
        kintsugi.uninstall()
        assert torch.compile is original and torch._dynamo.explain is not kintsugi.explain
        with pytest.raises(AttributeError):
            torch._dynamo.config.log_level
    """)


def test_command_line(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import sys, torch\nf = torch.compile(lambda x: x)\nprint(type(f).__name__, f(7), sys.argv[1:])\n")
    done = run(f"""
        from kintsugi.cli import main
        assert main(["run", "--stats", {str(script)!r}, "--flag", "a"]) == 0
    """)
    assert done.stdout == "Compiled 7 ['--flag', 'a']\n" and any(line.split()[:2] == ["<lambda>", "1"] for line in done.stderr.splitlines()), done.stderr
    done = run("from kintsugi.cli import main; sys.exit(main(['breaks', 'GB0170']))")
    assert done.stdout.startswith("Data-dependent branching\n")
    done = run("from kintsugi.cli import main; assert main(['breaks', 'nope']) == 1")
    assert "unknown graph break 'nope'" in done.stderr


def test_disable_and_is_compiling():
    run("""
        @kintsugi.disable(reason="why not")
        def g(x): return x
        assert g(3) == 3 and g._torchdynamo_disable and g._torchdynamo_disable_msg == "why not"
        assert kintsugi.is_compiling() is False
        engine.recording = True
        assert kintsugi.is_compiling() is True
    """)


def test_without_the_extension_compiled_modules_have_names():
    import torch

    from kintsugi._eager import Compiled
    module = torch.nn.Linear(2, 2)
    assert Compiled(module).__name__ == "Linear" and Compiled(module, name="layer").__name__ == "layer" and Compiled(torch.relu).__name__ == "relu"
