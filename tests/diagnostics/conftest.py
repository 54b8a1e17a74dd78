import pytest


@pytest.fixture
def kintsugi_clean():
    import kintsugi

    kintsugi.reset()
    yield kintsugi
    kintsugi.uninstall()
    kintsugi.reset()
