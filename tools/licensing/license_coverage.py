"""What an organization's license covers, for any caller: of one tool, and of each tier."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from sandbox.spec import IsolationLevel
from tools.authorization.facts import question_of, tools_without_seat
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tiers import excluded_level, forced_level, state_now, tier_now
from tools.definitions.callers import Caller, CallerKind
from tools.definitions.licenses import LicenseState, grace_end
from tools.models import LicenseTier
from tools.policy import gates
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest, Gate, Question

_OF_LICENSE = frozenset({Gate.LICENSE, Gate.SANDBOX_PROFILE, Gate.ISOLATION_LICENSE})
_NO_CALLER = Caller(CallerKind.SYSTEM, "", UUID(int=0), "", 0, UUID(int=0))
_NO_REQUEST = EffectiveRequest(frozenset(), DEFAULT_STATE)


@dataclass(frozen=True, slots=True)
class LowestTiers:
    """The tiers by rank, their terms, and the lowest that includes a tool, regardless of seats: by
    tool, "" where none does."""

    names: tuple[str, ...]
    terms: Hashable
    of: Mapping[UUID, str]


def question_about(tool: CatalogTool, snapshot: Snapshot) -> Question:
    """A question for gates that depend on the tool alone: it has no caller and asks for nothing."""
    return question_of(_NO_CALLER, tool, _NO_REQUEST, snapshot)


def includes(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether the license allows the tool, for any caller. Of many tools, see `kinds`."""
    checks = tuple(check for check in gates.select() if check.name in _OF_LICENSE)
    return gates.passes(question_about(tool, snapshot), checks)


def beyond_limit(snapshot: Snapshot) -> frozenset[UUID]:
    """The custom tools that the tier has no seat for, where it has any."""
    limit = tier_now(snapshot).max_custom_tools
    return tools_without_seat(snapshot, limit) if limit else frozenset()


def license_warnings(snapshot: Snapshot) -> list[str]:
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
    return next((tier.name for tier in tiers if _tier_includes(tier, tool)), "")


def _tier_includes(tier: LicenseTier, tool: CatalogTool) -> bool:
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
