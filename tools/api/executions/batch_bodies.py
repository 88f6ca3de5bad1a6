"""Serializers of batches."""

from typing import Any

from rest_framework import serializers

from tools.api.common.bodies import ExecutionAnswer, InputAnswer, OptionsBody
from tools.api.common.fields import Flag, Items, State, Strict, Text, Whole, texts
from tools.definitions.batches import LONGEST_TOOL_NAME, MOST_INPUTS
from tools.definitions.results import Status
from tools.workflows.batch import MOST_PARALLEL

MODES = ("sequential", "parallel")


class BatchInputBody(Strict):
    tool_name = Text(max_length=LONGEST_TOOL_NAME)
    parameters = serializers.DictField(required=False, default=dict)


class BatchBody(Strict):
    """Many calls. In a session they move its state one after the other."""

    inputs = Items(
        child=BatchInputBody(), min_length=1, max_length=MOST_INPUTS, help_text="In their order."
    )
    mode = serializers.ChoiceField(choices=MODES, required=False, default="sequential")
    max_parallel = Whole(
        required=False,
        default=8,
        min_value=1,
        max_value=MOST_PARALLEL,
        help_text="How many may be open at once, where it is parallel.",
    )
    stop_on_error = Flag(required=False, default=False)
    group = texts(required=False, allow_null=True, default=None)
    state = State()
    session = Text(required=False, allow_null=True, default=None, max_length=64)
    options = OptionsBody(required=False)


class BatchCancelBody(Strict):
    positions = Items(
        child=Whole(min_value=0, max_value=MOST_INPUTS - 1),
        required=False,
        allow_null=True,
        default=None,
        max_length=MOST_INPUTS,
        help_text="Which of its calls; absent: all of it.",
    )


class BatchLineAnswer(serializers.Serializer[Any]):
    """An execution with its position; an input without one has the reason."""

    position = serializers.IntegerField()
    execution_id = serializers.UUIDField(allow_null=True)
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    input = InputAnswer()
    output = serializers.JSONField(allow_null=True)
    output_href = serializers.CharField(
        required=False,
        help_text="Where its output is read: there was no room for it among those before it.",
    )
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)


class BatchAnswer(serializers.Serializer[Any]):
    batch_id = serializers.UUIDField(help_text="The id of its own execution.")
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    mode = serializers.ChoiceField(choices=MODES)
    total = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Begun, and not over.")
    waiting = serializers.IntegerField(help_text="Not begun yet.")
    results = BatchLineAnswer(many=True)
    execution = ExecutionAnswer(help_text="The batch as the execution that it is.")
