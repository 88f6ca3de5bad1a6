"""Serializers of `/api/v1/tools/explain` and `/api/v1/tools/what-if`."""

from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import serializers

from tools.api.common.fields import Strict, Text, texts
from tools.api.common.pagination import Page
from tools.insight.changes import GrantChange, Group, PreviewedChange, Tier, ToolGroups


class GateRow(serializers.Serializer[Any]):
    gate = serializers.CharField()
    passed = serializers.BooleanField()
    code = serializers.CharField()
    reason = serializers.CharField(help_text="Empty where it passed.")
    remedy = serializers.CharField(help_text="What would change a no.")


class ToolExplained(serializers.Serializer[Any]):
    tool = serializers.CharField()
    available = serializers.BooleanField(help_text="Whether the tool exists for the request.")
    refused_by = serializers.CharField(
        allow_null=True, help_text="The gate a call would fail at first, of those told here."
    )
    held = serializers.BooleanField(help_text="Whether a person would be asked.")
    effective_isolation = serializers.CharField()
    gates = GateRow(many=True)


class RequestExplained(serializers.Serializer[Any]):
    caller = serializers.CharField()
    groups = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField()
    gates = GateRow(many=True, help_text="What is asked of the caller and the request alone.")


class ExplanationPage(Page):
    request = RequestExplained()
    results = ToolExplained(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


class KindBody(Strict):
    """A hypothetical change."""

    kind = Text(max_length=20)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        raise NotImplementedError


class GrantKind(KindBody):
    """An agent's grants, each kind as the whole list it would be."""

    kind = serializers.ChoiceField(choices=["grant"])  # type: ignore[assignment]
    agent = Text(max_length=63)
    groups = texts(required=False)
    tools = texts(required=False)
    tool_groups = texts(required=False)
    permissions = texts(required=False)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        lists = ("groups", "tools", "tool_groups", "permissions")
        return GrantChange(given["agent"], **{n: tuple(given[n]) for n in lists if n in given})


class TierKind(KindBody):
    """The organization's tier."""

    kind = serializers.ChoiceField(choices=["tier"])  # type: ignore[assignment]
    tier = Text(max_length=60)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        return Tier(given["tier"])


class ToolGroupsKind(KindBody):
    """A tool's groups; null is absent."""

    kind = serializers.ChoiceField(choices=["tool_groups"])  # type: ignore[assignment]
    tool = Text(max_length=128)
    groups = texts(allow_null=True)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        groups = given["groups"]
        return ToolGroups(given["tool"], None if groups is None else tuple(groups))


class GroupKind(KindBody):
    """What is given of a group, written as `/groups/{name}` takes it."""

    kind = serializers.ChoiceField(choices=["group"])  # type: ignore[assignment]
    group = Text(max_length=100)
    parent = Text(required=False, allow_null=True, max_length=100)  # type: ignore[assignment]
    permissions = texts(required=False)
    schedule = serializers.JSONField(required=False)
    max_queue_age_s = serializers.JSONField(required=False)
    max_cpu_percent = serializers.JSONField(required=False)

    def change(self, given: dict[str, Any]) -> PreviewedChange:
        fields = {name: value for name, value in given.items() if name not in ("kind", "group")}
        return Group(given["group"], fields)


KINDS: dict[str, type[KindBody]] = {
    "grant": GrantKind,
    "tier": TierKind,
    "tool_groups": ToolGroupsKind,
    "group": GroupKind,
}
_ANY_KIND = PolymorphicProxySerializer(
    component_name="ChangeBody", serializers={**KINDS}, resource_type_field_name="kind"
)


@extend_schema_field(_ANY_KIND)
class ChangeField(serializers.Field[PreviewedChange, Any, Any, Any]):
    """One of the kinds, read by its own body."""

    default_error_messages = {
        "kind": "This must be an object whose kind is one of: {kinds}.",
    }

    def to_internal_value(self, data: Any) -> PreviewedChange:
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            self.fail("kind", kinds=", ".join(KINDS))
        body = KINDS[kind]()
        return body.change(dict(body.run_validation(data)))


class WhatIfBody(Strict):
    change = ChangeField()
    since = serializers.DateTimeField(
        required=False, help_text="Calls from then on; 24 hours ago by default, 7 days at most."
    )


class AgentSeen(serializers.Serializer[Any]):
    agent = serializers.CharField()
    added = serializers.ListField(child=serializers.CharField())
    removed = serializers.ListField(child=serializers.CharField())
    added_count = serializers.IntegerField()
    removed_count = serializers.IntegerField()


class AgentsSeen(serializers.Serializer[Any]):
    looked_at = serializers.IntegerField()
    cut = serializers.BooleanField(help_text="Whether there are more agents.")
    results = AgentSeen(many=True)


class CallsTurned(serializers.Serializer[Any]):
    agent = serializers.CharField()
    tool = serializers.CharField()
    group = serializers.ListField(child=serializers.CharField(), allow_null=True)
    state = serializers.CharField()
    calls = serializers.IntegerField()
    gate = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()


class Turned(serializers.Serializer[Any]):
    calls = serializers.IntegerField()
    results = CallsTurned(many=True)


class CallsReplayed(serializers.Serializer[Any]):
    looked_at = serializers.IntegerField()
    combinations = serializers.IntegerField()
    cut = serializers.BooleanField(help_text="Whether there were more combinations.")
    would_be_refused = Turned(help_text="`gate` is the one that would refuse.")
    would_pass = Turned(help_text="`gate` is the one that refuses as things stand.")


class DifferenceAnswer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    agents = AgentsSeen()
    calls = CallsReplayed(allow_null=True, help_text="Null for who may not view executions.")
