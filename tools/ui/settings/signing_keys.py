"""`/keys/`: the keys that sign an organization's tool versions."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render

from tools.accounts.callers import actor_of
from tools.accounts.user_permissions import may, require
from tools.catalog.signatures import keys
from tools.catalog.signatures.newest import SignatureFileState, newest
from tools.models import SigningKey, ToolVersion
from tools.web.listing import Column, Listing
from tools.web.pages import PageRequest, form_page
from tools.web.reauthentication import Proof

LIST_TEMPLATE, DISTRUST_TEMPLATE = "settings/keys.html", "settings/key.html"
MOST_NAMED = 60


@dataclass(frozen=True)
class SigningKeyRow:
    """A key, its state as a word with its color, and how many versions it signed."""

    key: SigningKey
    word: str
    tone: str
    versions: int

    @property
    def trusted(self) -> bool:
        return self.tone != "rejected"


class KeyListing(Listing):
    """Keys, the newest first."""

    view, template, noun, order = "keys", LIST_TEMPLATE, "key", "-since"
    below = True

    def build(self) -> None:
        self.distrusts = may(self.caller, "change_signingkey")
        self.columns = [
            Column("key", "Key", lambda row: row.key.key_id),
            Column("state", "State", lambda row: row.word),
            Column("versions", "Versions", lambda row: row.versions, css="number"),
            Column("since", "Since", lambda row: row.key.created_at, sort="created_at",
                   css="number"),
            Column("until", "Until", lambda row: row.key.retired_at, css="number"),
        ]  # fmt: skip
        if self.distrusts:
            self.columns.append(Column("actions", "What may be done", hidden=True))

    def rows(self) -> QuerySet[SigningKey]:
        return SigningKey.objects.filter(organization_id=self.caller.organization_id)

    def prepare(self, rows: list[SigningKey]) -> list[SigningKeyRow]:
        return _key_rows(self.request, rows)

    def context(self) -> dict[str, Any]:
        return {"rotates": may(self.caller, "add_signingkey")}


@form_page(Proof.NEEDED)
def key_list(request: PageRequest) -> HttpResponseBase:
    """Keys, the newest first; POST creates a new one, which signs from then on."""
    if request.method == "POST":
        require(request.caller, "add_signingkey")
        organization, by = request.user.organization, actor_of(request.caller)
        made = keys.rotate_key(organization=organization, by=by)
        messages.success(request, f"{made.key_id} signs from now on. What was signed stays good.")
        return redirect("keys")
    require(request.caller, "view_signingkey")
    return KeyListing(request).respond()


@form_page(Proof.ALWAYS, "change_signingkey")
def distrust_key(request: PageRequest, key_id: str) -> HttpResponseBase:
    """Distrust a key, after a preview of the tools that this closes."""
    row = keys.find_key(request.user.organization, key_id)
    if request.method == "POST":
        by = actor_of(request.caller)
        keys.distrust_key(organization=request.user.organization, key_id=key_id, by=by)
        messages.success(request, f"{row.key_id} is distrusted: nothing that it signed runs.")
        return redirect("keys")
    return _render_preview(request, row)


def _render_preview(request: PageRequest, row: SigningKey) -> HttpResponse:
    closes = keys.closed_without(row)
    context = {
        "row": _key_rows(request, [row])[0],
        "closes": closes[:MOST_NAMED],
        "more": max(0, len(closes) - MOST_NAMED),
        "count": len(closes),
    }
    return render(request, DISTRUST_TEMPLATE, context)


def _key_rows(request: PageRequest, rows: list[SigningKey]) -> list[SigningKeyRow]:
    organization_id = request.caller.organization_id
    noted = newest.read_state(organization_id)
    signed = ToolVersion.objects.filter(
        tool__organization_id=organization_id, key_id__in=[row.key_id for row in rows]
    )
    counts = dict(signed.order_by().values_list("key_id").annotate(Count("pk")))
    return [SigningKeyRow(row, *_key_state(row, noted), counts.get(row.key_id, 0)) for row in rows]


def _key_state(row: SigningKey, noted: SignatureFileState) -> tuple[str, str]:
    if not keys.vouched(row):
        return "not made here", "rejected"
    if not keys.believed(row, noted):
        return "distrusted", "rejected"
    return ("retired", "disabled") if row.retired_at else ("signs", "active")
