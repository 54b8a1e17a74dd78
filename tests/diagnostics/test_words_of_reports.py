"""What reports say of calls that raise, of lines in libraries and of eager calls is true, and said once."""
import subprocess
import sys

import pytest
import torch

kintsugi = pytest.importorskip("kintsugi", reason="the extension is not built", exc_type=ImportError)
from kintsugi.commands.explain import explain  # noqa: E402
from kintsugi.diagnose import causes, show  # noqa: E402


def script(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(text)
    return str(path)


def told(tmp_path, text):
    _, found = explain(script(tmp_path, text), measure=False)
    return show.text(found[0])


RAISES = """
import torch

@torch.compile
def fn(x):
    return x @ torch.ones(5)

try:
    fn(torch.ones(3))
except RuntimeError:
    pass
"""


def test_a_function_that_raises_ends_its_recording(tmp_path):
    """It had been "something that Kintsugi cannot record", behind which the rest of the call ran."""
    text = told(tmp_path, RAISES)
    assert "Recorded only in part: the function raised an exception" in text
    assert "cannot record" not in text and "rest of the call runs eagerly:" not in text


def test_what_a_library_calls_is_not_for_the_program_to_move():
    """The fix had been to call `any` of torch's own line less often."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        dump, = kintsugi.explain(layer)(torch.ones(2, 4, 8))._dumps
    found, = [cause for cause in causes.of_effects(dump) if "`any`" in cause.title]
    lines = [text for text, _ in show.cause_lines(1, found)]
    assert not any(line.startswith("   fix:") for line in lines)
    assert "   the line is torch's: the program can only change how often it comes there" in lines


def test_a_hint_that_says_the_fix_again_is_left_out():
    cause = causes.Cause("break", "Skip calling `torch.compiler.disable()`d function", fix="remove the decorator",
                         hints=["Remove the `torch.compiler.disable` decorator.", "Call the function before or after the compiled one."])
    lines = [text for text, _ in show.cause_lines(1, cause)]
    assert "   fix: remove the decorator" in lines and "   hint: Call the function before or after the compiled one." in lines
    assert not any("Remove the" in line for line in lines)


EAGER = """
import torch

torch._dynamo.config.recompile_limit = 1

@torch.compile
def fn(x, kind):
    return x + 1 if kind is None else x + len(kind)

for kind in (None, "ab", [1], (2,), {}):
    fn(torch.ones(3), kind)
"""


def test_the_summary_of_run_counts_eager_calls_with_their_reason(tmp_path):
    done = subprocess.run([sys.executable, "-m", "kintsugi", "run", script(tmp_path, EAGER)], capture_output=True, text=True)
    assert "0 of 5 calls were replayed, 4 ran eagerly (the recompile limit is reached)\n" in done.stderr


def test_internals_of_torch_are_no_effects_of_the_program():
    """Lines without a place: `torch._C._autograd._saved_tensors_hooks_disable(...)  #   # :0 in`."""
    def fn(x):
        value, back = torch.func.vjp(torch.sin, x)
        return back(torch.ones_like(value))[0]
    text = str(kintsugi.explain(fn)(torch.ones(3)))
    assert "torch._C." not in text.partition("Deferred Effects")[2].partition("Ops per Graph")[0] and ":0 in" not in text


def test_a_generator_that_the_call_uses_up_is_not_handed_out():
    model = torch.nn.Linear(3, 3)

    def fn(x):
        return torch.func.functional_call(model, {"weight": torch.eye(3), "bias": torch.ones(3)}, (x,))
    text = str(kintsugi.explain(fn)(torch.ones(2, 3)))
    assert "hands out" not in text
