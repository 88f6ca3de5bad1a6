"""`/catalog/change/`: bulk changes of tools. A preview shows the effect on each tool; the change
applies to tools that have not changed since. `/catalog/undo` undoes a switch."""

from collections.abc import Collection
from typing import Any
from uuid import uuid4

from django.contrib import messages
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from tools.accounts.callers import actor_of
from tools.authorization.listings import visible_tools
from tools.catalog.snapshot import CatalogTool
from tools.definitions.texts.names import join_names
from tools.errors import Malformed
from tools.insight.bulk_changes import (
    MOST,
    BulkEffect,
    BulkEffectKind,
    BulkOutcome,
    Deed,
    Do,
    carry_out,
    lost_by,
    permit,
    plan,
)
from tools.licensing.license_coverage import lowest_tiers
from tools.models import Tool
from tools.ui.catalog.catalog import UNDO, return_address
from tools.ui.catalog.catalog_search import CatalogSearch
from tools.web.pages import PageRequest, action_page, form_page, snapshot_of
from tools.web.previews import PreviewForm
from tools.web.reauthentication import Proof

TEMPLATE = "catalog/bulk_change.html"
_MOST_NAMED = 5
_FOR_EVERY_ORGANIZATION = (
    "Tiers are one for all organizations of this installation: what changes here changes for each "
    "that has the tier."
)
_WORDS = {
    Do.ENABLE: ("Enable", "Enabled"),
    Do.DISABLE: ("Disable", "Disabled"),
    Do.PUT: ("Put into the group", "Put into the group"),
    Do.TAKE: ("Take out of the group", "Taken out of the group"),
    Do.TIER: ("Include only from the tier", "Included from the tier"),
}
_REVERSED = {Do.ENABLE: Do.DISABLE, Do.DISABLE: Do.ENABLE}
_HEADINGS = {
    BulkEffectKind.CHANGES: "Would change",
    BulkEffectKind.CANNOT: "Cannot",
    BulkEffectKind.SAME: "Already so",
}


class BulkChangeForm(PreviewForm):
    """It carries what is to be done, and the names of the chosen tools."""

    details = f"{TEMPLATE}#effects"

    def build(self) -> None:
        carries = self.carries or {"do": "", "name": "", "tools": []}
        self.deed = Deed.parse(carries["do"], carries["name"])
        self.heading = _title(self.deed)
        self.warnings = (_FOR_EVERY_ORGANIZATION,) if self.deed.do == Do.TIER else ()
        given = self.request.POST if self.is_bound else self.request.GET
        self.back = return_address(self.request, given)

    def lock(self) -> None:
        """The action does, and refuses a catalog other than the one that was looked at."""

    def look(self, values: dict[str, Any]) -> dict[str, Any]:
        permit(self.request.caller, self.deed)
        snapshot, deed = snapshot_of(self.request), self.deed
        self.tools = _named_tools(self.request, {*self.carries["tools"]})
        lines = plan(deed, self.tools, snapshot)
        self.lost = lost_by(deed, lines, snapshot)
        self.danger = self.lost is not None
        self.new_group = deed.do == Do.PUT and not snapshot.knows_group(deed.name)
        self.sets = _effect_sets(lines, self.lost.counts if self.lost else {})
        self.changing = {
            line.tool.name: line.mark for line in lines if line.kind == BulkEffectKind.CHANGES
        }
        count = len(self.changing)
        self.writes = count > 0
        self.submit = f"{self.heading}: {count:,} tool{'' if count == 1 else 's'}"
        self.leave = f"Leave {'it as it is' if count == 1 else 'them as they are'}"
        return {
            line.tool.name: (f"{line.before or '–'} → {line.after or line.why}", line.mark)
            for line in lines
        }

    def act(self, changes: dict[str, Any]) -> BulkOutcome:
        return _apply_change(self.request, self.deed, self.tools, self.changing)


@form_page(Proof.NEEDED, "change_tool")
def bulk_change_page(request: PageRequest) -> HttpResponseBase:
    """GET shows the preview; POST applies the change."""
    if request.method == "POST":
        form = BulkChangeForm(request)
        if not form.save():
            return form.show(TEMPLATE)
        _add_messages(request, form.deed, form.result)
        return redirect(form.back)
    given, do = request.GET, request.GET.get("do", "")
    try:
        deed = Deed.parse(do, given.get("from" if do == Do.TIER else "into", "").strip()[:200])
    except Malformed as flaw:
        messages.error(request, flaw.message, extra_tags=flaw.code)
        return redirect(return_address(request, given))
    permit(request.caller, deed)
    names = {*given.getlist("pick")[: MOST + 1]}
    tools = _found_tools(request) if given.get("all") == "yes" else _named_tools(request, names)
    count = max(len(tools), len(names))
    if not tools or count > deed.most:
        if count > deed.most:
            messages.error(request, _too_many_message(deed, count))
        else:
            messages.warning(request, "No tool was picked, or none that is still there.")
        return redirect(return_address(request, given))
    carries = {"do": deed.do, "name": deed.name, "tools": [tool.name for tool in tools]}
    form = BulkChangeForm(request, carries=carries)
    form.show_preview()
    return form.show(TEMPLATE, {"missing": max(0, len(names) - len(tools))})


@action_page(Proof.NEEDED, "change_tool")
def undo_change(request: PageRequest) -> HttpResponseBase:
    """Undo the user's last bulk switch for the tools that have not changed since."""
    kept = request.session.pop(UNDO, None)
    if kept is None or kept["key"] != request.POST.get("key"):
        messages.error(request, "That cannot be taken back any more.")
        return redirect(return_address(request, request.POST))
    deed, revisions = Deed(Do(kept["do"])), kept["revisions"]
    rows = Tool.objects.present().filter(organization=request.user.organization)
    found = dict(rows.filter(name__in=revisions).values_list("name", "revision"))
    names = [name for name, revision in revisions.items() if found.get(name) == revision]
    tools = _named_tools(request, names)
    marks = {line.tool.name: line.mark for line in plan(deed, tools, snapshot_of(request))}
    marks |= dict.fromkeys(revisions.keys() - marks.keys(), "")
    _add_messages(request, deed, _apply_change(request, deed, tools, marks), undone=True)
    return redirect(return_address(request, request.POST))


def _apply_change(
    request: PageRequest, deed: Deed, tools: list[CatalogTool], marks: dict[str, str]
) -> BulkOutcome:
    by, snapshot = actor_of(request.caller), snapshot_of(request)
    return carry_out(deed=deed, tools=tools, marks=marks, snapshot=snapshot, by=by)


def _found_tools(request: PageRequest) -> list[CatalogTool]:
    snapshot, search = snapshot_of(request), CatalogSearch.from_query(request.GET)
    tools = visible_tools(request.caller, snapshot)
    return search.find_tools(tools, snapshot, lowest_tiers(snapshot))


def _named_tools(request: PageRequest, names: Collection[str]) -> list[CatalogTool]:
    """The named tools that the user may see, sorted by name."""
    tools = visible_tools(request.caller, snapshot_of(request)) if names else ()
    return [tool for tool in tools if tool.name in names]


def _effect_sets(lines: list[BulkEffect], counts: Any) -> list[dict[str, Any]]:
    sets = []
    for kind, heading in _HEADINGS.items():
        rows = [(line, counts.get(line.tool.name, 0)) for line in lines if line.kind == kind]
        if rows:
            sets.append({"kind": kind.value, "heading": heading, "rows": rows})
    return sets


def _title(deed: Deed) -> str:
    return f"{_WORDS[deed.do][0]} {deed.name}".strip()


def _too_many_message(deed: Deed, count: int) -> str:
    return (
        f"Nothing was changed: that are {count:,} tools, and at most {deed.most} are changed so at "
        "once. Narrow the search first."
    )


def _add_messages(
    request: PageRequest, deed: Deed, account: BulkOutcome, *, undone: bool = False
) -> None:
    """Show the result as a message, with a link to undo it where that is possible."""
    count = len(account.done)
    said = f"{_WORDS[deed.do][1]} {deed.name}".strip()
    if count:
        words = f"{said}: {count:,} tool{'' if count == 1 else 's'}."
        offered = deed.do in _REVERSED and not undone
        if offered:
            _store_undo(request, deed, account)
        messages.success(request, words, extra_tags=UNDO if offered else "")
    if account.stale:
        names = join_names(account.stale, _MOST_NAMED)
        messages.warning(request, f"Left as they are, for they have changed since: {names}.")
    for name, reason in list(account.refused.items())[:_MOST_NAMED]:
        messages.error(request, f"{name}: {reason}")
    if len(account.refused) > _MOST_NAMED:
        messages.error(request, f"And {len(account.refused) - _MOST_NAMED} more were refused.")
    if not (count or account.stale or account.refused):
        messages.warning(request, "Nothing had to be changed.")


def _store_undo(request: PageRequest, deed: Deed, account: BulkOutcome) -> None:
    request.session[UNDO] = {
        "key": uuid4().hex,
        "do": _REVERSED[deed.do].value,
        "revisions": account.done,
    }
