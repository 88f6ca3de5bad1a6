"""Serializers of tool versions and of upstream changes."""

from typing import Any

from rest_framework import serializers

from tools.api.common.fields import Strict, Text
from tools.catalog.signatures.drift import difference_of
from tools.definitions.differences import DifferenceKind
from tools.models import Decision, UpstreamChange
from tools.shapes import moment
from tools.web.pagination import PageReference


class FieldDifference(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="A JSON pointer into the definition.")
    kind = serializers.ChoiceField(choices=[*DifferenceKind])
    before = serializers.JSONField()
    after = serializers.JSONField()
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Characters that cannot be seen, or look alike."
    )


class VersionsApart(serializers.Serializer[Any]):
    tool = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()
    differences = FieldDifference(many=True)


class ChangeAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tool = serializers.CharField()
    digest = serializers.CharField()
    seen_at = serializers.DateTimeField()
    decision = serializers.ChoiceField(choices=Decision.choices)
    decided_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    reason = serializers.CharField()
    differences = FieldDifference(many=True, required=False)


class ChangePage(serializers.Serializer[Any]):
    results = ChangeAnswer(many=True)
    next = PageReference(allow_null=True)
    previous = PageReference(allow_null=True)


class ApprovalBody(Strict):
    digest = Text(max_length=71, help_text="Of the change as it was read.")
    reason = Text(required=False, max_length=500, allow_blank=True)


def change_shape(change: UpstreamChange, *, whole: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "id": str(change.pk),
        "tool": change.tool.name,
        "digest": change.digest,
        "seen_at": moment(change.seen_at),
        "decision": change.decision,
        "decided_at": moment(change.decided_at) if change.decided_at else None,
        "decided_by": change.decided_by,
        "reason": change.reason,
    }
    if whole:
        shape["differences"] = [one.as_dict() for one in difference_of(change)]
    return shape
