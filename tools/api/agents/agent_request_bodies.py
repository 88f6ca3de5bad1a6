"""Serializers of `/api/v1/agent/requests`."""

from typing import Any

from rest_framework import serializers

from tools.agents.run_parameters import (
    ITERATIONS,
    MOST_HISTORY,
    MOST_ITERATIONS,
    MOST_QUESTION,
    MOST_TOKENS,
    PATTERNS,
    REACT,
    THRESHOLD,
    TOKENS,
)
from tools.api.common.bodies import ExecutionAnswer, OptionsBody, Page
from tools.api.common.fields import Flag, Items, Seconds, State, Strict, Text, Whole, texts
from tools.definitions.results import Status


class PastStepBody(Strict):
    thought = Text(required=False, default="", allow_blank=True, max_length=20_000)
    action = Text(required=False, default="", allow_blank=True, max_length=128)
    arguments = serializers.DictField(required=False, default=dict)
    observation = Text(required=False, default="", allow_blank=True, max_length=100_000)


class AgentRequestBody(Strict):
    """A question for an agent, and the limits of the run."""

    question = Text(
        required=False,
        max_length=MOST_QUESTION,
        help_text="Left out, it is that of the request which this one continues or replays.",
    )
    pattern = serializers.ChoiceField(choices=PATTERNS, required=False, default=REACT)
    group = texts(required=False, allow_null=True, default=None)
    state = State()
    session = Text(
        required=False,
        allow_null=True,
        default=None,
        max_length=64,
        help_text="Left out, it has one of its own, which is closed at its end.",
    )
    history = Items(child=PastStepBody(), required=False, default=list, max_length=MOST_HISTORY)
    model = Text(required=False, allow_blank=True, default="", max_length=200)
    max_iterations = Whole(
        required=False, default=ITERATIONS, min_value=1, max_value=MOST_ITERATIONS
    )
    max_tokens = Whole(required=False, default=TOKENS, min_value=1, max_value=MOST_TOKENS)
    max_cost = serializers.RegexField(
        r"\A[0-9]{1,9}(\.[0-9]{1,6})?\Z", required=False, allow_null=True, default=None,
        max_length=20, trim_whitespace=False,
    )  # fmt: skip
    confidence = Seconds(
        required=False,
        default=THRESHOLD,
        min_value=0,
        max_value=1,
        help_text="Of a plan: a person is asked about a step that is less sure.",
    )
    thresholds = serializers.DictField(
        child=Seconds(min_value=0, max_value=1), required=False, default=dict
    )
    continues = serializers.UUIDField(required=False, allow_null=True, default=None)
    replays = serializers.UUIDField(
        required=False,
        allow_null=True,
        default=None,
        help_text="A request whose recorded results stand for calls: no tool is called.",
    )
    shared_with = Items(
        child=Text(max_length=63),
        required=False,
        default=list,
        max_length=20,
        help_text="Agents that may go on from this request, if they have the same rights.",
    )
    stream = Flag(required=False, default=False, help_text="Answer with Server-Sent Events.")
    options = OptionsBody(required=False)


class TokensAnswer(serializers.Serializer[Any]):
    input = serializers.IntegerField()
    output = serializers.IntegerField()


class AgentStepAnswer(serializers.Serializer[Any]):
    step = serializers.IntegerField()
    thought = serializers.CharField()
    action = serializers.CharField(allow_null=True)
    arguments = serializers.DictField(allow_null=True)
    observation = serializers.CharField(allow_null=True)
    status = serializers.CharField(help_text="Of the action; empty before it begins.")
    execution_id = serializers.UUIDField(allow_null=True)
    not_called = serializers.ListField(
        child=serializers.CharField(),
        help_text="Tools that the model called in the same turn; only the first call is made.",
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Such as that the reply was cut at its length."
    )
    tokens = TokensAnswer()
    cost = serializers.CharField()
    duration_ms = serializers.FloatField()


class AgentRequestAnswer(serializers.Serializer[Any]):
    request_id = serializers.UUIDField(help_text="The id of its own execution.")
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    pattern = serializers.ChoiceField(choices=PATTERNS)
    question = serializers.CharField()
    answer = serializers.CharField(allow_null=True)
    steps = AgentStepAnswer(many=True)
    plan = serializers.DictField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    state = serializers.CharField(help_text="Where the workflow is now.")
    tokens = TokensAnswer()
    cost = serializers.CharField()
    duration_ms = serializers.FloatField(help_text="Of its calls together.")
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)
    execution = ExecutionAnswer(help_text="The request as the execution that it is.")


class AgentRequestLine(serializers.Serializer[Any]):
    request_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    pattern = serializers.ChoiceField(choices=PATTERNS)
    question = serializers.CharField(help_text="Its beginning.")
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)


class AgentRequestPage(Page):
    results = AgentRequestLine(many=True)
