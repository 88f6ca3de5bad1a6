"""Shapes of notification channels, messages and the inbox."""

from typing import Any

from tools.messaging.message_channels import channel_fields
from tools.models import InboxItem, Message, MessageChannel
from tools.shapes.scalars import moment


def channel_shape(channel: MessageChannel) -> dict[str, Any]:
    """Without its secrets."""
    return {
        "id": str(channel.pk),
        **channel_fields(channel),
        "created_at": moment(channel.created_at),
        "updated_at": moment(channel.updated_at),
    }


def message_shape(message: Message) -> dict[str, Any]:
    execution = message.execution_id
    return {
        "id": str(message.pk),
        "channel": message.channel_name,
        "kind": message.kind,
        "execution_id": None if execution is None else str(execution),
        "sender": message.sender,
        "recipients": message.recipients,
        "subject": message.subject,
        "state": message.state,
        "answer": message.answer,
        "refused": message.refused,
        "created_at": moment(message.created_at),
        "updated_at": moment(message.updated_at),
    }


def inbox_shape(item: InboxItem) -> dict[str, Any]:
    message = item.message
    return {
        "id": str(item.pk),
        "channel": message.channel_name,
        "sender": message.sender,
        "subject": message.subject,
        "body": message.body,
        "received_at": moment(message.created_at),
        "read_at": moment(item.read_at),
    }
