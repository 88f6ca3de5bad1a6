"""Serializers of channels, messages and the inbox."""

from typing import Any

from rest_framework import serializers

from tools.api.common.fields import Strict, Text, texts
from tools.api.common.pagination import Page
from tools.models import MessageKind, MessageState


class MessageChannelBody(serializers.Serializer[Any]):
    """Which fields there are depends on the kind; the catalog reads them."""

    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(choices=MessageKind.choices)
    enabled = serializers.BooleanField(required=False)
    recipients = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Exact addresses and @domains of e-mail, names of people of an inbox; none is "
        "nobody.",
    )
    subject_template = serializers.CharField(required=False)
    body_template = serializers.CharField(
        required=False, help_text="May name subject, body, data, sender, channel, recipients."
    )
    most_recipients = serializers.IntegerField(required=False)
    most_an_hour = serializers.IntegerField(required=False)
    host = serializers.CharField(required=False, help_text="Of e-mail.")
    port = serializers.IntegerField(required=False)
    security = serializers.CharField(required=False, help_text="tls, starttls or none.")
    username = serializers.CharField(required=False)
    password = serializers.CharField(required=False, help_text="Kept sealed, never shown again.")
    sender = serializers.CharField(required=False, help_text="The address mail comes from.")
    url = serializers.CharField(required=False, help_text="Of a webhook or a chat; kept sealed.")


class MessageChannelChange(MessageChannelBody):
    name = serializers.CharField(required=False)
    kind = serializers.ChoiceField(choices=MessageKind.choices, required=False)


class MessageChannelAnswer(MessageChannelBody):
    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class NewMessageChannelAnswer(MessageChannelAnswer):
    signing_key = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )


class MessageChannelPage(Page):
    results = MessageChannelAnswer(many=True)


class SigningSecretAnswer(serializers.Serializer[Any]):
    signing_key = serializers.CharField(
        allow_null=True, help_text="Shown this once; null where a replay withholds it."
    )


class ChannelTestBody(Strict):
    to = texts(required=False, default=list)


class BounceBody(Strict):
    message_id = serializers.UUIDField(help_text="What stands in its Message-ID, or its delivery.")
    recipient = Text(max_length=254, required=False, default="")
    reason = Text(max_length=300, required=False, default="")


class MessageAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    channel = serializers.CharField()
    kind = serializers.ChoiceField(choices=MessageKind.choices)
    execution_id = serializers.UUIDField(allow_null=True)
    sender = serializers.CharField()
    recipients = serializers.ListField(child=serializers.CharField())
    subject = serializers.CharField()
    state = serializers.ChoiceField(choices=MessageState.choices)
    answer = serializers.CharField(help_text="What the provider said, or why nothing was sent.")
    refused = serializers.DictField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class MessageDetailAnswer(MessageAnswer):
    body = serializers.CharField()


class MessagePage(Page):
    results = MessageAnswer(many=True)


class InboxItemAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    channel = serializers.CharField()
    sender = serializers.CharField()
    subject = serializers.CharField()
    body = serializers.CharField()
    received_at = serializers.DateTimeField()
    read_at = serializers.DateTimeField(allow_null=True)


class InboxPage(Page):
    results = InboxItemAnswer(many=True)
