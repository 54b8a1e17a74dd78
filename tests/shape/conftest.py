"""Finds the modules beside the tests; skips them without a C compiler."""

import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_collection_modifyitems(items):
    if shutil.which("cc") is None:
        for item in items:
            if pathlib.Path(item.fspath).parent == pathlib.Path(__file__).parent:
                item.add_marker(pytest.mark.skip(reason="needs a C compiler"))
