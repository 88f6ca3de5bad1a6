"""Serializers of `/api/v1/mcp-servers`."""

from typing import Any

from rest_framework import serializers

from tools.api.common.pagination import Page
from tools.models import CredentialScope, OnDrift, Transport

_MASK = "Values are texts (kept encrypted, shown as •••), or references the operator allows."


class McpServerChange(serializers.Serializer[Any]):
    transport = serializers.ChoiceField(choices=Transport.values, required=False)
    url = serializers.CharField(max_length=2_000, required=False)
    headers = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    command = serializers.CharField(max_length=500, required=False)
    args = serializers.ListField(child=serializers.CharField(), required=False)
    env = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    remote_name = serializers.CharField(max_length=128, required=False)
    group = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    credential_scope = serializers.ChoiceField(choices=CredentialScope.values, required=False)
    on_drift = serializers.ChoiceField(choices=OnDrift.values, required=False)
    check_every_s = serializers.FloatField(required=False)
    enabled = serializers.BooleanField(required=False)


class McpServerBody(McpServerChange):
    name = serializers.CharField(max_length=128)


class McpFinding(serializers.Serializer[Any]):
    tool = serializers.CharField(help_text="As the server calls it; empty of the list itself.")
    result = serializers.ChoiceField(
        choices=["refused", "repaired"], help_text="refused: it cannot be imported; the others can."
    )
    message = serializers.CharField()


class McpServerAnswer(McpServerBody):
    status = serializers.CharField(help_text="unknown, alive, dead or disabled")
    tools = serializers.IntegerField(allow_null=True, help_text="How many it listed last.")
    protocol = serializers.CharField()
    snapshot_at = serializers.DateTimeField(allow_null=True)
    findings = McpFinding(many=True, help_text="What is wrong with tools of the latest list.")
    last_seen_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField()
    dead_since = serializers.DateTimeField(allow_null=True)
    credentials = serializers.ListField(
        child=serializers.CharField(), help_text="Whose own credentials are set."
    )
    created_at = serializers.DateTimeField()


class McpServerPage(Page):
    results = McpServerAnswer(many=True)


class McpRefreshBody(serializers.Serializer[Any]):
    owner = serializers.CharField(
        max_length=200, required=False, help_text="With whose credentials, where they have own."
    )


class McpChange(serializers.Serializer[Any]):
    tool = serializers.CharField()
    name = serializers.CharField(allow_null=True, help_text="Ours; null while it is not imported.")
    change = serializers.ChoiceField(choices=["new", "gone", "changed", "same", "unpinned"])
    fields_ = serializers.ListField(child=serializers.DictField())
    suggested = serializers.DictField(help_text="What the server says of its tool, unchecked.")
    digest = serializers.CharField(
        allow_null=True, help_text="Of what is shown here; an import that names it takes no other."
    )
    suspicions = serializers.ListField(
        child=serializers.CharField(),
        help_text="Signs of a poisoned definition: such a tool is imported only with its digest.",
    )

    def get_fields(self) -> dict[str, Any]:
        found = super().get_fields()
        return {name.rstrip("_"): one for name, one in found.items()}


class McpDifference(serializers.Serializer[Any]):
    server = serializers.CharField()
    snapshot_at = serializers.DateTimeField(allow_null=True)
    tools = McpChange(many=True)


class McpImportBody(serializers.Serializer[Any]):
    tools = serializers.ListField(
        child=serializers.DictField(),
        help_text="tool, the digest of what was read, and what is to differ: name, group, state, "
        "delivery, parameters, …",
    )
    dry_run = serializers.BooleanField(required=False)


class McpImported(serializers.Serializer[Any]):
    tool = serializers.CharField()
    name = serializers.CharField()
    result = serializers.ChoiceField(choices=["created", "updated", "unchanged", "refused"])
    errors = serializers.ListField(child=serializers.DictField())  # type: ignore[assignment]


class McpImportAnswer(serializers.Serializer[Any]):
    items = McpImported(many=True)
    findings = McpFinding(many=True, help_text="Of the latest list, as the server's answer has.")


class McpCredentialBody(serializers.Serializer[Any]):
    headers = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)
    env = serializers.DictField(child=serializers.JSONField(), required=False, help_text=_MASK)


class McpCredentialAnswer(McpCredentialBody):
    owner = serializers.CharField()
