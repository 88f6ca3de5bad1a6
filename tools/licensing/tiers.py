"""Assigns tiers to organizations, and changes what a tier includes.

Every change increments the revision of each organization that it may affect, and is audited in each
for which something follows.
"""

from dataclasses import replace
from typing import Any

from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from tools.errors import Conflict
from tools.licensing import licenses
from tools.licensing.licenses import TierImpact
from tools.licensing.tier_terms import check_tier
from tools.models import LicenseTier, Organization


@transaction.atomic
def set_tier(*, organization: Organization, tier: LicenseTier, by: Actor) -> TierImpact:
    """Raises `Conflict` where an installed license determines the tier."""
    tier = licenses.locked_tier(tier)
    held = licenses.locked(organization.pk)
    place = held.place
    if place.license_id and tier != place.tier:
        raise Conflict(
            f"The tier of {place.slug} is set by the licence {place.license_id}. Install another "
            "one, or remove it first.",
            code="tier_is_licensed",
        )
    by, before = replace(by, organization=place.slug), {"tier": place.tier.name}
    place.tier = tier
    place.save(update_fields=["tier"])
    change = licenses.hold(held, by)
    after = {"tier": tier.name}
    if before != after or change.any:
        record_change(
            Event.TIER_CHANGE, organization.slug, by, before, after, **change.audit_details()
        )
    return change


@transaction.atomic
def change_tier(*, tier: LicenseTier, by: Actor, **changes: Any) -> dict[str, TierImpact]:
    """The consequences, by the slugs of the affected organizations.

    Increments the revision of every organization that it may affect, so that all processes see it.
    """
    licenses.locked_tier(tier)
    tier.refresh_from_db()
    places = licenses.locked_places(tier)
    before = {field: getattr(tier, field) for field in changes}
    for field, value in changes.items():
        setattr(tier, field, value)
    _save_tier(tier)
    every = licenses.hold_all(places, by)
    follows = {slug: change for slug, change in every.items() if change.any}
    named = {slug: change.audit_details() for slug, change in follows.items()}
    if before != changes or follows:
        record_change(Event.TIER_CHANGE, tier.name, by, before, changes, organizations=named)
    for slug in follows.keys() - {by.organization}:
        own = replace(by, organization=slug)
        record_change(Event.TIER_CHANGE, tier.name, own, before, changes, **named[slug])
    return follows


@transaction.atomic
def create_tier(*, by: Actor, **fields: Any) -> LicenseTier:
    """It may be the lowest, hence the effective one after a license expires."""
    tier = LicenseTier(**fields)
    places = licenses.locked_places(tier)
    _save_tier(tier)
    licenses.hold_all(places, by)
    record_change(Event.TIER_CHANGE, tier.name, by, None, fields)
    return tier


def _save_tier(tier: LicenseTier) -> None:
    check_tier(tier)
    tier.save()
