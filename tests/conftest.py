"""Tests of recording and replay ask for every bit that eager gives, and that is what these two give; kernels sum in another order.

So kernels, which are on by default, are off in the tests and in what they start. Tests of kernels (tests/kernels, the engine
kintsugi_kernels of tests/corpus, tests/diff and tests/models) switch them on themselves. KINTSUGI_KERNELS=1 pytest FOLDER runs
the others with kernels: what differs there in more than last digits is a bug.
"""
import os

import pytest

os.environ.setdefault("KINTSUGI_KERNELS", "0")
# Whether a call is replayed is not to hang on the clock either; tests/py/test_pace.py switches it on.
os.environ.setdefault("KINTSUGI_STEP_ASIDE", "0")
# What each pass of the pipeline leaves is verified (docs/design/pipeline.md).
os.environ.setdefault("KINTSUGI_VERIFY", "1")


def pytest_configure(config):
    config.addinivalue_line("markers", "compiled_gradients: asks something of compiled graphs that give gradients, which torch 2.6 has none of")


def skip_where_gradients_are_not_compiled(items):
    """torch 2.6 does not say whether saved tensors have hooks, so graphs that give gradients run step by step: nothing is to be seen of compiled ones."""
    marked = [item for item in items if item.get_closest_marker("compiled_gradients")]
    if marked:
        import torch
        if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
            for item in marked:
                item.add_marker(pytest.mark.skip("gradients are not compiled with this torch (2.6)"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """KIN_SHARD=i/n keeps every n-th test, from number i on (for parts of a long run)."""
    skip_where_gradients_are_not_compiled(items)
    shard = os.environ.get("KIN_SHARD")
    if shard:
        i, n = map(int, shard.split("/"))
        items[:] = [item for number, item in enumerate(items) if number % n == i - 1]
