"""The license gate: what the organization's license includes (specification S3, 7, and ruling 8).

The effective tier follows from the clock at each check, see `tools.catalog.tiers`. What a license
does not include is refused; nothing ever runs at a weaker isolation level because of it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from sandbox.spec import IsolationLevel
from tools.catalog import seats
from tools.catalog.registry import CatalogTool, Snapshot
from tools.catalog.tiers import (
    excluded_level,
    forced_level,
    levels_of,
    standing_of,
    state_now,
    tier_now,
    tier_of,
)
from tools.definitions.licenses import LicenseState, grace_end
from tools.models import LicenseTier
from tools.policy.isolation_levels import ISOLATION, profile_of
from tools.policy.questions import AccessRequest, Verdict, passed

__all__ = ["LICENSE", "standing_of", "state_now", "tier_now", "tier_of", "warnings"]


@dataclass(frozen=True, slots=True)
class LowestTiers:
    """The tiers by rank, their terms, and the lowest that includes a tool, regardless of seats: by
    tool, "" where none does."""

    names: tuple[str, ...]
    terms: Hashable
    of: Mapping[UUID, str]


def licensed(question: AccessRequest) -> Verdict:
    return _included(question.tool, question.snapshot)


def profiles_licensed(question: AccessRequest) -> Verdict:
    return _profile_included(question.tool, question.snapshot)


def isolation_licensed(question: AccessRequest) -> Verdict:
    """A configured level must be in the license; a tool's minimum level always is.

    Refused, not run at a lower level: an expired license must not weaken isolation.
    """
    return _level_included(question.tool, question.snapshot)


def includes(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the license allows the tool, for any caller. Of many tools, see `kinds`."""
    return (
        _included(tool, snapshot).passed
        and _profile_included(tool, snapshot).passed
        and _level_included(tool, snapshot).passed
    )


def lowest_tiers(snapshot: Snapshot) -> LowestTiers:
    """One query; the catalog is scanned once while no tier changes."""
    tiers = tuple(LicenseTier.objects.order_by("rank"))
    terms = tuple(_terms(tier) for tier in tiers)
    return snapshot.remember(
        ("lowest tiers", terms),
        lambda: LowestTiers(
            tuple(tier.name for tier in tiers),
            terms,
            MappingProxyType({tool.id: _lowest(tool, tiers) for tool in snapshot.tools.values()}),
        ),
    )


def _lowest(tool: CatalogTool, tiers: tuple[LicenseTier, ...]) -> str:
    return next((tier.name for tier in tiers if _has_such(tier, tool)), "")


def _has_such(tier: LicenseTier, tool: CatalogTool) -> bool:
    if not tool.custom:
        return tier.includes_builtin(tool.name)
    if tier.max_custom_tools == 0:
        return False
    if tool.definition.sandbox_profile is not None and not tier.custom_sandbox_profiles:
        return False
    asked = tool.definition.raw["constraints"]["required_isolation"]
    if tier.isolation_levels is None or asked in tier.isolation_levels:
        return True
    forced = forced_level(tool.definition, tool.origin)
    return excluded_level(tier, forced, [IsolationLevel(asked)]) is None


def _terms(tier: LicenseTier) -> Hashable:
    """The terms of a tier as a cache key."""
    lists = (tier.builtin_tools, tier.isolation_levels)
    limits = (tier.max_custom_tools, tier.custom_sandbox_profiles)
    return (tier.name, *(None if names is None else tuple(names) for names in lists), *limits)


# Isolation gates are asked together with the license gates.
LICENSE = (licensed, profiles_licensed, isolation_licensed, *ISOLATION)


def warnings(snapshot: Snapshot) -> list[str]:
    """A warning for responses to calls during the grace period; empty at other times."""
    held = snapshot.license
    if held.expires_at is None or state_now(snapshot) != LicenseState.GRACE:
        return []
    last = grace_end(held.expires_at, held.grace_days)
    fallback = held.fallback.name if held.fallback else "lowest"
    return [
        f"The organization's licence ended on {held.expires_at:%Y-%m-%d}; from {last:%Y-%m-%d} on "
        f"only what the {fallback} tier includes can be used."
    ]


def _included(tool: CatalogTool, snapshot: Snapshot) -> Verdict:
    tier = tier_now(snapshot)
    if tool.custom:
        return _seated(tool, snapshot, tier)
    if tier.includes_builtin(tool.name):
        return passed("license")
    reason = f"The {tier.name} licence does not include the built-in tool {tool.name}."
    return Verdict("license", False, "license_excludes_tool", reason + _ended(snapshot))


def _profile_included(tool: CatalogTool, snapshot: Snapshot) -> Verdict:
    name = tool.definition.sandbox_profile
    if name is None or (tier := tier_now(snapshot)).custom_sandbox_profiles:
        return passed("sandbox_profile")
    reason = (
        f"The tool {tool.name} runs in the sandbox profile {name}, and the {tier.name} "
        f"licence does not include profiles of one's own.{_ended(snapshot)}"
    )
    return Verdict("sandbox_profile", False, "license_excludes_profiles", reason)


def _level_included(tool: CatalogTool, snapshot: Snapshot) -> Verdict:
    tier = tier_now(snapshot)
    if tier.isolation_levels is None:
        return passed("isolation_license")
    profile, definition = profile_of(tool, snapshot), tool.definition
    asked = [definition.raw["constraints"]["required_isolation"], snapshot.minimum_isolation]
    asked += [profile.minimum_isolation] if profile else []
    if all(level in tier.isolation_levels for level in asked):
        return passed("isolation_license")  # nearly always, and cheaply
    levels = map(IsolationLevel, asked)
    beyond = excluded_level(tier, forced_level(definition, tool.origin), levels)
    if beyond is None:
        return passed("isolation_license")
    reason = (
        f"The tool {tool.name} is to run at the isolation level {beyond}, and the {tier.name} "
        f"licence includes only: {levels_of(tier)}. Move to a higher tier, or ask an "
        f"administrator to demand less.{_ended(snapshot)}"
    )
    return Verdict("isolation_license", False, "license_excludes_isolation", reason)


def _seated(tool: CatalogTool, snapshot: Snapshot, tier: LicenseTier) -> Verdict:
    limit = tier.max_custom_tools
    if limit == 0:
        reason = f"The {tier.name} licence does not include custom tools."
        code = "license_excludes_custom_tools"
        return Verdict("license", False, code, reason + _ended(snapshot))
    if limit is None or not (seats.put_out(tool) or tool.id in _beyond(snapshot, limit)):
        return passed("license")
    reason = (
        f"The tool {tool.name} is beyond the {limit} custom tools of the {tier.name} licence. "
        f"Delete others, or move to a higher tier.{_ended(snapshot)}"
    )
    return Verdict("license", False, "license_tool_limit", reason)


def beyond_limit(snapshot: Snapshot) -> frozenset[UUID]:
    """The custom tools that the tier has no seat for, where it has any."""
    limit = tier_now(snapshot).max_custom_tools
    return _beyond(snapshot, limit) if limit else frozenset()


def _beyond(snapshot: Snapshot, limit: int) -> frozenset[UUID]:
    return snapshot.settle(("beyond", limit), lambda: seats.beyond(snapshot, limit))


def _ended(snapshot: Snapshot) -> str:
    """The reason for a lower tier, where the license has expired."""
    if tier_now(snapshot) == snapshot.tier or snapshot.license.expires_at is None:
        return ""
    return f" The {snapshot.tier.name} licence ended on {snapshot.license.expires_at:%Y-%m-%d}."
