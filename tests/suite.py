"""What `make test` and `make test-all` run, and how long each part of it took.

    python -m tests.suite                  lint, types and every test without a part
    python -m tests.suite --all            that, then every part, with what each took
    python -m tests.suite --part faults    one part
    python -m tests.suite --lint           lint and types alone

Every step runs, whatever became of the one before; the exit status is 1 where one failed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.parts import PARTS

PYTHON = (sys.executable, "-m")
LINT = (
    (*PYTHON, "ruff", "check", "."),
    (*PYTHON, "ruff", "format", "--check", "."),
    (sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"),
    (*PYTHON, "tests.lint"),
    (*PYTHON, "tests.language"),
)
TYPES = (*PYTHON, "mypy", ".")


@dataclass
class Report:
    """Seconds of each step, and which of them failed."""

    steps: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], bool]) -> None:
        begun = time.monotonic()
        if not work():
            self.failed.append(name)
        self.steps[name] = time.monotonic() - begun

    def show(self) -> None:
        for name, seconds in self.steps.items():
            print(f"{name:>14} {seconds:6.0f} s{'  FAILED' if name in self.failed else ''}")
        print(f"{'total':>14} {sum(self.steps.values()):6.0f} s", flush=True)


def lint() -> bool:
    statuses = [subprocess.run(command, check=False).returncode for command in LINT]
    return not any(statuses)


@contextmanager
def types() -> Iterator[Callable[[], bool]]:
    """Types are checked beside the tests: it is one process that would leave a core idle. What is
    given waits for the end, says what was found, and whether it was nothing."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(TYPES, stdout=output, stderr=subprocess.STDOUT)

        def wait_for_types() -> bool:
            process.wait()
            output.seek(0)
            print(output.read(), end="", flush=True)
            return process.returncode == 0

        try:
            yield wait_for_types
        finally:
            process.kill()
            process.wait()


def tests(processes: int, order: list[str], *words: str) -> bool:
    shared_out = ("-n", str(processes), "--dist", "worksteal")
    command = (*PYTHON, "pytest", "-q", *shared_out, *order, *words)
    return subprocess.run(command, check=False).returncode == 0


def ordinary(report: Report, processes: int, order: list[str]) -> None:
    report.run("lint", lint)
    with types() as types_are_right:
        report.run("tests", lambda: tests(processes, order))
        report.run("types", types_are_right)


def parts(report: Report, names: Iterable[str], processes: int, order: list[str]) -> None:
    """Those that want the same processes and options run together, before one product, but for
    those that want one alone."""
    together: dict[tuple[int, tuple[str, ...], str], list[str]] = defaultdict(list)
    for name in names:
        part = PARTS[name]
        alone = name if part.alone else ""
        together[min(processes, part.processes), part.options, alone].append(name)
    for (at_once, options, _), group in together.items():
        which = group[0] if len(group) == 1 else f"{len(group)} parts"
        words = [word for name in group for word in ("--part", name)]
        if any(PARTS[name].needs for name in group):
            report.run(f"for {which}", partial(install, group))
        report.run(which, partial(tests, at_once, order, *words, *options))


def install(names: Iterable[str]) -> bool:
    """What the parts need; whether all of it is there now."""
    scripts = {script for name in names for script in PARTS[name].needs}
    return all(subprocess.run(("sh", one), check=False).returncode == 0 for one in sorted(scripts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--order", help="its seed; `random` is another one in every run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true")
    which.add_argument("--part", choices=PARTS)
    which.add_argument("--lint", action="store_true")
    options, report = parser.parse_args(), Report()
    order = [] if options.order in (None, "random") else [f"--randomly-seed={options.order}"]
    if options.lint:
        report.run("lint", lint)
        with types() as types_are_right:
            report.run("types", types_are_right)
    elif not options.part:
        ordinary(report, options.processes, order)
    wanted = [options.part] if options.part else PARTS if options.all else ()
    parts(report, wanted, options.processes, order)
    report.show()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
