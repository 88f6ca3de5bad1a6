"""Read-only Django admin of messages and their channels. The API creates and changes them."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from tools.admin.base import ReadOnly
from tools.models import InboxItem, Message, MessageChannel, User


@admin.register(MessageChannel)
class MessageChannelAdmin(ReadOnly):
    list_display = ("name", "organization", "kind", "enabled", "updated_at")
    list_filter = ("kind", "enabled")
    list_select_related = ("organization",)
    search_fields = ("name",)
    hidden = ("sealed",)  # never shown


@admin.register(Message)
class MessageAdmin(ReadOnly):
    list_display = ("subject", "channel_name", "kind", "state", "created_at")
    list_filter = ("state", "kind", "created_at")
    search_fields = ("=channel_name", "=execution_id")
    ordering = ("-created_at",)
    readonly_fields = ("inboxes",)
    hidden = ("addressees",)

    @admin.display(description="addressees")
    def inboxes(self, message: Message) -> str:
        """The names of the inboxes, which are stored by id."""
        names = dict(User.objects.filter(pk__in=message.addressees).values_list("pk", "username"))
        return ", ".join(f"{names.get(one, 'gone')} ({one})" for one in message.addressees)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*super().get_fields(request, obj), "inboxes"]


@admin.register(InboxItem)
class InboxItemAdmin(ReadOnly):
    place = "message__organization"
    fields = list_display = ("message", "user", "read_at")
    list_filter = (("read_at", admin.EmptyFieldListFilter),)
    list_select_related = ("message__organization", "user")
    search_fields = ("user__username__exact",)
