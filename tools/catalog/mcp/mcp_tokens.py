"""The OAuth access token of a call to an MCP server, and its refresh: by one process at a time.

A refresh token may be valid once, and a server treats its reuse as theft. So the renewing process
claims the row first; the others wait for the result.
"""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.catalog.mcp.mcp_catalog import Authorized, CatalogServer
from tools.catalog.mcp.mcp_transports import fetcher, wait_for
from tools.catalog.signatures import sealed_texts
from tools.errors import Malformed
from tools.mcpclient.authorization_servers import AuthorizationFailed
from tools.mcpclient.errors import (
    AuthenticationChallenge,
    UpstreamFailure,
    UpstreamRefused,
    UpstreamUnavailable,
)
from tools.mcpclient.oauth import OAuthTokens, refresh_tokens, request_client_credentials
from tools.models import Agent, Grant, McpAuthorization, McpServer, Organization, User

AGENT, USER, NONE = "agent", "user", "none"
PATIENCE_S = 35.0
_CLAIM = timedelta(seconds=45)  # longer than a renewal may take
_EARLY_S = 60.0
_LOOK_S = 0.1
_SYSTEM = "mcp-client"


def owner_key(kind: str, identifier: UUID | str | None) -> str:
    """The owner key of a caller. A caller without an id owns nothing."""
    return f"{AGENT if kind == AGENT else USER}:{identifier}" if identifier else f"{NONE}:"


def key_of(organization_id: UUID, owner: str) -> str:
    """The key of an owner as people write it; empty for the shared one. Raises `Malformed`."""
    kind, _, name = owner.partition(":")
    if not owner or kind == NONE:
        return owner
    found = None
    if "\x00" not in name:  # which PostgreSQL cannot store
        found = (_agent if kind == AGENT else _person)(organization_id, name)
    if found is None or kind not in (AGENT, USER):
        raise Malformed(f"There is no {owner[:150]!r} here.", code="owner_not_found")
    return f"{kind}:{found}"


def known_key(organization_id: UUID, owner: str) -> str | None:
    """The same, or None where the name does not exist."""
    try:
        return key_of(organization_id, owner)
    except Malformed:
        return None


def keys_named(owner: str) -> list[str]:
    """The keys of all accounts with this owner name, in any organization."""
    kind, _, name = owner.partition(":")
    rows: dict[str, QuerySet[Any, Any]] = {
        AGENT: Agent.objects.filter(slug=name).values_list("pk", flat=True),
        USER: User.objects.filter(username=name).values_list("pk", flat=True),
    }
    return [f"{kind}:{pk}" for pk in rows[kind]] if kind in rows else []


def owner_text(key: str) -> str:
    """As people write it."""
    return owner_texts([key])[key]


def owner_texts(keys: Iterable[str]) -> dict[str, str]:
    """By key, with two queries at most."""
    wanted = [*keys]
    ids: dict[str, set[str]] = {AGENT: set(), USER: set()}
    for key in wanted:
        kind, _, identifier = key.partition(":")
        if kind in ids and _is_id(identifier):
            ids[kind].add(identifier)
    names: dict[str, str] = {}
    if ids[AGENT]:
        rows = Agent.objects.filter(pk__in=ids[AGENT]).values_list("pk", "slug")
        names |= {f"{AGENT}:{pk}": f"{AGENT}:{slug}" for pk, slug in rows}
    if ids[USER]:
        people = User.objects.filter(pk__in=ids[USER]).values_list("pk", "username")
        names |= {f"{USER}:{pk}": f"{USER}:{name}" for pk, name in people}
    return {key: names.get(key, key) for key in wanted}


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _agent(organization_id: UUID, slug: str) -> UUID | None:
    rows = Agent.objects.filter(organization_id=organization_id, slug=slug)
    return rows.values_list("pk", flat=True).first()


def _person(organization_id: UUID, name: str) -> UUID | None:
    """Of the organization, or with leave to act in it."""
    user = User.objects.filter(username=name, is_service_account=False).first()
    if user is None:
        return None
    place = Organization(pk=organization_id)
    at_home = user.organization_id == organization_id
    return user.pk if at_home or user.has_perm("tools.act_in_organization", place) else None


def access_token(server: CatalogServer, owner: str, *, refused: str = "") -> str:
    """Empty without any consent. Renewed where it runs out, or is the one that the server
    `refused`. Raises UpstreamFailure: `UpstreamRefused` where only a new consent helps."""
    known = server.authorizations.get(owner)
    if known is None:
        return ""
    if known.url != server.url:
        raise UpstreamRefused(_words(server.name, owner, "consent was for another address"))
    if known.flaw:
        raise UpstreamRefused(_words(server.name, owner, known.flaw))
    if not refused and not _runs_out(known.expires_at):
        return opened(known.sealed, organization=server.organization_id, row=known.row).access
    try:
        return _renew(server, owner, known, refused).access
    finally:
        if not connection.in_atomic_block:
            connection.close()  # not held while a tool runs


def note_wanted(server: CatalogServer, owner: str, challenge: AuthenticationChallenge) -> None:
    """Records the scope that the server requires beyond the consent: the next consent requests
    it."""
    known = server.authorizations.get(owner)
    if known is not None and challenge.scope:
        wanted = {"scope": list(challenge.scope), "metadata": challenge.resource_metadata}
        McpAuthorization.objects.filter(pk=known.row).update(wanted=wanted)


def sealed(tokens: OAuthTokens, *, organization: UUID, row: UUID) -> bytes:
    text = json.dumps(tokens.stored(), separators=(",", ":"))
    return sealed_texts.seal(text, organization=organization, row=row, purpose=sealed_texts.MCP)


def opened(kept: bytes, *, organization: UUID, row: UUID) -> OAuthTokens:
    """Raises UpstreamRefused: under another SECRET_KEY only a new consent helps."""
    try:
        text = sealed_texts.unseal(
            kept, organization=organization, row=row, purpose=sealed_texts.MCP
        )
        return OAuthTokens.restored(json.loads(text))
    except (sealed_texts.UnreadableSealedText, ValueError, KeyError, TypeError):
        raise UpstreamRefused(
            "The authorization that was kept cannot be read; connect again."
        ) from None


def columns(tokens: OAuthTokens, *, organization: UUID, row: UUID) -> dict[str, Any]:
    """Of the row that keeps them."""
    expires = datetime.fromtimestamp(tokens.expires_at, UTC) if tokens.expires_at else None
    return {
        "issuer": tokens.issuer[:2_000],
        "scope": list(tokens.scope),
        "sealed": sealed(tokens, organization=organization, row=row),
        "expires_at": expires,
        "flaw": "",
        "renewing_until": None,
    }


def _renew(server: CatalogServer, owner: str, known: Authorized, refused: str) -> OAuthTokens:
    until = time.monotonic() + PATIENCE_S
    while True:
        row = _row(server, owner, known)
        tokens = opened(bytes(row.sealed), organization=server.organization_id, row=row.pk)
        if tokens.access != refused and not _runs_out(Authorized.from_row(row).expires_at):
            return tokens
        if _claim(row, tokens, server.organization_id):
            return _request_renewal(server, owner, row, tokens)
        if time.monotonic() > until:
            raise UpstreamUnavailable(
                "The authorization of the MCP server is being renewed; try again."
            )
        time.sleep(_LOOK_S)


def _row(server: CatalogServer, owner: str, known: Authorized) -> McpAuthorization:
    row = McpAuthorization.objects.select_related("server").filter(pk=known.row).first()
    if row is None:
        raise UpstreamRefused(_words(server.name, owner, "it was disconnected"))
    if row.flaw:
        raise UpstreamRefused(_words(server.name, owner, row.flaw))
    return row


def _claim(row: McpAuthorization, tokens: OAuthTokens, organization: UUID) -> bool:
    """Claims the renewal: False while another process renews, or when one has renewed meanwhile."""
    now = timezone.now()
    free = Q(renewing_until=None) | Q(renewing_until__lt=now)
    rows = McpAuthorization.objects.filter(free, pk=row.pk)
    if not rows.update(renewing_until=now + _CLAIM):
        return False
    row.refresh_from_db()
    if opened(bytes(row.sealed), organization=organization, row=row.pk) == tokens:
        return True
    McpAuthorization.objects.filter(pk=row.pk).update(renewing_until=None)
    return False


def _request_renewal(
    server: CatalogServer, owner: str, row: McpAuthorization, tokens: OAuthTokens
) -> OAuthTokens:
    _let_go()
    try:
        fresh = wait_for(_renewal(row.server, tokens)(), PATIENCE_S)
    except AuthorizationFailed as problem:
        _lost(server, owner, row, str(problem))
        raise UpstreamRefused(_words(server.name, owner, str(problem))) from None
    except (UpstreamFailure, TimeoutError) as problem:
        McpAuthorization.objects.filter(pk=row.pk).update(renewing_until=None)
        said = str(problem) or "The authorization server did not answer in time."
        raise UpstreamUnavailable(said) from None
    _keep(server.organization_id, row, fresh)
    return fresh


def _renewal(row: McpServer, tokens: OAuthTokens) -> Callable[[], Any]:
    fetch = fetcher(row.organization.slug)
    client = getattr(row, "oauth_client", None)
    if client is not None and client.grant == Grant.CLIENT_CREDENTIALS:
        return lambda: request_client_credentials(fetch, row.url, tokens.client, previous=tokens)
    return lambda: refresh_tokens(fetch, tokens)


@transaction.atomic
def _keep(organization: UUID, row: McpAuthorization, tokens: OAuthTokens) -> None:
    """Increments the revision, so that every process reads the new tokens."""
    Organization.objects.next_revision(organization)
    kept = columns(tokens, organization=organization, row=row.pk)
    McpAuthorization.objects.filter(pk=row.pk).update(**kept, updated_at=timezone.now())


@transaction.atomic
def _lost(server: CatalogServer, owner: str, row: McpAuthorization, flaw: str) -> None:
    Organization.objects.next_revision(server.organization_id)
    McpAuthorization.objects.filter(pk=row.pk).update(flaw=flaw[:500], renewing_until=None)
    record(
        Event.MCP_AUTHORIZATION_LOST,
        by=Actor("system", _SYSTEM, server.organization),
        outcome=Outcome.FAILURE,
        subject=server.name,
        details={"owner": owner_text(owner), "reason": flaw[:500]},
    )


def _let_go() -> None:
    if not connection.in_atomic_block:
        connection.close()  # not held while waiting for another server


def _runs_out(expires_at: float) -> bool:
    return bool(expires_at) and expires_at < time.time() + _EARLY_S


def _words(name: str, owner: str, why: str) -> str:
    who = owner_text(owner) if owner else "an administrator"
    return f"{who} must connect the MCP server {name} again: {why.rstrip('.')}."
