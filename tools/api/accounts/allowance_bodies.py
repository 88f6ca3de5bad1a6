"""Serializers of quotas and budgets."""

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from tools.api.common.fields import Strict, Text
from tools.limits.allowances import AMOUNT
from tools.models.agent import Kind, Period


class AllowanceAmountField(serializers.CharField):
    """A decimal text such as "2.50", or a whole number: a fraction as a number is not exact."""

    def to_internal_value(self, data: Any) -> Decimal:  # type: ignore[override]
        text = str(data) if isinstance(data, int) and not isinstance(data, bool) else data
        if not isinstance(text, str) or not AMOUNT.fullmatch(text):
            raise serializers.ValidationError(
                'This must be a decimal text of at most six places, such as "2.50".'
            )
        return Decimal(text)


class BudgetBody(Strict):
    amount = AllowanceAmountField()
    period = serializers.ChoiceField(choices=Period.values)


class QuotaBody(Strict):
    tool = Text(max_length=128, required=False, allow_null=True, default=None)
    kind = serializers.ChoiceField(choices=Kind.values)
    period = serializers.ChoiceField(choices=Period.values)
    amount = AllowanceAmountField()


class BudgetAnswer(serializers.Serializer[Any]):
    amount = serializers.CharField()
    period = serializers.ChoiceField(choices=Period.values)
    used = serializers.CharField()
    held = serializers.CharField(help_text="By calls that are not over.")
    resets_at = serializers.DateTimeField()


class QuotaAnswer(BudgetAnswer):
    tool = serializers.CharField(allow_null=True, help_text="Null: all tools together.")
    kind = serializers.ChoiceField(choices=Kind.values)
