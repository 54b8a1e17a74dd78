"""`kintsugi explain`: what it finds, where it points, what it proposes, and in which forms."""

import json
import linecache
import sys

import diagnosed as programs
import pytest

from kintsugi import cli


@pytest.fixture
def explain(tmp_path, monkeypatch, capfd, kintsugi_clean):
    """explain(text, *arguments): (exit status, the JSON's functions, what was printed)."""
    monkeypatch.chdir(tmp_path)
    linecache.clearcache()  # each test has another script.py

    def run(text, *arguments, target="script.py"):
        (tmp_path / "script.py").write_text(text)
        status = cli.main(["explain", target, "--json", "found.json", *arguments])
        found = json.loads((tmp_path / "found.json").read_text())["functions"] if status == 0 else None
        return status, found, capfd.readouterr()
    return run


def test_a_break_in_every_layer_is_one_cause(explain):
    _, (model,), out = explain(programs.LAYERS, "--seconds", "0.01")
    cause, = model["causes"]
    assert (cause["why"], cause["count"], cause["line"], model["breaks"]) == ("DATA_DEPENDENT_BRANCH", 12, 11, 12)
    assert cause["how"] in ("measured", "uncertain") and 0 <= cause["price_us"] <= model["verdict"]["compiled_us"] * 1.01
    assert out.out.startswith("Model (script.py:21): ") and "12 times in a call" in out.out
    assert cause["patch"]["lines"] == ["        x = torch.where(x.sum() > 1e9, x * 2, x)"]


BRANCH = 4 if sys.version_info < (3, 12) else 7  # where `if gt:` begins for CPython: at `if`, from 3.12 on at what is asked


BOTH_WAYS = """import torch


@torch.compile
def walk(x):
    for _ in range(2):
        if x.sum() > 0:
            x = x * 0.5
        else:
            x = x + 1
    return x.sin()


for _ in range(3):
    walk(torch.ones(4))
    walk(-torch.ones(4))
"""


def test_breaks_of_a_call_are_those_on_its_way(explain):
    """Calls that go another way add theirs to the recording; one call comes by two of them."""
    _, (found,), out = explain(BOTH_WAYS, "--seconds", "0.01")
    cause, = found["causes"]
    assert found["breaks"] > 2 and cause["count"] == 2 and "2 times in a call" in out.out
    assert [kind for kind, _, _ in found["sequence"]].count("break") == 2


def test_ways_through_a_recording():
    from kintsugi.diagnose import paths

    steps = [{"alt": 0}, {"alt": 4}, {"alt": 6}, {"alt": 0}, {"alt": 0}, {"alt": 8}, {"alt": 0}, {"alt": 0}, {"alt": 0}]
    assert paths.of({"steps": steps}) == [{0, 1, 2, 3}, {0, 1, 4, 5}, {0, 1, 2, 6, 7}, {0, 1, 4, 5, 8}]
    assert paths.of({"steps": []}) == [set()] and paths.last({"steps": steps[:1]}) == {0}


def test_carets_origin_and_effects(explain):
    _, (found,), out = explain(programs.ORIGIN, "--no-measure")
    cause, = found["causes"]
    assert cause["columns"] == ([4, 8, 17] if BRANCH == 4 else [7, 8, 9]) or cause["columns"][:2] == [4, 9]
    assert [place[1:] for place in cause["origin"]] == [[6, "gt = y.sum() > 0"]]
    assert "    8 |     if gt:" in out.out and f"         | {' ' * BRANCH}^^" in out.out
    assert "its data comes from script.py:6: gt = y.sum() > 0" in out.out
    assert "1 side effect (script.py:7)" in out.out and cause["price_us"] is None
    assert "+    x = torch.where(gt, x * 2, x)" in out.out


def test_a_function_with_its_inputs(explain):
    status, (found,), out = explain(programs.ORIGIN, "--no-measure", target="script.py:decide")
    assert status == 0 and found["name"] == "decide" and found["calls"] == 3
    _, (found,), _ = explain(programs.ORIGIN, "--no-measure", "--inputs", "torch.zeros(3), torch.zeros(3)", target="script.py:decide")
    assert found["causes"][0]["why"] == "DATA_DEPENDENT_BRANCH"
    assert out.out.count("decided") == 3


def test_a_function_that_is_called_while_its_module_is_imported(explain):
    """It is recorded anew, with the arguments that were asked for."""
    text = "import torch\n\n\n@torch.compile\ndef f(x):\n    return x.sin() * 2 if x.sum() > 0 else x\n\n\nexample = torch.ones(3)\nfor _ in range(3):\n    f(example)\n"
    status, (found,), out = explain(text, "--seconds", "0.01", "--inputs", "example", target="script.py:f")
    assert status == 0 and found["recordings"] == 1 and found["verdict"]["compiled_us"] > 0 and "no call was recorded" not in out.out


@pytest.mark.parametrize("target, text", [
    ("nothing.py", "no such script"), ("script.py:missing", "has no 'missing'"), ("no.such.module:f", "no module named"),
    ("script", "expected a script")])
def test_targets_that_are_none(explain, target, text):
    status, _, out = explain(programs.ORIGIN, target=target)
    assert status == 2 and text in out.err


def test_arguments_that_are_missing(explain):
    status, _, out = explain("def f(x): return x\n", target="script.py:f")
    assert status == 2 and "--inputs" in out.err


def test_recompiles_name_the_value_and_the_line(explain):
    _, (found,), out = explain(programs.RECOMPILES, "--no-measure")
    recompile = next(cause for cause in found["causes"] if cause["kind"] == "recompile" and "factor" in cause["title"])
    assert recompile["line"] == 6 and recompile["notes"][1:] == ["factor == 2, now 3"]
    assert "torch.tensor(factor)" in recompile["hints"][0] and "    6 |     y = x * factor" in out.out


def test_a_size_that_changes(explain):
    _, (found,), out = explain("import torch\n\n\n@torch.compile\ndef f(x):\n    return x.sin() * x.shape[0]\n\n\nfor n in (3, 5):\n    f(torch.ones(n))\n", "--no-measure")
    recompile, = (cause for cause in found["causes"] if cause["kind"] == "recompile")
    assert recompile["title"] == "recompiled once: the size of x changed (dim 0)" and recompile["line"] == 6
    assert recompile["notes"][1].startswith("size of dim 0 of x was 3, now 5") and "mark_dynamic(x, 0)" in recompile["hints"][0]


def test_a_size_that_changes_beside_a_value(explain):
    text = "import torch\n\n\n@torch.compile\ndef f(k, x):\n    return k * x.sin().mean(0) * x.shape[0]\n\n\nfor n in (3, 5):\n    f(n, torch.ones(n))\n"
    _, (found,), _ = explain(text, "--no-measure")
    recompile, = (cause for cause in found["causes"] if cause["kind"] == "recompile")
    assert recompile["notes"][1:] == ["k == 3, now 5; sizes that differed, too, are dynamic from now on"], recompile


@pytest.mark.parametrize("now", [0, 1])
def test_a_size_that_becomes_special(explain, now):
    _, (found,), _ = explain(f"import torch\n\n\n@torch.compile\ndef f(x):\n    return x.sin() * x.shape[0]\n\n\nfor n in (3, {now}):\n    f(torch.ones(n))\n", "--no-measure")
    recompile, = (cause for cause in found["causes"] if cause["kind"] == "recompile")
    assert recompile["notes"][1:] == [f"size of dim 0 of x was 3, now {now}"] and recompile["changes"][-1][2] == str(now), recompile


def test_a_script_that_fails_is_explained_all_the_same(explain):
    status, _, out = explain(programs.ORIGIN + "    raise KeyError('late')\n", "--no-measure")
    assert status == 1 and "Data-dependent branching" in out.out and "KeyError: 'late'" in out.err


def test_arguments_of_the_script(explain):
    _, _, out = explain("import sys\nprint(sys.argv)\n", "--", "--fast", "1")
    assert "['script.py', '--fast', '1']" in out.out and "Nothing was compiled" in out.out


def test_sarif(explain, tmp_path):
    explain(programs.ORIGIN, "--no-measure", "--sarif", "found.sarif")
    log = json.loads((tmp_path / "found.sarif").read_text())
    run, = log["runs"]
    result, = run["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["rules"][0]["id"] == result["ruleId"] == "KIN0001"
    assert region["startLine"] == 8 and region["startColumn"] == BRANCH + 1 and region["endColumn"] > BRANCH + 1
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "script.py"
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 6
    change, = result["fixes"][0]["artifactChanges"]
    replacement, = change["replacements"]
    lines = programs.ORIGIN.splitlines(keepends=True)
    first, last = replacement["deletedRegion"]["startLine"], replacement["deletedRegion"]["endLine"]
    fixed = "".join(lines[:first - 1]) + replacement["insertedContent"]["text"] + "".join(lines[last - 1:])
    assert "    x = torch.where(gt, x * 2, x)\n    return x\n" in fixed


def test_calls_that_have_effects_outside_are_not_repeated(explain, tmp_path):
    _, (found,), _ = explain("import torch\n\n\ndef f(x):\n    with open('log', 'a') as file:\n        file.write('x')\n    return x + 1\n\n\n"
                             "g = torch.compile(f)\nfor _ in range(3):\n    g(torch.ones(2))\n")
    assert (tmp_path / "log").read_text() == "xxx"
    assert found["verdict"]["eager_us"] is None and "TextIOWrapper" in found["verdict"]["note"] or "io.open" in found["verdict"]["note"]


def test_what_a_program_prints_is_not_repeated_while_it_is_measured(explain):
    _, _, out = explain(programs.ORIGIN, "--seconds", "0.01")
    assert out.out.splitlines().count("decided") == 1


def test_a_decorated_function_is_told_at_its_own_line(explain):
    text = ("import torch\n\n\n@torch.compile\n@torch.no_grad()\ndef f(x):\n    return x.sin() + len(x)\n\n\nfor size in (2, 3):\n    f(torch.ones(size))\n")
    _, (found,), out = explain(text, "--no-measure")
    assert found["line"] == 4 and out.out.startswith("f (script.py:4): ") and [cause["kind"] for cause in found["causes"]] == ["recompile"]


def test_another_way_of_calling_is_a_recompile_of_its_own(kintsugi_clean):
    import torch

    import kintsugi

    def called(x, k=2):
        return x * k
    compiled = kintsugi.compile(called)
    for keywords in ({}, {}, {"k": 2}):
        compiled(torch.ones(3), **keywords)
    found, = kintsugi.recompiles(compiled)
    assert found.title == "recompiled once: the way it is called changed" and "by keyword" in found.hints[0]
