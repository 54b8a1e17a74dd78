"""Names of torch.compiler and torch._dynamo that scripts touch while torch.compile is served by Kintsugi."""


def test_stances(program):
    program("""
        def f(x, k):
            return x * 2 if k == "double" else x - 1
        x = torch.ones(3)
        c = torch.compile(f)
        c(x, "double")
        with torch.compiler.set_stance("fail_on_recompile"):
            c(x, "double")
            for run in (lambda: c(x, "other"), lambda: torch.compile(f)(x, "first")):
                try:
                    run()
                except RuntimeError as error:
                    assert "fail_on_recompile" in str(error) and "program.py" in str(error), error
                else:
                    raise AssertionError("no error")
        with torch.compiler.set_stance("eager_on_recompile"):
            assert torch.equal(c(x, "other"), x - 1)
            assert torch.equal(c(x, "double"), x * 2)
        assert c.stats()["recordings"] == 1 and c.stats()["eager_calls"] == {"requested by torch.compiler.set_stance or a setting": 1}
        replays = c.stats()["replays"]
        with torch.compiler.set_stance("force_eager"):
            assert torch.equal(c(x, "double"), x * 2)
        assert c.stats()["eager_calls"]["compilation is disabled"] == 1 and c.stats()["replays"] == replays

        @torch.compiler.set_stance("force_eager")
        def compiling():
            return torch.compile(lambda: torch.compiler.is_compiling())()
        assert not compiling() and torch.compile(lambda: torch.compiler.is_compiling())()
        c(x, "other")
        assert c.stats()["recordings"] == 2
        seen = []
        def backend(gm, inputs):
            seen.append(gm)
            return gm.forward
        with torch.compiler.set_stance("default", force_backend=backend):
            torch.compile(lambda x: x + 1)(x)
        assert len(seen) == 1
        try:
            torch.compiler.set_stance("bad")
        except RuntimeError as error:
            assert "'bad'" in str(error) and "eager_on_recompile" in str(error)
        else:
            raise AssertionError("no error")
    """)


def test_settings_that_forbid_recompiling(program):
    program("""
        import torch._dynamo
        def f(x, k):
            return x * (k if isinstance(k, int) else len(k))
        def fails(kind, *args):
            try:
                c(*args)
            except kind as error:
                return "program.py" in str(error)
            return False
        x, c = torch.ones(3), torch.compile(f)
        with torch._dynamo.config.patch(error_on_recompile=True):
            c(x, 2)
            assert fails(torch._dynamo.exc.RecompileError, x, "ab")
        c(x, "ab")
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, recompile_limit=2):
            assert fails(torch._dynamo.exc.FailOnRecompileLimitHit, x, (1, 2))
            assert torch.equal(c(x, "ab"), x * 2)
        c = torch.compile(f, recompile_limit=1)
        c(x, "ab"), c(x, (1, 2)), c(x, (1, 2))
        assert c.stats()["recordings"] == 1 and c.stats()["eager_calls"] == {"the recompile limit is reached": 2}
        try:
            torch.compile(f, recompile_limit=0)
        except TypeError as error:
            assert "recompile_limit=0" in str(error)
        else:
            raise AssertionError("no error")
    """)


def test_settings_made_before_install(program):
    program("""
        import torch, torch._dynamo
        torch._dynamo.config.cache_size_limit = 3
        torch.compiler.set_stance("force_eager")
        import kintsugi
        kintsugi.install()
        assert kintsugi.config.recompile_limit == 3
        c = torch.compile(lambda x: x + 1)
        c(torch.ones(2))
        assert c.stats()["recordings"] == 0
        kintsugi.uninstall()
        assert torch._dynamo.config.cache_size_limit == 3
        torch.compiler.set_stance("default")
        c(torch.ones(2))
        assert c.stats()["recordings"] == 1
    """, head="")


def test_compiled_objects_are_recognised(program):
    program("""
        import torch._dynamo
        from torch._dynamo.eval_frame import OptimizedModule, innermost_fn
        def f(x):
            return x + 1
        c = torch.compile(f)
        assert innermost_fn(c) is f and c._torchdynamo_orig_callable is f
        m = torch.nn.Linear(2, 2)
        ours = torch.compile(m)
        assert isinstance(ours, OptimizedModule) and isinstance(ours, torch._dynamo.OptimizedModule)
        assert not isinstance(m, OptimizedModule) and ours._orig_mod is m
        kintsugi.uninstall()
        stock = torch.compile(m, backend="eager")
        assert type(stock) is torch._dynamo.OptimizedModule and torch.equal(stock(torch.ones(2)), m(torch.ones(2)))
        kintsugi.install()
        assert isinstance(stock, torch._dynamo.OptimizedModule)
        optimize = torch._dynamo.optimize("eager")(m)
        assert isinstance(optimize, torch._dynamo.OptimizedModule)
        assert torch.equal(optimize(torch.ones(2)), m(torch.ones(2)))
    """)


def test_wrong_arguments_are_what_stock_raises(program):
    program("""
        import torch._dynamo
        for kind in (torch._dynamo.exc.InvalidBackend, torch._dynamo.exc.TorchDynamoException, ValueError):
            try:
                torch.compile(lambda x: x, backend="indctor")
            except kind as error:
                assert "did you mean: 'inductor'" in str(error), error
            else:
                raise AssertionError("no error")
        try:
            torch.compile(lambda x: x, full_graph=True)
        except TypeError as error:
            assert str(error) == "compile() got an unexpected keyword argument 'full_graph'"
        else:
            raise AssertionError("no error")
        skip = torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
        assert torch.compile(lambda x: x + 1, options={"guard_filter_fn": skip})(1) == 2
    """)


def test_transforms_are_one_graph(program):
    program("""
        from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
        def cube(t):
            return (t ** 3).sum()
        programs = [
            lambda x: vmap(lambda t: t.sin() * 2)(x), lambda x: vmap(lambda t: t.sin(), out_dims=0, chunk_size=2)(x),
            lambda x: grad(cube)(x), lambda x: sum(p.sum() for p in grad_and_value(cube)(x)), lambda x: jvp(torch.sin, (x,), (x,))[1],
            lambda x: vjp(torch.sin, x)[1](x)[0], lambda x: jacrev(torch.sin)(x), lambda x: jacfwd(torch.sin)(x),
            lambda x: hessian(cube)(x), lambda x: vmap(grad(cube))(x), lambda x: linearize(torch.sin, x)[1](x)]
        for number, f in enumerate(programs):
            c = torch.compile(f, fullgraph=True)
            for _ in range(3):
                x = torch.randn(3)
                assert torch.equal(c(x), f(x)), number
            assert c.stats()["recordings"] == 1 and c.stats()["replays"] == 2, number
        scale = [2.0]
        def changes(x):
            return vmap(lambda t: t * scale[0])(x)
        c, x = torch.compile(changes), torch.ones(3)
        for scale[0] in (2.0, 2.0, 3.0):
            assert torch.equal(c(x), changes(x))
    """)


def test_transforms_and_tracing_around_compiled_functions(program):
    program("""
        import warnings
        from torch.func import functionalize, grad, hessian, jacrev, jvp, vmap
        from torch.fx.experimental.proxy_tensor import make_fx
        f = lambda x: (x.sin() * 2).cos() + x
        c, x = torch.compile(f), torch.randn(4, 3)
        warnings.simplefilter("ignore")
        for number in range(12):
            for apply in (lambda g: g(x), lambda g: vmap(g)(x), lambda g: grad(lambda t: g(t).sum())(x), lambda g: jvp(g, (x,), (x,))[1],
                          lambda g: jacrev(g)(x[0]), lambda g: hessian(lambda t: g(t).sum())(x[0]), lambda g: functionalize(g)(x),
                          lambda g: torch.utils.checkpoint.checkpoint(g, x, use_reentrant=False)):
                assert torch.allclose(apply(c), apply(f), atol=1e-6), number
        assert [n.target for n in make_fx(c)(x).graph.nodes if n.op == "call_function"] == \\
               [n.target for n in make_fx(f)(x).graph.nodes if n.op == "call_function"]
        traced = torch.jit.trace(c, (x,))
        y = torch.randn(4, 3)
        assert torch.allclose(traced(y), f(y)) and "aten::sin" in str(traced.graph)
    """)


PROGRAM = """
    import torch
    def inner(x):
        print("hi")
        return x.relu()
    @torch.compile
    def f(x, y, k):
        x = torch.sin(x) + len(k)
        if y.sum() < 0:
            y = y * -1
        return inner(x) * y
    x = torch.ones(3)
    with torch.no_grad():
        for y in (x, -x, x, -x, x, -x):
            f(x, y, "a")
        f(x, x, [1])
"""


def read_trace(text):
    """[(event, ids, payload)] of a trace log, each payload checked."""
    import hashlib
    import json

    found = []
    for line in text.splitlines():
        if line.startswith("\t"):
            found[-1][2].append(line[1:])
        else:
            record = json.loads(line.partition("] ")[2])
            # Compiled graphs have ids of their own, with an attempt (0/0_1).
            found.append((record, (record.get("frame_id"), record.get("frame_compile_id"), *filter(None, [record.get("attempt")])), []))
    for record, _, lines in found:
        if "has_payload" in record:
            assert hashlib.md5("\n".join(lines).encode()).hexdigest() == record["has_payload"]
    return found


def test_trace_for_report_tools(program, tmp_path):
    import json

    _, err = program(PROGRAM, head="", command=("-m", "kintsugi", "run", "--quiet"), KINTSUGI_KERNELS="1", TORCH_TRACE=str(tmp_path / "trace"))
    assert err == ""
    log, = (tmp_path / "trace").iterdir()
    events = read_trace(log.read_text())

    def of(kind, ids=None):
        return [(record[kind], "\n".join(lines)) for record, at, lines in events if kind in record and ids in (None, at)]

    strings = {number: text for (text, number), _ in of("str")}
    start, = of("dynamo_start", (0, 0))
    assert [frame["name"] for frame in start[0]["stack"]] == ["<module>", "f"]
    assert all(strings[frame["filename"]].endswith("program.py") for frame in start[0]["stack"])
    artifacts = [(value["name"], text) for value, text in of("artifact", (0, 0))]
    artifacts = [(name, text) for name, text in artifacts if name != "backend_compile_times"]   # where a kernel was compiled in this call
    assert [name for name, _ in artifacts] == ["dynamo_graph_break_reason"]
    assert artifacts[0][1].startswith("Graph break in user code at") and "gb0170" in artifacts[0][1]
    graphs = of("dynamo_output_graph", (0, 0))
    assert len(graphs) == 3 and graphs[0][0]["sizes"] == {"l_x_": [3], "l_y_": [3]} and "torch.sin" in graphs[0][1]
    metrics, = of("compilation_metrics", (0, 0))
    assert metrics[0]["graph_op_count"] == 6 and metrics[0]["fail_type"] is None
    assert len(metrics[0]["restart_reasons"]) == 1 and "Data-dependent branching" in metrics[0]["restart_reasons"][0]
    assert of("inductor_output_code", (0, 0)) and "TREE_GUARD_MANAGER" in of("dynamo_cpp_guards_str", (0, 0))[0][1]
    recompiled = [json.loads(text) for value, text in of("artifact", (0, 1)) if value["name"] == "recompile_reasons"]
    assert recompiled == [["k == 'a' (now <list object>)"]]
    assert len(of("dynamo_start", (0, 1))) == 1


def test_side_effects_log_and_what_is_not_served(program):
    _, err = program(PROGRAM, head="", command=("-m", "kintsugi", "run", "--quiet"), TORCH_LOGS="side_effects,recompiles_verbose,aot_graphs",
                     TORCHDYNAMO_REPRO_AFTER="aot")
    assert "Side effect that is replayed (call)" in err and 'print("hi")' in err and "Recompiling function f" in err
    assert err.count("Kintsugi does not serve TORCH_LOGS=aot_graphs, TORCHDYNAMO_REPRO_AFTER;") == 1


def test_functions_that_stay_whole_in_one_graph(program):
    program("""
        import numpy as np
        t, x = torch.tensor(3), torch.randn(4)
        @torch.compiler.assume_constant_result
        def number():
            return t.item()
        @torch._dynamo.assume_constant_result
        def table():
            return torch.ones(4) if t.sum() > 0 else torch.zeros(4)
        def constants(x):
            return x * number() + table()
        def arrays(x):
            y = x.cos()
            n = np.sin(y.numpy()) + 1
            y.mul_(2)
            return torch.from_numpy(n) + y
        for f in (constants, arrays):
            c = torch.compile(f, fullgraph=True)
            for _ in range(4):
                assert torch.equal(c(x), f(x))
            assert c.stats()["replays"] == 3
        assert torch._dynamo.explain(arrays)(x).graph_break_count == 0   # as stock, which fullgraph=True shows above
    """)


def test_disable_tells_its_reason(program):
    _, err = program("""
        import torch
        def make():
            @torch.compiler.disable(reason="it logs")
            def outside(x):
                return x.sin()
            return lambda x: outside(x) + 1
        for _ in range(2):
            torch.compile(make())(torch.ones(2))
    """, head="", command=("-m", "kintsugi", "run", "--quiet"), TORCH_LOGS="graph_breaks")
    assert err.count("(reason: it logs)") == 2


def test_custom_backends_get_what_compile_was_told(program):
    program("""
        class Backend:
            seen, resets = [], 0
            def __call__(self, gm, inputs, **kwargs):
                self.seen.append(kwargs)
                return gm.forward
            def reset(self):
                Backend.resets += 1
        backend, x = Backend(), torch.ones(2)
        compiled = [torch.compile(lambda x: x + 1, backend=backend, **kwargs)
                    for kwargs in ({}, {"mode": "default"}, {"mode": "mine"}, {"options": {"level": 3}})]
        for c in compiled:
            assert torch.equal(c(x), x + 1) and torch.equal(c(x), x + 1)
        assert Backend.seen == [{}, {}, {"mode": "mine"}, {"options": {"level": 3}}]
        torch._dynamo.reset()
        assert Backend.resets >= 1
        compiled[0](x)
        assert len(Backend.seen) == 5
        for kwargs in ({"mode": "mine"}, {"options": {"level": 3}}):
            try:
                torch.compile(lambda x: x, **kwargs)
            except RuntimeError as error:
                assert "mine" in str(error) or "level" in str(error)
            else:
                raise AssertionError("no error")
    """)


def test_operators_are_named_nodes(program):
    program("""
        @torch.library.custom_op("surface::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        @twice.register_fake
        def _(x):
            return torch.empty_like(x)
        @torch.library.custom_op("surface::grow", mutates_args={"x"})
        def grow(x: torch.Tensor) -> None:
            x.add_(1)
        def f(x):
            y = torch.ops.aten.sin.default(twice(x + 1)) + torch.ops.surface.twice(x)
            grow(y)
            return y * 2
        x = torch.randn(3)
        found = torch._dynamo.explain(f)(x)
        assert (found.graph_count, found.graph_break_count, found.deferred_effects) == (1, 0, [])
        assert torch.ops.surface.twice.default in found.ops_per_graph[0] and torch.ops.aten.sin.default in found.ops_per_graph[0]
        assert "torch.ops.surface.twice.default(add)" in found.graph_texts[0]
        assert torch.equal(found.graphs[0](x)[-1], f(x))
        c = torch.compile(f, fullgraph=True)
        for _ in range(4):
            x = torch.randn(3)
            assert torch.equal(c(x), f(x))
        assert c.stats()["replays"] == 3
        ops = [torch.ops.aten.sin, torch.ops.aten.cos]
        def chosen(x):
            return ops[0](x)
        c = torch.compile(chosen)
        for _ in range(3):
            assert torch.equal(c(x), chosen(x))
            ops.reverse()
    """)


def test_explain_reads_well(program):
    out, _ = program("""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.calls = torch.nn.Linear(2, 2), 0
            def forward(self, x):
                self.calls += 1
                if self.lin(x).relu().sum() > 0:
                    x = x + 1
                return torch.sin(x)
        print(torch._dynamo.explain(Model())(torch.ones(2)))
    """)
    assert "/program.py:11 in forward: if self.lin(x).relu().sum() > 0:" in out
    assert "module.py" not in out.partition("User Stack:")[2].partition("Deferred Effects")[0]
    assert "# self.calls += 1  # " in out and "    torch.sin\n" in out and "    Tensor.relu\n" in out
    assert "Model.forward, 0." in out


def test_listing_into_a_closed_pipe():
    import subprocess
    import sys

    from programs import environment

    listing = subprocess.Popen([sys.executable, "-m", "kintsugi", "breaks"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    listing.stdout.close()
    assert listing.stderr.read() == b"" and listing.wait() == 0
