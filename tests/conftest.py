"""Configuration of all tests: hypothesis profiles, recorded traffic, the rule about servers.

`HYPOTHESIS_PROFILE` chooses how hard generated tests look: `dev` (the default) is quick and random,
`ci` gives the same examples in every run, `long` is what `make test-long` runs all generated tests with, and
`thorough` is for a night.

With `PALAVER_REQUIRE_SERVERS=1` a run fails when a test marked `server` was skipped.
"""

import gc
import inspect
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.corpus import folded
from tests.folding import run_over
from tests.shares import share_out

settings.register_profile("dev", max_examples=20, deadline=None)
settings.register_profile(
    "ci",
    max_examples=20,
    deadline=None,  # a busy machine is not a bug
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

_skipped_servers: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recording", default="", help="of the recorded traffic, only what has this in its name")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with `exchange` every recording, or those of `recorded(wire, has=kind, share=4)`."""
    if "exchange" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("recorded")
        args, kwargs = (mark.args, mark.kwargs) if mark else ((), {})
        recording = metafunc.config.getoption("--recording")
        metafunc.parametrize("exchange", folded(*args, **kwargs, recording=recording))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call the test of a case over recordings for each of them."""
    recordings = pyfuncitem.funcargs.get("exchange")
    if recordings is None:
        return None
    test = pyfuncitem.obj
    others = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters if name != "exchange"}
    run_over(test, "exchange", ((each.name, each) for each in recordings), others)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark shared tests before `-m` selects among them."""
    share_out(items)


def pytest_collection(session: pytest.Session) -> None:
    """Freeze the collected tests: searching them for garbage took a third of the time."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the heap of twenty thousand tests: tests that collect garbage took a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and "server" in report.keywords and not hasattr(report, "wasxfail"):
        _skipped_servers.append(report.nodeid)


def _servers_missing() -> bool:
    return bool(_skipped_servers) and os.environ.get("PALAVER_REQUIRE_SERVERS") == "1"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _servers_missing() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _servers_missing():
        terminalreporter.section("tests that need a server were skipped", red=True)
        for nodeid in _skipped_servers:
            terminalreporter.line(nodeid)
