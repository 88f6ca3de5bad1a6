"""`/agents/<slug>/bounds/`: an agent's quotas and budgets per day or month."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import require
from tools.errors import Malformed, ToolcribError
from tools.limits import allowances
from tools.limits.allowances import AMOUNT, MOST_QUOTAS
from tools.models import Agent
from tools.models.agent import AllowanceKind, AllowancePeriod
from tools.shapes.scalars import money
from tools.ui.agents.agents import find_agent
from tools.ui.inputs import choices, form_values
from tools.web.pages import PageRequest, page
from tools.web.reauthentication import Proof, proof

PAGE = "agents/agent_limits.html"
SPARE_ROWS = 3  # empty rows for new ones


@dataclass
class LimitRow:
    """One quota or budget in the form; `at` is its position."""

    at: int
    tool: str = ""
    kind: str = AllowanceKind.COST
    period: str = AllowancePeriod.DAY
    amount: str = ""
    errors: list[str] = field(default_factory=list)


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def change_limits(request: PageRequest, slug: str) -> HttpResponseBase:
    """Save all of them at once: a row whose amount is empty is deleted."""
    require(request.caller, "change_agent")
    agent = find_agent(request, slug)
    if request.method != "POST":
        return _render_limits(request, agent, _limit_rows(agent))
    rows = _read_rows(form_values(request.POST))
    quotas = [quota for row in rows if (quota := _read_quota(row))]
    if any(row.errors for row in rows):
        return _render_limits(request, agent, rows, Malformed("See the marked rows."))
    budget = {} if any(_is_total_budget(one) for one in quotas) else {"budget": None}
    try:
        allowances.set_allowances(
            agent=agent, by=actor_of(request.caller), changes={"quotas": quotas, **budget}
        )
    except ToolcribError as error:
        return _render_limits(request, agent, rows, error)
    messages.success(request, f"What {agent.slug} may use is changed.")
    return redirect("agent", slug=agent.slug)


def _limit_rows(agent: Agent) -> list[LimitRow]:
    found = [
        LimitRow(at, one.tool_name, one.kind, one.period, money(one.amount))
        for at, one in enumerate(allowances.allowances_of(agent))
    ]
    return _add_spare_rows(found)


def _add_spare_rows(rows: list[LimitRow]) -> list[LimitRow]:
    begin = len(rows)
    spare = [LimitRow(at) for at in range(begin, min(begin + SPARE_ROWS, MOST_QUOTAS))]
    return rows + spare


def _read_rows(data: Mapping[str, str]) -> list[LimitRow]:
    rows = []
    for at in range(MOST_QUOTAS):
        if f"amount-{at}" not in data:
            break
        rows.append(
            LimitRow(
                at,
                data.get(f"tool-{at}", "").strip()[:128],
                data.get(f"kind-{at}", ""),
                data.get(f"period-{at}", ""),
                data[f"amount-{at}"].strip()[:40],
            )
        )
    return rows


def _read_quota(row: LimitRow) -> dict[str, Any] | None:
    """The row in the API's format; None for an empty row. Errors are set at the row."""
    if not row.amount:
        return None
    if row.kind not in AllowanceKind.values or row.period not in AllowancePeriod.values:
        row.errors.append("Choose what is counted, and for how long.")
    if not AMOUNT.fullmatch(row.amount):
        row.errors.append("An amount such as 2.50 is needed, of at most six places.")
    elif row.kind == AllowanceKind.CALLS and Decimal(row.amount) % 1:
        row.errors.append("Calls are whole.")
    if row.errors:
        return None
    amount = Decimal(row.amount)
    return {"tool": row.tool or None, "kind": row.kind, "period": row.period, "amount": amount}


def _is_total_budget(quota: Mapping[str, Any]) -> bool:
    return quota["tool"] is None and quota["kind"] == AllowanceKind.COST


def _render_limits(
    request: PageRequest, agent: Agent, rows: list[LimitRow], error: ToolcribError | None = None
) -> HttpResponse:
    flawed = any(row.errors for row in rows)
    flaws = [] if error is None or flawed else [{"field": "", "message": error.message}]
    context = {
        "agent": agent, "rows": rows, "kinds": choices(AllowanceKind.values),
        "periods": AllowancePeriod.choices,
        "flaws": flaws, "refused": error is not None,
        "time_zone": agent.organization.time_zone,
    }  # fmt: skip
    return render(request, PAGE, context, status=error.http_status if error else 200)
