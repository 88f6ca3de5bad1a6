"""Notification channels: created, changed and deleted by an administrator. Secrets are write-only,
but for the signing key, which is shown when it is created."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.sandbox.credentials import MASK
from tools.catalog.signatures import sealing
from tools.catalog.uniqueness import unique
from tools.definitions.texts.names import is_reserved_address
from tools.errors import Conflict, Malformed, NotFound
from tools.messaging.channel_fields import COMMON, ChannelFields, read, shown_url
from tools.models import MessageChannel, MessageKind, Organization

MOST_CHANNELS = 100
_KEPT_SECRETS = ("password", "url")


@transaction.atomic
def create_channel(
    *, organization: Organization, channel: Any, by: Actor
) -> tuple[MessageChannel, str]:
    """The channel and its signing key, which is shown only now.

    Raises `Malformed` with an error per wrong field, `Conflict`.
    """
    wanted = _accepted(_object(channel))
    if is_reserved_address("channel", wanted.columns["name"]):
        raise Malformed("The name new is reserved; choose another.", code="name_invalid")
    Organization.objects.next_revision(organization.pk)
    if organization.message_channels.count() >= MOST_CHANNELS:
        raise Conflict(f"An organization has at most {MOST_CHANNELS} channels.", code="too_many")
    row = MessageChannel(organization=organization, options=wanted.options, **wanted.columns)
    key = _new_key()
    _seal(row, wanted.secrets | {"key": key})
    with unique(f"There is a channel {row.name} already.", code="channel_exists"):
        row.save(force_insert=True)
    _record(Event.CHANNEL_CREATE, row, by, None, written(row))
    return row, key


@transaction.atomic
def change_channel(*, row: MessageChannel, changes: Any, by: Actor) -> MessageChannel:
    """Some fields; a secret that is left out, or sent as the mask, is kept.

    Raises `Malformed`; `NotFound` where it was removed meanwhile.
    """
    changes = _object(changes)
    _lock(row)
    before, kept = written(row), opened(row)
    _check_unchanged(row, changes)
    new = {name: one for name, one in changes.items() if name in _KEPT_SECRETS and one != MASK}
    old = {name: kept[name] for name in _KEPT_SECRETS if kept.get(name)}
    given = {name: one for name, one in changes.items() if name not in _KEPT_SECRETS}
    wanted = _accepted(_plain(row) | old | given | new)
    if old.get("password") and "password" not in new and _moved(row, wanted):
        raise _invalid([{"field": "password", "message": "give it again for another server"}])
    for name, value in wanted.columns.items():
        setattr(row, name, value)
    row.options = wanted.options
    secrets = wanted.secrets | {"key": kept["key"]}
    if (written(row), secrets) == (before, kept):
        return row
    _seal(row, secrets)
    row.save()
    said = "replaced" if new else "kept"
    _record(Event.CHANNEL_CHANGE, row, by, before, written(row), secrets=said)
    return row


@transaction.atomic
def replace_key(*, row: MessageChannel, by: Actor) -> str:
    """The new signing key, shown only now; the old one is invalid at once.

    Raises `NotFound` where it was removed meanwhile.
    """
    _lock(row)
    key = _new_key()
    _seal(row, opened(row) | {"key": key})
    row.save(update_fields=["sealed", "updated_at"])
    _record(Event.CHANNEL_CHANGE, row, by, {}, {}, key="replaced")
    return key


@transaction.atomic
def delete_channel(*, row: MessageChannel, by: Actor) -> None:
    """Messages that were sent through it are kept. Raises `NotFound` where it was removed
    already."""
    _lock(row)
    _record(Event.CHANNEL_DELETE, row, by, written(row), None)
    row.delete()


def find_channel(organization: Organization, name: str) -> MessageChannel:
    """Raises `NotFound`, also for another organization's."""
    found = MessageChannel.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise _not_there(name)
    return found


def opened(row: MessageChannel) -> dict[str, str]:
    """The decrypted secrets. Raises `Conflict` where they cannot be decrypted any more."""
    try:
        text = sealing.unseal(
            bytes(row.sealed),
            organization=row.organization_id,
            row=row.pk,
            purpose=sealing.MESSAGES,
        )
    except sealing.UnreadableSealedText:
        words = f"The secrets of the channel {row.name} do not open. Remove it and make it anew."
        raise Conflict(words, code="channel_unreadable") from None
    found: dict[str, str] = json.loads(text)
    return found


def written(row: MessageChannel) -> dict[str, Any]:
    """The form for the audit log and lists, without secrets."""
    return _plain(row) | _masked(row)


def _lock(row: MessageChannel) -> None:
    """Locks the channel until the transaction ends, and reloads it. Raises `NotFound`."""
    Organization.objects.next_revision(row.organization_id)
    try:
        row.refresh_from_db()
    except MessageChannel.DoesNotExist:
        raise _not_there(row.name) from None


def _not_there(name: str) -> NotFound:
    return NotFound(f"There is no channel {name[:63]!r}.", code="channel_not_found")


def _masked(row: MessageChannel) -> dict[str, str]:
    if row.kind == MessageKind.EMAIL:
        return {"password": MASK if row.options.get("username") else ""}
    if row.kind == MessageKind.INBOX:
        return {}
    try:
        return {"url": shown_url(opened(row)["url"])}
    except Conflict:
        return {"url": MASK}


def _plain(row: MessageChannel) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COMMON} | row.options


def _object(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise Malformed("A channel is a JSON object.", code="invalid_channel")
    return raw


def _accepted(raw: dict[str, Any]) -> ChannelFields:
    wanted = read(raw)
    if wanted.flaws:
        raise _invalid(wanted.flaws)
    return wanted


def _check_unchanged(row: MessageChannel, changes: Mapping[str, Any]) -> None:
    flaws = [
        {"field": name, "message": "cannot be changed"}
        for name in ("name", "kind")
        if changes.get(name, getattr(row, name)) != getattr(row, name)
    ]
    if flaws:
        raise _invalid(flaws)


def _moved(row: MessageChannel, wanted: ChannelFields) -> bool:
    names = ("host", "port", "security")
    return any(row.options.get(name) != wanted.options.get(name) for name in names)


def _seal(row: MessageChannel, values: dict[str, str]) -> None:
    row.sealed = sealing.seal(
        json.dumps(values),
        organization=row.organization_id,
        row=row.pk,
        purpose=sealing.MESSAGES,
    )


def _new_key() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def _invalid(errors: list[dict[str, str]]) -> Malformed:
    message = "The channel was not accepted; see details.errors."
    return Malformed(message, code="invalid_channel", errors=errors)


def _record(
    event: Event,
    row: MessageChannel,
    by: Actor,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    **more: str,
) -> None:
    said = {"id": str(row.pk), **difference(before, after), **more}
    record(event, by=by, outcome=Outcome.CHANGED, subject=row.name, details=said)
