"""Serializers of calls awaiting approval and of the rules that require one."""

from typing import Any

from rest_framework import serializers

from tools.api.common.errors import ErrorAnswer
from tools.api.common.fields import Flag, Strict, Text, Whole
from tools.api.common.pagination import Page
from tools.approvals.decisions import LONGEST_REASON, MOST_AT_ONCE
from tools.definitions.fields import DECIMAL
from tools.models import ConfirmationStatus


class DecisionBody(Strict):
    bound_hash = Text(max_length=64, help_text="Of what was read, to the letter.")
    reason = Text(
        required=False,
        default="",
        allow_blank=True,
        max_length=LONGEST_REASON,
        help_text="On record; a refusal's is told to the caller.",
    )


class OneDecision(DecisionBody):
    id = serializers.UUIDField()
    approve = Flag()


class DecisionsBody(Strict):
    decisions = OneDecision(  # type: ignore[call-arg] # of the list that `many` makes
        many=True, allow_empty=False, max_length=MOST_AT_ONCE
    )


class ConfirmationAmountField(serializers.DecimalField):
    """An exact amount, sent as text or as a whole number; never a float."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_digits=18, decimal_places=6, **options)

    def to_internal_value(self, data: Any) -> Any:
        text = str(data) if isinstance(data, int) and not isinstance(data, bool) else data
        if not isinstance(text, str) or not DECIMAL.fullmatch(text):
            self.fail("invalid")
        return super().to_internal_value(data)


class RuleChange(Strict):
    """Every given condition must match."""

    enabled = Flag(required=False)
    tool = Text(required=False, allow_null=True, max_length=128)
    group = Text(required=False, allow_null=True, max_length=100)
    agent = Text(required=False, allow_null=True, max_length=63)
    min_cost = ConfirmationAmountField(required=False, allow_null=True)
    side_effects = Flag(required=False, help_text="Only tools that may have side effects.")
    first_use = Flag(
        required=False, help_text="Only while the caller has never used the tool with success."
    )
    approvals_needed = Whole(required=False, min_value=1, max_value=2)
    every_call = Flag(
        required=False, help_text="Must be true for a rule without conditions, and only there."
    )


class RuleBody(RuleChange):
    name = Text(max_length=100)


class DecisionAnswer(serializers.Serializer[Any]):
    by = serializers.CharField()
    approved = serializers.BooleanField()
    reason = serializers.CharField()
    at = serializers.DateTimeField()


class ConfirmationAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    status = serializers.CharField(help_text=", ".join(ConfirmationStatus.values))
    bound_hash = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())
    approvals_needed = serializers.IntegerField()
    approvals = serializers.IntegerField()
    decisions = DecisionAnswer(many=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    spent_at = serializers.DateTimeField(allow_null=True)
    execution_id = serializers.UUIDField()
    execution_status = serializers.CharField()
    tool_name = serializers.CharField()
    tool_version = serializers.CharField()
    digest = serializers.CharField()
    agent = serializers.CharField(allow_null=True)
    account = serializers.CharField()
    parameters = serializers.DictField()
    group = serializers.ListField(child=serializers.CharField(), allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    state = serializers.CharField()
    options = serializers.DictField()
    cost = serializers.CharField()


class ConfirmationPage(Page):
    results = ConfirmationAnswer(many=True)


class DecidedAnswer(serializers.Serializer[Any]):
    """The result of one decision of many: its confirmation, or why it was refused."""

    id = serializers.UUIDField()
    confirmation = ConfirmationAnswer(allow_null=True)
    error = ErrorAnswer(allow_null=True)


class DecidedList(serializers.Serializer[Any]):
    results = DecidedAnswer(many=True)


class RuleAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    tool = serializers.CharField(allow_null=True)
    group = serializers.CharField(allow_null=True)
    agent = serializers.CharField(allow_null=True)
    min_cost = serializers.CharField(allow_null=True)
    side_effects = serializers.BooleanField()
    first_use = serializers.BooleanField()
    approvals_needed = serializers.IntegerField()
    every_call = serializers.BooleanField()
    touches = serializers.ListField(
        child=serializers.CharField(), help_text="The tools it can hold now, the first 50 of them."
    )
    touches_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class RulePage(Page):
    results = RuleAnswer(many=True)
