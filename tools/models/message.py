"""Notification channels, sent messages, and the inbox of a person."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from tools.models.ids import new_id
from tools.models.organization import Organization
from tools.models.user import User


class MessageKind(models.TextChoices):
    EMAIL = "email"
    WEBHOOK = "webhook"
    SLACK = "slack"
    INBOX = "inbox"


class MessageState(models.TextChoices):
    QUEUED = "queued"  # stored; nothing was sent yet
    UNKNOWN = "unknown"  # begun, with an unknown end
    SENT = "sent"
    FAILED = "failed"
    BOUNCED = "bounced"


class MessageChannel(models.Model):
    """A notification channel. Its secrets are decrypted only for sending."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="message_channels"
    )
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=8, choices=MessageKind.choices)
    options = models.JSONField(default=dict, help_text="Of e-mail: host, port, security, ….")
    sealed = models.BinaryField(help_text="Address, password and signing key, encrypted.")
    recipients = ArrayField(
        models.CharField(max_length=254),
        default=list,
        help_text="Exact addresses, @domains, or names of people; empty is nobody.",
    )
    subject_template = models.TextField()
    body_template = models.TextField()
    most_recipients = models.PositiveSmallIntegerField(default=10)
    most_an_hour = models.PositiveIntegerField(default=60)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint("organization", "name", name="message_channel_name_once"),
            models.CheckConstraint(
                name="message_channel_kind_is_known", condition=Q(kind__in=MessageKind.values)
            ),
            models.CheckConstraint(
                name="message_channel_name_is_plain",
                condition=Q(name__regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """One message with its delivery status; its channel may be deleted since."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="messages"
    )
    channel = models.ForeignKey(
        MessageChannel, on_delete=models.SET_NULL, null=True, related_name="messages"
    )
    channel_name = models.CharField(max_length=63)
    kind = models.CharField(max_length=8, choices=MessageKind.choices)
    execution_id = models.UUIDField(null=True, help_text="None of a test.")
    sender = models.CharField(max_length=254)
    recipients = ArrayField(models.CharField(max_length=254), default=list)
    addressees = ArrayField(
        models.UUIDField(), default=list, editable=False, help_text="Whose inboxes, by id."
    )
    subject = models.TextField()
    body = models.TextField()
    state = models.CharField(
        max_length=8, choices=MessageState.choices, default=MessageState.QUEUED
    )
    answer = models.CharField(max_length=500, blank=True, help_text="What the provider said.")
    refused = models.JSONField(default=dict, help_text="Recipients that were refused, and why.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["channel", "created_at"], name="message_of_an_hour")]
        constraints = [
            models.UniqueConstraint(
                "execution_id",
                name="message_once_per_execution",
                condition=Q(execution_id__isnull=False),
            ),
            models.CheckConstraint(
                name="message_state_is_known", condition=Q(state__in=MessageState.values)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.channel_name}: {self.state}"


class InboxItem(models.Model):
    """A message in the inbox of one person."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="items")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="inbox")
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint("message", "user", name="inbox_item_once_per_person")
        ]

    def __str__(self) -> str:
        return str(self.pk)
