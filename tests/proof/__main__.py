"""The commands; `__init__.py` says what they are for."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData

from tests.proof import gates, mutant_trials, mutants
from tests.proof.inside_suite import PACKAGES
from tests.proof.mutant_trials import Row
from tests.proof.mutants import Moved, Mutant

_LIVED = ("survived", "timed out")


def measure(suite: Path, out: Path, cases: int, arguments: list[str]) -> int:
    """Run the suite under coverage, of each test at most so many cases (0: all); pytest's exit
    status."""
    suite, out = suite.resolve(), out.resolve()
    branches = out.with_name(f"{out.name}.branches")
    for file in (out, branches):
        file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="proof-") as into:
        plan = Path(into, "plan.json")
        plan.write_text(
            json.dumps({"kind": "measure", "into": into, "suite": str(suite), "cases": cases})
        )
        command = [sys.executable, "-m", "pytest", "-p", "inside_suite", "--timeout", "900"]
        command += ["--ignore=tests/browser", "--ignore=tests/proof"]
        env = mutant_trials.environment(plan)
        done = subprocess.run([*command, *arguments], cwd=suite, env=env, check=False)
        for name, file in (("lines", out), ("branches", branches)):
            together = CoverageData(str(file))
            for part in sorted(Path(into).glob(f"{name}.*")):
                found = CoverageData(str(part))
                found.read()
                together.update(found)
    print("\n".join(table(suite, branches)))
    return done.returncode


def table(suite: Path, branches: Path) -> list[str]:
    """Lines and branches of each package that the test process executed."""
    data = CoverageData(str(branches))
    data.read()
    data.touch_files([file for name in PACKAGES for file in mutants.python_files(suite, name)])
    data.close()
    with contextlib.chdir(suite), tempfile.TemporaryDirectory() as into:
        report = Coverage(data_file=str(branches), config_file=False, branch=True, messages=False)
        report.set_option("run:relative_files", True)
        report.load()
        report.json_report(outfile=f"{into}/report.json")
        files = json.loads(Path(into, "report.json").read_text())["files"]
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for file, found in files.items():
        for name in (_package(file), "all"):
            sums[name].update({key: found["summary"][key] for key in _COUNTED})
    head = f"{'package':<22} {'lines':>7} {'covered':>8} {'%':>6} {'branches':>9} {'covered':>8} %"
    return [head] + [
        f"{name:<22} {_share(total, *_COUNTED[:2])} {_share(total, *_COUNTED[2:])}"
        for name, total in sorted(sums.items(), key=lambda item: (item[0] == "all", item[0]))
    ]


_COUNTED = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def _share(total: Counter[str], all_of: str, covered: str) -> str:
    percent = 100 * total[covered] / total[all_of] if total[all_of] else 100.0
    return f"{total[all_of]:>8} {total[covered]:>8} {percent:6.2f}"


def _package(file: str) -> str:
    parts = Path(file).parts
    return ".".join(parts[: 2 if parts[0] == "tools" and len(parts) > 2 else 1])


def kill(asked: argparse.Namespace, arguments: list[str]) -> int:
    every = gates.gate_mutants(asked.suite) if asked.gates else _read_mutants(asked.mutants)
    chosen = {number: every[number] for number in asked.only or range(len(every))}
    done = {row["number"] for row in read_rows(asked.out)} if asked.out.exists() else set()
    if done and not asked.resume:
        sys.exit(f"{asked.out} has rows already: go on with --resume, or name another file")
    chosen = {number: mutant for number, mutant in chosen.items() if number not in done}
    _check_all_there(asked.suite, chosen)
    contexts = mutant_trials.Contexts(asked.contexts)
    with mutant_trials.Environment(asked.suite, arguments) as environment:
        trials = mutant_trials.Trials(environment, contexts, asked.seed, asked.seconds)
        mutant_trials.try_all(chosen, asked.out, trials, _print_row)
    return 0


def _check_all_there(suite: Path, chosen: dict[int, Mutant]) -> None:
    moved = []
    for number, mutant in chosen.items():
        try:
            mutants.executed_by(suite, mutant)
        except (Moved, FileNotFoundError) as problem:
            moved.append(f"{number}: {problem}")
    if moved:
        sys.exit("Not in this source; name the others with --only:\n" + "\n".join(moved))


def _print_row(row: Row) -> None:
    place = f"{row['file']}:{row['line']} {row['kind']}"
    print(f"{row['number']:>4} {row['outcome']:<10} {place}  {row['test']}", flush=True)


def compare(old: list[Row], new: list[Row]) -> list[str]:
    """The two figures, killed mutants by package, and those that only one of the suites killed."""
    lines = [f"{'':<32} {'old':>5} {'new':>5}"]
    counted: list[tuple[str, Callable[[Row], bool]]] = [
        ("mutants", lambda row: True),
        ("covered by no test", lambda row: row["outcome"] == "no test"),
        ("let live by tests of the line", lambda row: row["outcome"] in _LIVED),
        ("  of these, the time was over", lambda row: row["outcome"] == "timed out"),
        ("undecided", lambda row: row["outcome"] == "undecided"),
        ("killed", _killed),
    ]
    for package in sorted({row["package"] for row in [*old, *new]}):
        counted.append(
            (f"  {package}", lambda row, of=package: _killed(row) and row["package"] == of)
        )
    for name, counts in counted:
        lines.append(f"{name:<32} {sum(map(counts, old)):>5} {sum(map(counts, new)):>5}")
    for name, ours, others in (("old", old, new), ("new", new, old)):
        lines += ["", f"killed by the {name} suite only"]
        theirs = {_identity(row): row for row in others}
        for row in filter(_killed, ours):
            other = theirs.get(_identity(row), {"outcome": "not tried"})
            if not _killed(other):
                lines += _described(row, other)
    return lines


def _described(row: Row, other: Row) -> list[str]:
    change = f"{_short(row['original'])} -> {_short(row['mutated'])}"
    return [
        f"  {row['number']} {row['file']}:{row['line']} {row['kind']}: {change}",
        f"      killed by {row['test']}; in the other suite: {other['outcome']}",
    ]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= 50 else words[:49] + "…")


def _killed(row: Row) -> bool:
    return bool(row["outcome"] == "killed")


def _identity(row: Row) -> tuple[Any, ...]:
    """Without the line: it may have moved from one source to the other."""
    return row["file"], row["number"], row["kind"], row["original"], row["mutated"]


def read_rows(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _read_mutants(file: Path) -> list[Mutant]:
    rows = json.loads(file.read_text())
    return [Mutant(**row | {"focus": tuple(row["focus"])}) for row in rows]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "coverage", help="run a suite; more arguments go to pytest", allow_abbrev=False
    )
    command.add_argument("--suite", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--cases", type=int, default=0, help="of each test at most; 0: all")
    command = commands.add_parser("mutants", help="draw mutants from this checkout")
    command.add_argument("--seed", type=int, default=7)
    command.add_argument("--count", type=int, default=120)
    command.add_argument("--suite", type=Path, default=Path(), help="the source to draw from")
    command.add_argument("--out", type=Path, required=True)
    command = commands.add_parser(
        "kill", help="try mutants; more arguments go to pytest", allow_abbrev=False
    )
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--mutants", type=Path)
    which.add_argument("--gates", action="store_true")
    command.add_argument("--contexts", type=Path, required=True, help="what `coverage` wrote")
    command.add_argument("--suite", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True, help="a line of JSON for each mutant")
    command.add_argument("--only", type=_numbers, help="numbers of mutants, with commas")
    command.add_argument("--resume", action="store_true", help="leave out what --out has already")
    command.add_argument("--seed", type=int, default=7, help="of the order of the tests")
    command.add_argument("--seconds", type=float, default=120, help="of tests, for each mutant")
    command = commands.add_parser("compare", help="two files that `kill` wrote")
    command.add_argument("old", type=Path)
    command.add_argument("new", type=Path)
    return parser


def main() -> int:
    asked, more = _parser().parse_known_args()
    if asked.command in ("mutants", "compare") and more:
        sys.exit(f"unknown arguments: {' '.join(more)}")
    match asked.command:
        case "coverage":
            return measure(asked.suite, asked.out, asked.cases, more)
        case "mutants":
            drawn = mutants.draw(asked.suite.resolve(), seed=asked.seed, count=asked.count)
            asked.out.write_text(json.dumps([asdict(one) for one in drawn], indent=1) + "\n")
            print(f"{len(drawn)} mutants")
        case "kill":
            return kill(asked, more)
        case "compare":
            print("\n".join(compare(read_rows(asked.old), read_rows(asked.new))))
    return 0


if __name__ == "__main__":
    os.environ.pop("PROOF_PLAN", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped then too
    sys.exit(main())
