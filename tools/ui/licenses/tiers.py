"""`/licenses/tiers/…`: the form of a tier's terms, with an impact preview. `/licenses/undo` undoes
the user's last change of a tier."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from sandbox.spec import IsolationLevel
from tools.accounts.callers import actor_of
from tools.catalog.snapshot import Snapshot
from tools.definitions.implementations.tool_types import IN_EVERY_LICENSE
from tools.definitions.texts.names import join_names
from tools.errors import Conflict, Forbidden, Malformed, NotFound
from tools.insight.impact_previews import (
    MOST_PLACES,
    Effect,
    Outlook,
    apply_terms,
    outlook_of_terms,
    take_move_back,
    take_terms_back,
)
from tools.licensing.licenses import TierImpact, locked_tier
from tools.licensing.tier_terms import TERMS, same_terms, terms_of
from tools.models import LicenseTier, Organization
from tools.web.form_fields import Checkboxes, WholeField, choices
from tools.web.forms import notify
from tools.web.pages import PageRequest, action_page, form_page, snapshot_of
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "licenses/tier.html"
UNDO_KEY = "licenses-undo"  # session key, and tag of the message that offers it
EVERY, THESE = "every", "these"
_MOST_TOOLS = 1_000_000
_MOST_NAMED = 5
_OWN_PROFILES = "Only a tier without a limit of custom tools may have own ones."


@dataclass(frozen=True)
class BuiltinLabel:
    """What stands beside the name of a built-in tool: the groups it is in, or why it is in none."""

    groups: tuple[str, ...] = ()
    about: str = ""


class BuiltinCheckboxes(forms.CheckboxSelectMultiple):
    template_name = "licenses/builtin_tools.html"


class KnownNamesField(forms.MultipleChoiceField):
    """Names of the choices; others are left out."""

    def to_python(self, value: Any) -> list[str]:
        return sorted({*dict(self.widget.choices)} & {*super().to_python(value)})


def _choice(label: str, *words: str) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=list(zip((EVERY, THESE), words, strict=True)))


class TierForm(PreviewForm):
    row: LicenseTier
    details, target, outdated = f"{TEMPLATE}#impact", "tier-work", "tier_changed"
    most_places = MOST_PLACES
    after = "It holds from the next request on, and can be undone."
    sections = (
        ("Built-in tools", ("builtin", "tool")),
        ("Limits and walls", ("most", "levels", "level", "profiles")),
    )
    error_fields = {
        "builtin_tools": "tool", "max_custom_tools": "most", "isolation_levels": "level",
        "custom_sandbox_profiles": "profiles",
    }  # fmt: skip
    builtin = _choice("Which built-in tools", "all, future ones too", "those ticked:")
    tool = KnownNamesField(
        label="Built-in tools",
        required=False,
        widget=BuiltinCheckboxes,
        help_text="Beside each stand the groups it is in here. Tools that run others are in every "
        "licence.",
    )
    most = WholeField(
        label="Custom tools at most",
        required=False,
        min_value=0,
        max_value=_MOST_TOOLS,
        help_text="Empty is no limit.",
    )
    levels = _choice("Isolation levels that may be asked for", "all", "those ticked:")
    level = forms.MultipleChoiceField(
        label="Isolation levels",
        required=False,
        choices=choices(IsolationLevel),
        widget=Checkboxes,
    )
    profiles = forms.BooleanField(
        label="Sandbox profiles of one’s own",
        required=False,
        help_text="Only where custom tools have no limit.",
    )

    def build(self) -> None:
        snapshot = snapshot_of(self.request)
        offered = self.fields["tool"]
        assert isinstance(offered, forms.MultipleChoiceField)
        offered.choices = [
            (name, _builtin_label(name, snapshot)) for name in known_builtins(self.row, snapshot)
        ]
        self.submit, self.back = f"Change {self.row.name}", reverse("licenses")

    def stored_values(self) -> dict[str, Any]:
        tier = self.row
        return {
            "builtin": EVERY if tier.builtin_tools is None else THESE,
            "tool": sorted(tier.builtin_tools or ()),
            "most": tier.max_custom_tools,
            "levels": EVERY if tier.isolation_levels is None else THESE,
            "level": list(tier.isolation_levels or ()),
            "profiles": tier.custom_sandbox_profiles,
        }

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("profiles") and self.cleaned_data.get("most") is not None:
            self.add_error("profiles", _OWN_PROFILES)
        return self.cleaned_data

    def lock(self) -> None:
        """The tier alone: the action locks its organizations, and looks at them again."""
        locked_tier(self.row)
        self.row.refresh_from_db()

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        before, then = terms_of(self.row), _terms(values)
        self.impact = outlook_of_terms(self.row, then)
        self.danger, self.writes = self.impact.closes, not same_terms(before, then)
        self.effects = impact_effects(self.impact)
        self.calm = len(self.impact.effects) - len(self.effects)
        lines = zip(term_texts(before), term_texts(then), strict=True)
        self.terms = [(was[0], was[1], now[1]) for was, now in lines if was[1] != now[1]]
        return impact_lines(self.impact) | {name: f"{was} → {now}" for name, was, now in self.terms}

    def act(self, changes: dict[str, Any]) -> dict[str, TierImpact]:
        terms, by = _terms(self.cleaned_data), actor_of(self.request.caller)
        before = terms_of(self.row)
        changed = apply_terms(tier=self.row, terms=terms, mark=self.impact.mark, by=by)
        keep_undo(self.request, kind="terms", tier=self.row.pk, left=terms, back=before)
        return changed


def require_superuser(request: PageRequest) -> None:
    """Only superusers change tiers, since they hold for all organizations."""
    if not request.caller.is_superuser:
        raise Forbidden("Only a superuser changes tiers.", code="not_permitted")


@form_page(Proof.NEEDED)
def tier_page(request: PageRequest, tier_id: int) -> HttpResponseBase:
    """The form of a tier. GET with `show=yes` and its fields shows what would follow, too."""
    require_superuser(request)
    tier = tier_by_id(tier_id)
    asked = request.method == "GET" and request.GET.get("show") == "yes"
    form = TierForm(request, tier, data=request.GET if asked else None)
    if asked:
        form.show_preview()
    elif form.save():
        said = _change_message(tier, form.result or {})
        notify(request, said, changed=form.changed, tags=UNDO_KEY)
        return redirect("licenses")
    return form.show(TEMPLATE, {"tier": tier})


@action_page(Proof.NEEDED)
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


def impact_effects(impact: Outlook) -> list[tuple[Effect, list[tuple[str, str, Any]]]]:
    return [(effect, impact_rows(effect.change)) for effect in impact.following]


def impact_lines(impact: Outlook) -> dict[str, Any]:
    """What a preview tells of an impact: who loses what may change by the second, and is shown."""
    return {"organizations that have it": f"{len(impact.effects) + impact.more}"} | {
        f"{effect.place.slug}: {heading}": (join_names(names, _MOST_NAMED), names)
        for effect in impact.following
        for heading, _, names in impact_rows(effect.change)
    }


def known_builtins(tier: LicenseTier, snapshot: Snapshot) -> list[str]:
    """Built-in tools of the catalog that tiers include or not, and others that the tier names."""
    there = {tool.name for tool in snapshot.tools.values() if not tool.custom}
    return sorted({*there, *(tier.builtin_tools or ())} - IN_EVERY_LICENSE)


def _builtin_label(name: str, snapshot: Snapshot) -> BuiltinLabel:
    tool = snapshot.tool(name)
    if tool is None:
        return BuiltinLabel(about="not in this catalog")
    return BuiltinLabel(tuple(sorted(snapshot.own_groups(tool))))


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


def _terms(values: Mapping[str, Any]) -> dict[str, Any]:
    """The terms in the tier's format, of the values of a form."""
    return {
        "builtin_tools": None if values["builtin"] == EVERY else sorted(values["tool"]),
        "max_custom_tools": values["most"],
        "isolation_levels": None if values["levels"] == EVERY else list(values["level"]),
        "custom_sandbox_profiles": values["profiles"],
    }


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


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
