"""Serializers of chains."""

from typing import Any

from rest_framework import serializers

from tools.api.common.bodies import ExecutionAnswer, Page, ParameterBody
from tools.api.common.fields import State, Strict, texts
from tools.definitions.chains.chain_document import ON_CANCEL, ON_ERROR
from tools.definitions.results import Status


class CallBodyOfChain(serializers.Serializer[Any]):
    tool_name = serializers.CharField()
    parameters = serializers.DictField(
        help_text="Values, `$input`, `$step`, `$item`, `$text` or `$literal`."
    )


class RetriesBody(serializers.Serializer[Any]):
    attempts = serializers.IntegerField(required=False)
    wait = serializers.CharField(required=False, help_text="After the first, such as PT1S.")
    factor = serializers.IntegerField(required=False, help_text="By which each wait is longer.")


class UndoingBody(CallBodyOfChain):
    retries = RetriesBody(required=False, allow_null=True)
    timeout = serializers.CharField(required=False, allow_null=True)


class StepBody(UndoingBody):
    id = serializers.CharField()
    when = serializers.DictField(required=False, allow_null=True)
    for_each = serializers.JSONField(required=False, allow_null=True)
    parallel = serializers.IntegerField(required=False)
    on_error = serializers.ChoiceField(choices=ON_ERROR, required=False)
    compensate_with = UndoingBody(required=False, allow_null=True)


class ChainBody(serializers.Serializer[Any]):
    """A chain. Other fields of a tool's definition may be beside its steps."""

    name = serializers.CharField(max_length=128)
    description = serializers.CharField()
    parameters = ParameterBody(many=True, required=False)
    steps = StepBody(many=True)
    output = serializers.JSONField(required=False, help_text="Absent: the last step's output.")
    on_cancel = serializers.ChoiceField(choices=ON_CANCEL, required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    requires_confirmation = serializers.BooleanField(required=False)
    output_schema = serializers.DictField(required=False)
    version = serializers.CharField(required=False)
    warnings = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="In answers: what may not fit between steps, by the schemas of their tools.",
    )


class ChainPage(Page):
    results = ChainBody(many=True)


class RehearsalBody(Strict):
    parameters = serializers.DictField(required=False, default=dict)
    group = texts(required=False, allow_null=True, default=None)
    state = State()


class RefusalAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()


class RehearsedCallAnswer(serializers.Serializer[Any]):
    refused = RefusalAnswer(allow_null=True)
    confirmation = serializers.ListField(child=serializers.CharField(), allow_null=True)


class RehearsedStepAnswer(RehearsedCallAnswer):
    id = serializers.CharField()
    tool_name = serializers.CharField()
    runs = serializers.ChoiceField(choices=["yes", "no", "unknown"])
    items = serializers.IntegerField(allow_null=True, help_text="Of its loop, where known.")
    parameters = serializers.DictField(help_text="`$unknown` where a step must have run.")
    # The field's name is also an attribute's of DRF's serializers.
    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField()
    )
    on_error = serializers.ChoiceField(choices=ON_ERROR)
    compensated_by = serializers.CharField(allow_null=True)
    compensation = RehearsedCallAnswer(allow_null=True, help_text="Of the tool that undoes it.")


class RehearsalAnswer(RehearsedCallAnswer):
    """Of the chain itself; its steps where it would take the parameters."""

    errors = serializers.ListField(  # type: ignore[assignment]
        child=serializers.DictField()
    )
    steps = RehearsedStepAnswer(many=True)


class RunStepAnswer(serializers.Serializer[Any]):
    place = serializers.CharField(help_text="`page`, `page/3`, `page#2`, `undo:page`.")
    execution_id = serializers.UUIDField(allow_null=True)
    tool_name = serializers.CharField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)


class ChainRunAnswer(serializers.Serializer[Any]):
    run_id = serializers.UUIDField(help_text="The id of its own execution.")
    chain = serializers.CharField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    steps = RunStepAnswer(many=True)
    execution = ExecutionAnswer()
