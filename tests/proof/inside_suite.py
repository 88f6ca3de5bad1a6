"""Loaded into the suite under proof: `PYTHONPATH=tests/proof pytest -p inside_suite`.

That suite may be another checkout with other fixtures, so nothing of this package is imported.
The file named by PROOF_PLAN says what to do: measure the suite, or run some tests in an order.
As a program it starts the product of a checkout and says where, until its standard input ends.
"""

import importlib.util
import json
import os
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

PACKAGES = ("audit", "config", "sandbox", "tools", "toolcrib_service")
SHARED = "shared:"  # a context: the fixtures of this file or folder, or of the session
STARTS_WITHIN_S = 900  # the product, on a busy machine: it is not what is measured
WRITE_EVERY = 200  # tests, so that a worker that dies takes few branches along
Plan = dict[str, Any]
Lines = dict[str, set[int]]
# A fixture that thousands of tests ask for and that executes the same lines for each: measured
# twice, then known.
THE_SAME_FOR_EACH = "organization"


class Measurement:
    """Lines by test, and branches of all tests together: those by test would take gigabytes."""

    def __init__(self, plan: Plan) -> None:
        self.suite = Path(plan["suite"])
        self.cases = plan["cases"]
        self.tests = 0
        self.context = ""
        self.arcs: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self.of_fixture: dict[str, list[Lines]] = defaultdict(list)
        self.lines, self.branches = (
            coverage.CoverageData(f"{plan['into']}/{name}.{os.getpid()}")
            for name in ("lines", "branches")
        )
        self.coverage = coverage.Coverage(
            data_file=None,
            branch=True,
            config_file=False,
            include=[str(self.suite / name / "*") for name in PACKAGES],
            concurrency=["thread"],
            messages=False,
        )
        # A warning would fail the test that runs meanwhile.
        kinds = ["no-data-collected", "trace-changed", "module-not-measured", "couldnt-parse"]
        self.coverage.set_option("run:disable_warnings", kinds)
        self.coverage.start()

    def pytest_configure(self) -> None:
        _crib()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Of each test so many cases, chosen by a seed."""
        if not self.cases:
            return
        groups: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            groups[item.nodeid.partition("[")[0]].append(item)
        left_out = {
            item
            for name, cases in groups.items()
            if len(cases) > self.cases
            for item in random.Random(name).sample(cases, len(cases) - self.cases)
        }
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=[*left_out])

    @contextmanager
    def enter_context(self, context: str) -> Iterator[None]:
        before = self.context
        self._take(before)
        self.context = context
        try:
            yield
        finally:
            self._take(context)
            self.context = before

    def _take(self, context: str) -> Lines:
        data = self.coverage.get_data()
        executed: Lines = {}
        for file in data.measured_files():
            name = os.path.relpath(file, self.suite)
            arcs = data.arcs(file) or []
            self.arcs[name].update(arcs)
            executed[name] = {line for arc in arcs for line in arc if line > 0}
        data.erase()
        self.lines.set_context(context)
        self.lines.add_lines(executed)
        return executed

    def _write(self) -> None:
        self.branches.add_arcs(self.arcs)
        self.arcs.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self.enter_context(item.nodeid):
            result = yield
        self.tests += 1
        if self.tests % WRITE_EVERY == 0:
            self._write()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        """What a shared fixture executes, the tests that share it execute."""
        if fixturedef.scope == "function":
            if fixturedef.argname != THE_SAME_FOR_EACH:
                return (yield)
            known = self.of_fixture[fixturedef.baseid]
            if len(known) < 2:
                self._take(self.context)
                try:
                    return (yield)
                finally:
                    known.append(self._take(self.context))
            self.coverage.stop()
            try:
                return (yield)
            finally:
                self.coverage.start()
                self.lines.set_context(self.context)
                self.lines.add_lines(known[-1])
        with self.enter_context(SHARED + request.node.nodeid):
            return (yield)

    def pytest_unconfigure(self) -> None:
        self.coverage.stop()
        self._take("")
        self._write()


class Trial:
    """Runs the plan's tests in its order and ends after its seconds of tests."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log = Path(plan["log"]).open("a", buffering=1)  # noqa: SIM115 - until the process ends
        self.test, self.since = "", time.monotonic()
        self.timer: threading.Timer | None = None

    def _note(self, event: str, **more: object) -> None:
        self.log.write(json.dumps({"event": event, "at": time.monotonic(), **more}) + "\n")

    def pytest_configure(self) -> None:
        self.product = _use_running_product(self.plan)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        yield
        _mark_product_as_running(config, self.product)
        found = {item.nodeid: item for item in items}
        wanted = [found.pop(test) for test in self.plan["tests"] if test in found]
        config.hook.pytest_deselected(items=[*found.values()])
        items[:] = wanted
        self._note("collected", missing=len(self.plan["tests"]) - len(wanted))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note("failed", test=report.nodeid, when="collect", why=_why(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test, self.since = nodeid, time.monotonic()
        self._note("begin", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note("failed", test=report.nodeid, when=report.when, why=_why(report))
        if self.timer is None:  # what the session needs is there now
            self._note("ready")
            self.timer = threading.Timer(self.plan["seconds"], self._time_is_over)
            self.timer.daemon = True
            self.timer.start()

    def pytest_sessionfinish(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def _time_is_over(self) -> None:
        self._note("over", test=self.test, ran_s=round(time.monotonic() - self.since, 1))
        os.kill(os.getpid(), signal.SIGINT)  # fixtures still end what they started


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return lines[0 if crash else -1][:300] if lines else ""


def _crib() -> Any:
    """The module of the suite under proof that starts the product."""
    from tests import crib  # noqa: PLC0415 - found beside the tests

    crib.STARTS_WITHIN_S = STARTS_WITHIN_S
    return crib


def _use_running_product(plan: Plan) -> Any:
    """The session's servers run already; a product that a test starts for itself is started."""
    crib = _crib()
    ours = crib.Crib(plan["url"], Path(plan["data"]), plan["supervisor"])
    _replace(crib, ours.data, ours)
    if importlib.util.find_spec("tests.stores"):
        from tests import stores  # noqa: PLC0415 - a suite may have none

        _replace(stores, ours.data, None)
    return ours


def _mark_product_as_running(config: pytest.Config, product: Any) -> None:
    """Tests that perform calls themselves stop the product's workers if this key is set."""
    from tests import conftest  # noqa: PLC0415 - collection has imported it

    if (key := getattr(conftest, "RUNNING", None)) is not None:  # a suite may start it with all
        config.stash[key] = product


def _replace(module: Any, data: Path, known: object) -> None:
    start = module.running

    @contextmanager
    def running(place: Path, *more: Any) -> Iterator[Any]:
        if Path(place) == data:
            yield known
            return
        with start(place, *more) as other:
            yield other

    module.running = running


def serve(data: Path) -> None:
    """Start the product of the checkout in the current directory."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the product prints goes with its errors
    os.environ["TOOLCRIB_TEST_DATA"] = str(data)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    sys.path.insert(0, os.getcwd())
    from tests import data_directory  # noqa: F401, PLC0415 - sets the surroundings aside

    with ExitStack() as stack:
        urls: list[dict[str, str]] = []
        if importlib.util.find_spec("tests.stores"):
            from tests import stores  # noqa: PLC0415

            stack.enter_context(stores.running(data))
            urls = [stores.urls(data)]
        product = stack.enter_context(_crib().running(data, *urls))
        answers.write(json.dumps({"url": product.url, "supervisor": product.supervisor}) + "\n")
        answers.flush()
        sys.stdin.read()


def _plugin(plan: Plan) -> object:
    return Measurement(plan) if plan["kind"] == "measure" else Trial(plan)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
elif "PROOF_PLAN" in os.environ:
    _PLUGIN = _plugin(json.loads(Path(os.environ["PROOF_PLAN"]).read_text()))

    def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
        pluginmanager.register(_PLUGIN, "proof")
