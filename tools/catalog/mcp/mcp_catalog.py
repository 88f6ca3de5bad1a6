"""MCP servers in a snapshot of the catalog, so that a call makes no query of its own."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from tools.catalog.sandbox.hosts import Item
from tools.models import (
    CredentialScope,
    McpAuthorization,
    McpCredential,
    McpServer,
    OnDrift,
    Transport,
)

REMEMBERED = timedelta(days=1)


@dataclass(frozen=True)
class Values:
    """Of one row: references as they are written, values as they are stored."""

    row: UUID
    headers: dict[str, Any] = field(repr=False)
    env: dict[str, Any] = field(repr=False)
    sealed: bytes = field(repr=False)

    @classmethod
    def from_row(cls, row: McpServer | McpCredential) -> "Values":
        return cls(row.pk, row.headers, row.env, bytes(row.sealed or b""))


@dataclass(frozen=True)
class Authorized:
    """Tokens as they are stored; `expires_at` in seconds since 1970, 0 where that is not known."""

    row: UUID
    url: str
    flaw: str
    expires_at: float
    sealed: bytes = field(repr=False)

    @classmethod
    def from_row(cls, row: McpAuthorization) -> "Authorized":
        expires = row.expires_at.timestamp() if row.expires_at else 0.0
        return cls(row.pk, row.url, row.flaw, expires, bytes(row.sealed))


@dataclass(frozen=True)
class CatalogServer:
    id: UUID
    organization_id: UUID
    organization: str
    allowed_hosts: tuple[Item, ...]
    name: str
    transport: Transport
    url: str
    command: str
    args: tuple[str, ...]
    remote_name: str
    scope: CredentialScope
    on_drift: OnDrift
    check_every_s: float
    enabled: bool
    protocol: str
    own: Values
    credentials: dict[str, Values] = field(default_factory=dict, repr=False)  # by owner
    authorizations: dict[str, Authorized] = field(default_factory=dict, repr=False)  # by owner


def catalog_server(
    row: McpServer, credentials: dict[str, Values], authorizations: dict[str, Authorized]
) -> CatalogServer:
    return CatalogServer(
        id=row.pk,
        organization_id=row.organization_id,
        organization=row.organization.slug,
        allowed_hosts=tuple(row.organization.allowed_hosts),
        name=row.name,
        transport=Transport(row.transport),
        url=row.url,
        command=row.command,
        args=tuple(row.args),
        remote_name=row.remote_name,
        scope=CredentialScope(row.credential_scope),
        on_drift=OnDrift(row.on_drift),
        check_every_s=row.check_every_s,
        enabled=row.enabled,
        protocol=_remembered(row),
        own=Values.from_row(row),
        credentials=credentials,
        authorizations=authorizations,
    )


def _remembered(row: McpServer) -> str:
    """The protocol version negotiated recently; later the server may support a newer one."""
    recent = row.protocol_at is not None and timezone.now() - row.protocol_at < REMEMBERED
    return row.protocol if recent else ""


def catalog_servers(organization_id: UUID) -> dict[str, CatalogServer]:
    """By name."""
    rows = McpServer.objects.filter(organization_id=organization_id)
    rows = rows.select_related("organization").defer("snapshot", "findings")
    found = list(rows)
    by_server: dict[UUID, dict[str, Values]] = {}
    for one in McpCredential.objects.filter(server__in=found) if found else ():
        by_server.setdefault(one.server_id, {})[one.owner] = Values.from_row(one)
    allowed: dict[UUID, dict[str, Authorized]] = {}
    for consented in McpAuthorization.objects.filter(server__in=found) if found else ():
        allowed.setdefault(consented.server_id, {})[consented.owner] = Authorized.from_row(
            consented
        )
    return {
        row.name: catalog_server(row, by_server.get(row.pk, {}), allowed.get(row.pk, {}))
        for row in found
    }
