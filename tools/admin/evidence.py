"""Executions and their events: read-only."""

import json
from typing import Any

from django.contrib import admin

from tools.admin.base import ReadOnly
from tools.execution.redacted import FIELDS, redacted, redacted_message
from tools.models import Execution, ExecutionEvent, Session, StateTransition


@admin.register(Execution)
class ExecutionAdmin(ReadOnly):
    list_display = ("tool_name", "status", "user", "agent", "created_at", "duration_ms")
    list_filter = ("status",)
    list_select_related = ("user", "agent")
    search_fields = ("tool_name", "agent__slug", "user__username")
    date_hierarchy = "created_at"
    show_full_result_count = False

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
    show_full_result_count = False

    @admin.display(description="message")
    def said(self, row: Any) -> str:
        return redacted_message(row)


@admin.register(Session)
class SessionAdmin(ReadOnly):
    list_display = ("id", "state", "user", "agent", "created_at", "entered_at", "closed_at")
    list_filter = (("closed_at", admin.EmptyFieldListFilter),)
    list_select_related = ("user", "agent")
    search_fields = ("=id", "=state", "agent__slug", "user__username")
    date_hierarchy = "created_at"
    show_full_result_count = False


@admin.register(StateTransition)
class StateTransitionAdmin(ReadOnly):
    list_display = ("tool_name", "from_state", "to_state", "session", "at")
    list_select_related = ("session",)
    search_fields = ("tool_name", "=from_state", "=to_state")
    ordering = ("-id",)
    show_full_result_count = False
