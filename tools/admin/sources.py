"""What tools come from and are held to, beside the catalog: to be read. Each is changed on the
page, or by the address of the API, that shows what the change would do."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import ReadOnly
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
    """Changed at `/keys/`. The private half is for nobody."""

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


@admin.register(McpCredential)
class McpCredentialAdmin(ReadOnly):
    """Whose values calls to a server carry. The values are for nobody."""

    place = "server__organization"
    list_display = ("server", "owner", "updated_at")
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
class McpAuthorizationAdmin(ReadOnly):
    """Consent that a server's authorization server gave. Its tokens are for nobody."""

    place = "server__organization"
    list_display = ("owner", "server", "expires_at", "flaw", "connected_by", "updated_at")
    list_select_related = ("server",)
    search_fields = ("owner", "server__name", "connected_by")
    hidden = ("sealed",)


@admin.register(Pin)
class PinAdmin(ReadOnly):
    """Set over the API, with the agent or the session they are of."""

    place = "tool__organization"
    list_display = ("tool", "version", "agent", "session", "created_at")
    list_select_related = ("tool", "version__tool", "agent", "session")
    search_fields = ("tool__name", "agent__slug")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).order_by("-created_at")


@admin.register(KnowledgeIndex)
class KnowledgeIndexAdmin(ReadOnly):
    """How far search is in step with a graph; `manage.py` makes it anew."""

    list_display = ("collection", "organization", "complete", "indexed_at", "rebuilt_at")
    list_filter = ("complete",)
    list_select_related = ("organization",)
    search_fields = ("collection",)


@admin.register(Reservation)
class ReservationAdmin(ReadOnly):
    """What calls that are not over yet hold of a quota or a budget."""

    place = "execution__organization"
    list_display = ("execution", "use", "amount")
    list_select_related = ("execution", "use__allowance__agent")
    ordering = ("-id",)
