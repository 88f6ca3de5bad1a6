"""Serializers of the linter, the state graph and the recommendations."""

from typing import Any

from rest_framework import serializers

from tools.catalog.workflow.lint import WorkflowSeverity


class FindingAnswer(serializers.Serializer[Any]):
    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=[str(one) for one in WorkflowSeverity])
    message = serializers.CharField()
    hint = serializers.CharField()
    tool = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    tools = serializers.ListField(child=serializers.CharField())
    states = serializers.ListField(child=serializers.CharField())


class LintAnswer(serializers.Serializer[Any]):
    results = FindingAnswer(many=True)
    left_off = serializers.IntegerField(help_text="Findings beyond those shown.")
    warnings = serializers.ListField(child=serializers.CharField())


class ProposalAnswer(serializers.Serializer[Any]):
    findings = FindingAnswer(many=True)


class StateAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    start = serializers.BooleanField()
    tools = serializers.ListField(child=serializers.CharField())
    tool_count = serializers.IntegerField()
    reachable = serializers.BooleanField()
    dead_end = serializers.ChoiceField(
        choices=["no_tool", "no_way_on"],
        allow_null=True,
        help_text="no_tool: none is available. no_way_on: those available stay in the state.",
    )


class EdgeAnswer(serializers.Serializer[Any]):
    to = serializers.CharField()
    tool = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        start = serializers.CharField(
            allow_null=True, help_text="null: from every state, for the tool is available in all."
        )
        return {"from": start, **super().get_fields()}


class GraphAnswer(serializers.Serializer[Any]):
    nodes = StateAnswer(many=True)
    edges = EdgeAnswer(many=True)
    left_off = serializers.IntegerField(help_text="States and edges beyond those shown.")
    warnings = serializers.ListField(child=serializers.CharField())


class FittingAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    score = serializers.FloatField()
    proven = serializers.BooleanField(help_text="Used with success in the last 30 days.")


class RecommendationAnswer(serializers.Serializer[Any]):
    group = serializers.CharField()
    score = serializers.FloatField(help_text="Beside the best group, whose score is 1.")
    tools = FittingAnswer(many=True)
    reason = serializers.CharField()


class RecommendationsAnswer(serializers.Serializer[Any]):
    results = RecommendationAnswer(many=True)
