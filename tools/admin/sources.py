"""Read-only Django admin of upstream changes, signing keys, content schemas, MCP credentials,
version pins and reservations. Pages and the API change them, with a preview of the impact."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import ReadOnly
from tools.catalog.mcp.mcp_tokens import keys_named, owner_text, owner_texts
from tools.models import (
    ContentSchema,
    ContentSchemaVersion,
    KnowledgeIndex,
    McpAuthorization,
    McpCredential,
    McpOAuthClient,
    Pin,
    Reservation,
    SigningKey,
    UpstreamChange,
)


@admin.register(UpstreamChange)
class UpstreamChangeAdmin(ReadOnly):
    """Decided at `/changes/`, where the difference is shown first."""

    place = "tool__organization"
    list_display = ("tool", "decision", "seen_at", "decided_by", "decided_at")
    list_filter = ("decision", "seen_at")
    list_select_related = ("tool",)
    search_fields = ("tool__name", "decided_by")


@admin.register(SigningKey)
class SigningKeyAdmin(ReadOnly):
    """Changed at `/keys/`. The private key is never shown."""

    list_display = ("key_id", "organization", "created_at", "retired_at", "distrusted_at")
    list_select_related = ("organization",)
    list_filter = (("distrusted_at", admin.EmptyFieldListFilter),)
    search_fields = ("key_id",)
    fields = ("key_id", "organization", "created_at", "retired_at", "distrusted_at")


@admin.register(ContentSchema)
class ContentSchemaAdmin(ReadOnly):
    """Changed at `/schemas/`, where a document is checked."""

    list_display = ("name", "organization", "kind", "updated_at")
    list_filter = ("kind",)
    list_select_related = ("organization",)
    search_fields = ("name", "description")


@admin.register(ContentSchemaVersion)
class ContentSchemaVersionAdmin(ReadOnly):
    place = "schema__organization"
    list_display = ("schema", "number", "created_by", "created_at")
    list_select_related = ("schema",)
    search_fields = ("schema__name", "digest__exact")
    ordering = ("-created_at",)


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


@admin.register(McpCredential)
class McpCredentialAdmin(OwnedRowAdmin):
    """The owners of credentials for calls to a server. The values are never shown."""

    place = "server__organization"
    list_display = ("server", "owner_named", "updated_at")
    list_select_related = ("server",)
    search_fields = ("server__name", "owner")
    fields = ("server", "owner", "created_at", "updated_at")


@admin.register(McpOAuthClient)
class McpOAuthClientAdmin(ReadOnly):
    place = "server__organization"
    list_display = ("client_id", "server", "grant", "updated_at")
    list_filter = ("grant",)
    list_select_related = ("server",)
    search_fields = ("client_id", "server__name")
    hidden = ("sealed",)


@admin.register(McpAuthorization)
class McpAuthorizationAdmin(OwnedRowAdmin):
    """Authorizations by the authorization server of an MCP server. Tokens are never shown."""

    place = "server__organization"
    list_display = ("owner_named", "server", "expires_at", "flaw", "connected_by", "updated_at")
    list_select_related = ("server",)
    search_fields = ("owner", "server__name", "connected_by")
    hidden = ("sealed",)


@admin.register(Pin)
class PinAdmin(ReadOnly):
    """Version pins. The API sets them, with the agent or the session that they belong to."""

    place = "tool__organization"
    list_display = ("tool", "version", "agent", "session", "created_at")
    list_select_related = ("tool", "version__tool", "agent", "session")
    search_fields = ("tool__name", "agent__slug")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).order_by("-created_at")


@admin.register(KnowledgeIndex)
class KnowledgeIndexAdmin(ReadOnly):
    """How far the search index follows its graph; `manage.py index_knowledge` rebuilds it."""

    list_display = ("collection", "organization", "complete", "indexed_at", "rebuilt_at")
    list_filter = ("complete",)
    list_select_related = ("organization",)
    search_fields = ("collection",)


@admin.register(Reservation)
class ReservationAdmin(ReadOnly):
    """What open calls reserve of a quota or a budget."""

    place = "execution__organization"
    list_display = ("execution", "use", "amount")
    list_select_related = ("execution", "use__allowance__agent")
    ordering = ("-id",)
