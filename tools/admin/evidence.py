"""Executions and their events: read-only."""

import json
from typing import Any

from django.contrib import admin

from tools.admin.base import ReadOnly
from tools.models import Execution, ExecutionEvent, Session, StateTransition


@admin.register(Execution)
class ExecutionAdmin(ReadOnly):
    list_display = ("tool_name", "status", "user", "agent", "created_at", "duration_ms")
    list_filter = ("status",)
    list_select_related = ("user", "agent")
    search_fields = ("tool_name", "agent__slug", "user__username")
    date_hierarchy = "created_at"
    show_full_result_count = False

    @admin.display(description="output")
    def shown_output(self, row: Any) -> str:
        return json.dumps(row.output, indent=2, ensure_ascii=False)[:20_000]

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        names = [field.name for field in Execution._meta.concrete_fields]
        return ["shown_output" if name == "output" else name for name in names]


@admin.register(ExecutionEvent)
class ExecutionEventAdmin(ReadOnly):
    place = "execution__organization"
    list_display = ("execution", "sequence", "type", "message", "created_at")
    list_filter = ("type",)
    list_select_related = ("execution",)
    ordering = ("-id",)
    show_full_result_count = False


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
