"""Serializers of `/api/v1/groups`."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field, inline_serializer
from rest_framework import serializers

from tools.api.common.fields import Strict, Text, texts
from tools.api.common.pagination import Page
from tools.catalog.membership import Through
from tools.definitions.values.schedules import DAYS

WINDOWS = inline_serializer(
    "GroupWindow",  # one of its fields is named like a Python keyword
    {
        "days": serializers.ListField(
            child=serializers.ChoiceField(choices=DAYS),
            required=False,
            help_text="Every day when left out.",
        ),
        "from": serializers.RegexField(r"^\d\d:\d\d$", help_text="Such as 09:00."),
        "to": serializers.RegexField(
            r"^\d\d:\d\d$",
            help_text="Such as 17:00 or 24:00; what is not after `from` is on the next day.",
        ),
    },
    many=True,
)


@extend_schema_field(WINDOWS)
class Windows(serializers.JSONField):
    """Read by the action, which names what is wrong in each window."""


@extend_schema_field(OpenApiTypes.FLOAT)
class Bound(serializers.JSONField):
    """A number, read by the action; null is no bound."""


class GroupChange(Strict):
    description = Text(required=False, max_length=1000, allow_blank=True)
    permissions = texts(required=False)
    parent = Text(  # type: ignore[assignment]
        required=False,
        allow_null=True,
        max_length=100,
        help_text="A tool in this group is also in its parent.",
    )
    schedule = Windows(
        required=False,
        help_text="When it is open, in the organization's time zone; without windows always.",
    )
    max_queue_age_s = Bound(
        required=False, allow_null=True, help_text="Closed while a call has waited longer."
    )
    max_cpu_percent = Bound(
        required=False, allow_null=True, help_text="Closed while the processors are busier."
    )


class GroupBody(GroupChange):
    name = Text(max_length=100)


class MemberAnswer(serializers.Serializer[Any]):
    tool = serializers.CharField()
    through = serializers.ChoiceField(
        choices=[str(one) for one in Through],
        help_text="`own`: it names the group. `source`: its service or server does. "
        "`parent`: it is in a group within this one.",
    )


class GroupAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    permissions = serializers.ListField(child=serializers.CharField())
    parent = serializers.CharField(allow_null=True)  # type: ignore[assignment]
    children = serializers.ListField(child=serializers.CharField())
    schedule = Windows()
    max_queue_age_s = serializers.FloatField(allow_null=True)
    max_cpu_percent = serializers.FloatField(allow_null=True)
    open = serializers.BooleanField()
    closed_reason = serializers.CharField(allow_null=True)
    tools = serializers.ListField(child=serializers.CharField())
    members = MemberAnswer(many=True)
    states = serializers.ListField(
        child=serializers.CharField(), help_text="That its tools are available in or lead to."
    )


class GroupPage(Page):
    results = GroupAnswer(many=True)
