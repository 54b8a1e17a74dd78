import functools

import pytest

pytest.importorskip("torch")

from programs import Runner  # noqa: E402


@pytest.fixture(scope="session")
def runner():
    made = Runner()
    yield made
    made.close()


@pytest.fixture
def program(runner, tmp_path):
    """program(code, **environment) -> (stdout, stderr)."""
    return functools.partial(runner.run, tmp_path)
