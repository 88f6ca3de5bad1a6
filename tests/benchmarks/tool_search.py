"""Searches for tools in a catalog of 10,000, beside as many of another organization.

    python -m tests.benchmarks.tool_search [TOOLS]

Starts a Toolcrib of its own in a new directory and removes it again. Prints milliseconds, and what
of each was this process's own work: of the search, for a caller who may use every tool,
nine tenths, half or a tenth of them, and with the gates that are asked which those are. Exits with
1 where the target is missed.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType

for _name in ("DATABASE_URL", "REDIS_URL", "SPARQL_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.authorization.listings import usable_tools  # noqa: E402
from tools.catalog.search import tool_words  # noqa: E402
from tools.catalog.search.tool_search import rank_tools, relevant_tools  # noqa: E402
from tools.catalog.snapshot import CatalogTool, Snapshot  # noqa: E402
from tools.definitions.callers import Caller  # noqa: E402
from tools.definitions.tool import ToolDefinition, definition_digest, read_definition  # noqa: E402
from tools.models import LicenseTier, Organization, Tool, ToolVersion  # noqa: E402
from tools.policy.questions import EffectiveRequest  # noqa: E402

TOOLS, ROUNDS, TARGET_MS = 10_000, 400, 20.0
_VERBS = ("read", "write", "list", "create", "delete", "update", "convert", "send", "fetch", "sum")
_THINGS = ("file", "invoice", "customer", "table", "page", "message", "report", "ticket", "order",
           "image", "contract", "sensor", "calendar", "payment", "address")  # fmt: skip
_SYLLABLES = ("ba", "cor", "den", "fi", "gal", "hu", "jor", "kel", "lim", "mo", "nar", "pi", "que")
_random = random.Random(7)
_WORDS = sorted({"".join(_random.choices(_SYLLABLES, k=3)) for _ in range(4_000)})
_WEIGHTS = [1 / (rank + 5) for rank in range(len(_WORDS))]  # as words of a language are


def main(tools: int) -> int:
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data):
        place, other = factories.organization("bench"), factories.organization("other")
        snapshot, _ = _stored(place, tools), _stored(other, tools)
        began = time.monotonic()
        count = tool_words.note_missing()
        print(f"{count} tools, {time.monotonic() - began:.0f} s to write what they are found by")
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE tools_toolwords")
        print(
            f"{'':<52}{'p50 ms':>9}{'p95 ms':>9}{'worst':>9}{'cpu':>9}   target p95 {TARGET_MS:g}"
        )
        slow = _measure(snapshot)
    crib.remove(data)
    return 1 if slow else 0


def _measure(snapshot: Snapshot) -> list[str]:
    """What is slower than it should be."""
    every = list(snapshot.sorted_tools)
    usable = {
        "": every,
        ", nine tenths": [tool for at, tool in enumerate(every) if at % 10],
        ", half": every[::2],
        ", a tenth": every[::10],
    }
    rows = {
        f"{what}{part}": partial(_search, snapshot, ask, tools)
        for what, ask in _QUESTIONS.items()
        for part, tools in usable.items()
    }
    caller = _anybody(snapshot)
    for what, ask in _QUESTIONS.items():
        rows[f"{what}, with the gates"] = partial(_listed, snapshot, ask, caller)
    return [what for what, work in rows.items() if _show(what, work) > TARGET_MS]


def _search(snapshot: Snapshot, ask: Callable[[], str], tools: list[CatalogTool]) -> None:
    list(relevant_tools(rank_tools(snapshot, ask(), tools)))


def _listed(snapshot: Snapshot, ask: Callable[[], str], caller: Caller) -> None:
    """As `GET /tools?q=` and `find_tools` do."""
    request = EffectiveRequest.from_options(None, None)
    _search(snapshot, ask, usable_tools(caller, request, snapshot))


def _anybody(snapshot: Snapshot) -> Caller:
    place = Organization.objects.get(pk=snapshot.organization_id)
    return factories.caller(factories.agent(place, groups=["default"]))


def _random_words(count: int) -> str:
    return " ".join(_random.choices(_WORDS, _WEIGHTS, k=count))


def _misspelt() -> str:
    word = _random.choice(_WORDS)
    return f"{word[:2]}{word[3]}{word[2]}{word[4:]}x"


_QUESTIONS: dict[str, Callable[[], str]] = {
    "one rare word": lambda: _random.choice(_WORDS[1_000:]),
    "one word that a sixth of them have": lambda: _random.choice(_THINGS),
    "a verb and a thing": lambda: f"{_random.choice(_VERBS)} {_random.choice(_THINGS)}",
    "a sentence": lambda: (
        f"{_random.choice(_VERBS)} the {_random.choice(_THINGS)} of {_random_words(5)}"
    ),
    "the beginning of a word": lambda: _random.choice(_WORDS)[:3],
    "a word that is written wrong": _misspelt,
    "32 words": lambda: _random_words(32),
}


def _definition(at: int) -> dict[str, object]:
    verb, thing = _random.choice(_VERBS), _random.choice(_THINGS)
    parameters = [
        {"name": name, "type": "String", "description": _random_words(5), "required": False}
        for name in ("target", "options", _random.choice(_WORDS))
    ]
    said = f"{verb.title()}s the {thing} of {_random_words(12)}."
    more = {"description": said, "parameters": parameters, "capabilities": [verb, thing]}
    return factories.definition(f"{verb}_{thing}_{_random.choice(_WORDS)}_{at}", **more)


def _stored(place: Organization, count: int) -> Snapshot:
    """Rows as the catalog has them, but for signatures, which no search looks at."""
    now = datetime.now(UTC)
    definitions = [read_definition(_definition(at)) for at in range(count)]
    rows = Tool.objects.bulk_create(
        Tool(organization=place, name=one["name"], type=one["type"], revision=1)
        for one in definitions
    )
    versions = ToolVersion.objects.bulk_create(
        ToolVersion(
            tool=row, number=1, label="1.0.0", definition=one,
            digest=definition_digest(one), key_id="x",
            signature="x", created_by="bench",
        )
        for row, one in zip(rows, definitions, strict=True)
    )  # fmt: skip
    for row, version in zip(rows, versions, strict=True):
        row.version = version
    Tool.objects.bulk_update(rows, ["version"], batch_size=500)
    found = {
        row.name: CatalogTool(
            row.pk, row.name, "active", version.pk, "1.0.0", 1, version.digest, "", "",
            ToolDefinition(version.definition), now, now,
        )
        for row, version in zip(rows, versions, strict=True)
    }  # fmt: skip
    tier = LicenseTier(name="Enterprise", rank=4, builtin_tools=None, max_custom_tools=None)
    nothing = MappingProxyType[str, object]({})
    return Snapshot(place.pk, place.slug, 1, tier, MappingProxyType(found), nothing)  # type: ignore[arg-type]


def _show(what: str, work: Callable[[], object]) -> float:
    times, own = [], time.process_time()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    times.sort()
    p95 = times[int(len(times) * 0.95)]
    cpu = (time.process_time() - own) * 1000 / ROUNDS
    middle = statistics.median(times)
    print(f"{what:<52}{middle:>9.1f}{p95:>9.1f}{times[-1]:>9.1f}{cpu:>9.1f}", flush=True)
    return p95


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else TOOLS))
