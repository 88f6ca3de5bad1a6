"""`/licenses/tiers/…`: the terms of a tier, and their form with an impact preview.
`/licenses/undo` undoes the user's last change of a tier."""

from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from tools.accounts.callers import actor_of
from tools.errors import Conflict, Forbidden, Malformed, NotFound
from tools.insight.tier_outlook import (
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
from tools.ui.access import PageRequest, page, snapshot_of
from tools.ui.licenses.tier_form import (
    TierForm,
    builtin_choices,
    known_builtins,
    level_choices,
    term_texts,
)
from tools.web.reauthentication import Proof, proof

TEMPLATE = "licenses/tier.html"
UNDO_KEY = "licenses-undo"  # session key, and tag of the message that offers it
_NAMED = 3


def require_superuser(request: PageRequest) -> None:
    """Only superusers change tiers, since they hold for all organizations."""
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes tiers.", code="not_permitted")


@proof(Proof.NEEDED)
@require_http_methods(["GET", "POST"])
@page
def tier_page(request: PageRequest, tier_id: int) -> HttpResponseBase:
    """GET shows the form and, once it is filled in, the impact preview; POST saves it."""
    require_superuser(request)
    tier, snapshot = tier_by_id(tier_id), snapshot_of(request)
    known = known_builtins(tier, snapshot)
    if request.method == "POST":
        return _save_terms(request, tier, TierForm.given(request.POST, known), known)
    if request.GET.get("show") != "yes":
        return _render_form(request, tier, TierForm.of_tier(tier), known)
    return _render_preview(request, tier, TierForm.given(request.GET, known), known)


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


def impact_context(outlook: Outlook) -> dict[str, Any]:
    effects = [(effect, impact_rows(effect.change)) for effect in outlook.following]
    calm = len(outlook.effects) - len(effects)
    return {"outlook": outlook, "effects": effects, "calm": calm, "most_places": MOST_PLACES}


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
