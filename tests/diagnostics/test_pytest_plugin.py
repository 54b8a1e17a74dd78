"""@pytest.mark.kintsugi, run by a pytest of its own."""

import subprocess
import sys

TESTS = '''\
import pytest
import torch


@torch.compile(backend="eager")
def made_by_stock(x):
    return x + 1


def branch(x):
    return x * 2 if x.sum() > 0 else x


def noisy(x):
    print("x")
    return x + 1


@pytest.mark.kintsugi(max_breaks=0)
def test_no_break():
    torch.compile(noisy)(torch.ones(2))


@pytest.mark.kintsugi(max_breaks=0)
def test_break():
    torch.compile(branch)(torch.ones(2))


@pytest.mark.kintsugi(max_breaks=1)
def test_one_is_accepted():
    torch.compile(branch)(torch.ones(2))


@pytest.mark.kintsugi(max_breaks=0, strict_breaks=True)
def test_strict():
    torch.compile(noisy)(torch.ones(2))


@pytest.mark.kintsugi(max_recompiles=0)
def test_recompile():
    compiled = torch.compile(lambda x, how: x * 2 if how == "a" else x)
    compiled(torch.ones(2), "a")
    compiled(torch.ones(2), "b")


@pytest.mark.kintsugi(breaks=0)
def test_wrong_name():
    pass


@pytest.fixture
def model():
    return torch.compile(branch)


@pytest.mark.kintsugi(max_breaks=0)
def test_compiled_in_a_fixture(model):
    model(torch.ones(2))


@pytest.mark.kintsugi(max_breaks=0)
def test_compiled_while_imported():
    made_by_stock(torch.ones(2))


@pytest.fixture(scope="module")
def shared():
    return torch.compile(branch)


@pytest.mark.kintsugi(max_breaks=1)
def test_shared_is_recorded(shared):
    for _ in range(3):
        shared(torch.ones(2))


@pytest.mark.kintsugi(max_breaks=0)
def test_shared_was_recorded_before(shared):
    shared(torch.ones(2))


@pytest.mark.kintsugi(max_recompiles=0, max_eager=0)
def test_shared_is_not_compiled_again(shared):
    shared(torch.ones(2))


@pytest.mark.kintsugi
def test_without_bounds():
    pass


def test_without_mark():
    assert torch.compile.__module__ == "torch"
'''


def test_the_plugin(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "kintsugi.pytest_plugin", "-p", "no:cacheprovider", "-rA", "-q", "--strict-markers",
                           "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("PASSED", "FAILED"))]
    passed = {line.split("::")[1].split(" ")[0] for line in lines if line.startswith("PASSED")}
    assert passed == {"test_no_break", "test_one_is_accepted", "test_without_mark",
                      "test_shared_is_recorded", "test_shared_is_not_compiled_again", "test_without_bounds"}, done.stdout
    assert "graph breaks in recordings: 1, at most 0 accepted" in done.stdout and "branch: graph break at test_it.py:11 in branch" in done.stdout
    told = done.stdout.partition("= short test summary info =")[0]  # which repeats whole messages where CI is set
    assert told.count("called no function that Kintsugi has compiled") == 1
    assert "recompiles: 1, at most 0 accepted" in done.stdout and "not breaks" in done.stdout and "[PRINT]" in done.stdout
