"""Serializers of `/api/v1/grants`."""

from typing import Any

from rest_framework import serializers

from tools.accounts.grants.grant_actions import KINDS, SUBJECTS
from tools.api.common.fields import Items, Strict, Text
from tools.api.common.pagination import Page


def _items(help_text: str) -> Items:
    return Items(child=Text(max_length=128), max_length=200, required=False, help_text=help_text)


class GrantBody(Strict):
    """One of `agent`, `user` and `people_group`, and the grants."""

    agent = Text(required=False, max_length=63)
    user = Text(required=False, max_length=150)
    people_group = Text(required=False, max_length=150)
    tools = _items("Tools it may execute; * is all.")
    tool_groups = _items("Groups whose every tool it may execute.")
    groups = _items("Groups it may request; * is all. Not of a group of people.")
    permissions = _items("What tools require; * is all. Not of a group of people.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        subjects = [kind for kind in SUBJECTS if kind in attrs]
        if len(subjects) != 1:
            raise serializers.ValidationError(f"Name one of {', '.join(SUBJECTS)}.")
        if not any(attrs.get(what) for what in KINDS):
            raise serializers.ValidationError(f"Name something of {', '.join(KINDS)}.")
        return attrs


class GrantSubject(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=[*SUBJECTS])
    name = serializers.CharField()


class GrantAnswer(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="Stable: the same grant has it again.")
    subject = GrantSubject()
    kind = serializers.ChoiceField(choices=[*KINDS.values()])
    name = serializers.CharField()


class GrantList(serializers.Serializer[Any]):
    results = GrantAnswer(many=True)


class GrantPage(Page):
    results = GrantAnswer(many=True)
