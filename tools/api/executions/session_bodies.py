"""Serializers of `/api/v1/sessions`."""

from typing import Any

from rest_framework import serializers

from tools.api.common.fields import State, Strict, Text, texts
from tools.api.common.pagination import Page
from tools.definitions.results import Status


class SessionBody(Strict):
    group = texts(
        required=False,
        allow_null=True,
        default=None,
        help_text='Absent is ["default"], [] is none.',
    )
    state = State(help_text="To begin in.")
    pins = serializers.DictField(
        child=Text(allow_null=True, max_length=40),
        required=False,
        help_text="Versions by the names of tools, kept as long as the session.",
    )


class SessionAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    group = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField()
    caller = serializers.CharField(help_text="Whose it is: an agent's slug or a person's name.")
    created_at = serializers.DateTimeField()
    entered_at = serializers.DateTimeField(help_text="When it came into its state.")
    closed_at = serializers.DateTimeField(allow_null=True)


class OpenedSession(SessionAnswer):
    pins = serializers.DictField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())


class StepAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    tool_name = serializers.CharField()
    arguments = serializers.DictField(
        allow_null=True, help_text="null when they are large: read the execution."
    )
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    observation = serializers.CharField(help_text="Its beginning.")
    error_code = serializers.CharField(allow_null=True)
    cached = serializers.BooleanField()
    state_before = serializers.CharField()
    state_after = serializers.CharField()
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)


class TransitionAnswer(serializers.Serializer[Any]):
    tool = serializers.CharField()
    to = serializers.CharField()
    timestamp = serializers.DateTimeField()
    execution_id = serializers.UUIDField()

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        return {"from": serializers.CharField(), **super().get_fields()}


class SessionDetailAnswer(SessionAnswer):
    pins = serializers.DictField(child=serializers.CharField())
    tools = serializers.ListField(
        child=serializers.CharField(), help_text="Those that exist in it now."
    )
    transitions = TransitionAnswer(many=True, help_text="The latest 200, in order.")
    history = StepAnswer(many=True, help_text="The latest 50 calls, in order.")


class SessionPage(Page):
    results = SessionAnswer(many=True)


class HistoryPage(Page):
    results = StepAnswer(many=True)
