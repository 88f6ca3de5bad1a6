"""`/licenses/tiers/…`: the form of a tier's terms, with an impact preview. `/licenses/undo` undoes
the user's last change of a tier."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.catalog.snapshot import Snapshot
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.errors import Conflict, Forbidden, Malformed, NotFound
from tools.insight.impact_previews import (
    MOST_PLACES,
    Outlook,
    apply_terms,
    outlook_of_terms,
    take_move_back,
    take_terms_back,
)
from tools.licensing.licenses import TierImpact
from tools.licensing.tier_terms import TERMS, same_terms, terms_of
from tools.models import LicenseTier, Organization
from tools.web.pages import PageRequest, page, snapshot_of
from tools.web.reauthentication import Proof, proof

TEMPLATE = "licenses/tier.html"
UNDO_KEY = "licenses-undo"  # session key, and tag of the message that offers it
EVERY, THESE = "every", "these"
_MOST_TOOLS = 1_000_000


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
    def from_tier(cls, tier: LicenseTier) -> "TierForm":
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
    def from_query(cls, data: QueryDict, known: Iterable[str]) -> "TierForm":
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
            self._flaw("limited", f"Give a whole number from 0 to {_MOST_TOOLS:,}.")
        if self.custom_sandbox_profiles and self.limited == THESE:
            self._flaw("profiles", "Only a tier without a limit of custom tools may have own ones.")

    def _flaw(self, key: str, words: str) -> None:
        self.errors.setdefault(key, []).append(words)


def require_superuser(request: PageRequest) -> None:
    """Only superusers change tiers, since they hold for all organizations."""
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes tiers.", code="not_permitted")


@proof(Proof.NEEDED)
@require_http_methods(["GET", "HEAD", "POST"])
@page
def tier_page(request: PageRequest, tier_id: int) -> HttpResponseBase:
    """GET shows the form and, once it is filled in, the impact preview; POST saves it."""
    require_superuser(request)
    tier, snapshot = tier_by_id(tier_id), snapshot_of(request)
    known = known_builtins(tier, snapshot)
    if request.method == "POST":
        return _save_terms(request, tier, TierForm.from_query(request.POST, known), known)
    if request.GET.get("show") != "yes":
        return _render_form(request, tier, TierForm.from_tier(tier), known)
    return _render_preview(request, tier, TierForm.from_query(request.GET, known), known)


@proof(Proof.NEEDED)
@require_POST
@page
def undo_change(request: PageRequest) -> HttpResponseBase:
    """Restore the previous terms, unless the tier has changed since."""
    require_superuser(request)
    kept = request.session.pop(UNDO_KEY, None)
    if kept is None or kept["key"] != request.POST.get("key"):
        messages.error(request, "That cannot be taken back any more.")
        return redirect("licenses")
    try:
        messages.success(request, _undo_change(request, kept))
    except (Conflict, NotFound, Malformed) as refusal:
        messages.error(
            request, f"That was not taken back. {refusal.message}", extra_tags=refusal.code
        )
    return redirect("licenses")


def keep_undo(request: PageRequest, **kept: Any) -> None:
    request.session[UNDO_KEY] = {"key": uuid4().hex, **kept}


def undo_key(request: PageRequest) -> str:
    return str((request.session.get(UNDO_KEY) or {}).get("key", ""))


def tier_by_id(tier_id: int) -> LicenseTier:
    found = LicenseTier.objects.filter(pk=tier_id).first()
    if found is None:
        raise NotFound("There is no such tier.", code="tier_not_found")
    return found


def impact_rows(change: TierImpact) -> list[tuple[str, str, tuple[str, ...]]]:
    """Each effect as a heading, the color of its chip, and names."""
    said = (
        ("Disabled, the newest first", "denied", change.disabled),
        ("Stay enabled, but every call is refused", "denied", change.gated),
        ("Sandbox profiles that stop working", "denied", change.profiles),
        ("Enabled again, the oldest first", "success", change.enabled),
        ("No longer refused", "success", change.opened),
    )
    return [(heading, tone, names) for heading, tone, names in said if names]


def impact_context(impact: Outlook) -> dict[str, Any]:
    effects = [(effect, impact_rows(effect.change)) for effect in impact.following]
    calm = len(impact.effects) - len(effects)
    return {"impact": impact, "effects": effects, "calm": calm, "most_places": MOST_PLACES}


def known_builtins(tier: LicenseTier, snapshot: Snapshot) -> list[str]:
    """Built-in tools of the catalog that tiers include or not, and others that the tier names."""
    there = {tool.name for tool in snapshot.tools.values() if not tool.custom}
    return sorted({*there, *(tier.builtin_tools or ())} - IN_EVERY_LICENSE)


def builtin_choices(
    form: TierForm, names: Iterable[str], snapshot: Snapshot
) -> list[TierFormChoice]:
    chosen = {*form.builtin_tools}
    return [_builtin_choice(name, name in chosen, snapshot) for name in names]


def level_choices(form: TierForm) -> list[TierFormChoice]:
    return [TierFormChoice(level, level in form.isolation_levels) for level in IsolationLevel]


def term_texts(terms: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each term as a heading and a text, as in the table of tiers."""
    most, levels = terms["max_custom_tools"], terms["isolation_levels"]
    listed = terms["builtin_tools"]
    return [
        (
            "Built-in tools",
            "all, future ones too" if listed is None else _join_names(sorted(listed)),
        ),
        ("Custom tools", "no limit" if most is None else f"{most:,}"),
        ("Isolation levels", "all" if levels is None else _join_names(levels)),
        ("Sandbox profiles", "of one's own" if terms["custom_sandbox_profiles"] else "none"),
    ]


def _save_terms(
    request: PageRequest, tier: LicenseTier, form: TierForm, known: list[str]
) -> HttpResponseBase:
    if form.errors:
        return _render_form(request, tier, form, known, status=400)
    before, terms, mark = terms_of(tier), form.terms(), request.POST.get("mark", "")
    try:
        changes = apply_terms(tier=tier, terms=terms, mark=mark, by=actor_of(request.caller))
    except (Conflict, Malformed) as refusal:
        messages.error(request, refusal.message, extra_tags=refusal.code)
        return _render_preview(request, tier, form, known, status=refusal.http_status)
    keep_undo(request, kind="terms", tier=tier.pk, left=terms, back=before)
    messages.success(request, _change_message(tier, changes), extra_tags=UNDO_KEY)
    return redirect("licenses")


def _render_preview(
    request: PageRequest, tier: LicenseTier, form: TierForm, known: list[str], *, status: int = 200
) -> HttpResponse:
    if form.errors:
        return _render_form(request, tier, form, known, status=400)
    terms = form.terms()
    try:
        outlook = outlook_of_terms(tier, terms)
    except (Conflict, Malformed) as refusal:
        form.errors["whole"] = [refusal.message]
        return _render_form(request, tier, form, known, status=refusal.http_status)
    differs = not same_terms(terms_of(tier), terms)
    lines = zip(term_texts(terms_of(tier)), term_texts(terms), strict=True)
    changed = [(was[0], was[1], then[1]) for was, then in lines if was[1] != then[1]]
    more = impact_context(outlook) | {"changed": changed, "differs": differs}
    return _render_form(request, tier, form, known, status=status, **more)


def _render_form(
    request: PageRequest,
    tier: LicenseTier,
    form: TierForm,
    known: list[str],
    *,
    status: int = 200,
    **more: Any,
) -> HttpResponse:
    context = {
        "tier": tier,
        "form": form,
        "builtins": builtin_choices(form, known, snapshot_of(request)),
        "levels": level_choices(form),
        **more,
    }
    name = f"{TEMPLATE}#work" if request.htmx and request.htmx.target == "tier-work" else TEMPLATE
    # A refusal within the form is a partial like any other, which htmx swaps in.
    return render(request, name, context, status=200 if name != TEMPLATE else status)


def _undo_change(request: PageRequest, kept: dict[str, Any]) -> str:
    by = actor_of(request.caller)
    if kept["kind"] == "terms":
        tier = tier_by_id(kept["tier"])
        left, back = ({field: kept[when][field] for field in TERMS} for when in ("left", "back"))
        take_terms_back(tier=tier, left=left, back=back, by=by)
        return f"{tier.name} includes again what it did."
    place = Organization.objects.filter(pk=kept["organization"]).first()
    if place is None:
        raise NotFound("There is no such organization.", code="organization_not_found")
    left_tier, back_tier = tier_by_id(kept["left"]), tier_by_id(kept["back"])
    take_move_back(organization=place, left=left_tier, back=back_tier, by=by)
    return f"{place.slug} is in {back_tier.name} again."


def _change_message(tier: LicenseTier, changes: dict[str, TierImpact]) -> str:
    disabled = sum(len(change.disabled) for change in changes.values())
    enabled = sum(len(change.enabled) for change in changes.values())
    parts = [f"{tier.name} is changed"]
    parts += (
        [f"{disabled:,} custom tool{'' if disabled == 1 else 's'} disabled"] if disabled else []
    )
    parts += [f"{enabled:,} enabled again"] if enabled else []
    return ", ".join(parts) + "."


def _builtin_choice(name: str, chosen: bool, snapshot: Snapshot) -> TierFormChoice:
    tool = snapshot.tool(name)
    if tool is None:
        return TierFormChoice(name, chosen, "not in this catalog")
    return TierFormChoice(name, chosen, "", tuple(sorted(snapshot.own_groups(tool))))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MOST_TOOLS


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
