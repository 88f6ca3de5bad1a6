"""Django admin of what is only looked at: evidence, what pages and the API change with a preview of
the impact, and what only the system writes. One table; a few rows need more than their columns.
"""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from audit.alerts import alerts
from audit.models import (
    Alert,
    AlertDelivery,
    AuditExport,
    AuditLog,
    AuditSegment,
    Checkpoint,
    CheckpointKey,
)
from tools.accounts.account_actions import revoke_token
from tools.accounts.login import login
from tools.admin.base import ForSuperusers, ReadOnly, actor, giver, row_action
from tools.catalog.mcp.mcp_tokens import keys_named, owner_text, owner_texts
from tools.execution import answer
from tools.execution.outputs import REDACTED_FIELDS, redact_execution, redact_message
from tools.models import (
    Allowance,
    AllowanceUse,
    AuthenticatorApp,
    Confirmation,
    ConfirmationDecision,
    ContentSchema,
    ContentSchemaVersion,
    Execution,
    ExecutionEvent,
    InboxItem,
    KnowledgeIndex,
    McpAuthorization,
    McpCredential,
    McpOAuthClient,
    Message,
    MessageChannel,
    PersonSession,
    Pin,
    RequestRecord,
    Reservation,
    SecurityKey,
    Session,
    SigningKey,
    SingleSignOn,
    StateTransition,
    StoredOutput,
    Token,
    ToolFilter,
    ToolVersion,
    UpstreamChange,
    User,
)
from tools.workflows import session_actions

_MOST_NAMED = 100
_LONGEST_SHOWN = 20_000


class ExecutionAdmin(ReadOnly):
    """Searched by whole names, which have indexes."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        name = search_term.strip()
        if not name:
            return queryset, False
        named = User.objects.filter(Q(username=name) | Q(agent__slug=name))
        users = list(named.values_list("pk", flat=True)[:_MOST_NAMED])
        return queryset.filter(Q(tool_name=name) | Q(user__in=users)), False


class ExecutionEventAdmin(ReadOnly):
    """One is read by the key of its execution: events are a view, which has no index."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        execution, _, sequence = object_id.partition(".")
        try:
            named = {"execution": UUID(execution), "sequence": int(sequence)}
        except ValueError:
            return None
        return self.get_queryset(request).filter(**named).first()


class ToolFilterAdmin(ReadOnly, ForSuperusers):
    """The tools of a filtered catalog for a request. It names no organization, since two may
    share one; so only superusers list them, and other users see them at their requests."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without the names of tools: a row may hold ten thousand, and only its page reads them."""
        names = ("available_tools", "filtered_by_state", "out_of_service", "catalog__names")
        return super().get_queryset(request).defer(*names)


class OwnedRowAdmin(ReadOnly):
    """Rows of an owner, who is stored by id, and shown and searched by name."""

    readonly_fields = ("owner_named",)

    @admin.display(description="owner", ordering="owner")
    def owner_named(self, row: McpCredential | McpAuthorization) -> str:
        named: str = getattr(row, "named", None) or owner_text(row.owner)
        return f"{named} ({row.owner.partition(':')[2]})" if named != row.owner else named

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        names = super().get_fields(request, obj)
        return ["owner_named" if one == "owner" else one for one in names]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        shown = super().get_changelist_instance(request)
        names = owner_texts(row.owner for row in shown.result_list)
        for row in shown.result_list:
            row.named = names[row.owner]
        return shown

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        found, repeats = super().get_search_results(request, queryset, search_term)
        named = queryset.filter(owner__in=keys_named(search_term))
        return (found | named) if search_term else found, repeats


class RequestKindFilter(admin.SimpleListFilter):
    """Offers the three kinds; a query for them would read every row."""

    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in ("list", "execute", "agent")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.display(description="definition")
def shown_definition(version: ToolVersion) -> SafeString:
    text = json.dumps(version.definition, indent=2, ensure_ascii=False)
    return format_html('<pre class="json">{}</pre>', text)


@admin.display(description="what went in and came out")
def input_and_output(row: Execution) -> str:
    return json.dumps(redact_execution(row), indent=2, ensure_ascii=False)[:_LONGEST_SHOWN]


@admin.display(description="message")
def message_text(row: ExecutionEvent) -> str:
    return redact_message(row)


@admin.display(description="addressees")
def inboxes(message: Message) -> str:
    """The names of the inboxes, which are stored by id."""
    names = dict(User.objects.filter(pk__in=message.addressees).values_list("pk", "username"))
    return ", ".join(f"{names.get(one, 'gone')} ({one})" for one in message.addressees)


def only_action(
    name: str, needs: str, description: str, said: str, act: Callable[[HttpRequest, Any, Any], Any]
) -> dict[str, Any]:
    """The options of the one action of a list."""
    run = row_action(description, said, act, "act")
    return {"actions": (name,), name: run, "action_needs": needs}


def is_empty(column: str) -> tuple[str, type[admin.EmptyFieldListFilter]]:
    return column, admin.EmptyFieldListFilter


CANCEL = only_action(
    "cancel", "tools.change_execution", "Cancel the selected executions", "Told to stop",
    lambda request, row, place: answer.cancel(caller=giver(request, place), execution=row),
)  # fmt: skip
CLOSE = only_action(
    "close", "tools.change_session", "Close the selected sessions", "Closed",
    lambda request, row, place: session_actions.close_session(
        caller=giver(request, place), session=row
    ),
)  # fmt: skip
REVOKE = only_action(
    "revoke", "tools.change_token", "Revoke the selected tokens",
    "Revoked, and refused from the next request on",
    lambda request, row, place: revoke_token(token=row, by=actor(request, place)),
)  # fmt: skip
END = only_action(
    "end", "tools.change_user", "Log the selected browsers out", "Logged out",
    lambda request, row, place: bool(
        login.end_sessions(user=row.user, by=actor(request, place), only=row.pk)
    ),
)  # fmt: skip
ACKNOWLEDGE = only_action(
    "acknowledge", "audit.change_alert", "Acknowledge the selected alerts", "Acknowledged",
    lambda request, row, place: alerts.acknowledge(alert=row, by=actor(request, place)),
)  # fmt: skip


def register(
    model: type[Model],
    columns: tuple[Any, ...],
    filters: tuple[Any, ...] = (),
    search: tuple[str, ...] = (),
    kind: type[ReadOnly] = ReadOnly,
    *,
    joined: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """`options` are attributes of `ReadOnly`, and of Django's `ModelAdmin`. Rows that columns name
    and the organization are joined; `joined` are others that they are shown by."""
    place = options.get("place", ReadOnly.place) or ""
    way = place.rpartition("__")[0] if options.get("by_slug") else place
    others = [one.name for one in model._meta.concrete_fields if one.is_relation]
    named: dict[str, Any] = {
        "list_display": columns,
        "list_filter": filters,
        "search_fields": search,
        "list_select_related": [
            *joined,
            *(name for name in others if name in columns),
            *filter(None, [way]),
        ],
    }
    admin.site.register(model, kind, **named, **options)


# fmt: off
# The catalog. Upstream changes are decided at /changes/, keys and schemas are changed at /keys/ and
# /schemas/; the API sets pins.
register(ToolVersion, ("tool", "label", "number", "created_by", "created_at"), ("created_at",),
    ("tool__name", "digest__exact"), place="tool__organization",
    fields=("tool", "number", "label", shown_definition, "digest", "key_id", "signature",
        "created_at", "created_by", "origin"), ordering=("-created_at",))
register(UpstreamChange, ("tool", "decision", "seen_at", "decided_by", "decided_at"),
    ("decision", "seen_at"), ("tool__name", "decided_by"), place="tool__organization")
register(SigningKey, ("key_id", "organization", "created_at", "retired_at", "distrusted_at"),
    (is_empty("distrusted_at"),), ("key_id",),
    fields=("key_id", "organization", "created_at", "retired_at", "distrusted_at"))
register(ContentSchema, ("name", "organization", "kind", "updated_at"), ("kind",),
    ("name", "description"))
register(ContentSchemaVersion, ("schema", "number", "created_by", "created_at"), (),
    ("schema__name", "digest__exact"), place="schema__organization", ordering=("-created_at",))
# `manage.py index_knowledge` rebuilds it.
register(KnowledgeIndex, ("collection", "organization", "complete", "indexed_at", "rebuilt_at"),
    ("complete",), ("collection",))
register(Pin, ("tool", "version", "agent", "session", "created_at"), (),
    ("tool__name", "agent__slug"), place="tool__organization",
    joined=("version__tool",), ordering=("-created_at",))

# Credentials for MCP servers, without their values.
register(McpCredential, ("server", "owner_named", "updated_at"), (), ("server__name", "owner"),
    OwnedRowAdmin, place="server__organization",
    fields=("server", "owner", "created_at", "updated_at"))
register(McpOAuthClient, ("client_id", "server", "grant", "updated_at"), ("grant",),
    ("client_id", "server__name"), place="server__organization", hidden=("sealed",))
register(McpAuthorization,
    ("owner_named", "server", "expires_at", "flaw", "connected_by", "updated_at"), (),
    ("owner", "server__name", "connected_by"), OwnedRowAdmin, place="server__organization",
    hidden=("sealed",))

# Tokens are not created here: the page of an agent and the API show their text once.
register(Token, ("__str__", "user", "label", "scopes", "expires_at", "last_used_at", "revoked_at"),
    (is_empty("revoked_at"), "expires_at", "last_used_at"),
    ("public_id", "label", "user__username"), place="user__organization", ordering=("-created_at",),
    fields=("public_id", "user", "label", "scopes", "groups", "tools", "created_at", "created_by",
        "expires_at", "last_used_at", "revoked_at"), **REVOKE)
register(Allowance, ("agent", "tool_name", "kind", "period", "amount", "organization"),
    ("kind", "period"), ("agent__slug", "tool_name"))
register(AllowanceUse, ("allowance", "starts_on", "used", "held", "alerted_percent"),
    ("allowance__kind", "allowance__period", "starts_on"),
    ("allowance__agent__slug", "allowance__tool_name"), place="allowance__organization",
    joined=("allowance__agent",))
register(Reservation, ("execution", "use", "amount"), place="execution__organization",
    joined=("use__allowance__agent",), ordering=("-id",))

# Calls, for a million rows and more: in the order of creation, the newest first.
register(Execution, ("tool_name", "status", "user", "agent", "created_at", "duration_ms"),
    ("status", "created_at"), ("tool_name", "user__username"), ExecutionAdmin,
    search_help_text="A whole name: of a tool, an agent or a person.", ordering=("-id",),
    hidden=REDACTED_FIELDS, more=(input_and_output,), **CANCEL)
register(ExecutionEvent, ("execution", "sequence", "type", message_text, "created_at"), ("type",),
    kind=ExecutionEventAdmin, place="execution__organization",
    fields=("execution", "sequence", "type", message_text, "created_at"),
    ordering=("-execution_id", "-sequence"))
register(Session, ("id", "state", "user", "agent", "created_at", "entered_at", "closed_at"),
    (is_empty("closed_at"), "created_at"), ("=id", "=state", "agent__slug", "user__username"),
    ordering=("-id",), **CLOSE)
register(StateTransition, ("tool_name", "from_state", "to_state", "session", "at"), (),
    ("tool_name", "=from_state", "=to_state"), ordering=("-id",))
register(RequestRecord, ("request_id", "kind", "actor_kind", "actor", "initial_state", "at"),
    (RequestKindFilter,), ("request_id__exact", "actor__exact"),
    search_help_text="The whole of a request's identifier, or of a caller's name.",
    ordering=("-id",))
register(ToolFilter, ("digest", "catalog", "created_at"), (), ("digest__exact",), ToolFilterAdmin,
    place=None, ordering=("-created_at",))
# Its content needs permission for its execution.
register(StoredOutput, ("digest", "organization", "size", "kept_at"), (), ("digest__exact",),
    ordering=("-id",), hidden=("content",))

# Held calls are decided at /confirmations/, where every argument is shown first.
register(Confirmation, ("execution", "status", "approvals_needed", "created_at", "expires_at"),
    ("status", "created_at"), ("execution__tool_name__exact", "execution__agent__slug__exact"),
    search_help_text="The whole name of a tool or an agent.", ordering=("-created_at",))
register(ConfirmationDecision, ("confirmation", "user", "approved", "reason", "at"),
    ("approved", "at"), ("user__username__exact", "reason"), place="confirmation__organization",
    ordering=("-id",))

# Messages and their channels. /channels/ and the API create and change these.
register(MessageChannel, ("name", "organization", "kind", "enabled", "updated_at"),
    ("kind", "enabled"), ("name",), hidden=("sealed",))
register(Message, ("subject", "channel_name", "kind", "state", "created_at"),
    ("state", "kind", "created_at"), ("=channel_name", "=execution_id"), ordering=("-created_at",),
    hidden=("addressees",), more=(inboxes,))
register(InboxItem, ("message", "user", "read_at"), (is_empty("read_at"),),
    ("user__username__exact",), place="message__organization",
    fields=("message", "user", "read_at"))

# Browsers that are logged in, and ways to log in, of people.
register(PersonSession, ("user", "began_at", "source_ip", "user_agent"), ("began_at",),
    ("user__username", "source_ip"), place="user__organization",
    fields=("user", "began_at", "source_ip", "user_agent"), **END)
register(AuthenticatorApp, ("user", "made_at", "last_used_at"), ("made_at",),
    ("user__username", "user__email"), place="user__organization",
    fields=("user", "made_at", "last_used_at"))
register(SecurityKey, ("user", "name", "host", "made_at", "last_used_at"), ("made_at",),
    ("user__username", "user__email"), place="user__organization",
    fields=("user", "name", "host", "sign_count", "made_at", "last_used_at"))
register(SingleSignOn, ("user", "issuer", "subject", "made_at", "last_used_at"), ("made_at",),
    ("user__username", "=subject"), place="user__organization")

# Evidence. An export is downloaded by its user at /audit/exports/.
register(Alert, ("rule", "severity", "actor", "subject", "count", "last_at", "acknowledged_by"),
    ("severity", is_empty("acknowledged_at"), "last_at"), ("rule", "actor", "subject", "message"),
    by_slug=True, **ACKNOWLEDGE)
register(AlertDelivery, ("alert", "channel", "attempts", "due_at", "delivered_at", "problem"),
    (is_empty("delivered_at"), "due_at"), ("channel__name", "problem"), place="alert__organization",
    by_slug=True, ordering=("-id",))
register(AuditExport, ("format", "asked_by", "state", "records", "created_at", "expires_at"),
    ("state", "created_at"), ("asked_by__exact",), by_slug=True, ordering=("-created_at",))
register(AuditLog, ("name", "size", "anchored", "sealed_at", "halted_at"),
    ("anchored", is_empty("halted_at")), ("name",), place="name", by_slug=True,
    hidden=("frontier",))
register(Checkpoint, ("log", "size", "created_at"), ("created_at",), place="log__name",
    by_slug=True, fields=("log", "size", "note", "created_at"), ordering=("-id",))
# Public keys of the whole installation, which a verifier needs.
register(CheckpointKey, ("key_id", "name", "created_at", "retired_at"), (), ("key_id", "name"),
    place=None, hidden=("public",), ordering=("-created_at",))
register(AuditSegment, ("log", "first", "end", "file", "created_at", "removed_at"),
    (is_empty("removed_at"),), ("file",), place="log__name", by_slug=True, ordering=("-id",))
# fmt: on
