"""`/licenses/`: comparison of tiers, licenses and usage of organizations, and the impact preview of
another tier."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django import forms
from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from tools.accounts.callers import actor_of
from tools.catalog import seats
from tools.catalog.snapshot import Snapshot
from tools.catalog.tiers import LicenseStatus, lowest_tier, standing_of
from tools.definitions.licenses import LicenseState
from tools.definitions.texts.names import SLUG, join_names
from tools.errors import NotFound
from tools.insight.impact_previews import apply_move, outlook_of_move
from tools.licensing.license_coverage import includes
from tools.licensing.licenses import TierImpact
from tools.licensing.tool_kinds import kinds_in, names_of, passing
from tools.models import LicenseTier, Organization, User
from tools.ui.licenses.tiers import (
    UNDO_KEY,
    impact_effects,
    impact_lines,
    keep_undo,
    require_superuser,
    undo_key,
)
from tools.ui.settings.sandbox import Notice, manages_tools
from tools.web.forms import notify
from tools.web.listing import Column, Filters, Listing, search_field
from tools.web.pages import PageRequest, action_page, page, snapshot_of
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "licenses/licenses.html"
_MOST_NAMED = 3  # in a notice
MOST_OFFERED = 200  # organizations in the suggestions
_STATE_CHIPS = {  # words and colors of a chip
    LicenseState.NONE: ("no end", "active"),
    LicenseState.VALID: ("valid", "active"),
    LicenseState.EXPIRING: ("ends soon", "pending"),
    LicenseState.GRACE: ("days of grace", "pending"),
    LicenseState.EXPIRED: ("ended", "denied"),
}


@dataclass(frozen=True)
class LicenseUsage:
    """An organization's custom tools against the limit of its effective tier."""

    custom: int
    limit: int | None
    builtins: int
    builtins_there: int
    put_out: list[str]
    refused: list[str]

    @property
    def share(self) -> int:
        """Percent of the limit."""
        return min(100, round(100 * self.custom / self.limit)) if self.limit else 100


@dataclass(frozen=True)
class LicensedOrganization:
    """An organization in the list, with its number of custom tools."""

    row: Organization
    standing: LicenseStatus
    word: str
    tone: str
    used: int


class OrganizationFilters(Filters):
    q = search_field("Name of an organization")


class OrganizationListing(Listing):
    """Every organization with its license, for superusers."""

    view, template, noun, filters = "licenses", TEMPLATE, "organization", OrganizationFilters
    order = "organization"
    columns = [
        Column("organization", "Organization", lambda one: one.row.slug, sort="slug"),
        Column("tier", "Tier", lambda one: one.standing.tier.name),
        Column("license", "Licence", lambda one: one.standing.license_id),
        Column("state", "", lambda one: one.word),
        Column("ends", "Ends", lambda one: one.standing.expires_at),
        Column("custom_tools", "Custom tools", lambda one: one.used, css="number"),
        Column("move", "Move", hidden=True),
    ]

    @property
    def bare_address(self) -> str:
        return reverse(self.view)

    def rows(self) -> QuerySet[Organization]:
        rows = Organization.objects.select_related("tier")
        words = self.values.get("q")
        return rows.filter(Q(slug__icontains=words) | Q(name__icontains=words)) if words else rows

    def prepare(self, rows: list[Organization]) -> list[LicensedOrganization]:
        used, lowest, found = seats.counts([row.pk for row in rows]), lowest_tier(), []
        for row in rows:
            standing = standing_of(row, lowest)
            chip = _STATE_CHIPS[standing.state]
            found.append(LicensedOrganization(row, standing, *chip, used.get(row.pk, 0)))
        return found


def notice(request: HttpRequest) -> dict[str, Any]:
    """A context processor: the license notice, computed when the page of a logged-in user shows
    it."""
    user = getattr(request, "user", None)
    return {"license_notice": SimpleLazyObject(lambda: _user_notice(user))}


def license_summary(request: PageRequest) -> Notice:
    """One line about the tier and its limits, for the home page."""
    standing, snapshot = standing_of(_own_organization(request)), snapshot_of(request)
    custom = sum(tool.custom and not seats.put_out(tool) for tool in snapshot.tools.values())
    limit = standing.tier.max_custom_tools
    full = limit is not None and custom >= limit
    used = "1 custom tool" if custom == 1 else f"{custom} custom tools"
    most = "no limit" if limit is None else f"at most {limit}"
    word, status = _STATE_CHIPS[standing.state]
    tone = {"active": "warn" if full else "good", "pending": "warn"}.get(status, "bad")
    until = f", {word}, until {_date_text(standing.expires_at)}" if standing.expires_at else ""
    return Notice(tone, f"{standing.tier.name}: {used}, {most}{until}.")


class TierMoveForm(PreviewForm):
    """Another tier for an organization, which is the row."""

    row: Organization
    details, outdated = f"{TEMPLATE}#impact", "tier_changed"
    organization = forms.CharField(required=False, widget=forms.HiddenInput)
    tier = forms.CharField(widget=forms.HiddenInput)

    def build(self) -> None:
        self.wanted, self.back = _find_tier(self["tier"].value() or ""), reverse("licenses")
        self.submit = f"Change the tier to {self.wanted.name}"

    def lock(self) -> None:
        """The action locks the tiers before the organization, and looks at it again."""

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        self.impact = outlook_of_move(self.row, self.wanted)
        self.effects = impact_effects(self.impact)
        self.danger = self.impact.closes
        [self.effect] = self.impact.effects
        change = self.effect.change
        self.title = f"{self.row.slug}: from {change.tier_before} to {change.tier}"
        self.writes = self.wanted != self.row.tier
        return impact_lines(self.impact) | {self.row.slug: f"{change.tier_before} → {change.tier}"}

    def act(self, changes: dict[str, Any]) -> TierImpact:
        place, left, by = self.row, self.row.tier, actor_of(self.request.caller)
        done = apply_move(organization=place, tier=self.wanted, mark=self.impact.mark, by=by)
        kept = {"organization": str(place.pk), "left": self.wanted.pk, "back": left.pk}
        keep_undo(self.request, kind="move", **kept)
        return done


@page("view_licensetier")
def license_page(request: PageRequest) -> HttpResponseBase:
    wanted, slug = request.GET.get("tier", ""), request.GET.get("organization", "")
    if (wanted or slug) and not request.caller.is_superuser:
        require_superuser(request)
    place, move = _find_organization(request, slug), None
    if wanted:
        move = TierMoveForm(request, place, initial={"organization": place.slug, "tier": wanted})
        if not place.license_id or move.wanted == place.tier:
            move.show_preview()
    return _render_page(request, place, move)


@action_page(Proof.NEEDED)
def change_tier(request: PageRequest) -> HttpResponseBase:
    """Move an organization to a tier, if the impact is still the one that was shown."""
    require_superuser(request)
    place = _find_organization(request, request.POST.get("organization", ""))
    move = TierMoveForm(request, place)
    if not move.save():
        return _render_page(request, place, move)
    notify(request, _change_message(place, move.result), changed=True, tags=UNDO_KEY)
    return redirect("licenses")


def _render_page(
    request: PageRequest, place: Organization, move: TierMoveForm | None
) -> HttpResponseBase:
    may_change = request.caller.is_superuser
    slugs = Organization.objects.order_by("slug").values_list("slug", flat=True)
    context = {
        "tiers": LicenseTier.objects.all(),
        "may_change": may_change,
        "place": place,
        "slugs": slugs[:MOST_OFFERED] if may_change else [],
        "place_status": standing_of(place),
        "form": move,
        "wanted": move.wanted if move else None,
    }
    if request.htmx and request.htmx.target == "change":
        return render(request, f"{TEMPLATE}#change", context)
    context |= _page_context(request)
    if may_change and request.method == "GET":
        return OrganizationListing(request).respond(**context)
    return render(request, TEMPLATE, context, status=move.status if move else 200)


def _page_context(request: PageRequest) -> dict[str, Any]:
    standing = standing_of(_own_organization(request))
    word, tone = _STATE_CHIPS[standing.state]
    context: dict[str, Any] = {
        "license_status": standing,
        "state_word": word,
        "state_tone": tone,
        "use": _license_usage(snapshot_of(request), standing),
        "undo": undo_key(request),
    }
    if request.caller.is_superuser:
        context["listing"] = OrganizationListing(request)
    return context


def _license_usage(snapshot: Snapshot, standing: LicenseStatus) -> LicenseUsage:
    custom = seats.custom_by_age(snapshot)
    builtin = [tool for tool in snapshot.sorted_tools if not tool.custom]
    put_out = [tool.name for tool in custom if seats.put_out(tool)]
    included = names_of(passing(kinds_in(snapshot), snapshot, includes))
    in_use = [tool.name for tool in snapshot.sorted_tools if tool.enabled]
    return LicenseUsage(
        custom=len(custom) - len(put_out),
        limit=standing.tier.max_custom_tools,
        builtins=sum(tool.name in included for tool in builtin),
        builtins_there=len(builtin),
        put_out=put_out,
        refused=[name for name in in_use if name not in included],
    )


def _own_organization(request: PageRequest) -> Organization:
    return Organization.objects.select_related("tier").get(pk=request.caller.organization_id)


def _find_tier(name: str) -> LicenseTier:
    found = LicenseTier.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"There is no tier {name[:60]!r}.", code="tier_not_found")
    return found


def _find_organization(request: PageRequest, slug: str) -> Organization:
    """The named organization; the user's own where none is named."""
    if not slug:
        return _own_organization(request)
    rows = Organization.objects.select_related("tier")
    found = rows.filter(slug=slug).first() if SLUG.fullmatch(slug) else None
    if found is None:
        raise NotFound(f"There is no organization {slug[:60]!r}.", code="organization_not_found")
    return found


def _change_message(place: Organization, change: TierImpact) -> str:
    parts = [f"The tier of {place.slug} is now {change.tier}."]
    if change.disabled:
        parts.append(f"Disabled: {join_names(change.disabled, _MOST_NAMED)}.")
    if change.enabled:
        parts.append(f"Enabled again: {join_names(change.enabled, _MOST_NAMED)}.")
    return " ".join(parts)


def _user_notice(user: User | AnonymousUser | None) -> Notice | None:
    """Before the license ends for users who manage tools; afterwards for all, since tools may be
    missing."""
    if not isinstance(user, User) or user.organization.license_expires_at is None:
        return None
    standing = standing_of(Organization.objects.select_related("tier").get(pk=user.organization_id))
    if standing.state == LicenseState.EXPIRING and manages_tools(user):
        name = "license-ends-today" if _days_left(standing) <= 1 else "license-ends-soon"
        return Notice("warn", _expiring_text(standing), name)
    if standing.state == LicenseState.GRACE:
        return Notice("warn", _grace_text(standing), "license-grace")
    if standing.state == LicenseState.EXPIRED:
        return Notice("bad", _expired_text(standing, user), "license-ended")
    return None


def _days_left(standing: LicenseStatus) -> int:
    assert standing.expires_at is not None
    return ceil((standing.expires_at - timezone.now()).total_seconds() / 86_400)


def _expiring_text(standing: LicenseStatus) -> str:
    days = _days_left(standing)
    left = "today" if days <= 1 else f"in {days} days"
    return (
        f"The {standing.own.name} licence ends {left}, on {_date_text(standing.expires_at)}. "
        f"Nothing changes until {_date_text(standing.grace_ends_at)}; install a new one by then."
    )


def _grace_text(standing: LicenseStatus) -> str:
    fallback = lowest_tier() or standing.own
    return (
        f"The {standing.own.name} licence ended on {_date_text(standing.expires_at)}. Its days of "
        f"grace end on {_date_text(standing.grace_ends_at)}; then only what {fallback.name} "
        "includes can be used."
    )


def _expired_text(standing: LicenseStatus, user: User) -> str:
    names = [*_disabled_names(user)]
    said = (
        f"Disabled: {join_names(names, _MOST_NAMED)}."
        if names
        else "No tool of your own had to be disabled."
    )
    return (
        f"The {standing.own.name} licence ended on {_date_text(standing.expires_at)}. Only what "
        f"{standing.tier.name} includes can be used. {said}"
    )


def _disabled_names(user: User) -> list[str]:
    return [*seats.disabled(user.organization_id).values_list("name", flat=True)]


def _date_text(moment: datetime | None) -> str:
    return f"{moment.day} {moment:%B %Y}" if moment else "no day"
