"""Kernels for graphs that give gradients: on, and used at once, without trials against torch's operators."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "kernels"))


@pytest.fixture(autouse=True)
def kernels():
    from launches import engine, kintsugi

    kintsugi.reset()
    engine.set_option("trials", 0)
    with kintsugi.config.patch(kernels=True, training=True):
        yield
    engine.set_option("trials", 7)
    kintsugi.reset()


def pytest_collection_modifyitems(items):
    """Modules that count runs or versions of graphs that give gradients ask for compiled ones."""
    here = pathlib.Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and {"runs", "versions", "compiled_pair"} & vars(item.module).keys():
            item.add_marker(pytest.mark.compiled_gradients)
