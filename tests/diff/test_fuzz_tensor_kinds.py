"""A few programs over kinds of tensors (KIN_KINDS_COUNT, KIN_KINDS_SEED), and the proof that the comparison sees what is wrong."""
import os

import torch

import fuzz_tensor_kinds as fuzz
from tensor_kinds import KINDS

FIRST = int(os.environ.get("KIN_KINDS_SEED", "0"))
COUNT = int(os.environ.get("KIN_KINDS_COUNT", "40"))


def test_programs():
    fuzz.warm_up()
    programs = [fuzz.generate(seed) for seed in range(FIRST, FIRST + COUNT)]
    results = fuzz.check_apart(programs)
    failures = [f"python tests/diff/fuzz_tensor_kinds.py --seed {p.seed}\n{p.source()}{wrong}"
                for p, (wrong, _) in zip(programs, results) if wrong]
    assert not failures, "\n".join(failures)
    assert sum(replays for _, replays in results) >= 2 * COUNT


def metadata_programs(name):
    """Alone, and before and after a dense one."""
    lines = [(f"v = {text}", True) for text in ("x.size(0)", "x.shape", "len(x)", "x.dim()", "x.stride()", "x.numel()", "list(x)[0].shape",
                                                "x.is_contiguous()", "x.storage_offset()", "x.dtype", "x.layout", "isinstance(x, torch.FloatTensor)")]
    if name in fuzz.NO_DATA:
        lines = [line for line in lines if "list" not in line[0]]
    return [fuzz.Program(1, lines, calls, "plain")
            for calls in ([(name, "plain", 0)] * 4, [("plain", "plain", 0)] * 3 + [(name, "plain", 0)] * 2 + [("plain", "plain", 1)])]


def test_metadata_of_each_kind():
    """No kind of tensor ends the process or gives another answer."""
    fuzz.warm_up()
    programs = [p for name in sorted(KINDS) for p in metadata_programs(name)]
    failures = [f"{p.calls}: {wrong}" for p, (wrong, _) in zip(programs, fuzz.check_apart(programs)) if wrong]
    assert not failures, "\n".join(failures)


def test_differences_are_seen():
    program = fuzz.Program(1, [("v = x + 1", False)], [("plain", "plain", 0)], "plain")
    expected = fuzz.run_calls(program, program.function())
    assert fuzz.first_difference(expected, fuzz.run_calls(program, program.function())) is None
    other = fuzz.run_calls(program, lambda x, y, d: [(x + 2, None)])
    assert "outcome" in fuzz.first_difference(expected, other)
    assert "arguments" in fuzz.first_difference(expected, fuzz.run_calls(program, lambda x, y, d: [(x.add_(1) + 0, None)]))

    def warns(x, y, d):
        torch.nn.functional.mse_loss(x, d[:1])
        return [(x + 1, None)]
    assert "warnings" in fuzz.first_difference(expected, fuzz.run_calls(program, warns))


def test_crash_is_a_finding():
    program = fuzz.Program(1, [], [("plain", "plain", 0)], "plain")
    program.source = lambda: "import os\ndef f(x, y, d):\n    return os.abort() if torch.compiler.is_compiling() else 0\n"
    assert "SIGABRT" in fuzz.check_apart([program])[0][0]
