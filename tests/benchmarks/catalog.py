"""Whether a bigger catalog makes a call slower: lookup, gates and listing by number of tools.

    python -m tests.benchmarks.catalog

Needs neither server nor database: a snapshot is built in memory, as a process keeps it.
"""

import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from uuid import uuid4

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from tests.factories import definition  # noqa: E402
from tools.authorization.facts import question_of  # noqa: E402
from tools.authorization.listings import usable_tools  # noqa: E402
from tools.catalog.snapshot import CatalogGroup, CatalogTool, Snapshot  # noqa: E402
from tools.definitions.callers import Caller, CallerKind  # noqa: E402
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition  # noqa: E402
from tools.models import LicenseTier  # noqa: E402
from tools.policy import gates  # noqa: E402
from tools.policy.questions import EffectiveRequest  # noqa: E402

SIZES = (10, 1_000, 10_000)


def main() -> None:
    print(f"{'tools':>8}{'lookup µs':>12}{'gates µs':>12}{'validate µs':>14}{'list ms':>10}")
    for size in SIZES:
        snapshot, caller, request = (
            _snapshot(size),
            _caller(),
            EffectiveRequest.from_options(["default"], None),
        )
        name = f"tool-{size // 2}"
        tool = snapshot.tools[name]
        question = question_of(caller, tool, request, snapshot)
        print(
            f"{size:>8}"
            f"{_median_us(lambda s=snapshot, n=name: s.tool(n)):>12.2f}"
            f"{_median_us(lambda q=question: gates.authorize(q)):>12.2f}"
            f"{_median_us(lambda t=tool: t.input_validator.flaws({'text': 'x'})):>14.2f}"
            f"{_listing_ms(caller, request, snapshot):>10.2f}"
        )


def _listing_ms(caller: Caller, request: EffectiveRequest, snapshot: Snapshot) -> float:
    return _median_us(lambda: usable_tools(caller, request, snapshot), 5) / 1000


def _median_us(work: Callable[[], object], rounds: int = 2_000) -> float:
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def _snapshot(size: int) -> Snapshot:
    tools = {f"tool-{at}": _tool(f"tool-{at}") for at in range(size)}
    tier = LicenseTier(name="Enterprise", rank=4, builtin_tools=None, max_custom_tools=None)
    group = CatalogGroup("default", "", frozenset())
    return Snapshot(
        uuid4(), "bench", 1, tier, MappingProxyType(tools), MappingProxyType({"default": group})
    )


def _tool(name: str) -> CatalogTool:
    canonical, now = read_definition(definition(name)), datetime.now(UTC)
    return CatalogTool(
        uuid4(), name, "active", uuid4(), "1.0.0", 1, definition_digest(canonical), "", "",
        ToolDefinition(canonical), now, now,
    )  # fmt: skip


def _caller() -> Caller:
    return Caller(
        CallerKind.PERSON, "bench", uuid4(), "bench", 1, uuid4(),
        granted_groups=frozenset(["default"]), is_superuser=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
