"""The parts of `make test-all`: what is slow by nature, or needs what others wrote.

A test stands in a part by `pytest.mark.part("faults")`; each part has representatives without that
mark in `make test`. Of a test with many cases, `pytest.mark.part("faults", but_each=4)` leaves each
fourth there. Property tests stand in `make test` with the same examples in every run, and in
the part `exploring` with others. `make test-all PART=faults` runs one part, `pytest --part faults
FILE` what one file has of it. `make test-all` runs parts of the same processes and options
together, before one running product; one that is `alone` has a product of its own.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Part:
    about: str
    needs: tuple[str, ...] = ()  # scripts that install it
    processes: int = 2
    options: tuple[str, ...] = ()  # of pytest
    alone: bool = False  # its requests change what all organizations of a product share


PARTS = {
    "accessibility": Part("axe over every page", ("tests/chromium.sh",)),
    "agents": Part("agent runs: plans, replays, hostile model answers"),
    "authorization": Part("every caller against every address"),
    "browser": Part("walks in Chromium", ("tests/chromium.sh",)),
    "calls": Part("chains, programs, batches, caches, tool services, lost and concurrent calls"),
    "conformance": Part(
        "MCP's conformance suite, and MCP servers that others wrote", ("tests/upstreams.sh",)
    ),
    "contract": Part(
        "requests that are generated from the OpenAPI document, and a client that is", alone=True
    ),
    "exploring": Part(
        "property tests with other examples, and with many more",
        options=("--hypothesis-profile", "exploring"),
    ),
    "faults": Part("kills, full disks and clocks that jump", ("tests/faults/clock.sh",), 1),
    "frameworks": Part("agents of other frameworks", ("tests/frameworks.sh",)),
    "generated": Part("many generated requests, documents and rows"),
    "matrices": Part("every body against every address, every case of a rule"),
    "sandbox": Part("lost runs, cleanup after runs, runs without root or kernel features"),
    "walks": Part("long ways through the running product, over HTTP"),
    "runtimes": Part("container runtimes and JavaScript", ("tests/runtimes.sh",)),
}
EVERY = "every"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        action="append",
        default=[],
        choices=[*PARTS, EVERY],
        help="the tests of a part of test-all; more than once, of each",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Most files have no test of a part: they are not even imported."""
    wanted = config.getoption("--part")
    if not wanted or EVERY in wanted or not collection_path.match("test_*.py"):
        return None
    return None if any(speaks_of(part, collection_path) for part in wanted) else True


@cache
def speaks_of(part: str, file: Path) -> bool:
    names = [f'"{part}"', *(("hypothesis", "properties") if part == "exploring" else ())]
    return any(name in file.read_text("utf-8") for name in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not asked for, and have the last process begin with what needs the running
    product, which waits for it most of the time: the others compute meanwhile, and start none."""
    wanted = config.getoption("--part")
    chosen = [item for item in items if is_of(item, wanted)]
    config.hook.pytest_deselected(items=sorted({*items} - {*chosen}, key=lambda item: item.nodeid))
    with_product = [item for item in chosen if needs_product(item)]
    others = [item for item in chosen if not needs_product(item)]
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    begins = min(begin_of_last(len(chosen), processes), len(others))
    items[:] = [*others[:begins], *with_product, *others[begins:]]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the product as soon as the next test does without it: they stand together."""
    if nextitem is not None and needs_product(item) and not needs_product(nextitem):
        (definition,) = item._fixtureinfo.name2fixturedefs["crib"]  # type: ignore[attr-defined]
        definition.finish(item._request)  # type: ignore[attr-defined]


def begin_of_last(count: int, processes: int) -> int:
    """Of so many tests, where those begin that the last process has from the start, as xdist's
    `worksteal` shares them out; it steals from the ends."""
    begin = 0
    for left in range(processes, 1, -1):
        begin += (count - begin) // left
    return begin if processes > 1 else count


def part_of(item: pytest.Item) -> str | None:
    """The part of a test, or None for `make test`. A mark on one case overrides its test's."""
    cases: Any = getattr(item, "callspec", None)
    of_case = [mark for mark in getattr(cases, "marks", ()) if mark.name == "part"]
    marker = of_case[0] if of_case else item.get_closest_marker("part")
    if marker is None:
        return None
    (name,) = marker.args
    if name not in PARTS:
        raise pytest.UsageError(f"{item.nodeid}: there is no part {name!r} in tests/parts.py")
    if not speaks_of(name, item.path):
        raise pytest.UsageError(f"{item.nodeid}: its own file has to name the part {name!r}")
    each = marker.kwargs.get("but_each")
    if each is not None and cases is None:
        raise pytest.UsageError(f"{item.nodeid}: one case is not left for each {each}")
    return None if each and sum(cases.indices.values()) % each == 0 else str(name)


def is_of(item: pytest.Item, wanted: list[str]) -> bool:
    """Hypothesis marks its tests, which are of `exploring` as well."""
    part = part_of(item)
    explores = "exploring" in wanted and item.get_closest_marker("hypothesis") is not None
    return EVERY in wanted or explores or (part in wanted if wanted else part is None)


def needs_product(item: pytest.Item) -> bool:
    return "crib" in getattr(item, "fixturenames", ())
