"""Read-only Django admin of executions, sessions, tool filters and stored outputs."""

import json
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from tools.admin.base import ReadOnly, giver, run_for_each
from tools.execution import answer as actions
from tools.execution.outputs import REDACTED_FIELDS, redact_execution, redact_message
from tools.models import (
    Execution,
    ExecutionEvent,
    RequestRecord,
    Session,
    StateTransition,
    StoredOutput,
    ToolFilter,
    User,
)
from tools.workflows import session_actions

_MOST_NAMED = 100


@admin.register(Execution)
class ExecutionAdmin(ReadOnly):
    """For a million rows and more: ordered by time, newest first, and searched by whole names."""

    list_display = ("tool_name", "status", "user", "agent", "created_at", "duration_ms")
    list_filter = ("status", "created_at")
    list_select_related = ("user", "agent")
    search_fields = ("tool_name", "user__username")
    search_help_text = "A whole name: of a tool, an agent or a person."
    ordering = ("-id",)  # in the order of creation
    actions = ("cancel",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by whole names, which have indexes."""
        name = search_term.strip()
        if not name:
            return queryset, False
        named = User.objects.filter(Q(username=name) | Q(agent__slug=name))
        users = list(named.values_list("pk", flat=True)[:_MOST_NAMED])
        return queryset.filter(Q(tool_name=name) | Q(user__in=users)), False

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tools.change_execution"))

    @admin.action(description="Cancel the selected executions", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Execution]) -> None:
        rows = queryset.select_related("organization")

        def stop(row: Execution) -> None:
            actions.cancel(caller=giver(request, row.organization), execution=row)

        run_for_each(request, rows, stop, "Told to stop")

    @admin.display(description="what went in and came out")
    def input_and_output(self, row: Any) -> str:
        return json.dumps(redact_execution(row), indent=2, ensure_ascii=False)[:20_000]

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        """Users who may only view never see the secrets of a call."""
        names = [field.name for field in Execution._meta.concrete_fields]
        return [*(name for name in names if name not in REDACTED_FIELDS), "input_and_output"]


@admin.register(ExecutionEvent)
class ExecutionEventAdmin(ReadOnly):
    place = "execution__organization"
    fields = list_display = ("execution", "sequence", "type", "message_text", "created_at")
    list_filter = ("type",)
    list_select_related = ("execution__organization",)
    ordering = ("-execution_id", "-sequence")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """By the key of its execution: events are a view, which has no index."""
        execution, _, sequence = object_id.partition(".")
        try:
            named = {"execution": UUID(execution), "sequence": int(sequence)}
        except ValueError:
            return None
        return self.get_queryset(request).filter(**named).first()

    @admin.display(description="message")
    def message_text(self, row: Any) -> str:
        return redact_message(row)


@admin.register(Session)
class SessionAdmin(ReadOnly):
    list_display = ("id", "state", "user", "agent", "created_at", "entered_at", "closed_at")
    list_filter = (("closed_at", admin.EmptyFieldListFilter), "created_at")
    list_select_related = ("user", "agent")
    search_fields = ("=id", "=state", "agent__slug", "user__username")
    ordering = ("-id",)
    actions = ("close",)

    def has_close_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tools.change_session"))

    @admin.action(description="Close the selected sessions", permissions=["close"])
    def close(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        rows = queryset.select_related("organization")

        def end(row: Session) -> None:
            session_actions.close_session(caller=giver(request, row.organization), session=row)

        run_for_each(request, rows, end, "Closed")


@admin.register(StateTransition)
class StateTransitionAdmin(ReadOnly):
    list_display = ("tool_name", "from_state", "to_state", "session", "at")
    list_select_related = ("session",)
    search_fields = ("tool_name", "=from_state", "=to_state")
    ordering = ("-id",)


class KindFilter(admin.SimpleListFilter):
    """Offers the three kinds; a query for them would read every row."""

    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in ("list", "execute", "agent")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(RequestRecord)
class RequestRecordAdmin(ReadOnly):
    list_display = ("request_id", "kind", "actor_kind", "actor", "initial_state", "at")
    list_filter = (KindFilter,)
    search_fields = ("request_id__exact", "actor__exact")
    search_help_text = "The whole of a request's identifier, or of a caller's name."
    ordering = ("-id",)


@admin.register(ToolFilter)
class ToolFilterAdmin(ReadOnly):
    """The tools of a filtered catalog for a request. It names no organization, since two may
    share one; so only superusers list them, and other users see them at their requests."""

    place = ""
    list_display = ("digest", "catalog", "created_at")
    list_select_related = ("catalog",)
    search_fields = ("digest__exact",)
    ordering = ("-created_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without the names of tools: a row may hold ten thousand, and only its page reads them."""
        names = ("available_tools", "filtered_by_state", "out_of_service", "catalog__names")
        return super().get_queryset(request).defer(*names)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(StoredOutput)
class StoredOutputAdmin(ReadOnly):
    """That an output exists, and its size. Its content needs permission for its execution."""

    list_display = ("digest", "organization", "size", "kept_at")
    list_select_related = ("organization",)
    search_fields = ("digest__exact",)
    ordering = ("-id",)
    hidden = ("content",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("content")
