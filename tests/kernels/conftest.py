"""Kernels for the tests that ask for them: on, and used at once, without trials against the steps."""

import pytest


@pytest.fixture
def kernels():
    from launches import engine, kintsugi

    kintsugi.reset()
    kintsugi.events()
    engine.set_option("trials", 0)
    with kintsugi.config.patch(kernels=True):
        yield
    engine.force_exit(None)
    engine.set_option("open_sizes", True)
    engine.set_option("trials", 7)
    kintsugi.reset()
