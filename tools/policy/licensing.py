"""What the organization's licence includes (specification S3, 7, and ruling 8).

The tier that counts is found by the clock at each question, see `tools.catalog.tiers`. What a
licence does not include is refused; nothing ever runs behind a weaker wall because of it.
"""

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
from tools.definitions.licenses import LicenseState, ends_at
from tools.models import LicenseTier
from tools.policy.decision import Question, Verdict, passed
from tools.policy.isolation import ISOLATION, profile_of

__all__ = ["LICENSE", "standing_of", "state_now", "tier_now", "tier_of", "warnings"]


def licensed(question: Question) -> Verdict:
    return _included(question.tool, question.snapshot)


def profiles_licensed(question: Question) -> Verdict:
    return _profile_included(question.tool, question.snapshot)


def isolation_licensed(question: Question) -> Verdict:
    """What somebody asks for must be in the licence; what a tool has to run at always is.

    Refused, not run lower: a licence that runs out must not take a wall away.
    """
    return _level_included(question.tool, question.snapshot)


def includes(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the licence lets the tool be used, whoever asks."""
    return (
        _included(tool, snapshot).passed
        and _profile_included(tool, snapshot).passed
        and _level_included(tool, snapshot).passed
    )


# How a tool may be run is asked together with whether the licence lets it run.
LICENSE = (licensed, profiles_licensed, isolation_licensed, *ISOLATION)


def warnings(snapshot: Snapshot) -> list[str]:
    """For the answers to calls during the days of grace; one line, and none at other times."""
    held = snapshot.license
    if held.expires_at is None or state_now(snapshot) != LicenseState.GRACE:
        return []
    last = ends_at(held.expires_at, held.grace_days)
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


def _beyond(snapshot: Snapshot, limit: int) -> frozenset[UUID]:
    return snapshot.settle(("beyond", limit), lambda: seats.beyond(snapshot, limit))


def _ended(snapshot: Snapshot) -> str:
    """Why it is less than it was, where the clock has changed it."""
    if tier_now(snapshot) == snapshot.tier or snapshot.license.expires_at is None:
        return ""
    return f" The {snapshot.tier.name} licence ended on {snapshot.license.expires_at:%Y-%m-%d}."
