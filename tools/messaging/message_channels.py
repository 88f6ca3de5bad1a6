"""Notification channels: an administrator's settings are validated here, and channels are created,
changed and deleted.

Every wrong field is reported. Secrets are write-only, but for the signing key, which is shown when
it is created.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.egress.rules.grammar import BrokenGrammar, Url, parse_host
from tools.catalog.list_fields import ListedFields
from tools.catalog.sandbox.credentials import MASK
from tools.catalog.signatures import sealed_texts
from tools.catalog.uniqueness import unique
from tools.definitions.texts import templates
from tools.definitions.texts.names import (
    flaw_in_address,
    flaw_in_mail_entry,
    flaw_in_person_entry,
    is_reserved_address,
)
from tools.definitions.tool import PROFILE_NAME
from tools.errors import Conflict, Malformed, NotFound
from tools.models import MessageChannel, MessageKind, Organization

CONNECTION_SECURITIES = ("tls", "starttls", "none")
# Variables of a template.
TEMPLATE_VARIABLES = ("subject", "body", "data", "sender", "channel", "recipients")
COMMON_FIELDS = (
    "name", "kind", "enabled", "recipients", "subject_template", "body_template",
    "most_recipients", "most_an_hour",
)  # fmt: skip
MAIL_FIELDS = ("host", "port", "security", "username", "sender")
_PORTS = {"tls": 465, "starttls": 587, "none": 25}
_KIND_FIELDS = {
    MessageKind.EMAIL: (*MAIL_FIELDS, "password"),
    MessageKind.WEBHOOK: ("url",),
    MessageKind.SLACK: ("url",),
    MessageKind.INBOX: (),
}
MOST_CHANNELS = 100
_KEPT_SECRETS = ("password", "url")


@dataclass
class ChannelFields:
    """A parsed channel: columns, options, and secrets."""

    columns: dict[str, Any]
    options: dict[str, Any]
    secrets: dict[str, str]
    flaws: list[dict[str, str]] = field(default_factory=list)


def read_channel(raw: dict[str, Any]) -> ChannelFields:
    fields = ListedFields(raw, [])
    kind = fields.choice("kind", MessageKind)
    fields.reject_unknown((*COMMON_FIELDS, *_KIND_FIELDS[MessageKind(kind)]))
    columns = _read_columns(fields, MessageKind(kind)) | {"kind": kind}
    options: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    if kind == MessageKind.EMAIL:
        options, secrets = _read_mail(fields)
    elif kind != MessageKind.INBOX:
        secrets = {"url": _read_url(fields)}
    return ChannelFields(columns, options, secrets, fields.flaws)


def masked_url(url: str) -> str:
    """A URL without parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


@transaction.atomic
def create_channel(
    *, organization: Organization, channel: Any, by: Actor
) -> tuple[MessageChannel, str]:
    """The channel and its signing key, which is shown only now.

    Raises `Malformed` with an error per wrong field, `Conflict`.
    """
    wanted = _accept_fields(_check_object(channel))
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
    record_change(Event.CHANNEL_CREATE, row.name, by, None, channel_fields(row), id=str(row.pk))
    return row, key


@transaction.atomic
def change_channel(*, row: MessageChannel, changes: Any, by: Actor) -> MessageChannel:
    """Some fields; a secret that is left out, or sent as the mask, is kept.

    Raises `Malformed`; `NotFound` where it was removed meanwhile.
    """
    changes = _check_object(changes)
    _lock(row)
    before, kept = channel_fields(row), channel_secrets(row)
    _check_unchanged(row, changes)
    new = {name: one for name, one in changes.items() if name in _KEPT_SECRETS and one != MASK}
    old = {name: kept[name] for name in _KEPT_SECRETS if kept.get(name)}
    given = {name: one for name, one in changes.items() if name not in _KEPT_SECRETS}
    wanted = _accept_fields(_stored_fields(row) | old | given | new)
    if old.get("password") and "password" not in new and _server_changed(row, wanted):
        raise _invalid_channel(
            [{"field": "password", "message": "give it again for another server"}]
        )
    for name, value in wanted.columns.items():
        setattr(row, name, value)
    row.options = wanted.options
    secrets = wanted.secrets | {"key": kept["key"]}
    if (channel_fields(row), secrets) == (before, kept):
        return row
    _seal(row, secrets)
    row.save()
    said = "replaced" if new else "kept"
    record_change(
        Event.CHANNEL_CHANGE,
        row.name,
        by,
        before,
        channel_fields(row),
        secrets=said,
        id=str(row.pk),
    )
    return row


@transaction.atomic
def replace_key(*, row: MessageChannel, by: Actor) -> str:
    """The new signing key, shown only now; the old one is invalid at once.

    Raises `NotFound` where it was removed meanwhile.
    """
    _lock(row)
    key = _new_key()
    _seal(row, channel_secrets(row) | {"key": key})
    row.save(update_fields=["sealed", "updated_at"])
    record_change(Event.CHANNEL_CHANGE, row.name, by, {}, {}, key="replaced", id=str(row.pk))
    return key


@transaction.atomic
def delete_channel(*, row: MessageChannel, by: Actor) -> None:
    """Messages that were sent through it are kept. Raises `NotFound` where it was removed
    already."""
    _lock(row)
    record_change(Event.CHANNEL_DELETE, row.name, by, channel_fields(row), None, id=str(row.pk))
    row.delete()


def find_channel(organization: Organization, name: str) -> MessageChannel:
    """Raises `NotFound`, also for another organization's."""
    found = MessageChannel.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise _channel_not_found(name)
    return found


def channel_secrets(row: MessageChannel) -> dict[str, str]:
    """The decrypted secrets. Raises `Conflict` where they cannot be decrypted any more."""
    try:
        text = sealed_texts.unseal(
            bytes(row.sealed),
            organization=row.organization_id,
            row=row.pk,
            purpose=sealed_texts.MESSAGES,
        )
    except sealed_texts.UnreadableSealedText:
        words = f"The secrets of the channel {row.name} do not open. Remove it and make it anew."
        raise Conflict(words, code="channel_unreadable") from None
    found: dict[str, str] = json.loads(text)
    return found


def channel_fields(row: MessageChannel) -> dict[str, Any]:
    """The form for the audit log and lists, without secrets."""
    return _stored_fields(row) | _masked_secrets(row)


def _read_columns(fields: ListedFields, kind: MessageKind) -> dict[str, Any]:
    name = fields.text("name", longest=63)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-'")
    return {
        "name": name,
        "enabled": fields.boolean("enabled", True),
        "recipients": _read_recipients(fields, kind),
        "subject_template": _read_template(fields, "subject_template", "{{ subject }}"),
        "body_template": _read_template(fields, "body_template", "{{ body }}"),
        "most_recipients": fields.integer("most_recipients", 10, least=1, most=100),
        "most_an_hour": fields.integer("most_an_hour", 60, least=1, most=10_000),
    }


def _read_recipients(fields: ListedFields, kind: MessageKind) -> list[str]:
    flaw_of = flaw_in_mail_entry if kind == MessageKind.EMAIL else flaw_in_person_entry
    found = fields.texts("recipients", [], flaw_of=flaw_of, most=500) or []
    if found and kind in {MessageKind.WEBHOOK, MessageKind.SLACK}:
        fields.wrong("recipients", "must be empty: the address says who receives it")
    return found


def _read_template(fields: ListedFields, name: str, usual: str) -> str:
    text = fields.text(name, usual, longest=templates.LONGEST_TEMPLATE)
    try:
        templates.check_template(text, TEMPLATE_VARIABLES)
    except templates.BadTemplate as flaw:
        fields.wrong(name, str(flaw))
    return text


def _read_mail(fields: ListedFields) -> tuple[dict[str, Any], dict[str, str]]:
    security = fields.text("security", "starttls", longest=10)
    if security not in CONNECTION_SECURITIES:
        fields.wrong("security", "must be one of " + ", ".join(CONNECTION_SECURITIES))
    username, password = (fields.text(name, "", longest=500) for name in ("username", "password"))
    if bool(username) != bool(password):
        fields.wrong("password", "is needed with username, and only then")
    if not f"{username}{password}".isascii():
        fields.wrong("password", "and username may hold only ASCII characters")
    sender = fields.text("sender", longest=254)
    if sender:
        fields.note("sender", flaw_in_address(sender))
    port = fields.integer("port", _PORTS.get(security, 587), least=1, most=65535)
    options = {"host": _read_host(fields), "port": port, "security": security, "username": username}
    return {**options, "sender": sender}, {"password": password}


def _read_host(fields: ListedFields) -> str:
    host = fields.text("host", longest=253)
    if not host:
        return ""
    try:
        return parse_host(host).text
    except BrokenGrammar as flaw:
        fields.wrong("host", f"is no name of a server: {flaw}")
        return ""


def _read_url(fields: ListedFields) -> str:
    url = fields.text("url", longest=2000)
    if not url:
        return ""
    try:
        if Url.parse(url).scheme not in {"http", "https"} or "#" in url:
            raise BrokenGrammar("only http and https, without a fragment")
    except BrokenGrammar as flaw:
        fields.wrong("url", f"must be like https://hooks.example.com/key: {flaw}")
    return url


def _lock(row: MessageChannel) -> None:
    """Locks the channel until the transaction ends, and reloads it. Raises `NotFound`."""
    Organization.objects.next_revision(row.organization_id)
    try:
        row.refresh_from_db()
    except MessageChannel.DoesNotExist:
        raise _channel_not_found(row.name) from None


def _channel_not_found(name: str) -> NotFound:
    return NotFound(f"There is no channel {name[:63]!r}.", code="channel_not_found")


def _masked_secrets(row: MessageChannel) -> dict[str, str]:
    if row.kind == MessageKind.EMAIL:
        return {"password": MASK if row.options.get("username") else ""}
    if row.kind == MessageKind.INBOX:
        return {}
    try:
        return {"url": masked_url(channel_secrets(row)["url"])}
    except Conflict:
        return {"url": MASK}


def _stored_fields(row: MessageChannel) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COMMON_FIELDS} | row.options


def _check_object(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise Malformed("A channel is a JSON object.", code="invalid_channel")
    return raw


def _accept_fields(raw: dict[str, Any]) -> ChannelFields:
    wanted = read_channel(raw)
    if wanted.flaws:
        raise _invalid_channel(wanted.flaws)
    return wanted


def _check_unchanged(row: MessageChannel, changes: Mapping[str, Any]) -> None:
    flaws = [
        {"field": name, "message": "cannot be changed"}
        for name in ("name", "kind")
        if changes.get(name, getattr(row, name)) != getattr(row, name)
    ]
    if flaws:
        raise _invalid_channel(flaws)


def _server_changed(row: MessageChannel, wanted: ChannelFields) -> bool:
    names = ("host", "port", "security")
    return any(row.options.get(name) != wanted.options.get(name) for name in names)


def _seal(row: MessageChannel, values: dict[str, str]) -> None:
    row.sealed = sealed_texts.seal(
        json.dumps(values),
        organization=row.organization_id,
        row=row.pk,
        purpose=sealed_texts.MESSAGES,
    )


def _new_key() -> str:
    return f"whsec_{secrets.token_urlsafe(32)}"


def _invalid_channel(errors: list[dict[str, str]]) -> Malformed:
    message = "The channel was not accepted; see details.errors."
    return Malformed(message, code="invalid_channel", errors=errors)
