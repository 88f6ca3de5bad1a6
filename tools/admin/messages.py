"""Channels of messages and what was sent: looked at here, made and changed over the API."""

from typing import Any

from django.contrib import admin

from tools.admin.base import ReadOnly
from tools.models import InboxItem, Message, MessageChannel


@admin.register(MessageChannel)
class MessageChannelAdmin(ReadOnly):
    list_display = ("name", "organization", "kind", "enabled", "updated_at")
    list_filter = ("kind", "enabled")
    list_select_related = ("organization",)
    search_fields = ("name",)

    def get_fields(self, request: Any, obj: Any = None) -> Any:
        """What is sealed is for nobody."""
        columns = MessageChannel._meta.concrete_fields
        return [field.name for field in columns if field.name != "sealed"]


@admin.register(Message)
class MessageAdmin(ReadOnly):
    list_display = ("subject", "channel_name", "kind", "state", "created_at")
    list_filter = ("state", "kind", "created_at")
    search_fields = ("=channel_name", "=execution_id")
    show_full_result_count = False


@admin.register(InboxItem)
class InboxItemAdmin(ReadOnly):
    place = "message__organization"
    fields = list_display = ("message", "user", "read_at")
    list_select_related = ("message__organization", "user")
    show_full_result_count = False
