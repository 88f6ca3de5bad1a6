"""Sends messages as HTTP requests: a signed webhook, and the format of Slack and compatible
services."""

import time
from typing import Any

import orjson

from audit.alerts.alert_channels import DeliveryFailed, signature
from tools.catalog.mcp import mcp_transports
from tools.catalog.mcp.mcp_values import Mask
from tools.httpclient import outbound
from tools.models import Message

_SPARE_S = 5.0  # the request times out earlier
# With these the receiver may have processed the message already.
_UNCERTAIN_STATUSES = frozenset({500, 502, 504})


def send_webhook(
    secrets: dict[str, str], message: Message, data: dict[str, Any], timeout_s: float
) -> str:
    """The receiver's response. Raises `NotTold`.

    The body is the same each time it is sent, so that a receiver recognizes a duplicate by its key.
    """
    body = orjson.dumps(
        {
            "delivery": str(message.pk),
            "channel": message.channel_name,
            "sender": message.sender,
            "subject": message.subject,
            "text": message.body,
            "data": data,
        }
    )
    signed = signature(secrets["key"].encode(), int(time.time()), body)
    return _post_message(secrets, message, body, [("toolcrib-signature", signed)], timeout_s)


def send_to_slack(secrets: dict[str, str], message: Message, timeout_s: float) -> str:
    """Escapes mentions and links that the author did not write as such."""
    text = f"*{_escape(message.subject)}*\n{_escape(message.body)}"
    return _post_message(secrets, message, orjson.dumps({"text": text}), [], timeout_s)


def secrets_mask(secrets: dict[str, str]) -> Mask:
    """A receiver may echo the request."""
    url = secrets.get("url", "")
    target = url.partition("://")[2].partition("/")[2]
    parts = [url, target, secrets.get("key", ""), secrets.get("password", "")]
    return Mask(part for part in parts if len(part) >= 6)


def _post_message(
    secrets: dict[str, str],
    message: Message,
    body: bytes,
    headers: list[tuple[str, str]],
    timeout_s: float,
) -> str:
    delivery = str(message.pk)
    common = [
        ("content-type", "application/json"),
        ("user-agent", "toolcrib"),
        ("idempotency-key", delivery),
        ("toolcrib-delivery", delivery),
    ]
    work = outbound.send(
        secrets["url"], [*common, *headers], body, timeout_s, message.organization.slug
    )
    try:
        receipt = mcp_transports.wait_for(work, timeout_s + _SPARE_S)
    except TimeoutError:
        raise DeliveryFailed("The receiver did not answer in time.", begun=True) from None
    words = secrets_mask(secrets).text(receipt.words.decode("utf-8", "replace"))
    answer = f"{receipt.status} {' '.join(words.split())}".strip()[:300]
    if not 200 <= receipt.status < 300:
        raise DeliveryFailed(
            f"The receiver refused it: {answer}", begun=receipt.status in _UNCERTAIN_STATUSES
        )
    return answer


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
