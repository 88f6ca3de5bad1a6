"""Executions and their events: read-only."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from tools.admin.base import ReadOnly
from tools.execution.redacted import FIELDS, redacted, redacted_message
from tools.models import Execution, ExecutionEvent, Session, StateTransition, User

_MOST_NAMED = 100


@admin.register(Execution)
class ExecutionAdmin(ReadOnly):
    list_display = ("tool_name", "status", "user", "agent", "created_at", "duration_ms")
    list_filter = ("status", "created_at")
    list_select_related = ("user", "agent")
    search_fields = ("tool_name", "user__username")
    search_help_text = "A whole name: of a tool, an agent or a person."
    ordering = ("-id",)  # as they were made

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By whole names, which indexes have."""
        name = search_term.strip()
        if not name:
            return queryset, False
        named = User.objects.filter(Q(username=name) | Q(agent__slug=name))
        users = list(named.values_list("pk", flat=True)[:_MOST_NAMED])
        return queryset.filter(Q(tool_name=name) | Q(user__in=users)), False

    @admin.display(description="what went in and came out")
    def said(self, row: Any) -> str:
        return json.dumps(redacted(row), indent=2, ensure_ascii=False)[:20_000]

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        """Secrets of a call are for nobody who only looks."""
        names = [field.name for field in Execution._meta.concrete_fields]
        return [*(name for name in names if name not in FIELDS), "said"]


@admin.register(ExecutionEvent)
class ExecutionEventAdmin(ReadOnly):
    place = "execution__organization"
    fields = list_display = ("execution", "sequence", "type", "said", "created_at")
    list_filter = ("type",)
    list_select_related = ("execution__organization",)
    ordering = ("-id",)

    @admin.display(description="message")
    def said(self, row: Any) -> str:
        return redacted_message(row)


@admin.register(Session)
class SessionAdmin(ReadOnly):
    list_display = ("id", "state", "user", "agent", "created_at", "entered_at", "closed_at")
    list_filter = (("closed_at", admin.EmptyFieldListFilter), "created_at")
    list_select_related = ("user", "agent")
    search_fields = ("=id", "=state", "agent__slug", "user__username")
    ordering = ("-id",)


@admin.register(StateTransition)
class StateTransitionAdmin(ReadOnly):
    list_display = ("tool_name", "from_state", "to_state", "session", "at")
    list_select_related = ("session",)
    search_fields = ("tool_name", "=from_state", "=to_state")
    ordering = ("-id",)
