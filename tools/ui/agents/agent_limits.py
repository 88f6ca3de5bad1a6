"""`/agents/<slug>/bounds/`: an agent's quotas and budgets per day or month."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.http.response import HttpResponseBase

from tools.accounts.callers import actor_of
from tools.limits import allowances
from tools.limits.allowances import AMOUNT, MOST_QUOTAS
from tools.models import Agent
from tools.models.agent import AllowanceKind, AllowancePeriod
from tools.shapes.scalars import money
from tools.ui.agents.agents import find_agent
from tools.web.form_fields import RowsField, RowsWidget, choices
from tools.web.forms import ActionForm
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof

PAGE = "agents/agent_limits.html"


class AllowancesField(RowsField):
    """Quotas and budgets, one a row, as the action takes them; a row without an amount is left
    out."""

    def __init__(self, **options: Any) -> None:
        columns = ("tool", "kind", "period", "amount")
        widget = RowsWidget("_parts/allowance_rows.html", columns, ("amount",), MOST_QUOTAS)
        super().__init__(widget, **options)

    def prepare_value(self, value: Any) -> Any:
        return [
            row | {"tool": row["tool"] or "", "amount": str(row["amount"])} for row in value or ()
        ]

    def show(self, at: int, row: dict[str, str]) -> dict[str, Any]:
        kinds, periods = choices(AllowanceKind.values), AllowancePeriod.choices
        return super().show(at, row) | {
            "kind": row["kind"] or AllowanceKind.COST,
            "kinds": kinds,
            "period": row["period"] or AllowancePeriod.DAY,
            "periods": periods,
        }

    def read(self, rows: list[dict[str, str]]) -> list[dict[str, Any]]:
        for at, row in enumerate(rows):
            errors = []
            if row["kind"] not in AllowanceKind.values or row["period"] not in (
                AllowancePeriod.values
            ):
                errors.append("Choose what is counted, and for how long.")
            if not AMOUNT.fullmatch(row["amount"]):
                errors.append("An amount such as 2.50 is needed, of at most six places.")
            elif row["kind"] == AllowanceKind.CALLS and Decimal(row["amount"]) % 1:
                errors.append("Calls are whole.")
            if errors:
                self.mark(str(at), " ".join(errors))
        return rows

    def text(self, value: Any) -> str:
        lines = (
            f"{row['kind']} of {row['tool'] or 'every tool'} a {row['period']}:"
            f" {money(Decimal(row['amount']))}"
            for row in value
        )
        return "\n".join(sorted(lines))


class LimitsForm(ActionForm):
    row: Agent
    allowances = AllowancesField(
        label="Budgets and quotas", help_text="Empty an amount to take its bound away."
    )

    def stored_values(self) -> dict[str, Any]:
        found = allowances.allowances_of(self.row)
        rows = [
            {"tool": one.tool_name, "kind": one.kind, "period": one.period}
            | {"amount": money(one.amount)}
            for one in found
        ]
        return {"allowances": rows}

    def act(self, changes: dict[str, Any]) -> bool:
        quotas = [
            row | {"tool": row["tool"] or None, "amount": Decimal(row["amount"])}
            for row in changes["allowances"]
        ]
        budget = {} if any(_is_total_budget(one) for one in quotas) else {"budget": None}
        by = actor_of(self.request.caller)
        return allowances.set_allowances(
            agent=self.row, by=by, changes={"quotas": quotas, **budget}
        )


@form_page(Proof.NEEDED, "change_agent")
def change_limits(request: PageRequest, slug: str) -> HttpResponseBase:
    """Save all of them at once: a row whose amount is empty is deleted."""
    agent = find_agent(request, slug)
    form = LimitsForm(request, agent)
    if not form.save():
        return form.show(PAGE, {"agent": agent, "time_zone": agent.organization.time_zone})
    return form.redirect(f"What {agent.slug} may use is changed.", "agent", slug=agent.slug)


def _is_total_budget(quota: Mapping[str, Any]) -> bool:
    return quota["tool"] is None and quota["kind"] == AllowanceKind.COST
