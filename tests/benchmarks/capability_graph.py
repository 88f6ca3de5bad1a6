"""What the capability graph costs in a catalog of 10,000 tools: to make it, and to propose chains.

    python -m tests.benchmarks.capability_graph

Needs neither server nor database: it is computing and nothing else, so what is measured is the
processor's time, whatever else the machine does. The tools stand in many fields of work; each takes
and gives values of its own field, and half of them a `text` or a `url`, as tools do.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from tests.tools.policy.memory_catalogs import snapshot, tool  # noqa: E402
from tools.catalog.snapshot import CatalogTool, Snapshot  # noqa: E402
from tools.catalog.workflow import chains  # noqa: E402
from tools.definitions.capability.capability_search import PlanningTarget, given_ports, target_port  # noqa: E402

TOOLS, FIELDS = 10_000, 500
VALUES = ["customer", "order", "invoice", "report", "address", "route", "sample", "summary"]
COMMON = ["text", "url", "path", "query", "content"]
ROUNDS, ASKED = 5, 200


def main() -> None:
    dice = random.Random(7)
    everything = list(_tools(dice))
    print(f"{TOOLS} tools, {FIELDS} fields of work")
    _show("made, nothing known", [_cold(everything) for _ in range(ROUNDS)])
    _show("made again after a change", [_warm(everything) for _ in range(ROUNDS)])
    place = snapshot(everything)
    usable = frozenset(place.tools)
    graph = chains.capability_graph(place)
    for name, ask in (
        ("propose, within a field", lambda: _ask(place, usable, *_field_question(dice))),
        ("propose, from a text", lambda: _ask(place, usable, "text", f"summary {_field(dice)}")),
        ("propose, text to text", lambda: _ask(place, usable, "text", "text")),
    ):
        _show(name, [_ms(ask) for _ in range(ASKED)])
    names = list(place.tools)
    _show("edges of 50 tools", [
        _ms(lambda: graph.edges(dice.sample(names, 50), usable, 1_000)) for _ in range(50)
    ])  # fmt: skip


def _cold(tools: list[CatalogTool]) -> float:
    chains.forget()
    return _warm(tools)


def _warm(tools: list[CatalogTool]) -> float:
    place = snapshot(tools)
    return _ms(lambda: chains.capability_graph(place))


def _ask(place: Snapshot, usable: frozenset[str], have: str, want: str) -> Any:
    return chains.proposals(
        place, usable, given_ports({have: None}), PlanningTarget(target_port(want))
    )


def _field_question(dice: random.Random) -> tuple[str, str]:
    field = _field(dice)
    have, want = dice.sample(VALUES, 2)
    return f"{have} {field}", f"{want} {field}"


def _tools(dice: random.Random) -> Iterator[CatalogTool]:
    for number in range(TOOLS):
        field = _field(dice)
        taken, given = dice.sample(VALUES, 2)
        takes, gives = [f"{taken}_{field}"], [f"{given}_{field}"]
        takes += dice.sample(COMMON, dice.choice([0, 0, 1]))
        gives += dice.sample(COMMON, dice.choice([0, 1, 2]))
        yield tool(f"tool-{number}", input_schema=_object(takes), output_schema=_object(gives))


def _object(names: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names},
            "required": names, "additionalProperties": False}  # fmt: skip


def _field(dice: random.Random) -> str:
    return f"f{dice.randrange(FIELDS)}"


def _ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1_000


def _show(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    print(f"{name:<28}median {statistics.median(ordered):9.1f} ms   p95 {p95:9.1f} ms")


if __name__ == "__main__":
    main()
