"""Notification channels of an organization: e-mail, or a webhook that we sign.

A webhook's secret is shown once, when it is created; its URL may contain one too, so evidence and
lists name the host alone. A message is sent without being stored or retried: e-mail by the
operator's server, a webhook by the safe HTTP client in `ALERT_POST`, since this layer has no
network of its own.
"""

import hmac
import os
import secrets
import smtplib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.core.validators import validate_email
from django.db import transaction
from django.utils.module_loading import import_string

from audit.actions import Actor, difference, record
from audit.errors import AuditFlaw
from audit.events import Event, Outcome
from audit.log import key_files
from audit.models import AlertChannel, ChannelKind

CHANGEABLE_FIELDS = ("name", "target", "least", "enabled")
MOST_CHANNELS = 20
_NONCE_BYTES = 12
TIMEOUT_S = 5.0
NO_EMAIL = "No e-mail can be sent: the operator has not set EMAIL_URL."
# URL, headers, body, seconds, organization; the status that was answered. Raises `DeliveryFailed`.
type Post = Callable[[str, list[tuple[str, str]], bytes, float, str], int]


@transaction.atomic
def create_channel(
    *, organization: str, name: str, kind: str, target: str, by: Actor, **fields: Any
) -> tuple[AlertChannel, str]:
    """Return the channel, and the secret of a webhook, which is shown only once.

    Raises `AuditFlaw`.
    """
    channel = AlertChannel(organization=organization, name=name, kind=kind, target=target)
    channel.least = fields.get("least", channel.least)
    if AlertChannel.objects.filter(organization=organization).count() >= MOST_CHANNELS:
        raise AuditFlaw(f"An organization has at most {MOST_CHANNELS} channels; remove one first.")
    secret = _new_secret(channel) if kind == ChannelKind.WEBHOOK else ""
    _save(channel)
    _record(Event.ALERT_CHANNEL_CHANGE, channel, by, None, channel_values(channel))
    return channel, secret


@transaction.atomic
def change_channel(*, channel: AlertChannel, by: Actor, **changes: Any) -> AlertChannel:
    """Set some of `CHANGEABLE_FIELDS`. Raises `AuditFlaw`."""
    row = AlertChannel.objects.select_for_update().get(pk=channel.pk)
    before = channel_values(row)
    moved = changes.get("target", row.target) != row.target
    for name in CHANGEABLE_FIELDS:
        setattr(row, name, changes.get(name, getattr(row, name)))
    _save(row)
    _record(Event.ALERT_CHANNEL_CHANGE, row, by, before, channel_values(row), moved=moved)
    return row


@transaction.atomic
def replace_secret(*, channel: AlertChannel, by: Actor) -> str:
    """Return the new secret, shown only once; the old one no longer signs. Raises `AuditFlaw`."""
    row = AlertChannel.objects.select_for_update().get(pk=channel.pk)
    if row.kind != ChannelKind.WEBHOOK:
        raise AuditFlaw("Only webhooks are signed.")
    secret = _new_secret(row)
    row.save(update_fields=["secret"])
    _record(Event.ALERT_CHANNEL_CHANGE, row, by, {}, {}, signing="replaced")
    return secret


@transaction.atomic
def remove_channel(*, channel: AlertChannel, by: Actor) -> None:
    """Delete the channel with its deliveries."""
    row = AlertChannel.objects.select_for_update().filter(pk=channel.pk).first()
    if row is not None:
        _record(Event.ALERT_CHANNEL_DELETE, row, by, channel_values(row), None)
        row.delete()


def signing_key(channel: AlertChannel) -> bytes:
    """The signing secret of a webhook. Raises LookupError where it cannot be decrypted."""
    sealed = bytes(channel.secret or b"")
    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return _cipher(channel).decrypt(nonce, text, channel.pk.bytes)
    except (InvalidTag, ValueError):  # changed since, or too short
        raise LookupError("Its secret does not open: replace it.") from None


def masked_target(channel: AlertChannel) -> str:
    """The target without what may be a secret."""
    if channel.kind == ChannelKind.EMAIL:
        return channel.target
    parts = urlsplit(channel.target)
    return f"{parts.scheme}://{parts.netloc}/…"


def channel_values(channel: AlertChannel) -> dict[str, Any]:
    """The channel as evidence names it."""
    return {
        "name": channel.name,
        "kind": channel.kind,
        "target": masked_target(channel),
        "least": channel.least,
        "enabled": channel.enabled,
    }


class DeliveryFailed(Exception):
    """The text says why, for users of the organization. `begun`: some of it may have arrived."""

    def __init__(self, message: str, *, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


@dataclass(frozen=True)
class AlertMessage:
    """`delivery` is the same each time it is sent, so that receivers can recognize a duplicate."""

    delivery: str
    title: str
    text: str
    content: dict[str, Any]


def send_message(channel: AlertChannel, message: AlertMessage) -> None:
    """Raises `DeliveryFailed`."""
    if channel.kind == ChannelKind.EMAIL:
        _send_email(channel, message)
    else:
        _send_webhook(channel, message)


def channel_problem(channel: AlertChannel) -> str:
    """Why the channel cannot deliver at all; empty where it can be tried."""
    lacks_server = channel.kind == ChannelKind.EMAIL and not settings.EMAIL_OPTIONS
    return NO_EMAIL if lacks_server else ""


def signature(key: bytes, timestamp: int, body: bytes) -> str:
    """HMAC-SHA256 over the time, a full stop and the body."""
    signed = hmac.new(key, f"{timestamp}.".encode() + body, sha256).hexdigest()
    return f"t={timestamp},v1={signed}"


def _save(channel: AlertChannel) -> None:
    _check_target(channel)
    same = AlertChannel.objects.filter(organization=channel.organization, name=channel.name)
    if same.exclude(pk=channel.pk).exists():
        raise AuditFlaw(f"There is a channel {channel.name} already.", "name")
    try:
        channel.full_clean(exclude=["organization"])
    except ValidationError as error:
        field = next(iter(error.message_dict), "")
        raise AuditFlaw(
            " ".join(error.messages), field if field in CHANGEABLE_FIELDS else ""
        ) from None
    channel.save()


def _check_target(channel: AlertChannel) -> None:
    if channel.kind == ChannelKind.WEBHOOK:
        return _check_address(channel.target)
    try:
        validate_email(channel.target)
        EmailBackend(alias="alerts", host="").prep_address(channel.target)  # as it will be written
    except (ValidationError, ValueError):
        raise AuditFlaw("This is no e-mail address.", "target") from None


def _check_address(target: str) -> None:
    """What can be checked before it is called; the address it resolves to is checked each time."""
    try:
        parts = urlsplit(target)
        whole = parts.scheme in {"https", "http"} and parts.hostname and parts.port != 0
    except ValueError:
        whole = False
    readable = target.isascii() and target.isprintable() and " " not in target
    if not whole or not readable or "@" in urlsplit(target).netloc or "#" in target:
        raise AuditFlaw(
            "Give an address such as https://alerts.example.com/hook, without a user name.",
            "target",
        )


def _new_secret(channel: AlertChannel) -> str:
    secret, nonce = f"whsec_{secrets.token_urlsafe(32)}", os.urandom(_NONCE_BYTES)
    sealed = _cipher(channel).encrypt(nonce, secret.encode(), channel.pk.bytes)
    channel.secret = nonce + sealed
    return secret


def _cipher(channel: AlertChannel) -> AESGCM:
    return AESGCM(key_files.derived_key("alert channel", channel.organization))


def _record(
    event: Event,
    channel: AlertChannel,
    by: Actor,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    **more: Any,
) -> None:
    record(
        event,
        by=by,
        outcome=Outcome.CHANGED,
        subject=channel.name,
        details={"channel": str(channel.pk), **difference(before, after), **more},
    )


def _send_email(channel: AlertChannel, message: AlertMessage) -> None:
    if problem := channel_problem(channel):
        raise DeliveryFailed(problem)
    server = EmailBackend(alias="alerts", timeout=TIMEOUT_S, **settings.EMAIL_OPTIONS)
    sender = settings.EMAIL_FROM
    domain = sender.rpartition("@")[2].strip("> ") or "localhost"
    mail = EmailMessage(
        subject=" ".join(message.title.split())[:200],
        body=message.text,
        from_email=sender,
        to=[channel.target],
        headers={
            "Message-ID": f"<{message.delivery.replace(':', '.')}@{domain}>",
            "Auto-Submitted": "auto-generated",
        },
    )
    try:
        server.send_messages([mail])
    except smtplib.SMTPResponseException as refusal:
        raise DeliveryFailed(f"The mail server refused it with {refusal.smtp_code}.") from None
    except smtplib.SMTPRecipientsRefused:
        raise DeliveryFailed("The mail server does not take mail for this address.") from None
    except ValueError:  # an address from before it was checked, or the operator's own
        raise DeliveryFailed("The address cannot be written to.") from None
    except (OSError, smtplib.SMTPException) as problem:
        raise DeliveryFailed(
            f"The mail server could not be used ({type(problem).__name__})."
        ) from None


def _send_webhook(channel: AlertChannel, message: AlertMessage) -> None:
    try:
        key = signing_key(channel)
    except LookupError as problem:
        raise DeliveryFailed(str(problem)) from None
    body = orjson.dumps({"delivery": message.delivery, **message.content})
    headers = [
        ("content-type", "application/json"),
        ("user-agent", "toolcrib"),
        ("toolcrib-delivery", message.delivery),
        ("toolcrib-signature", signature(key, int(time.time()), body)),
    ]
    status = _load_post()(channel.target, headers, body, TIMEOUT_S, channel.organization)
    if not 200 <= status < 300:
        raise DeliveryFailed(f"The receiver answered with status {status}.")


@lru_cache(maxsize=1)
def _load_post() -> Post:
    found: Post = import_string(settings.ALERT_POST)
    return found
