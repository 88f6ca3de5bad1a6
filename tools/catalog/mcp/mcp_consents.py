"""Connects an MCP server by OAuth: authorization code with a person's consent, or client
credentials. The tokens are stored encrypted (mcp_tokens.py)."""

import hashlib
import json
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.list_fields import ListedFields
from tools.catalog.mcp.mcp_tokens import columns, key_of, opened, owner_text
from tools.catalog.mcp.mcp_transports import fetcher, wait_for
from tools.catalog.mcp.mcp_values import LONGEST_VALUE
from tools.catalog.signatures import sealed_texts
from tools.errors import Conflict, Malformed, NotFound, Unavailable
from tools.mcpclient.authorization_servers import ClientIdentity, OAuthClient
from tools.mcpclient.errors import (
    NO_CHALLENGE,
    AuthenticationChallenge,
    UpstreamFailure,
    UpstreamRefused,
)
from tools.mcpclient.oauth import (
    OAuthTokens,
    PendingAuthorization,
    begin_authorization,
    finish_authorization,
    request_client_credentials,
)
from tools.models import (
    CredentialScope,
    Grant,
    McpAuthorization,
    McpConsent,
    McpOAuthClient,
    McpServer,
    Organization,
    Transport,
    User,
)

GOOD_FOR = timedelta(minutes=10)
PATIENCE_S = 60.0
MASK = "•••"
_MOST_STATE = 200


def begin_consent(
    *, row: McpServer, owner: str, user: User, redirect_uri: str
) -> tuple[str, datetime]:
    """The URL to send the person's browser to, and until when it may return.

    Raises `Malformed`, `Conflict` where consent is of no use, `Unavailable`.
    """
    key = _checked_owner(row, owner)
    identity = ClientIdentity(redirect_uri, registered=_entered(row))
    known = row.authorizations.filter(owner=key).first()
    url, pending = _talked(
        begin_authorization(
            fetcher(row.organization.slug),
            row.url,
            identity,
            _challenge(known),
            _previous(row, known),
        )
    )
    expires_at = timezone.now() + GOOD_FOR
    consent = McpConsent(server=row, user=user, owner=key, url=row.url, expires_at=expires_at)
    consent.state_digest = _digest(pending.state)
    consent.sealed = _seal(row, consent.pk, json.dumps(pending.stored()))
    with transaction.atomic():
        McpConsent.objects.filter(expires_at__lt=timezone.now()).delete()
        row.consents.filter(user=user, owner=key).delete()
        consent.save()
    return url, expires_at


def finish_consent(*, user: User, parameters: Mapping[str, str], by: Actor) -> McpAuthorization:
    """Complete the consent with the browser's response. It is valid once, and for the person who
    began it.

    Raises `NotFound`, `Conflict`, `Unavailable`.
    """
    consent = _claim_consent(user, parameters.get("state", ""))
    row = consent.server
    if consent.expires_at < timezone.now():
        raise Conflict("This took too long; connect the server again.", code="consent_expired")
    if consent.url != row.url:
        raise Conflict("The server has another address now.", code="consent_expired")
    try:
        pending = PendingAuthorization.restored(
            json.loads(_unseal(row, consent.pk, bytes(consent.sealed)))
        )
    except (sealed_texts.UnreadableSealedText, ValueError):
        raise Conflict(
            "What was begun cannot be read; begin again.", code="consent_expired"
        ) from None
    return _connect(
        row,
        consent.owner,
        _talked(finish_authorization(fetcher(row.organization.slug), pending, parameters)),
        by,
    )


def connect_client(*, row: McpServer, owner: str, by: Actor) -> McpAuthorization:
    """Client credentials: no person consents. Raises as `begin_consent`."""
    key = _checked_owner(row, owner)
    client = _entered(row)
    if client is None:
        raise Conflict("Enter the client first.", code="no_oauth_client")
    known = row.authorizations.filter(owner=key).first()
    previous, challenge = _previous(row, known), _challenge(known)
    tokens = _talked(
        request_client_credentials(
            fetcher(row.organization.slug), row.url, client, challenge, previous
        )
    )
    return _connect(row, key, tokens, by)


@transaction.atomic
def disconnect(*, row: McpServer, owner: str, by: Actor) -> None:
    """From the next call on. Raises `NotFound`."""
    Organization.objects.next_revision(row.organization_id)
    found = _authorization(row, owner)
    if found is None:
        raise NotFound("Nobody connected the server so.", code="authorization_not_found")
    found.delete()
    _record(Event.MCP_DEAUTHORIZE, row, by, owner=owner, issuer=found.issuer)


@transaction.atomic
def set_client(*, row: McpServer, client: Any, by: Actor) -> bool:
    """Set the OAuth client for the authorization server; the mask keeps the secret. Whether
    something changed. Raises `Malformed`."""
    if not isinstance(client, dict):
        raise _invalid([{"field": "", "message": "must be a JSON object"}])
    fields = ListedFields(client, [])
    fields.reject_unknown(("client_id", "client_secret", "grant"))
    found = McpOAuthClient.objects.filter(server=row).first()
    made = found or McpOAuthClient(server=row)
    before = client_written(found) if found else None
    stored = client_secret(found) if found else ""
    made.client_id = fields.text("client_id", made.client_id or None, longest=1_000)
    if found and not made.client_id.strip():
        fields.wrong("client_id", "must not be empty")
    made.grant = fields.choice("grant", Grant, made.grant)
    secret = client.get("client_secret")
    if secret not in (None, MASK):
        if not isinstance(secret, str) or not secret.isprintable() or len(secret) > LONGEST_VALUE:
            fields.wrong("client_secret", "must be a text of printable characters")
        elif secret != stored:
            made.sealed = _seal(row, made.pk, secret) if secret else None
    if fields.flaws:
        raise _invalid(fields.flaws)
    if client_written(made) == before and secret in (None, MASK, stored):
        return False
    made.save()
    _record_client(row, by, before, client_written(made))
    return True


@transaction.atomic
def delete_client(*, row: McpServer, by: Actor) -> None:
    """Consents given with it stay until they are revoked. Raises `NotFound`."""
    found = McpOAuthClient.objects.filter(server=row).first()
    if found is None:
        raise NotFound("No client was entered for this server.", code="oauth_client_not_found")
    _record_client(row, by, client_written(found), None)
    found.delete()


def client_secret(client: McpOAuthClient) -> str:
    """Empty for a public client, and where it cannot be read."""
    if not client.sealed:
        return ""
    try:
        return _unseal(client.server, client.pk, bytes(client.sealed))
    except sealed_texts.UnreadableSealedText:
        return ""


def client_written(client: McpOAuthClient) -> dict[str, Any]:
    secret = MASK if client.sealed else None
    return {"client_id": client.client_id, "client_secret": secret, "grant": str(client.grant)}


def _authorization(row: McpServer, owner: str) -> McpAuthorization | None:
    try:
        key = key_of(row.organization_id, owner)
    except Malformed:
        return None
    return row.authorizations.filter(owner=key).first()


def _checked_owner(row: McpServer, owner: str) -> str:
    """Its key."""
    kind, _, name = owner.partition(":")
    everybody = row.credential_scope == CredentialScope.ORGANIZATION
    if len(owner) > 200 or (owner != "" if everybody else kind != row.credential_scope or not name):
        wanted = "nobody in particular" if everybody else f"{row.credential_scope}:<name>"
        raise Malformed(f"The owner must be {wanted}, as the server's credential_scope says.")
    if row.transport == Transport.STDIO or not row.url:
        raise Conflict("Only a server with an address is connected by OAuth.", code="no_address")
    return key_of(row.organization_id, owner)


def _challenge(known: McpAuthorization | None) -> AuthenticationChallenge:
    wanted = known.wanted if known else None
    if not wanted:
        return NO_CHALLENGE
    return AuthenticationChallenge(wanted["metadata"], tuple(wanted["scope"]), "insufficient_scope")


def _previous(row: McpServer, known: McpAuthorization | None) -> OAuthTokens | None:
    if known is None or known.url != row.url:
        return None
    try:
        return opened(bytes(known.sealed), organization=row.organization_id, row=known.pk)
    except UpstreamRefused:
        return None


def _entered(row: McpServer) -> OAuthClient | None:
    found = McpOAuthClient.objects.filter(server=row).first()
    if found is None:
        return None
    try:
        secret = _unseal(row, found.pk, bytes(found.sealed)) if found.sealed else ""
    except sealed_texts.UnreadableSealedText:
        raise Conflict(
            "The client's secret cannot be read; enter it again.", code="no_oauth_client"
        ) from None
    return OAuthClient(found.client_id, secret)


def _talked[Got](work: Coroutine[Any, Any, Got]) -> Got:
    try:
        return wait_for(work, PATIENCE_S)
    except UpstreamRefused as problem:
        raise Conflict(str(problem), code="authorization_failed") from None
    except UpstreamFailure as problem:
        raise Unavailable(str(problem), code="authorization_server_unavailable") from None
    except TimeoutError:
        said = "The authorization server did not answer in time."
        raise Unavailable(said, code="authorization_server_unavailable") from None


@transaction.atomic
def _claim_consent(user: User, state: str) -> McpConsent:
    """Raises `NotFound`, also for a consent of another user."""
    if not state or len(state) > _MOST_STATE:
        raise NotFound("This belongs to nothing that was begun here.", code="consent_not_found")
    rows = McpConsent.objects.select_for_update(of=("self",)).select_related("server__organization")
    found = rows.filter(state_digest=_digest(state), user=user).first()
    if found is None:
        raise NotFound("This belongs to nothing that was begun here.", code="consent_not_found")
    McpConsent.objects.filter(pk=found.pk).delete()
    return found


@transaction.atomic
def _connect(row: McpServer, owner: str, tokens: OAuthTokens, by: Actor) -> McpAuthorization:
    Organization.objects.next_revision(row.organization_id)
    found = row.authorizations.filter(owner=owner).first()
    made = found or McpAuthorization(server=row, owner=owner)
    made.url, made.wanted, made.connected_by = row.url, None, f"{by.kind}:{by.name}"[:200]
    kept = columns(tokens, organization=row.organization_id, row=made.pk)
    for column, value in kept.items():
        setattr(made, column, value)
    made.save()
    said = {"owner": owner_text(owner), "issuer": tokens.issuer, "scope": list(tokens.scope)}
    _record(Event.MCP_AUTHORIZE, row, by, **said)
    return made


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()


def _seal(row: McpServer, pk: Any, text: str) -> bytes:
    return sealed_texts.seal(
        text, organization=row.organization_id, row=pk, purpose=sealed_texts.MCP
    )


def _unseal(row: McpServer, pk: Any, kept: bytes) -> str:
    return sealed_texts.unseal(
        kept, organization=row.organization_id, row=pk, purpose=sealed_texts.MCP
    )


def _invalid(errors: list[dict[str, str]]) -> Malformed:
    message = "The client was not accepted; see details.errors."
    return Malformed(message, code="invalid_oauth_client", errors=errors)


def _record_client(
    row: McpServer, by: Actor, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    said = difference({"oauth_client": before}, {"oauth_client": after})
    _record(Event.MCP_SERVER_CHANGE, row, by, **said)


def _record(event: Event, row: McpServer, by: Actor, **said: Any) -> None:
    record(event, by=by, outcome=Outcome.CHANGED, subject=row.name, details=said)
