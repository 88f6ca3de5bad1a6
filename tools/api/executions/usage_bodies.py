"""Serializers of `/usage`."""

from typing import Any

from rest_framework import serializers


class UsageRow(serializers.Serializer[Any]):
    """Of day, agent, tool and group those that were asked for."""

    day = serializers.DateField(required=False)
    agent = serializers.CharField(required=False, allow_null=True)
    tool = serializers.CharField(required=False)
    group = serializers.CharField(required=False, allow_null=True)
    calls = serializers.IntegerField(help_text="All that were asked for.")
    failures = serializers.IntegerField()
    denials = serializers.IntegerField(help_text="Those of them that a gate refused.")
    cached = serializers.IntegerField()
    cost = serializers.CharField()


class UsageAnswer(serializers.Serializer[Any]):
    since = serializers.DateField()
    until = serializers.DateField()
    time_zone = serializers.CharField(help_text="Of the organization: its days are meant.")
    by = serializers.ListField(child=serializers.CharField())
    results = UsageRow(many=True)
    truncated = serializers.BooleanField(help_text="There is more: ask for fewer days.")
