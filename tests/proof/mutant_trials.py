"""Runs the tests that execute a mutant's line, with the mutant in place."""

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from coverage import CoverageData

from tests.proof.inside_suite import SHARED
from tests.proof.mutants import Lines, Mutant, executed_by, mutated

HERE = Path(__file__).parent
FRESH_EVERY = 25  # mutants; what committed tests leave makes a database slow
TOGETHER = 10  # tests of one file in a row, for they may share a fixture
SET_UP_S = 900  # collection and the session's fixtures
HANGS_S = 60  # a test that has run so long when the time is over does not end by itself
ENDING_S = 60  # from the end of the time to the end of the process
PR_SET_CHILD_SUBREAPER = 36
START = "the start of the session"
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "var", ".*_cache", ".hypothesis")
# Where tests start the code under test in a process of its own, which nothing measures.
_ELSEWHERE = {"sandbox/": "tests/sandbox/"}
Row = dict[str, Any]


class ProductFailed(Exception):
    """The product of the suite did not start; the message is what it said."""


class SuiteFailed(Exception):
    """The suite does not start without a mutant either; the message is what pytest said."""


@dataclass(frozen=True)
class Covering:
    """Tests that execute a line: themselves, or by what they share with others."""

    direct: list[str]
    shared: list[str]
    measured: bool = True


class Contexts:
    """Which tests execute which lines, from the file that `coverage` wrote."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            raise FileNotFoundError(file)
        self._data = CoverageData(str(file))
        self._data.read()
        names = self._data.measured_contexts()
        self.tests = sorted(name for name in names if name and not name.startswith(SHARED))
        self._lines = lru_cache(maxsize=16)(self._data.contexts_by_lineno)

    def covering(self, mutant: Mutant, lines: Lines, key: str) -> Covering:
        found = {
            (file, line): {*contexts}
            for file, wanted in lines.items()
            for line, contexts in self._lines(file).items()
            if line in wanted
        }
        executing: set[str] = set().union(*found.values())
        direct = {name for name in executing if name and not name.startswith(SHARED)}
        shared = set(select_shared_tests(self.tests, executing)) - direct
        if not direct and not shared:
            place = next((to for at, to in _ELSEWHERE.items() if mutant.file.startswith(at)), None)
            tests = [test for test in self.tests if place and test.startswith(place)]
            return Covering(ordered(tests, key), [], measured=False)
        rarest = _rarest(found.values()) if mutant.focus else dict[str, int]()
        return Covering(ordered(direct, key, rarest), ordered(shared, key))


def select_shared_tests(tests: list[str], contexts: Iterable[str]) -> Iterator[str]:
    """The tests that share a fixture of a class, a file, a folder or the session."""
    for context in contexts:
        if context.startswith(SHARED):
            place = context.removeprefix(SHARED).removesuffix("/.")
            starts = (f"{place}::", f"{place}/") if place not in ("", ".") else ("",)
            yield from (test for test in tests if test.startswith(starts))


def _rarest(lines: Iterable[set[str]]) -> dict[str, int]:
    """By test: how many execute the line that fewest do."""
    most: dict[str, int] = {}
    for tests in sorted(lines, key=len):
        for test in tests:
            most.setdefault(test, len(tests))
    return most


def ordered(tests: Iterable[str], key: str, rank: dict[str, int] | None = None) -> list[str]:
    """By rank; shuffled within one, but for a few tests of one file that follow each other."""
    chance = random.Random(key)
    by_file: dict[tuple[int, str], list[str]] = defaultdict(list)
    for test in sorted(tests):
        by_file[(rank or {}).get(test, 0), test.partition("::")[0]].append(test)
    pieces: list[tuple[int, list[str]]] = []
    for (place, _), found in sorted(by_file.items()):
        chance.shuffle(found)
        pieces += [(place, found[at : at + TOGETHER]) for at in range(0, len(found), TOGETHER)]
    chance.shuffle(pieces)
    return [test for _, piece in sorted(pieces, key=lambda piece: piece[0]) for test in piece]


@dataclass
class Outcome:
    """Of one pytest process. `end` is passed, failed or over: its time was."""

    end: str
    test: str = ""
    why: str = ""
    begun: list[str] = field(default_factory=list)
    missing: int = 0
    seconds: float = 0.0


def outcome_of(events: list[Row], status: int) -> Outcome:
    """A process that ended otherwise than by its tests failed in the test that had begun last."""
    found = Outcome(
        "passed", begun=[event["test"] for event in events if event["event"] == "begin"]
    )
    found.missing = sum(event.get("missing", 0) for event in events)
    ready = [event["at"] for event in events if event["event"] == "ready"]
    found.seconds = round(events[-1]["at"] - ready[0], 1) if ready else 0.0
    for event in events:
        if event["event"] in ("failed", "over"):
            hung = event.get("ran_s") or 0.0
            found.end = "failed" if hung >= HANGS_S else event["event"]
            found.test, found.why = event["test"], event.get("why", f"had run for {hung} s")
            return found
    if status not in (0, 5):  # 5: nothing was collected
        found.end, found.why = "failed", f"pytest ended with status {status}"
        found.test = found.begun[-1] if found.begun else START
    return found


class Environment:
    """Two copies of a checkout, one of them to mutate, and the product of the other, running."""

    def __init__(self, suite: Path, arguments: list[str]) -> None:
        self.suite, self.arguments = suite.resolve(), arguments
        self._product: dict[str, Any] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.place = Path(tempfile.mkdtemp(prefix="proof-", dir=self.suite.parent))
        self.place.chmod(0o755)  # the sandbox's accounts read it
        self.mutated, self.unmutated = self.place / "mutated", self.place / "unmutated"
        for copy in (self.mutated, self.unmutated):
            shutil.copytree(self.suite, copy, symlinks=True, ignore=_NOT_COPIED)
            (copy / ".venv").symlink_to((self.suite / ".venv").resolve())
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop_product()
        shutil.rmtree(self.place, ignore_errors=True)

    @contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        file = self.mutated / mutant.file
        file.write_bytes(mutated(mutant, file.read_bytes()))
        try:
            yield
        finally:
            shutil.copy2(self.unmutated / mutant.file, file)

    def stop_product(self) -> None:
        self._open.close()
        self._product = {}
        self._end_orphans()

    def run(self, checkout: Path, tests: list[str], seconds: float) -> Outcome:
        """The tests in this order, to the first failure or the end of the time."""
        if not self._product:
            self._product = self._open.enter_context(self._running_product())
        log, plan = self.place / "log", self.place / "plan.json"
        log.write_text("")
        known = {key: value for key, value in self._product.items() if key != "pid"}
        request = {"kind": "trial", "tests": tests, "seconds": seconds, "log": str(log)}
        plan.write_text(json.dumps(known | request))
        command = ["-m", "pytest", "-p", "inside_suite", "-p", "no:cacheprovider", "-n", "0", "-x"]
        command += ["-q", "--tb", "short", "--timeout", "0", *self.arguments]
        files = sorted({test.partition("::")[0] for test in tests})
        with (self.place / "output").open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *command, *files], cwd=checkout, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
                env=environment(plan) | {"TOOLCRIB_TEST_DATA": self._product["data"]},
            )  # fmt: skip
            try:
                _wait(process, log, seconds)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        self._end_orphans()
        found = outcome_of([json.loads(line) for line in log.open()], process.returncode)
        if found.end == "failed" and not found.begun:
            found.why += f": {(self.place / 'output').read_text()[-1500:]}"
        return found

    @contextmanager
    def _running_product(self) -> Iterator[dict[str, Any]]:
        data, log = tempfile.mkdtemp(prefix="tc-"), self.place / "product"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "inside_suite.py"), data], cwd=self.unmutated,
                env=environment(None), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            facts = process.stdout.readline()
            if not facts:
                raise ProductFailed(f"status {process.wait(120)}: {log.read_text()[-2000:]}")
            yield json.loads(facts) | {"data": data, "pid": process.pid}
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(120)
            shutil.rmtree(data, ignore_errors=True)

    def _end_orphans(self) -> None:
        """What a test started and left behind falls to this process."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + 20
            while (left := _children() - {self._product.get("pid")}) and time.monotonic() < until:
                for pid in left:
                    with suppress(ProcessLookupError, ChildProcessError):
                        os.kill(pid, number)
                        os.waitpid(pid, os.WNOHANG)
                time.sleep(0.1)  # lint: outside of every test


def environment(plan: Path | None) -> dict[str, str]:
    named = {} if plan is None else {"PROOF_PLAN": str(plan)}
    return os.environ | {"PYTHONPATH": str(HERE)} | named


def _wait(process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    until, ready = time.monotonic() + SET_UP_S, False
    while process.poll() is None and time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        if not ready and '"ready"' in log.read_text():
            until, ready = time.monotonic() + seconds + ENDING_S, True
    if process.poll() is None:
        with log.open("a") as file:
            over = {"event": "over", "at": time.monotonic(), "test": "", "ran_s": None}
            file.write(json.dumps(over) + "\n")


def _children() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


@dataclass
class Trials:
    """One mutant after another, each to its row."""

    environment: Environment
    contexts: Contexts
    seed: int
    seconds: float
    attempts: int = 3

    def row(self, number: int, mutant: Mutant) -> Row:
        lines = executed_by(self.environment.unmutated, mutant)
        covering = self.contexts.covering(mutant, lines, f"{self.seed} {number}")
        row: Row = {"number": number, **asdict(mutant), "outcome": "no test", "test": ""}
        row |= {"direct": len(covering.direct), "shared": len(covering.shared)}
        row |= {"measured": covering.measured, "left_out": []}
        if covering.direct or covering.shared:
            for _ in range(self.attempts):
                outcome, ended = self._tried(mutant, covering, row["left_out"])
                row |= {"outcome": outcome, "test": ended.test, "why": ended.why}
                row |= {"begun": len(ended.begun), "missing": ended.missing}
                row |= {"seconds": ended.seconds}
                if outcome != "undecided":
                    break
        if row["outcome"] == "survived" and not covering.measured:
            row["outcome"] = "no test"
        return row

    def _tried(
        self, mutant: Mutant, covering: Covering, left_out: list[str]
    ) -> tuple[str, Outcome]:
        ended, left_s = Outcome("passed"), self.seconds
        for tests in (covering.direct, covering.shared):
            wanted = [test for test in tests if test not in left_out]
            if not wanted or left_s <= 0:
                continue
            with self.environment.with_mutant(mutant):
                ended = self.environment.run(self.environment.mutated, wanted, left_s)
            left_s -= ended.seconds
            if ended.end == "over":
                return "timed out", ended
            if ended.end == "failed":
                return self._checked(ended, wanted, left_out), ended
        return ("survived" if left_s > 0 else "timed out"), ended

    def _checked(self, ended: Outcome, wanted: list[str], left_out: list[str]) -> str:
        """Whether the same tests pass without the mutant. What the mutant left in the database
        may be why they do not, so the product starts again then."""
        tests = ended.begun or wanted[:1]
        check = self.environment.run(self.environment.unmutated, tests, self.seconds * 3)
        if check.end == "passed":
            return "killed"
        if check.test == START:
            raise SuiteFailed(check.why)
        self.environment.stop_product()
        left_out.append(check.test if check.end == "failed" else ended.test)
        return "undecided"


def try_all(
    mutants: dict[int, Mutant],
    out: Path,
    trials: Trials,
    report: Callable[[Row], None],
) -> None:
    for count, (number, mutant) in enumerate(mutants.items(), 1):
        row = trials.row(number, mutant)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        report(row)
        if count % FRESH_EVERY == 0:
            trials.environment.stop_product()
