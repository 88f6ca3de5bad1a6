"""The form of a license tier: its inputs, submitted values and errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from sandbox.spec import IsolationLevel
from tools.catalog.registry import Snapshot
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.models import LicenseTier

EVERY, THESE = "every", "these"
_MOST = 1_000_000


@dataclass(frozen=True)
class TierFormChoice:
    name: str
    chosen: bool
    about: str = ""
    groups: tuple[str, ...] = ()


@dataclass
class TierForm:
    """`errors` are by input; errors of the whole form are under `whole`."""

    builtin: str
    builtin_tools: list[str]
    limited: str
    max_custom_tools: str
    levels: str
    isolation_levels: list[str]
    custom_sandbox_profiles: bool
    errors: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of_tier(cls, tier: LicenseTier) -> "TierForm":
        return cls(
            EVERY if tier.builtin_tools is None else THESE,
            list(tier.builtin_tools or ()),
            EVERY if tier.max_custom_tools is None else THESE,
            "" if tier.max_custom_tools is None else str(tier.max_custom_tools),
            EVERY if tier.isolation_levels is None else THESE,
            list(tier.isolation_levels or ()),
            tier.custom_sandbox_profiles,
        )

    @classmethod
    def given(cls, data: QueryDict, known: Iterable[str]) -> "TierForm":
        known = {*known}
        form = cls(
            data.get("builtin", ""),
            [name for name in dict.fromkeys(data.getlist("tool")) if name in known],
            data.get("limited", ""),
            data.get("most", "").strip()[:12],
            data.get("levels", ""),
            [level for level in IsolationLevel if level in data.getlist("level")],
            data.get("profiles") == "yes",
        )
        form._check()
        return form

    def terms(self) -> dict[str, Any]:
        """The terms in the tier's format; for a form without errors."""
        levels = [str(level) for level in self.isolation_levels]
        return {
            "builtin_tools": None if self.builtin == EVERY else sorted(self.builtin_tools),
            "max_custom_tools": None if self.limited == EVERY else int(self.max_custom_tools),
            "isolation_levels": None if self.levels == EVERY else levels,
            "custom_sandbox_profiles": self.custom_sandbox_profiles,
        }

    def _check(self) -> None:
        for key in ("builtin", "limited", "levels"):
            if getattr(self, key) not in (EVERY, THESE):
                self._flaw(key, "Choose one of the two.")
        if self.limited == THESE and not _is_count(self.max_custom_tools):
            self._flaw("limited", f"Give a whole number from 0 to {_MOST:,}.")
        if self.custom_sandbox_profiles and self.limited == THESE:
            self._flaw("profiles", "Only a tier without a limit of custom tools may have own ones.")

    def _flaw(self, key: str, words: str) -> None:
        self.errors.setdefault(key, []).append(words)


def known_builtins(tier: LicenseTier, snapshot: Snapshot) -> list[str]:
    """Built-in tools of the catalog that tiers include or not, and others that the tier names."""
    there = {tool.name for tool in snapshot.tools.values() if not tool.custom}
    return sorted({*there, *(tier.builtin_tools or ())} - IN_EVERY_LICENSE)


def builtin_choices(
    form: TierForm, names: Iterable[str], snapshot: Snapshot
) -> list[TierFormChoice]:
    chosen = {*form.builtin_tools}
    return [_choice(name, name in chosen, snapshot) for name in names]


def level_choices(form: TierForm) -> list[TierFormChoice]:
    return [TierFormChoice(level, level in form.isolation_levels) for level in IsolationLevel]


def terms_in_words(terms: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each term as a heading and a text, as in the table of tiers."""
    most, levels = terms["max_custom_tools"], terms["isolation_levels"]
    listed = terms["builtin_tools"]
    return [
        ("Built-in tools", "all, future ones too" if listed is None else _listed(sorted(listed))),
        ("Custom tools", "no limit" if most is None else f"{most:,}"),
        ("Isolation levels", "all" if levels is None else _listed(levels)),
        ("Sandbox profiles", "of one's own" if terms["custom_sandbox_profiles"] else "none"),
    ]


def _choice(name: str, chosen: bool, snapshot: Snapshot) -> TierFormChoice:
    tool = snapshot.tool(name)
    if tool is None:
        return TierFormChoice(name, chosen, "not in this catalog")
    return TierFormChoice(name, chosen, "", tuple(sorted(snapshot.own_groups(tool))))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MOST


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
