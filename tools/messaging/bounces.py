"""Handles bounce reports of a mail provider, which must be signed with the channel's key."""

import hmac
import time
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.actions import Actor, record
from audit.alerts.alert_channels import signature
from audit.events import Event, Outcome
from tools.errors import Conflict, NotFound, Unauthenticated
from tools.messaging.channels import opened
from tools.models import Message, MessageChannel, MessageState

FRESH_S = 300
_LONGEST_STAMP = 12
_NOT_GOOD = "The signature is not good."


def reporter(channel_id: UUID, signed: str, body: bytes) -> MessageChannel:
    """The channel whose key signed the report recently. Raises `Unauthenticated`, also where there
    is no such channel."""
    channel = MessageChannel.objects.filter(pk=channel_id).select_related("organization").first()
    stamp = _stamp(signed)
    if stamp is None or abs(time.time() - stamp) > FRESH_S:
        raise Unauthenticated(_NOT_GOOD, code="signature_invalid")
    expected = signature(_key(channel), stamp, body)
    same = hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace"))
    if channel is None or not same:
        raise Unauthenticated(_NOT_GOOD, code="signature_invalid")
    return channel


@transaction.atomic
def note_bounce(
    *, channel: MessageChannel, message_id: UUID, recipient: str = "", reason: str = ""
) -> None:
    """A repeated report has no further effect. Raises `NotFound`."""
    own = Message.objects.select_for_update().filter(channel=channel, pk=message_id)
    message = own.first()
    if message is None or (recipient and recipient not in message.recipients):
        raise NotFound("The channel sent no such message.", code="message_not_found")
    refused: dict[str, Any] = {one: reason for one in [recipient] if one}
    if message.state == MessageState.BOUNCED and refused.keys() <= message.refused.keys():
        return
    message.state, message.refused = MessageState.BOUNCED, message.refused | refused
    message.save(update_fields=["state", "refused", "updated_at"])
    record(
        Event.MESSAGE_BOUNCE,
        by=Actor("system", f"channel:{channel.name}", channel.organization.slug),
        outcome=Outcome.FAILURE,
        subject=channel.name,
        details={"message": str(message.pk), "recipient": recipient},
    )


def _stamp(signed: str) -> int | None:
    """Of `t=1763920000,v1=…`."""
    text = signed.partition(",")[0].removeprefix("t=")
    plain = text.isascii() and text.isdigit() and len(text) <= _LONGEST_STAMP
    return int(text) if plain else None


def _key(channel: MessageChannel | None) -> bytes:
    """Without a channel the same work is done, so that timing reveals nothing."""
    try:
        return opened(channel)["key"].encode() if channel else b"nobody"
    except Conflict:
        raise Unauthenticated(_NOT_GOOD, code="signature_invalid") from None
