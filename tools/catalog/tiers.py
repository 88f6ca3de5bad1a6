"""The effective license tier: an organization's own until its license and the grace period are
over, then the lowest tier. It follows from the clock, so that no process needs a notification."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django.utils import timezone

from sandbox.levels import at_least, strongest
from sandbox.spec import IsolationLevel
from tools.builtin.manifest import DEFINITIONS
from tools.catalog.snapshot import Snapshot
from tools.definitions.licenses import LicenseState, grace_end, license_state
from tools.definitions.tool import ToolDefinition
from tools.definitions.vocabulary import ToolType
from tools.errors import Forbidden
from tools.models import VOUCHED, LicenseTier, Organization

_SHIPPED = {
    raw["name"]: IsolationLevel(raw["constraints"].get("required_isolation", "Standard"))
    for raw in DEFINITIONS
}


@dataclass(frozen=True)
class LicenseStatus:
    """The state of an organization's license at a moment. `tier` is the effective one."""

    state: LicenseState
    tier: LicenseTier
    own: LicenseTier
    license_id: str
    expires_at: datetime | None
    grace_ends_at: datetime | None


def tier_now(snapshot: Snapshot) -> LicenseTier:
    """Called by every gate for every tool, hence only a comparison of two numbers."""
    held = snapshot.license
    if held.expires_at is None:
        return snapshot.tier
    end_s = snapshot.settle("license_end_s", partial(_end_s, held.expires_at, held.grace_days))
    return snapshot.tier if time.time() <= end_s else held.fallback or snapshot.tier


def state_now(snapshot: Snapshot) -> LicenseState:
    held = snapshot.license
    if held.expires_at is None:
        return LicenseState.NONE
    return license_state(held.expires_at, held.grace_days, timezone.now())


def tier_of(organization_id: UUID) -> LicenseTier:
    """The same from the rows as they are now; for a caller that has locked the organization's."""
    row = Organization.objects.select_related("tier").get(pk=organization_id)
    return standing_of(row).tier


def standing_of(organization: Organization, lowest: LicenseTier | None = None) -> LicenseStatus:
    """Reads the tiers only where the license is over, and where `lowest` is not given."""
    expires_at, days = organization.license_expires_at, organization.license_grace_days
    state = LicenseState.NONE
    if organization.license_id or expires_at is not None:
        state = license_state(expires_at, days, timezone.now())
    own = organization.tier
    return LicenseStatus(
        state=state,
        tier=(lowest or lowest_tier() or own) if state == LicenseState.EXPIRED else own,
        own=own,
        license_id=organization.license_id,
        expires_at=expires_at,
        grace_ends_at=grace_end(expires_at, days) if expires_at else None,
    )


def lowest_tier() -> LicenseTier | None:
    return LicenseTier.objects.order_by("rank").first()


def forced_level(tool: ToolDefinition, origin: str) -> IsolationLevel:
    """The minimum isolation level of a tool, regardless of all settings: no license ever refuses
    it."""
    if tool.type == ToolType.BUILTIN:
        return _SHIPPED.get(tool.name, IsolationLevel.STANDARD)
    return IsolationLevel.STANDARD if origin in VOUCHED else IsolationLevel.RESTRICTED


def excluded_level(
    tier: LicenseTier, forced: IsolationLevel, asked: Iterable[IsolationLevel]
) -> IsolationLevel | None:
    """The strongest level asked for, where it is beyond the forced one and not in the tier."""
    if tier.isolation_levels is None:
        return None
    wanted = strongest(forced, *asked)
    return None if at_least(forced, wanted) or wanted in tier.isolation_levels else wanted


def require_level(
    organization_id: UUID,
    asked: IsolationLevel,
    forced: IsolationLevel = IsolationLevel.STANDARD,
) -> None:
    """Raises `Forbidden`: refused when it is configured, rather than at every call."""
    if at_least(forced, asked):
        return
    tier = tier_of(organization_id)
    if excluded_level(tier, forced, [asked]) is not None:
        raise Forbidden(
            f"The {tier.name} licence does not include the isolation level {asked}, only: "
            f"{levels_of(tier)}.",
            code="license_excludes_isolation",
        )


def levels_of(tier: LicenseTier) -> str:
    levels = [*IsolationLevel] if tier.isolation_levels is None else tier.isolation_levels
    return ", ".join(levels) or "none"


def _end_s(expires_at: datetime, grace_days: int) -> float:
    return grace_end(expires_at, grace_days).timestamp()
