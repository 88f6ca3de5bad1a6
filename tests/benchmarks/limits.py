"""What limits, quotas and budgets add to a call: medians of each, one call after another.

    python -m tests.benchmarks.limits

Starts a Toolcrib of its own in a directory of its own, and removes it.
"""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import data_directory  # noqa: F401 - before the settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from decimal import Decimal  # noqa: E402

from django.db import transaction  # noqa: E402

from tests import crib, factories  # noqa: E402
from tests.tools.limits import allowance_fixtures, rate_fixtures  # noqa: E402
from tools.catalog.snapshot import CatalogTool, Snapshot  # noqa: E402
from tools.definitions.callers import Caller  # noqa: E402
from tools.limits import budgets, rate_limits  # noqa: E402
from tools.limits.rate_limits import RateWindow  # noqa: E402
from tools.models import Agent, Organization  # noqa: E402
from tools.models.ids import new_id  # noqa: E402
from tools.policy.questions import EffectiveRequest  # noqa: E402

ROUNDS = 1_000
PRICE = Decimal("0.001")


def main() -> None:
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data):
        place = factories.organization("bench")
        rate_fixtures.limited(place, 1_000_000)
        _rates(place)
        _budgets(place)
    crib.remove(data)


def _rates(place: Organization) -> None:
    caller, tool, snapshot = _call(factories.agent(place))
    rate_limits.window = RateWindow()
    rate_fixtures.trust()
    passed = rate_limits.count(caller, tool, snapshot)
    _show("count, by Redis", lambda: _ms(lambda: rate_limits.count(caller, tool, snapshot)))
    confirm = partial(rate_limits.confirm, passed, caller=caller, tool=tool)
    _show("confirm what Redis let pass", lambda: _inside(confirm))
    rate_limits.window = RateWindow(rate_fixtures.nowhere)
    count = partial(rate_limits.count, caller, tool, snapshot)
    _show("count, by PostgreSQL", lambda: _ms(count), rounds=200)


def _budgets(place: Organization) -> None:
    agent = factories.agent(place)
    _charges("no allowance", agent)
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("1000000"))
    _charges("a budget", agent)
    allowance_fixtures.bound(agent, ("calls", "1000000"), ("calls", "1000000", None, "month"))
    _charges("three allowances", agent)


def _charges(what: str, agent: Agent) -> None:
    caller, tool, snapshot = _call(agent)
    _show(f"reserve and settle, {what}", lambda: _inside(partial(_charge, caller, tool, snapshot)))


def _charge(caller: Caller, tool: CatalogTool, snapshot: Snapshot) -> None:
    identifier, request = new_id(), EffectiveRequest.from_options(None, None)
    allowance_fixtures.reserve(
        identifier, caller=caller, tool=tool, asked=request, snapshot=snapshot, cost=PRICE
    )
    budgets.settle(identifier, spent=PRICE)


def _call(agent: Agent) -> tuple[Caller, CatalogTool, Snapshot]:
    caller = factories.caller(agent)
    snapshot = allowance_fixtures.snapshot_of(caller)
    return caller, snapshot.tools["echo"], snapshot


def _inside(work: Callable[[], object]) -> float:
    """Milliseconds within a transaction that is there anyway; it is undone."""
    with transaction.atomic():
        took_ms = _ms(work)
        transaction.set_rollback(True)
    return took_ms


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _show(what: str, once: Callable[[], float], rounds: int = ROUNDS) -> None:
    cuts = statistics.quantiles([once() for _ in range(rounds)], n=20)
    print(f"{what:<38}{cuts[9]:>8.3f} ms median{cuts[18]:>8.3f} ms p95")


if __name__ == "__main__":
    main()
