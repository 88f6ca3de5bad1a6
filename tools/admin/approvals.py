"""Django admin of approvals: held calls, their decisions, and the rules that hold calls.

Calls are not decided here: an approver must see every argument first, as `/confirmations/` does.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import ActionForm, ReadOnly, actor
from tools.admin.catalog import DeletingAdmin
from tools.approvals import confirmation_rules
from tools.models import Confirmation, ConfirmationDecision, ConfirmationRule


@admin.register(Confirmation)
class ConfirmationAdmin(ReadOnly):
    list_display = ("execution", "status", "approvals_needed", "created_at", "expires_at")
    list_filter = ("status", "created_at")
    list_select_related = ("execution", "organization")
    search_fields = ("execution__tool_name__exact", "execution__agent__slug__exact")
    search_help_text = "The whole name of a tool or an agent."
    ordering = ("-created_at",)


@admin.register(ConfirmationDecision)
class ConfirmationDecisionAdmin(ReadOnly):
    place = "confirmation__organization"
    list_display = ("confirmation", "user", "approved", "reason", "at")
    list_filter = ("approved", "at")
    list_select_related = ("confirmation", "user")
    search_fields = ("user__username__exact", "reason")
    ordering = ("-id",)


class ConfirmationRuleActionForm(ActionForm):
    every_call = forms.BooleanField(
        required=False, help_text="Meant: without any condition it holds every call."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.initial["every_call"] = confirmation_rules.describe_rule(self.instance)[
                "every_call"
            ]

    def act(self, data: dict[str, Any]) -> ConfirmationRule:
        agent = data["agent"]
        wanted = {
            "enabled": data["enabled"],
            "tool": data["tool_name"] or None,
            "group": data["group_name"] or None,
            "agent": agent.slug if agent else None,
            "min_cost": data["min_cost"],
            "side_effects": data["side_effects"],
            "first_use": data["first_use"],
            "approvals_needed": data["approvals_needed"],
            "every_call": data["every_call"],
        }
        if self.instance._state.adding:
            return confirmation_rules.create_rule(
                organization=self.home, name=data["name"], wanted=wanted, by=self.by
            )
        place = self.instance.organization
        row = confirmation_rules.find_rule(place, self.instance.name)
        return confirmation_rules.change_rule(row=row, wanted=wanted, by=self.by)


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
