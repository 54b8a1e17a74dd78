"""pytest plugin: @pytest.mark.kintsugi(max_breaks=0) makes graph breaks of a test an error of the test.

    @pytest.mark.kintsugi(max_breaks=0, max_recompiles=0, max_eager=0)
    def test_model():
        torch.compile(model)(x)

torch.compile is served by Kintsugi while such a test runs, and while its fixtures are set up. The numbers are upper bounds for all compiled functions that the
test calls together; what is left out is not looked at. strict_breaks=True counts print, logging, ... as graph breaks. A test with bounds that calls no such
function fails, since it would prove nothing.
"""

import pytest

LIMITS = ("max_breaks", "max_recompiles", "max_eager")
NOTHING = ("the test called no function that Kintsugi has compiled, so its bounds prove nothing. What torch.compile makes while a module is imported is PyTorch's: "
           "call torch.compile in the test or in a fixture, or put kintsugi.install() into conftest.py")


def pytest_configure(config):
    config.addinivalue_line("markers", "kintsugi(max_breaks=None, max_recompiles=None, max_eager=None, strict_breaks=False): "
                                       "bounds on what compiled functions of the test may do")


_served = pytest.StashKey()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    """Models are often compiled in fixtures."""
    if item.get_closest_marker("kintsugi") is not None:
        from kintsugi import _install

        if not _install.is_installed():
            _install.install()
            item.stash[_served] = True
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    try:
        return (yield)
    finally:
        if item.stash.get(_served, False):
            from kintsugi import _install

            _install.uninstall()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    mark = pyfuncitem.get_closest_marker("kintsugi")
    if mark is None:
        return (yield)
    unknown = set(mark.kwargs) - {*LIMITS, "strict_breaks"}
    if mark.args or unknown:
        pytest.fail(f"@pytest.mark.kintsugi takes {', '.join(LIMITS)} and strict_breaks as keywords"
                    + (f", not {', '.join(sorted(unknown))}" if unknown else ""), pytrace=False)
    from kintsugi import config
    from kintsugi.diagnose import observe

    with config.patch(strict_breaks=mark.kwargs.get("strict_breaks", False)), observe.Session() as session:
        result = yield
    text = _report(session, mark.kwargs)
    if text:
        pytest.fail(text, pytrace=False)
    return result


def _report(session, wanted):
    """Why the test fails: "" when it does not."""
    from kintsugi.diagnose import baseline

    if not session.functions and any(wanted.get(limit) is not None for limit in LIMITS):
        return NOTHING
    found = {one.name: baseline.describe(one, results=False) for one in session.functions}
    lines = []
    for limit, counter in zip(LIMITS, ("breaks", "recompiles", "eager")):
        most = wanted.get(limit)
        total = sum(one["counters"][counter] for one in found.values())
        if most is not None and total > most:
            lines.append(f"{baseline.COUNTERS[counter]}: {total}, at most {most} accepted")
            lines += [f"  {name}: {baseline.describe_place(cause)}" for name, one in found.items() for cause in one["causes"]
                      if {"break": "breaks", "recompile": "recompiles"}.get(cause["kind"]) == counter]
    return "\n".join(lines)
