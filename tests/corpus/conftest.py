"""Options of the corpus: which engine is compared against eager, and the forced-exit sweep."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from kincorpus import engines  # noqa: E402


def pytest_addoption(parser):
    for args, kwargs in (
            (("--engine",), dict(default=None, help="kintsugi (default), eager, or a broken_* engine")),
            (("--every-k",), dict(action="store_true", help="force an exit before every k-th step")),
            (("--max-k",), dict(type=int, default=None, help="bound of --every-k (default 150)"))):
        try:
            parser.addoption(*args, **kwargs)
        except ValueError:
            pass   # the neighbouring test folder has registered it


@pytest.fixture(scope="session")
def engine(request):
    name = request.config.getoption("--engine", None) or os.environ.get("KIN_ENGINE", "kintsugi")
    return engines.make_engine(name)
