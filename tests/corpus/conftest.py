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


def pytest_collection_modifyitems(items):
    """KIN_SHARD=i/n keeps every n-th test, from number i on (for parts of a long run)."""
    shard = os.environ.get("KIN_SHARD")
    if shard:
        i, n = map(int, shard.split("/"))
        items[:] = [item for number, item in enumerate(items) if number % n == i - 1]


@pytest.fixture(scope="session")
def engine(request):
    name = request.config.getoption("--engine", None) or os.environ.get("KIN_ENGINE", "kintsugi")
    return engines.make_engine(name)
