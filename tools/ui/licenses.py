"""`/licenses/`: the tiers side by side, what this organization uses of its own, and until when."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST, require_safe

from tools.catalog import seats
from tools.catalog.registry import Snapshot
from tools.catalog.tiers import Standing, lowest_tier
from tools.definitions.licenses import LicenseState
from tools.errors import Forbidden, NotFound
from tools.models import LicenseTier, Organization, User
from tools.policy.actions import set_tier
from tools.policy.callers import actor_of
from tools.policy.licenses import Change, preview
from tools.policy.licensing import includes, standing_of
from tools.policy.people import require
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.sandbox import Notice, manages

TEMPLATE = "ui/licenses.html"
_NAMED = 3  # in a notice
_STATES = {  # words and colours of a chip
    LicenseState.NONE: ("no end", "active"),
    LicenseState.VALID: ("valid", "active"),
    LicenseState.EXPIRING: ("ends soon", "pending"),
    LicenseState.GRACE: ("days of grace", "pending"),
    LicenseState.EXPIRED: ("ended", "denied"),
}


@dataclass(frozen=True)
class Use:
    """What an organization has of its own, against what the tier that counts allows."""

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


def notice(request: HttpRequest) -> dict[str, Any]:
    """For every template; nothing is asked before a page of somebody logged in shows it."""
    user = getattr(request, "user", None)
    return {"license_notice": SimpleLazyObject(lambda: _notice_for(user))}


def in_short(request: PageRequest) -> Notice:
    """One line about the tier and its limits, for those who may see them."""
    standing, snapshot = standing_of(_place(request)), snapshot_of(request)
    custom = sum(tool.custom and not seats.put_out(tool) for tool in snapshot.tools.values())
    limit = standing.tier.max_custom_tools
    full = limit is not None and custom >= limit
    used = "1 custom tool" if custom == 1 else f"{custom} custom tools"
    most = "no limit" if limit is None else f"at most {limit}"
    word, status = _STATES[standing.state]
    tone = {"active": "warn" if full else "good", "pending": "warn"}.get(status, "bad")
    until = f", {word}, until {_day(standing.expires_at)}" if standing.expires_at else ""
    return Notice(tone, f"{standing.tier.name}: {used}, {most}{until}.")


@require_safe
@page
def license_page(request: PageRequest) -> HttpResponse:
    require(request.caller, "view_licensetier")
    wanted = request.GET.get("tier", "")
    context: dict[str, Any] = {"tiers": LicenseTier.objects.all()}
    context |= _asked(request, _tier(wanted)) if wanted else {"may_change": _may_change(request)}
    if request.htmx and request.htmx.target == "change":
        return render(request, f"{TEMPLATE}#change", context | _standing(request))
    return render(request, TEMPLATE, context | _standing(request) | _used(request))


@require_POST
@page
def change_tier(request: PageRequest) -> HttpResponse:
    if not _may_change(request):
        raise Forbidden("Only a superuser changes the tier.", code="not_permitted")
    tier = _tier(request.POST.get("tier", ""))
    change = set_tier(organization=_place(request), tier=tier, by=actor_of(request.caller))
    messages.success(request, _said(change))
    return redirect("licenses")


def _asked(request: PageRequest, tier: LicenseTier) -> dict[str, Any]:
    """What the tier would do, for whoever may choose it."""
    if not _may_change(request):
        raise Forbidden("Only a superuser changes the tier.", code="not_permitted")
    change = preview(_place(request), tier)
    return {"may_change": True, "wanted": tier, "change": change, "follows": _follows(change)}


def _follows(change: Change) -> list[tuple[str, str, tuple[str, ...]]]:
    """A heading, the colour of its chip, and names."""
    said = (
        ("Disabled, the newest first", "denied", change.disabled),
        ("Stay enabled, but every call is refused", "denied", change.gated),
        ("Sandbox profiles that stop working", "denied", change.profiles),
        ("Enabled again, the oldest first", "success", change.enabled),
        ("No longer refused", "success", change.opened),
    )
    return [(heading, tone, names) for heading, tone, names in said if names]


def _standing(request: PageRequest) -> dict[str, Any]:
    standing = standing_of(_place(request))
    word, tone = _STATES[standing.state]
    return {"standing": standing, "state_word": word, "state_tone": tone}


def _used(request: PageRequest) -> dict[str, Any]:
    return {"use": _use(snapshot_of(request), standing_of(_place(request)))}


def _use(snapshot: Snapshot, standing: Standing) -> Use:
    custom = [tool for tool in snapshot.sorted_tools if tool.custom]
    builtin = [tool for tool in snapshot.sorted_tools if not tool.custom]
    put_out = [tool.name for tool in seats.by_age(custom) if seats.put_out(tool)]
    in_use = [tool for tool in snapshot.sorted_tools if tool.enabled]
    return Use(
        custom=len(custom) - len(put_out),
        limit=standing.tier.max_custom_tools,
        builtins=sum(includes(tool, snapshot) for tool in builtin),
        builtins_there=len(builtin),
        put_out=put_out,
        refused=[tool.name for tool in in_use if not includes(tool, snapshot)],
    )


def _may_change(request: PageRequest) -> bool:
    return request.caller.is_superuser


def _place(request: PageRequest) -> Organization:
    return Organization.objects.select_related("tier").get(pk=request.caller.organization_id)


def _tier(name: str) -> LicenseTier:
    found = LicenseTier.objects.filter(name=name).first() if "\x00" not in name else None
    if found is None:
        raise NotFound(f"There is no tier {name[:60]!r}.", code="tier_not_found")
    return found


def _said(change: Change) -> str:
    parts = [f"The tier is now {change.tier}."]
    if change.disabled:
        parts.append(f"Disabled: {_some(change.disabled)}.")
    if change.enabled:
        parts.append(f"Enabled again: {_some(change.enabled)}.")
    return " ".join(parts)


def _notice_for(user: User | AnonymousUser | None) -> Notice | None:
    """Before the end for those who manage; afterwards for everybody, for tools may be missing."""
    if not isinstance(user, User) or user.organization.license_expires_at is None:
        return None
    standing = standing_of(Organization.objects.select_related("tier").get(pk=user.organization_id))
    if standing.state == LicenseState.EXPIRING and manages(user):
        return Notice("warn", _expiring(standing))
    if standing.state == LicenseState.GRACE:
        return Notice("warn", _grace(standing))
    if standing.state == LicenseState.EXPIRED:
        return Notice("bad", _expired(standing, user))
    return None


def _expiring(standing: Standing) -> str:
    assert standing.expires_at is not None
    days = ceil((standing.expires_at - timezone.now()).total_seconds() / 86_400)
    left = "today" if days <= 1 else f"in {days} days"
    return (
        f"The {standing.own.name} licence ends {left}, on {_day(standing.expires_at)}. Nothing "
        f"changes until {_day(standing.grace_ends_at)}; install a new one by then."
    )


def _grace(standing: Standing) -> str:
    fallback = lowest_tier() or standing.own
    return (
        f"The {standing.own.name} licence ended on {_day(standing.expires_at)}. Its days of grace "
        f"end on {_day(standing.grace_ends_at)}; then only what {fallback.name} includes can be "
        "used."
    )


def _expired(standing: Standing, user: User) -> str:
    names = [*_disabled_names(user)]
    said = f"Disabled: {_some(names)}." if names else "No tool of your own had to be disabled."
    return (
        f"The {standing.own.name} licence ended on {_day(standing.expires_at)}. Only what "
        f"{standing.tier.name} includes can be used. {said}"
    )


def _disabled_names(user: User) -> list[str]:
    return [*seats.disabled(user.organization_id).values_list("name", flat=True)]


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _day(moment: datetime | None) -> str:
    return f"{moment.day} {moment:%B %Y}" if moment else "no day"
