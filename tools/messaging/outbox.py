"""Messages: each is stored before it is sent, and its delivery status afterwards.

Bounces of a mail provider change the status; they must be signed with the key of the channel. The
inbox of a person holds the messages of one organization.
"""

import hmac
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from audit.actions import Actor, record
from audit.alerts.alert_channels import DeliveryFailed, signature
from audit.events import Event, Outcome
from tools.definitions.texts import templates
from tools.definitions.texts.names import flaw_in_address, uncovered_recipients
from tools.errors import Conflict, NotFound, Unauthenticated
from tools.messaging import smtp, webhooks
from tools.messaging.message_channels import channel_secrets
from tools.models import InboxItem, Message, MessageChannel, MessageKind, MessageState, User

MOST_SUBJECT, MOST_BODY = 200, 100_000  # characters, as rendered
_HOUR = timedelta(hours=1)
_WITHOUT_RECIPIENTS = frozenset({MessageKind.WEBHOOK, MessageKind.SLACK})
REPORT_MAX_AGE_S = 300
_LONGEST_TIMESTAMP = 12
_INVALID_SIGNATURE = "The signature is not good."


class MessageRefused(Exception):
    """Nothing was sent. `code` is for programs, the text for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class MessageDraft:
    """A message to be sent. One execution creates one message, also when it is retried."""

    channel: str
    recipients: list[str]
    subject: str
    body: str
    sender: str
    data: dict[str, Any] = field(default_factory=dict)
    execution_id: UUID | None = None


@transaction.atomic
def store_message(organization_id: UUID, draft: MessageDraft) -> Message:
    """The message's row, also where it was stored before. Raises `MessageRefused`."""
    locked = MessageChannel.objects.select_for_update()
    channel = locked.filter(organization_id=organization_id, name=draft.channel).first()
    if channel is None:
        raise MessageRefused("CHANNEL_UNKNOWN", f"There is no channel {draft.channel[:63]!r}.")
    if not channel.enabled:
        raise MessageRefused("CHANNEL_DISABLED", f"The channel {channel.name} is switched off.")
    _check_recipients(channel, draft.recipients)
    if draft.execution_id is not None:
        own = Message.objects.filter(organization_id=organization_id)
        if found := own.filter(execution_id=draft.execution_id).first():
            return found
    _check_hourly_limit(channel)
    subject, body = _render_message(channel, draft)
    inbox = channel.kind == MessageKind.INBOX
    people = find_recipients(organization_id, draft.recipients) if inbox else []
    return Message.objects.create(
        organization_id=organization_id,
        channel=channel,
        channel_name=channel.name,
        kind=channel.kind,
        execution_id=draft.execution_id,
        sender=draft.sender[:254],
        recipients=draft.recipients,
        addressees=[one.pk for one in people],
        subject=subject,
        body=body,
    )


def deliver_message(message: Message, data: dict[str, Any], timeout_s: float) -> None:
    """Send the message and store the result. Raises `NotTold` when it was not sent, or that is
    unknown."""
    channel = message.channel
    if message.state == MessageState.SENT:
        return
    if channel is None:
        raise _store_failure(message, DeliveryFailed("The channel is not there any more."))
    try:
        secrets = channel_secrets(channel)
    except Conflict as problem:
        raise _store_failure(message, DeliveryFailed(problem.message)) from None
    mask = webhooks.secrets_mask(secrets)  # the receiver may echo the request
    _store_status(message, MessageState.UNKNOWN)  # the state if the worker dies now
    try:
        answer = _send_through_channel(channel, secrets, message, data, timeout_s)
    except smtp.RecipientsRefused as problem:
        refused = {one: mask.text(words) for one, words in problem.refused.items()}
        raise _store_failure(
            message, smtp.RecipientsRefused(refused, lasting=problem.lasting)
        ) from None
    except DeliveryFailed as problem:
        said = DeliveryFailed(mask.text(str(problem)), begun=problem.begun)
        raise _store_failure(message, said) from None
    _store_status(message, MessageState.SENT, answer=mask.text(answer))


def find_recipients(organization_id: UUID, names: list[str]) -> list[User]:
    """Existing accounts that may log in."""
    return list(_active_people(organization_id).filter(username__in=names))


def inbox_items(user_id: UUID, organization_id: UUID) -> QuerySet[InboxItem]:
    found = InboxItem.objects.filter(user_id=user_id, message__organization_id=organization_id)
    return found.select_related("message")


def mark_read(item: InboxItem) -> None:
    """The first time counts; safe to repeat."""
    now = timezone.now()
    if InboxItem.objects.filter(pk=item.pk, read_at=None).update(read_at=now):
        item.read_at = now
    elif item.read_at is None:
        item.refresh_from_db(fields=["read_at"])


def authenticate_report(channel_id: UUID, signed: str, body: bytes) -> MessageChannel:
    """The channel whose key signed the report recently. Raises `Unauthenticated`, also where there
    is no such channel."""
    channel = MessageChannel.objects.filter(pk=channel_id).select_related("organization").first()
    stamp = _parse_timestamp(signed)
    if stamp is None or abs(time.time() - stamp) > REPORT_MAX_AGE_S:
        raise Unauthenticated(_INVALID_SIGNATURE, code="signature_invalid")
    expected = signature(_signing_key(channel), stamp, body)
    same = hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace"))
    if channel is None or not same:
        raise Unauthenticated(_INVALID_SIGNATURE, code="signature_invalid")
    return channel


@transaction.atomic
def record_bounce(
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


def _send_through_channel(
    channel: MessageChannel,
    secrets: dict[str, str],
    message: Message,
    data: dict[str, Any],
    timeout_s: float,
) -> str:
    match channel.kind:
        case MessageKind.EMAIL:
            letter = smtp.MailMessage(
                str(message.pk), message.recipients, message.subject, message.body
            )
            place = message.organization.slug
            return smtp.send_mail(channel.options, secrets["password"], letter, timeout_s, place)
        case MessageKind.WEBHOOK:
            return webhooks.send_webhook(secrets, message, data, timeout_s)
        case MessageKind.SLACK:
            return webhooks.send_to_slack(secrets, message, timeout_s)
        case _:
            return _put_into_inboxes(message)


def _put_into_inboxes(message: Message) -> str:
    people = _active_people(message.organization_id).filter(pk__in=message.addressees)
    InboxItem.objects.bulk_create(
        [InboxItem(message=message, user=one) for one in people], ignore_conflicts=True
    )
    return "kept"


def _active_people(organization_id: UUID) -> QuerySet[User]:
    found = User.objects.filter(organization_id=organization_id)
    return found.filter(is_active=True, is_service_account=False)


def _check_recipients(channel: MessageChannel, recipients: list[str]) -> None:
    if channel.kind in _WITHOUT_RECIPIENTS:
        if recipients:
            words = "This channel has one receiver; leave `to` empty."
            raise MessageRefused("RECIPIENT_NOT_ALLOWED", words)
        return
    if not 1 <= len(recipients) <= channel.most_recipients:
        words = f"Name 1 to {channel.most_recipients} recipients."
        raise MessageRefused("RECIPIENTS_COUNT", words)
    wrong = uncovered_recipients(recipients, channel.recipients)
    if channel.kind == MessageKind.EMAIL:
        wrong += [one for one in recipients if flaw_in_address(one)]
    else:
        there = {one.username for one in find_recipients(channel.organization_id, recipients)}
        wrong += [one for one in recipients if one not in there]
    if wrong:
        words = f"The channel {channel.name} does not allow {wrong[0][:100]!r}."
        raise MessageRefused("RECIPIENT_NOT_ALLOWED", words)


def _check_hourly_limit(channel: MessageChannel) -> None:
    """Call it with the channel's row locked. Failed and bounced messages count too, since the limit
    protects recipients from attempts."""
    recent = Message.objects.filter(channel=channel, created_at__gt=Now() - _HOUR)
    if recent.count() >= channel.most_an_hour:
        words = f"The channel {channel.name} sends {channel.most_an_hour} messages an hour."
        raise MessageRefused("CHANNEL_FULL", words)


def _render_message(channel: MessageChannel, draft: MessageDraft) -> tuple[str, str]:
    values = {
        "subject": draft.subject,
        "body": draft.body,
        "data": draft.data,
        "sender": draft.sender,
        "channel": channel.name,
        "recipients": draft.recipients,
    }
    try:
        subject = templates.render_template(channel.subject_template, values)
        body = templates.render_template(channel.body_template, values)
    except templates.CannotRender as flaw:
        raise MessageRefused("MESSAGE_INVALID", str(flaw)) from None
    if len(body) > MOST_BODY:
        raise MessageRefused(
            "MESSAGE_TOO_LONG", f"The message is longer than {MOST_BODY} characters."
        )
    line = "".join(one if one.isprintable() else " " for one in subject)
    return " ".join(line.split())[:MOST_SUBJECT], body


def _store_failure(message: Message, problem: DeliveryFailed) -> DeliveryFailed:
    if isinstance(problem, smtp.RecipientsRefused):
        state = MessageState.BOUNCED if problem.lasting else MessageState.FAILED
        _store_status(message, state, answer=str(problem), refused=problem.refused)
    else:
        state = MessageState.UNKNOWN if problem.begun else MessageState.FAILED
        _store_status(message, state, answer=str(problem))
    return problem


def _store_status(
    message: Message,
    state: MessageState,
    *,
    answer: str = "",
    refused: dict[str, str] | None = None,
) -> None:
    """Stores the status, unless another one was stored meanwhile: a bounce may be reported before
    the provider has answered. The message is then reloaded from its row."""
    seen = Message.objects.filter(pk=message.pk, state=message.state)
    seen.update(
        state=state,
        answer=answer.replace("\0", "")[:500],
        refused=refused or {},
        updated_at=timezone.now(),
    )
    message.refresh_from_db(fields=["state", "answer", "refused", "updated_at"])


def _parse_timestamp(signed: str) -> int | None:
    """Of `t=1763920000,v1=…`."""
    text = signed.partition(",")[0].removeprefix("t=")
    plain = text.isascii() and text.isdigit() and len(text) <= _LONGEST_TIMESTAMP
    return int(text) if plain else None


def _signing_key(channel: MessageChannel | None) -> bytes:
    """Without a channel the same work is done, so that timing reveals nothing."""
    try:
        return channel_secrets(channel)["key"].encode() if channel else b"nobody"
    except Conflict:
        raise Unauthenticated(_INVALID_SIGNATURE, code="signature_invalid") from None
