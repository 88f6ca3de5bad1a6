"""Serializers of tiers and licenses."""

from typing import Any

from rest_framework import serializers

from tools.api.accounts.organizations import OrganizationAnswer, TierAnswer
from tools.api.common.fields import Strict, Text


class TierWanted(Strict):
    tier = Text(max_length=60)


class TierFollows(serializers.Serializer[Any]):
    """What another tier means: names of tools and profiles."""

    tier_before = serializers.CharField(help_text="The tier that counted before.")
    tier = serializers.CharField(help_text="The tier that counts then.")
    disabled = serializers.ListField(
        child=serializers.CharField(),
        help_text="Custom tools beyond the limit, the newest first.",
    )
    enabled = serializers.ListField(
        child=serializers.CharField(),
        help_text="Custom tools that the licence had disabled, the oldest first.",
    )
    gated = serializers.ListField(
        child=serializers.CharField(),
        help_text="Tools in use that are refused then, and stay enabled.",
    )
    opened = serializers.ListField(
        child=serializers.CharField(), help_text="Tools in use that are no longer refused."
    )
    profiles = serializers.ListField(
        child=serializers.CharField(), help_text="Sandbox profiles that stop working."
    )


class OrganizationChanged(OrganizationAnswer):
    tier_change = TierFollows(required=False, help_text="Where a tier was given.")


class TierChanged(TierAnswer):
    organizations = serializers.DictField(
        child=TierFollows(), help_text="What follows, by the slugs of organizations."
    )
