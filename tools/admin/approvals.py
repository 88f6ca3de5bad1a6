"""Django admin of the rules that hold calls for approval.

Calls are not decided here: an approver must see every argument first, as `/confirmations/` does.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import AdminActionForm, actor
from tools.admin.catalog import DeletingAdmin
from tools.approvals import confirmation_rules
from tools.models import ConfirmationRule

_FIELDS_OF_RULE = {"tool_name": "tool", "group_name": "group"}  # of the form, and of the action


class ConfirmationRuleActionForm(AdminActionForm):
    error_fields = {said: name for name, said in _FIELDS_OF_RULE.items()}
    every_call = forms.BooleanField(
        required=False, help_text="Meant: without any condition it holds every call."
    )

    def stored_values(self) -> dict[str, Any]:
        every = confirmation_rules.describe_rule(self.instance)["every_call"]
        return super().stored_values() | {"every_call": every}

    def act(self, changes: dict[str, Any]) -> ConfirmationRule:
        name = changes.pop("name", None)
        wanted = {_FIELDS_OF_RULE.get(field, field): value for field, value in changes.items()}
        for field in {"tool", "group"} & wanted.keys():
            wanted[field] = wanted[field] or None
        if "agent" in wanted:
            wanted["agent"] = wanted["agent"].slug if wanted["agent"] else None
        if self.is_new:
            return confirmation_rules.create_rule(
                organization=self.home, name=str(name), wanted=wanted, by=self.by
            )
        row = confirmation_rules.find_rule(self.instance.organization, self.instance.name)
        whole = confirmation_rules.describe_rule(row) | wanted
        return confirmation_rules.change_rule(row=row, wanted=whole, by=self.by)


@admin.register(ConfirmationRule)
class ConfirmationRuleAdmin(DeletingAdmin):
    form = ConfirmationRuleActionForm
    fields = (
        "name", "enabled", "tool_name", "group_name", "agent", "min_cost", "side_effects",
        "first_use", "every_call", "approvals_needed",
    )  # fmt: skip
    list_display = (
        "name", "organization", "enabled", "tool_name", "group_name", "agent", "approvals_needed",
    )  # fmt: skip
    list_filter = ("enabled", "approvals_needed")
    list_select_related = ("organization", "agent")
    search_fields = ("name", "tool_name", "group_name")
    raw_id_fields = ("agent",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("name",) if obj else ()  # evidence names it

    @admin.display(boolean=True)
    def every_call(self, rule: ConfirmationRule) -> bool:
        """Read-only form of the field, for users who may only view."""
        return bool(confirmation_rules.describe_rule(rule)["every_call"])

    def delete(self, row: ConfirmationRule, request: HttpRequest) -> None:
        confirmation_rules.delete_rule(row=row, by=actor(request, row.organization))
