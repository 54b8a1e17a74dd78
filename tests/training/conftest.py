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
