import functools
import importlib
import inspect

import pytest

pytest.importorskip("torch")

from programs import Runner  # noqa: E402


@pytest.fixture(scope="session")
def runner():
    made = Runner()
    yield made
    made.close()


def is_there(path):
    """Has this PyTorch the name, `torch._dynamo.graph_break_hints` for example, or the parameter, `torch.compile(mode)`?"""
    path, _, parameter = path.rstrip(")").partition("(")
    module, _, name = path.rpartition(".")
    if parameter:
        return is_there(path) and parameter in inspect.signature(getattr(importlib.import_module(module), name)).parameters
    try:
        importlib.import_module(path)
    except ImportError:
        try:
            return hasattr(importlib.import_module(module), name)
        except ImportError:
            return False
    return True


def pytest_collection_modifyitems(items):
    """@pytest.mark.names(...): what the text uses and older versions of PyTorch do not have."""
    for item in items:
        missing = [path for mark in item.iter_markers("names") for path in mark.args if not is_there(path)]
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"this PyTorch has no {', '.join(missing)}"))


def pytest_configure(config):
    config.addinivalue_line("markers", "names(*paths): names of PyTorch without which the program cannot run")


@pytest.fixture
def program(runner, tmp_path):
    """program(code, **environment) -> (stdout, stderr)."""
    return functools.partial(runner.run, tmp_path)
