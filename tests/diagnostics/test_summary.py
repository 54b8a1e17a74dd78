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


def test_arguments_of_the_script_are_told_again(tmp_path):
    text = "import sys\nimport torch\nf = torch.compile(torch.nn.Linear(3, 3))\nfor _ in range(int(sys.argv[1])):\n    f(torch.ones(3))\n"
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "kintsugi", "run", "script.py", "2", "a b"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.endswith("how fast it is compared with eager: python -m kintsugi explain script.py -- 2 'a b'\n")


FAILS = "import torch\n\n\ndef inner(x):\n    return torch.compile(lambda y: y @ y)(x)\n\n\ninner(torch.ones(2, 3))\n"


def test_a_script_that_raises_ends_as_python_ends_it(tmp_path):
    (tmp_path / "script.py").write_text(FAILS)
    done = subprocess.run([sys.executable, "-m", "kintsugi", "run", "--quiet", "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[:3] == ["Traceback (most recent call last):", '  File "script.py", line 8, in <module>', "    inner(torch.ones(2, 3))"]
    assert "runpy" not in done.stderr and lines[-1].startswith("RuntimeError: ")


PACKAGE = {"pack/__init__.py": "", "pack/layers.py": "def twice(x):\n    return x * 2\n",
           "pack/train.py": "import sys\nimport torch\nfrom .layers import twice\n\n\n@torch.compile\ndef step(x):\n    if x.sum() > 0:\n        x = x + 1\n    return twice(x)\n\n\n"
                            "if __name__ == '__main__':\n    for _ in range(int(sys.argv[1])):\n        step(torch.ones(3))\n    print(sys.argv[0].endswith('train.py'), __package__)\n"}


def _package(tmp_path, *arguments):
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return subprocess.run([sys.executable, "-m", "kintsugi", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)


def test_a_module_of_a_package_is_run_by_its_name(tmp_path):
    done = _package(tmp_path, "run", "-m", "pack.train", "4")
    assert done.returncode == 0 and done.stdout == "True pack\n" and "3 of 4 calls were replayed" in done.stderr
    assert done.stderr.endswith("explain -m pack.train -- 4\n")


def test_a_module_of_a_package_is_explained(tmp_path):
    done = _package(tmp_path, "explain", "--no-measure", "-m", "pack.train", "--", "2")
    assert done.returncode == 0 and "pack/train.py:8 in step" in done.stdout, done.stdout + done.stderr
    for name, text in {"pack": "without a __main__", "pack.nothing": "no module named 'pack.nothing'", "nothing": "no module named 'nothing'"}.items():
        done = _package(tmp_path, "explain", "-m", name)
        assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_fixes_are_tried_in_a_module_of_a_package(tmp_path):
    done = _package(tmp_path, "debug", "--seconds", "0.05", "--apply", "-m", "pack.train", "--", "2")
    assert done.returncode == 0 and "torch.where(x.sum() > 0, x + 1, x)" in (tmp_path / "pack/train.py").read_text(), done.stdout + done.stderr


BACKEND = """
import torch


def choosy(gm, inputs):
    raise ValueError("only convolutions")


@torch.compile(backend=choosy)
def f(x):
    return x.sin() + 1


for _ in range(2):
    try:
        f(torch.ones(3))
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_backend_that_raises_is_named_with_its_line(tmp_path):
    done = _run(tmp_path, BACKEND)
    first, second, third = (line for line in done.stderr.splitlines() if line.startswith("kintsugi: "))
    assert second == "kintsugi: backend choosy raised ValueError: only convolutions (at script.py:6), 2 times" and third.endswith("breaks BACKEND_FAILED")
    told = subprocess.run([sys.executable, "-m", "kintsugi", "explain", "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "not measured: backend choosy raised ValueError: only convolutions (at script.py:6)" in told and "fix: return `gm.forward`" in told


def test_a_refused_break_is_no_lack_of_breaks(tmp_path):
    text = "import torch\n\n\n@torch.compile(fullgraph=True)\ndef f(x):\n    if x.sum() > 0:\n        x = x + 1\n    return x\n\n\ntry:\n    f(torch.ones(3))\nexcept RuntimeError:\n    pass\n"
    lines = [line for line in _run(tmp_path, text).stderr.splitlines() if line.startswith("kintsugi: ")]
    assert lines[0].endswith("0 of 1 call was replayed") and "no graph breaks" not in lines[1]
    assert "script.py:6, where fullgraph=True allows no graph break: Data-dependent branching" in lines[1]


def test_stats_tell_what_a_backend_raised():
    def choosy(gm, inputs):
        raise ValueError("not today")

    def f(x):
        return x.cos() + 1
    compiled = kintsugi.compile(f, backend=choosy)
    try:
        compiled(torch.ones(3))
    except RuntimeError:
        pass
    (text, times), = kintsugi.stats(compiled)["backend_failures"].items()
    assert text.startswith("backend choosy raised ValueError: not today (at ") and times == 1
    assert text in str(kintsugi.explain(compiled)(torch.ones(3)))


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
