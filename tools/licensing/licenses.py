"""Changes an organization's license, and applies the consequences for its tools.

Every change of a tier ends in `hold`: custom tools beyond the limit are disabled, the newest first,
and those the license had disabled come back, the oldest first, as far as there is room. `preview`
returns the same in advance, with the same functions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import batched
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from tools import metrics
from tools.catalog import seats
from tools.catalog.license_catalogs import license_catalogs
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogLicense, CatalogTool, Snapshot
from tools.catalog.tiers import lowest_tier, standing_of
from tools.definitions.callers import CallerKind
from tools.definitions.licenses import License, LicenseState, license_state, read_license
from tools.errors import Conflict, NotFound
from tools.licensing.license_coverage import includes
from tools.licensing.tier_terms import same_terms, terms_of
from tools.licensing.tool_kinds import Kinds, filter_kinds, kinds_in, kinds_of, names_of, passing
from tools.models import LicenseTier, Organization, Tool, ToolStatus

_MOST_NAMED = 200  # in one record; each tool that changes its state has a record of its own
_AT_ONCE = 100  # organizations whose tools are in memory together
_NO_MOVES = seats.Moves[Any]()
_IN_USE: tuple[str, str] = (ToolStatus.ACTIVE, "")
BEAT = "licence clock"
_COLUMNS = (
    "tier", "license_id", "license_document", "license_expires_at", "license_grace_days"
)  # fmt: skip


@dataclass(frozen=True)
class TierImpact:
    """The effects of another tier: names of custom tools that are disabled or enabled again, of
    tools in use that the license would refuse or no longer refuses, and of profiles that stop
    working."""

    tier_before: str
    tier: str
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    gated: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return any((self.disabled, self.enabled, self.gated, self.opened, self.profiles))

    def as_dict(self) -> dict[str, Any]:
        return {
            field: list(value) if isinstance(value, tuple) else value
            for field, value in asdict(self).items()
        }

    def audit_details(self) -> dict[str, Any]:
        """The audited form: bounded, with the counts."""
        lists = ("disabled", "enabled", "gated", "opened", "profiles")
        names = {field: list(getattr(self, field)) for field in lists}
        return {
            "tier_before": self.tier_before,
            "tier": self.tier,
            **{field: found[:_MOST_NAMED] for field, found in names.items()},
            "counts": {field: len(found) for field, found in names.items()},
        }


@dataclass(frozen=True)
class CustomTools:
    """An organization's tools, with the verdicts of the license gates."""

    catalog: Snapshot

    @classmethod
    def from_catalog(cls, catalog: Snapshot) -> "CustomTools":
        """Their definitions and signatures were read with the catalog; their statuses come from
        their rows."""
        rows = Tool.objects.present().filter(organization_id=catalog.organization_id)
        unusual = rows.exclude(status=ToolStatus.ACTIVE, status_reason="")
        found = unusual.values_list("name", "status", "status_reason")
        states = {name: (status, reason) for name, status, reason in found}
        other = {
            name: replace(tool, status=state[0], status_reason=state[1])
            for name, tool in catalog.tools.items()
            if (state := states.get(name, _IN_USE)) != (tool.status, tool.status_reason)
        }
        if other:
            catalog = catalog.changed(tools=MappingProxyType({**catalog.tools, **other}))
        return cls(catalog)

    def moves(self, tier: LicenseTier) -> seats.Moves[CatalogTool]:
        return seats.moves_of(seats.custom_by_age(self.catalog), tier)

    def refused(self, tier: LicenseTier, moved: seats.Moves[Any] = _NO_MOVES) -> frozenset[str]:
        """The tools that are in use, or enabled again, and that the tier refuses."""
        kinds = (*self._stay(moved), *kinds_of(self._back(moved), self.catalog))
        left = {tool.name: tool for kind in kinds for tool in kind}
        under = self.catalog.changed(
            tier=tier, tools=MappingProxyType(left), license=CatalogLicense()
        )
        included = names_of(passing(kinds, under, includes))
        return frozenset(
            name for name, tool in left.items() if name not in included and tool.enabled
        )

    def profiles(self) -> tuple[str, ...]:
        return tuple(self.catalog.profiles)

    def _stay(self, moved: seats.Moves[Any]) -> Kinds:
        """Those whose status does not change."""
        away = {tool.name for tool in moved.out}
        away.update(tool.name for tool in moved.back if seats.returns_to_use(tool))
        kinds = kinds_in(self.catalog)
        return filter_kinds(kinds, lambda tool: tool.name not in away) if away else kinds

    def _back(self, moved: seats.Moves[Any]) -> list[CatalogTool]:
        """Those that are enabled again, with their new status."""
        names = [tool.name for tool in moved.back if seats.returns_to_use(tool)]
        known = (self.catalog.tool(name) for name in names)
        status, reason = _IN_USE
        there = (tool for tool in known if tool is not None)
        return [replace(tool, status=status, status_reason=reason) for tool in there]


@dataclass(frozen=True)
class LockedOrganization:
    """A locked organization, and the effective tier before the change."""

    place: Organization
    before: LicenseTier
    revision: int


def effective_tier(organization: Organization) -> LicenseTier:
    return standing_of(organization).tier


def locked_tier(tier: LicenseTier) -> LicenseTier:
    """The current row, locked until the transaction ends. Locked before any organization, so that
    moves to a tier and changes of the tier do not interleave."""
    return LicenseTier.objects.select_for_update(no_key=True).get(pk=tier.pk)


def locked_places(tier: LicenseTier) -> list[LockedOrganization]:
    """The organizations that a change of the tier may affect, in their next revisions: those that
    have it, and those whose license expires, since it may be or become the lowest."""
    concerned = Q(tier_id=tier.pk) | Q(license_expires_at__isnull=False)
    revisions = Organization.objects.filter(concerned).next_revisions()
    rows = Organization.objects.select_related("tier").filter(pk__in=revisions).order_by("pk")
    lowest = lowest_tier()
    return [
        LockedOrganization(row, standing_of(row, lowest).tier, revisions[row.pk]) for row in rows
    ]


def held_to(tier: LicenseTier) -> list[Organization]:
    """The organizations whose effective tier it is, by slug."""
    lowest = lowest_tier()
    concerned = Q(tier_id=tier.pk) | Q(license_expires_at__isnull=False)
    rows = Organization.objects.filter(concerned).select_related("tier").order_by("slug")
    return [place for place in rows if standing_of(place, lowest).tier == tier]


def locked(organization_id: UUID) -> LockedOrganization:
    """Its next revision, which has all consequences."""
    revision = Organization.objects.next_revision(organization_id)
    place = Organization.objects.select_related("tier").get(pk=organization_id)
    return LockedOrganization(place, effective_tier(place), revision)


def hold(held: LockedOrganization, by: Actor, *, before: LicenseTier | None = None) -> TierImpact:
    """Make an organization's tools fit the effective tier. Call it after the change is saved."""
    return hold_all([replace(held, before=before or held.before)], by)[held.place.slug]


def hold_all(every: Iterable[LockedOrganization], by: Actor) -> dict[str, TierImpact]:
    """The same for many, by slug, in a few statements for each hundred; more are made only for
    tools that are disabled or enabled.

    The consequences for its tools are in the organization's audit log, also where the change was
    made for all organizations.
    """
    lowest = lowest_tier()
    changes: dict[str, TierImpact] = {}
    for some in batched(every, _AT_ONCE, strict=False):
        changes |= _hold_some(some, lowest, by)
    return changes


def _hold_some(
    some: Sequence[LockedOrganization], lowest: LicenseTier | None, by: Actor
) -> dict[str, TierImpact]:
    """Tools are examined where a status or the terms change: otherwise there are no
    consequences."""
    rows = Organization.objects.select_related("tier").in_bulk([held.place.pk for held in some])
    tiers = {pk: standing_of(row, lowest).tier for pk, row in rows.items()}
    moves = seats.moves_by_organization(tiers)
    same = {
        pk for held in some
        if (pk := held.place.pk) not in moves
        and same_terms(terms_of(held.before), terms_of(tiers[pk]))
    }  # fmt: skip
    catalogs = license_catalogs(row for pk, row in rows.items() if pk not in same)
    changes = {}
    for held in some:
        pk, slug = held.place.pk, held.place.slug
        moved, tier = moves.get(pk, _NO_MOVES), tiers[pk]
        changes[slug] = (
            TierImpact(held.before.name, tier.name)
            if pk in same
            else _difference(CustomTools(catalogs[pk]), held.before, tier, moved)
        )
        seats.carry_out(moved, tier, held.revision, replace(by, organization=slug))
    return changes


def preview(
    organization: Organization, tier: LicenseTier, *, catalog: Snapshot | None = None
) -> TierImpact:
    """The effect of `set_tier` on the current row and catalog; a caller that has locked the row
    passes the catalog that it read. Nothing is saved."""
    tools = CustomTools.from_catalog(
        catalog or registry.snapshot(organization.pk, organization.revision)
    )
    return _moved_to(tier, tools, effective_tier(organization))


def preview_all(organizations: Sequence[Organization], tier: LicenseTier) -> list[TierImpact]:
    """The same for many, with their current rows, in a few queries."""
    lowest, catalogs = lowest_tier(), license_catalogs(organizations)
    return [
        _moved_to(tier, CustomTools(catalogs[row.pk]), standing_of(row, lowest).tier)
        for row in organizations
    ]


@transaction.atomic
def install_license(*, organization: Organization, file: bytes, by: Actor) -> TierImpact:
    """Set the organization's tier, and until when, as a signed license says.

    Raises `Malformed` for an invalid file, `BadSignature`, `Conflict` and `NotFound` for a license
    of another organization, time or installation.
    """
    license, document = read_license(file, settings.LICENSE_KEYS)
    tier = _tier_of_license(license)
    held = locked(organization.pk)
    place = held.place
    _check_license(license, place)
    before = _license_fields(place)
    place.tier = tier
    place.license_id, place.license_document = license.id, document
    place.license_expires_at = license.expires_at
    place.license_grace_days = license.grace_days
    place.save(update_fields=_COLUMNS)
    change = hold(held, by)
    said = {
        "issued_at": _iso(license.issued_at),
        "expires_at": _iso(license.expires_at),
    }
    details = {**said, "grace_days": license.grace_days, **change.audit_details()}
    _record(
        Event.LICENSE_INSTALL, license.id, by, details | difference(before, _license_fields(place))
    )
    transaction.on_commit(lambda: _set_metric(place.slug, license.expires_at))
    return change


@transaction.atomic
def remove_license(*, organization: Organization, by: Actor) -> TierImpact:
    """The lowest tier is then effective, until a person sets another one.

    The document stays in the row, so that no older license can be installed later.
    """
    held = locked(organization.pk)
    place, removed = held.place, held.place.license_id
    if not removed:
        raise NotFound(f"{place.slug} has no installed licence.", code="license_not_found")
    before = _license_fields(place)
    place.tier = lowest_tier() or place.tier
    place.license_id, place.license_expires_at = "", None
    place.save(update_fields=["tier", "license_id", "license_expires_at"])
    change = hold(held, by)
    said = change.audit_details() | difference(before, _license_fields(place))
    _record(Event.LICENSE_REMOVE, removed, by, said)
    transaction.on_commit(lambda: _set_metric(place.slug, None))
    return change


def apply_expiry() -> list[str]:
    """Apply the lowest tier to organizations whose license has expired; the slugs of those changed.

    The gates have refused since its expiry. This updates the tools and the audit log.
    """
    changed = []
    for place in Organization.objects.filter(license_expires_at__isnull=False).select_related(
        "tier"
    ):
        _set_metric(place.slug, place.license_expires_at)
        if _is_over(place) and _unsettled(place) and _expire(place.pk):
            changed.append(place.slug)
    return changed


@transaction.atomic
def _expire(organization_id: UUID) -> bool:
    """Checked again under the lock: another worker, or a new license, may have been faster."""
    held = locked(organization_id)
    place = held.place
    if not (_is_over(place) and _unsettled(place)):
        return False
    by = Actor(CallerKind.SYSTEM, BEAT, place.slug)
    change = hold(held, by, before=place.tier)
    tiers = difference({"tier": change.tier_before}, {"tier": change.tier})
    details = {"expires_at": _iso(place.license_expires_at), **change.audit_details(), **tiers}
    _record(Event.LICENSE_EXPIRE, _expired_subject(place), by, details)
    return True


def _is_over(place: Organization) -> bool:
    return standing_of(place).state == LicenseState.EXPIRED


def _unsettled(place: Organization) -> bool:
    """Its end has not been recorded yet, or tools do not fit the lowest tier."""
    recorded = AuditRecord.objects.filter(
        organization=place.slug, code=Event.LICENSE_EXPIRE, subject=_expired_subject(place)
    )
    moved = seats.moves(Tool.objects.custom().filter(organization=place), effective_tier(place))
    return bool(moved.out) or not recorded.exists()


def _expired_subject(place: Organization) -> str:
    return f"{place.license_id or 'licence'} {_iso(place.license_expires_at)}"


def _moved_to(tier: LicenseTier, tools: CustomTools, before: LicenseTier) -> TierImpact:
    return _difference(tools, before, tier, tools.moves(tier))


def _difference(
    tools: CustomTools, before: LicenseTier, after: LicenseTier, moved: seats.Moves[Any]
) -> TierImpact:
    refused = tools.refused(before), tools.refused(after, moved)
    lost = before.custom_sandbox_profiles and not after.custom_sandbox_profiles
    return TierImpact(
        tier_before=before.name,
        tier=after.name,
        disabled=_names(moved.out, lambda tool: tool.status == ToolStatus.ACTIVE),
        enabled=_names(moved.back, seats.returns_to_use),
        gated=tuple(sorted(refused[1] - refused[0])),
        opened=tuple(sorted(refused[0] - refused[1] - {tool.name for tool in moved.out})),
        profiles=tools.profiles() if lost else (),
    )


def _names[AnyTool: seats.Seated](
    tools: Iterable[AnyTool], wanted: Callable[[AnyTool], bool]
) -> tuple[str, ...]:
    return tuple(tool.name for tool in tools if wanted(tool))


def _check_license(license: License, place: Organization) -> None:
    now = timezone.now()
    if license.organization != place.slug:
        raise Conflict(
            f"The licence is for the organization {license.organization}, not for {place.slug}.",
            code="license_of_another_organization",
        )
    if license.issued_at > now:
        raise Conflict(
            f"The licence was issued on {_iso(license.issued_at)}, which has not come yet. Is "
            "the clock of this machine right?",
            code="license_not_yet_issued",
        )
    if license_state(license.expires_at, license.grace_days, now) == LicenseState.EXPIRED:
        raise Conflict(
            f"The licence ended on {_iso(license.expires_at)}, and its {license.grace_days} days "
            "of grace are over.",
            code="license_expired",
        )
    known = _issued_at(place.license_document)
    if known is not None and license.issued_at < known:
        raise Conflict(
            f"The licence was issued on {_iso(license.issued_at)}, before the one that was "
            f"installed last ({_iso(known)}).",
            code="license_older",
        )


def _issued_at(document: dict[str, Any] | None) -> datetime | None:
    """The last license, which was validated when it was installed."""
    said = (document or {}).get("license", {}).get("issued_at")
    return datetime.fromisoformat(said) if said else None


def _tier_of_license(license: License) -> LicenseTier:
    found = LicenseTier.objects.select_for_update(no_key=True).filter(name=license.tier).first()
    if found is None:
        known = ", ".join(LicenseTier.objects.values_list("name", flat=True))
        raise NotFound(
            f"The licence is for the tier {license.tier!r}, which is not there, only: {known}.",
            code="tier_not_found",
        )
    return found


def _license_fields(place: Organization) -> dict[str, Any]:
    return {
        "tier": place.tier.name,
        "license": place.license_id,
        "expires_at": place.license_expires_at,
        "grace_days": place.license_grace_days,
    }


def _record(event: Event, subject: str, by: Actor, details: dict[str, Any]) -> None:
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)


def _iso(moment: datetime | None) -> str:
    return moment.isoformat().replace("+00:00", "Z") if moment else "never"


def _set_metric(slug: str, expires_at: datetime | None) -> None:
    left_s = (expires_at - timezone.now()).total_seconds() if expires_at else float("inf")
    metrics.license_expires.labels(slug).set(left_s)
