"""Where the time of a run goes: wall and processor seconds of each test's set-up and call.

Loaded by `addopts`. Every run ends with the slowest files, and with what each part took where it
has several (tests/parts.py); `--times FILE` also writes a line of
JSON for each test, from which `python -m tests.timing FILE` makes a table of files.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.parts import PARTS, part_of

SLOWEST = 20
PHASES = ("setup", "call", "teardown")
Line = dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, help="write the seconds of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that hears of every test
        config.pluginmanager.register(Times(config.getoption("--times")), "times")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report takes the processor time along to the process that prints it, and of a test that
    passed nothing that is not printed."""
    report = yield
    if report.passed:
        report.sections, report.keywords = [], {}
    now, before = time.process_time(), getattr(item.config, "_processor_s", 0.0)
    item.config._processor_s = now  # type: ignore[attr-defined]
    report.processor_s = now - before
    report.part = part_of(item) or ""
    return report


class Times:
    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.begun = time.monotonic()
        self.tests: dict[str, Line] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = self.tests[report.nodeid]
        line["part"] = getattr(report, "part", "")
        when, processor = report.when, f"{report.when}_processor"
        line[when] = round(max(line.get(when, 0.0), report.duration), 4)  # of subtests the whole
        line[processor] = round(line.get(processor, 0.0) + getattr(report, "processor_s", 0.0), 4)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if self.file is not None:
            texts = (json.dumps({"test": name, **line}) for name, line in self.tests.items())
            self.file.write_text("\n".join(texts) + "\n")
        if len(self.tests) > SLOWEST:
            total = time.monotonic() - self.begun
            seed = config.getoption("randomly_seed", None)
            summary = f"{len(self.tests)} tests in {total:.0f} s, --randomly-seed={seed}"
            terminalreporter.section(f"{summary}; slowest files")
            lines = [{"test": name, **line} for name, line in self.tests.items()]
            rows = table(lines, SLOWEST)
            if len({line["part"] for line in lines}) > 1:
                rows += ["", *table(lines, len(PARTS), by="part")]
            for row in rows:
                terminalreporter.write_line(row)


def table(lines: Iterable[Line], most: int, *, by: str = "file") -> list[str]:
    """The files or parts that took longest, with tests, wall s, of it set-up, processor s: sums of
    all processes."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line["test"].partition("::")[0] if by == "file" else line[by]].append(line)
    rows = sorted(((_wall(tests), name, tests) for name, tests in groups.items()), reverse=True)
    return [f"{'wall s':>8} {'set-up':>8} {'CPU s':>8} {'tests':>6}  {by}"] + [
        f"{wall:8.1f} {_sum(tests, 'setup'):8.1f} {_processor(tests):8.1f} {len(tests):6}  {name}"
        for wall, name, tests in rows[:most]
    ]


def _sum(tests: list[Line], name: str) -> float:
    return sum(test.get(name, 0.0) for test in tests)


def _wall(tests: list[Line]) -> float:
    return sum(_sum(tests, phase) for phase in PHASES)


def _processor(tests: list[Line]) -> float:
    return sum(_sum(tests, f"{phase}_processor") for phase in PHASES)


def main() -> None:
    parser = argparse.ArgumentParser(description="The files of a run, by the time they took.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, default=1_000_000)
    options = parser.parse_args()
    for row in table(map(json.loads, options.file.read_text().splitlines()), options.most):
        print(row)


if __name__ == "__main__":
    main()
