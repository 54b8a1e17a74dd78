"""Options shared with tests/corpus, so that either folder can be run alone."""
import importlib.util
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "corpus")]

from kincorpus import engines  # noqa: E402

_spec = importlib.util.spec_from_file_location("corpus_conftest", HERE.parent / "corpus" / "conftest.py")
_corpus = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_corpus)


def pytest_addoption(parser):
    _corpus.pytest_addoption(parser)


@pytest.fixture(scope="session")
def engine(request):
    return engines.make_engine(request.config.getoption("--engine", None) or os.environ.get("KIN_ENGINE", "kintsugi"))
