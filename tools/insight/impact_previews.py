"""Previews which tools another tier, or other terms of a tier, would disable and enable; applies
the change if the preview is still true."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import Count

from audit.actions import Actor
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogLicense, Snapshot
from tools.definitions.results import Status
from tools.definitions.texts.names import join_names
from tools.errors import Conflict
from tools.insight.tool_reach import Losers, losers
from tools.licensing.licenses import (
    TierImpact,
    held_to,
    locked,
    locked_places,
    locked_tier,
    preview,
    preview_all,
)
from tools.licensing.tier_terms import TERMS, check_tier, same_terms, terms_of
from tools.licensing.tiers import change_tier, set_tier
from tools.models import LicenseTier, OpenExecution, Organization

MOST_PLACES = 20  # organizations whose tools are examined for one preview
PREVIEW_NEEDED = "tier_preview_needed"
_MOST_NAMED = 5
_WAITING = (Status.PENDING, Status.REQUIRES_CONFIRMATION)


@dataclass(frozen=True)
class Effect:
    """On one organization. `losers` and `waiting` are by tool, of the tools that would be
    disabled."""

    place: Organization
    change: TierImpact
    losers: Losers | None = None
    waiting: Mapping[str, int] = MappingProxyType({})

    @property
    def closed(self) -> tuple[str, ...]:
        return self.change.disabled + self.change.gated

    @property
    def calls_waiting(self) -> int:
        return sum(self.waiting.values())


@dataclass(frozen=True)
class Outlook:
    """`more` organizations are affected beside those whose tools were examined."""

    effects: tuple[Effect, ...]
    mark: str
    more: int = 0

    @property
    def closes(self) -> bool:
        return any(effect.closed or effect.change.profiles for effect in self.effects)

    @property
    def following(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.change.any]


def with_terms(tier: LicenseTier, terms: Mapping[str, Any]) -> LicenseTier:
    """The tier as it would be, unsaved. Raises what `check_tier` does."""
    wanted = copy(tier)
    for field in TERMS:
        setattr(wanted, field, terms[field])
    check_tier(wanted)
    return wanted


def outlook_of_terms(tier: LicenseTier, terms: Mapping[str, Any]) -> Outlook:
    """Other terms of a tier: for every organization for which it counts."""
    outlook, wanted = _terms_alone(tier, terms), with_terms(tier, terms)
    return replace(outlook, effects=tuple(_looked(one, wanted) for one in outlook.effects))


def outlook_of_move(place: Organization, tier: LicenseTier) -> Outlook:
    """Another tier for one organization. Raises `Conflict` where its license determines the
    tier."""
    outlook = _move_alone(place, tier, registry.snapshot(place.pk, place.revision))
    return replace(outlook, effects=tuple(_looked(one, tier) for one in outlook.effects))


@transaction.atomic
def apply_terms(
    *, tier: LicenseTier, terms: Mapping[str, Any], mark: str, by: Actor
) -> dict[str, TierImpact]:
    """The consequences, by organization. Raises `Conflict` where they differ from the preview."""
    tier = locked_tier(tier)
    locked_places(tier)
    if _terms_alone(tier, terms).mark != mark:
        raise _changed_meanwhile()
    return change_tier(tier=tier, by=by, **terms)


@transaction.atomic
def apply_move(
    *, organization: Organization, tier: LicenseTier, mark: str, by: Actor
) -> TierImpact:
    tier = locked_tier(tier)
    place = locked(organization.pk).place
    # The row is locked, and its next revision may be rolled back.
    if _move_alone(place, tier, registry.as_it_stands(place.pk)).mark != mark:
        raise _changed_meanwhile()
    return set_tier(organization=place, tier=tier, by=by)


@transaction.atomic
def change_terms(
    *, tier: LicenseTier, by: Actor, mark: str = "", **changes: Any
) -> dict[str, TierImpact]:
    """As `apply_terms` with the mark of a preview. Without one, for fields of the tier of which
    nothing follows; else raises `Conflict`."""
    if mark:
        return apply_terms(tier=tier, terms=terms_of(tier) | changes, mark=mark, by=by)
    follows = change_tier(tier=tier, by=by, **changes)
    if follows:
        raise _preview_needed(follows)
    return follows


@transaction.atomic
def change_organization_tier(
    *, organization: Organization, tier: LicenseTier, by: Actor, mark: str = ""
) -> TierImpact:
    """As `apply_move` with the mark of a preview. Without one, where nothing follows; else raises
    `Conflict`."""
    if mark:
        return apply_move(organization=organization, tier=tier, mark=mark, by=by)
    change = set_tier(organization=organization, tier=tier, by=by)
    if change.any:
        raise _preview_needed([organization.slug])
    return change


@transaction.atomic
def take_terms_back(
    *, tier: LicenseTier, left: Mapping[str, Any], back: Mapping[str, Any], by: Actor
) -> dict[str, TierImpact]:
    """The terms before a change, unless they were changed since."""
    tier = locked_tier(tier)
    if not same_terms(terms_of(tier), left):
        raise _changed_meanwhile()
    return change_tier(tier=tier, by=by, **{field: back[field] for field in TERMS})


@transaction.atomic
def take_move_back(
    *, organization: Organization, left: LicenseTier, back: LicenseTier, by: Actor
) -> TierImpact:
    back = locked_tier(back)
    place = locked(organization.pk).place
    if place.tier != left:
        raise _changed_meanwhile()
    return set_tier(organization=place, tier=back, by=by)


def _changed_meanwhile() -> Conflict:
    return Conflict(
        "Tools or the tier were changed meanwhile, so nothing was done. Look at what would happen "
        "now.",
        code="tier_changed",
    )


def _preview_needed(places: Iterable[str]) -> Conflict:
    return Conflict(
        "Tools or sandbox profiles would be disabled, refused or enabled in "
        f"{join_names(places, _MOST_NAMED)}. Look at the preview first, and change the tier there.",
        code=PREVIEW_NEEDED,
    )


def _terms_alone(tier: LicenseTier, terms: Mapping[str, Any]) -> Outlook:
    wanted, places = with_terms(tier, terms), held_to(tier)
    looked_at = places[:MOST_PLACES]
    effects = tuple(map(Effect, looked_at, preview_all(looked_at, wanted)))
    said = (_terms_text(terms_of(tier)), _terms_text(terms), [str(place.pk) for place in places])
    return Outlook(effects, _mark(tier, effects, said), max(0, len(places) - MOST_PLACES))


def _move_alone(place: Organization, tier: LicenseTier, catalog: Snapshot) -> Outlook:
    if place.license_id and tier != place.tier:
        raise Conflict(
            f"The tier of {place.slug} is set by the licence {place.license_id}. Install another "
            "one, or remove it first.",
            code="tier_is_licensed",
        )
    effects = (Effect(place, preview(place, tier, catalog=catalog)),)
    said = (str(place.pk), place.tier.name, _terms_text(terms_of(tier)))
    return Outlook(effects, _mark(tier, effects, said))


def _mark(tier: LicenseTier, effects: Iterable[Effect], said: Any) -> str:
    """A digest that differs when the effect has changed. Calls and agents change by the second, so
    they are not part of it."""
    follows = [(str(effect.place.pk), effect.change) for effect in effects]
    return hashlib.sha256(repr((tier.pk, said, follows)).encode()).hexdigest()[:24]


def _terms_text(terms: Mapping[str, Any]) -> list[tuple[str, str]]:
    def plain(value: Any) -> Any:
        return sorted(value) if isinstance(value, list | tuple) else value

    return [(field, repr(plain(terms[field]))) for field in TERMS]


def _looked(effect: Effect, tier: LicenseTier) -> Effect:
    """The same with the affected callers."""
    if not effect.closed:
        return effect
    place = effect.place
    before = registry.snapshot(place.pk, place.revision)
    names = [name for name in effect.closed if name in before.tools]
    lost = losers(names, before, _changed_snapshot(before, effect.change, tier))
    return replace(effect, losers=lost, waiting=_calls_waiting(place, effect.closed))


def _changed_snapshot(before: Snapshot, change: TierImpact, tier: LicenseTier) -> Snapshot:
    """Without the tools that would be disabled, since no caller would reach them."""
    out = frozenset(change.disabled)
    left = {name: tool for name, tool in before.tools.items() if name not in out}
    tools = MappingProxyType(left)
    return before.changed(tier=tier, tools=tools, license=CatalogLicense())


def _calls_waiting(place: Organization, names: tuple[str, ...]) -> Counter[str]:
    """Reads all waiting calls, since there may be as many names as tools."""
    wanted = frozenset(names)
    rows = OpenExecution.objects.filter(organization=place, status__in=_WAITING)
    counted = rows.values_list("tool_name").annotate(count=Count("pk"))
    return Counter({name: count for name, count in counted if name in wanted})
