"""Helpers of tests for quotas and budgets."""

import threading
from decimal import Decimal

from django.db import connection

from audit.inserts import fetch_one
from tests import factories
from tools.catalog.registry import registry
from tools.errors import QuotaExceeded
from tools.execution.admit import admit
from tools.limits import allowances, budgets
from tools.models import AllowanceUse
from tools.models.pipeline_sql import RESERVATION_REFUSED, RESERVE_PARTS


def bound(agent, *quotas, **changes):
    """Set quotas: (kind, amount) of all tools for a day, or (kind, amount, tool, period)."""
    if quotas:
        changes["quotas"] = [_quota(*quota) for quota in quotas]
    by = factories.actor(agent.organization)
    allowances.set_allowances(agent=agent, by=by, changes=changes)


def _quota(kind, amount, tool=None, period="day"):
    return {"tool": tool, "kind": kind, "period": period, "amount": Decimal(amount)}


def budget(amount, period="day"):
    return {"amount": Decimal(amount), "period": period}


def priced(organization, cost, name="echo", **fields):
    return factories.tool(organization, name, cost_per_invocation=cost, **fields)


def amounts_of(agent):
    """Used and reserved amounts of every allowance, in the order in which they are shown."""
    return [(float(one.used), float(one.held)) for one in allowances.allowances_of(agent)]


def uses(agent):
    return AllowanceUse.objects.filter(allowance__agent=agent)


def snapshot_of(caller):
    return registry.snapshot(caller.organization_id, caller.revision)


def ask_at_once(caller, names) -> tuple[list[str], list[Exception]]:
    """Call these tools concurrently; return the outcomes, and all other errors."""
    outcomes: list[str] = []

    def ask(name: str) -> None:
        try:
            admit(caller, factories.call(name, {"text": "x"}))
            outcomes.append("accepted")
        except QuotaExceeded as refusal:
            outcomes.append(refusal.code)

    faults = at_once([lambda name=name: ask(name) for name in names])
    return outcomes, faults


def at_once(deeds) -> list[Exception]:
    """One thread for each function, with its own connection; returns the errors."""
    faults: list[Exception] = []
    start = threading.Barrier(len(deeds))

    def do(deed) -> None:
        start.wait()
        try:
            deed()
        except Exception as fault:  # noqa: BLE001 - the test checks which are expected
            faults.append(fault)
        finally:
            connection.close()

    connection.close()  # the pool's connections are for the threads
    threads = [threading.Thread(target=do, args=(deed,)) for deed in deeds]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return faults


def reserve(identifier, **call):
    """What a call takes of its allowances, by a statement that writes nothing else. Raises
    `QuotaExceeded`."""
    wanted = budgets.plan_reservation(**call)
    if wanted is not None:
        with wanted.refusing():
            fetch_one(
                f"WITH accountable AS (SELECT 1), {RESERVE_PARTS} done AS (SELECT 1)"
                f" SELECT {RESERVATION_REFUSED} FROM done",
                wanted.parameters(identifier),
            )
