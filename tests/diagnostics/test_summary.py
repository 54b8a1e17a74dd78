"""What is said without being asked: the end of `kintsugi run`, and the one screen of explain()."""

import subprocess
import sys

import diagnosed as programs
import torch

import kintsugi


def _run(tmp_path, text, *arguments):
    (tmp_path / "script.py").write_text(text)
    return subprocess.run([sys.executable, "-m", "kintsugi", "run", *arguments, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)


def test_run_ends_with_three_lines(tmp_path):
    done = _run(tmp_path, programs.LAYERS)
    assert done.stdout == ""
    first, second, third = (line for line in done.stderr.splitlines() if line.startswith("kintsugi: "))
    assert first == "kintsugi: 1 compiled function, 1 recording, 12 graphs; 1 of 2 calls were replayed"
    assert second == "kintsugi: graph breaks at 1 line, most often at script.py:11: Data-dependent branching; 0 recompiles"
    assert third.endswith("python -m kintsugi explain script.py")


def test_functions_of_the_script_are_counted_at_its_end(tmp_path):
    text = "import torch\n\n\n@torch.compile\n@torch.no_grad()\ndef f(x):\n    return x.sin()\n\n\nfor _ in range(3):\n    f(torch.ones(3))\n"
    assert "; 2 of 3 calls were replayed" in _run(tmp_path, text).stderr


def test_run_is_quiet(tmp_path):
    assert "kintsugi: " not in _run(tmp_path, programs.LAYERS, "--quiet").stderr
    assert "kintsugi: " not in _run(tmp_path, "print(1)\n").stderr


def _decide(x):
    big = x.sum() > 0
    for _ in range(2):
        if big:
            x = x * 2
    return x


def test_one_screen():
    out = kintsugi.explain(_decide)(torch.ones(3))
    cause, = out.causes
    assert cause.count == out.graph_break_count and cause.patch.lines == ["        x = torch.where(big, x * 2, x)"]
    text = out.summary()
    assert text.startswith("_decide (") and "; 1 cause\n" in text and "its data comes from" in text and "^^^" in text
