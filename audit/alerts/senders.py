"""Send one message to one notification channel, without storing or retrying it.

E-mail goes to the operator's server. A webhook goes to an address that a tenant chose: the project
gives a safe HTTP client in `ALERT_POST`, since this layer has no network of its own.
"""

import hmac
import smtplib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson
from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.utils.module_loading import import_string

from audit.alerts import alert_channels
from audit.models import AlertChannel, ChannelKind

TIMEOUT_S = 5.0
NO_EMAIL = "No e-mail can be sent: the operator has not set EMAIL_URL."
# URL, headers, body, seconds, organization; the status that was answered. Raises `DeliveryFailed`.
type Post = Callable[[str, list[tuple[str, str]], bytes, float, str], int]


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
        key = alert_channels.signing_key(channel)
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
