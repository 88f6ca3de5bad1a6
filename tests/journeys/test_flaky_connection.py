"""An administrator's day over REST, by a script with narrowed tokens, idempotency keys and tags,
over a connection that is cut at every point: nothing is doubled, lost or half done."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import ForeignObjectRel

from audit.events import Event
from audit.models import AuditRecord
from examples.automation import Crib as Script
from examples.automation import Refused
from tests import factories
from tests.conditions import until
from tests.crib import CHECKOUT, Crib
from tests.journeys.client import Http
from tests.journeys.flaky import Cut, Flaky, flaky
from tests.journeys.test_confirmations import Browser
from tools.catalog.actions import amended
from tools.catalog.signatures.drift import note_upstream
from tools.definitions.tool import ordered_definition
from tools.models import IdempotencyKey, Organization, RateHit, RequestRecord, Token, Tool, User

API = "/api/v1"
BOT, DESK = f"{API}/agents/bot", f"{API}/groups/desk"
ASKED = {"parameters": {"text": "x"}, "group": ["desk"], "options": {"wait_s": 60}}
# What reading, or sending again, leaves beside the deeds.
AGAIN = {
    Event.AUDIT_READ, Event.AUDIT_EXPORT, Event.SECRET_REPEAT, Event.TOKEN_REFUSED,
    Event.SANDBOX_CAPABILITY,
}  # fmt: skip


@dataclass
class Day:
    """An organization, its administrator, and the way of their script to the product."""

    crib: Crib
    chief: User
    organization: Organization
    url: str
    got: dict[str, Any] = field(default_factory=dict)

    def client(self, token: str = "", **headers: str) -> Any:
        return Script(self.url, token, headers, pause=self._pause)

    def _pause(self, _: float) -> None:
        """In place of the time that `Retry-After` names: until no earlier request is at work."""
        at_work = IdempotencyKey.objects.filter(organization=self.organization, status=None)
        until(lambda: not at_work.exists())

    def login(self, *scopes: str) -> Any:
        who = {"username": self.chief.username, "password": "correct horse"}
        made = self.client().post(f"{API}/tokens", who | {"scopes": [*scopes]}).shape
        self.got["own token id"] = made["id"]
        return self.client(made["token"])

    def narrowed(self, *scopes: str) -> Any:
        """The script as it may do no more than it has to."""
        return self.client(factories.token(self.chief, scopes=[*scopes]))

    def browser(self) -> Any:
        """Their own session, which they opened at their desk: only people decide."""
        cookies = {one.name: one.value for one in Browser(self.crib.url, self.chief)._cookies}
        return self.client(
            Cookie="; ".join(f"{name}={value}" for name, value in cookies.items()),
            Origin=self.url,
            **{"X-CSRFToken": cookies["toolcrib_csrf"]},
        )

    def spend(self) -> None:
        catalog = self.login("read", "catalog")
        agents = self.narrowed("read", "agents")
        self.catalog(catalog)
        self.agents(agents)
        self.organization_wide(self.narrowed("read", "organization"))
        self.calls(self.client(self.got["token"]))
        self.upstream_changes(catalog)
        self.replace_token(agents)
        self.evidence(self.narrowed("read", "audit"))
        self.clear_up(agents, catalog)

    def catalog(self, api: Any) -> None:
        api.post(f"{API}/groups", {"name": "desk", "permissions": ["desk.use"]})
        api.post(f"{API}/tools", factories.definition(group=["desk"]))
        items = [
            factories.definition(name, group=["desk"]) for name in ("other", "spare", "upstream")
        ]
        brought = api.post(f"{API}/tools/import", {"items": items, "atomic": True}).shape["items"]
        assert [one["result"] for one in brought] == ["created"] * 3
        api.change(f"{API}/tools/other", {"group": ["desk", "default"]})
        api.change(
            f"{API}/tools/echo",
            {"rate_limit_per_minute": 600, "required_permissions": ["desk.use"]},
        )
        wanted = factories.definition("spare", group=["desk"], description="Replaced.")
        api.change(f"{API}/tools/spare", wanted, method="PUT")
        tag = api.get(f"{API}/tools/spare").tag
        disabled = api.post(f"{API}/tools/spare/disable", tag=tag)
        api.post(f"{API}/tools/spare/enable", tag=disabled.tag)
        api.post(f"{API}/tools/spare/versions/1.0.0/restore")
        api.change(DESK, {"description": "The help desk."})
        api.post(f"{API}/confirmation-rules", {"name": "careful", "tool": "other"})
        api.change(f"{API}/confirmation-rules/careful", {"side_effects": True})

    def agents(self, api: Any) -> None:
        api.post(f"{API}/agents", {"slug": "bot", "groups": ["default"]})
        made = api.post(f"{BOT}/tokens", {"label": "first"}).shape
        self.got |= {"token": made["token"], "token id": made["id"]}
        wanted = {"budget": {"amount": "10", "period": "day"}}
        api.change(BOT, wanted)
        agent = {"agent": "bot", "groups": ["desk"], "permissions": ["desk.use"]}
        held = api.post(f"{API}/grants", agent).shape["results"]
        self.got["grants"] = [one["id"] for one in held]
        tag = api.get(BOT).tag
        api.post(f"{BOT}/suspend", {"reason": "Lunch."}, tag=tag)
        api.change(BOT, {"active": True})

    def organization_wide(self, api: Any) -> None:
        api.change(f"{API}/organizations/{self.organization.slug}", {"output_days": 30})
        key = {"name": "mail", "header": "X-Key", "value": "secret"}
        api.post(f"{API}/egress-credentials", key)
        api.change(f"{API}/egress-credentials/mail", {"header": "X-Other"}, unseen={"value": "new"})
        api.post(f"{API}/signing-keys")

    def calls(self, bot: Any) -> None:
        done = bot.finished(bot.post(f"{API}/tools/echo/execute", ASKED))
        assert (done["status"], done["output"]) == ("Success", {"echo": {"text": "x"}})
        session = bot.post(f"{API}/sessions", {"group": ["desk"]}).shape["id"]
        within = {"parameters": {"text": "y"}, "session": session, "options": {"wait_s": 60}}
        assert bot.finished(bot.post(f"{API}/tools/echo/execute", within))["status"] == "Success"
        bot.delete(f"{API}/sessions/{session}")
        batch = {"inputs": [{"tool_name": "echo", "parameters": {"text": "z"}}] * 2}
        batch |= {"group": ["desk"], "options": {"wait_s": 60}}
        assert bot.finished(bot.post(f"{API}/batches", batch))["succeeded"] == 2
        held = bot.post(f"{API}/tools/other/execute", ASKED)
        assert held.shape["status"] == "RequiresConfirmation"
        self.decide(held.shape["confirmation"]["id"])
        assert bot.finished(held)["status"] == "Success"

    def decide(self, confirmation: str) -> None:
        person = self.browser()
        shown = person.get(f"{API}/confirmations/{confirmation}").shape
        word = {"bound_hash": shown["bound_hash"], "reason": "Fine."}
        person.post(f"{API}/confirmations/{confirmation}/approve", word)

    def upstream_changes(self, api: Any) -> None:
        tool = Tool.objects.select_related("version").get(
            organization=self.organization, name="upstream"
        )
        says = amended(ordered_definition(tool.version.definition), {"description": "Other words."})
        note_upstream(tool=tool, seen=says, by=factories.actor(self.organization))
        (change,) = api.get(f"{API}/tools/changes?decision=open").shape["results"]
        read = api.get(f"{API}/tools/changes/{change['id']}").shape
        api.post(f"{API}/tools/changes/{change['id']}/approve", {"digest": read["digest"]})

    def replace_token(self, api: Any) -> None:
        place = f"{BOT}/tokens/{self.got['token id']}"
        new = api.post(f"{place}/rotate", {"overlap": "PT1H"}).shape
        assert self.client(new["token"]).get(f"{API}/tools").status == 200
        api.delete(place)

    def evidence(self, api: Any) -> None:
        lines = api.get(f"{API}/audit/export?format=jsonl&code=TOOL.").content.splitlines()
        assert len(lines) > 10
        newest = api.get(f"{API}/audit/records?agent=bot").shape["results"][0]["id"]
        proof = f"{API}/audit/records/{newest}/proof"
        token = factories.token(self.chief, scopes=["read"])
        until(lambda: Http(self.crib.url, token)("GET", proof).status_code == 200)
        assert b"c2sp.org/tlog-proof" in api.get(proof).content
        request = {"agent": "bot", "reason": "They asked."}
        counted = api.post(f"{API}/audit/erasures", request | {"dry_run": True}).shape
        assert counted["erased"] == 0 < counted["matched"]
        assert api.post(f"{API}/audit/erasures", request).shape["erased"] == counted["matched"]

    def clear_up(self, agents: Any, catalog: Any) -> None:
        for grant in self.got["grants"]:
            agents.delete(f"{API}/grants/{grant}")
        for path in (f"{API}/tools/spare", f"{API}/confirmation-rules/careful"):
            catalog.delete(path, catalog.get(path).tag)
        self.give_up(catalog)

    def give_up(self, api: Any) -> None:
        """Revoke the very token that asks. Sent again, it is good for nothing any more."""
        own = f"{API}/tokens/{self.got['own token id']}"
        try:
            api.delete(own)
        except Refused as refused:
            if not (refused.answer.repeated and refused.answer.status == 401):
                raise


def spend(crib: Crib, *cuts: Cut) -> tuple[Day, Flaky]:
    organization = factories.organization(f"org-{uuid4().hex[:12]}")
    with flaky(crib.url, cuts) as way:
        day = Day(crib, factories.superuser(organization), organization, way.url)
        day.spend()
    return day, way


def test_the_example_of_the_page_does_what_it_says(crib, committed, admin_user):
    page = (CHECKOUT / "docs" / "administrators.md").read_text("utf-8")
    about = page.partition("## Automation over an unreliable connection")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", about, re.DOTALL)
    token = factories.token(admin_user, scopes=["read", "catalog", "agents"])
    with flaky(crib.url, (Cut.ANSWER_BODY,)) as way:
        done = {"URL": way.url, "TOKEN": token}
        exec(program, done)
    assert done["group"]["description"] == "Closes the books."
    kept = Token.objects.get(user__username=f"agent:{admin_user.organization.slug}:bookkeeper")
    assert kept.revoked_at and str(kept.pk) == done["made"].shape["id"]


# --- what is left ---------------------------------------------------------------------------------

SHOWN = (
    "/tools/echo", "/tools/other", "/tools/upstream", "/tools/other/versions", "/groups/desk",
    "/agents/bot", "/agents/bot/tokens", "/grants?agent=bot", "/confirmation-rules",
    "/egress-credentials", "/signing-keys", "/executions", "/sessions", "/tokens",
    "/confirmations?status=all", "/tools/changes", "/usage?by=agent,tool",
)  # fmt: skip
OTHERS = {
    "id", "key_id", "value", "prefix", "public_key", "last_used_at", "duration_ms", "sandbox_id",
    "execution_metrics", "bound_hash", "resets_at", "signature", "caller", "asked_by", "by",
}  # fmt: skip


@dataclass(frozen=True)
class Left:
    """What a day left, without what differs from one organization and moment to the next."""

    rows: Counter[str]
    deeds: Counter[tuple[str, ...]]
    shown: dict[str, Any]


def left(day: Day) -> Left:
    http = Http(day.crib.url, factories.token(day.chief, scopes=["read", "agents"]))
    paths = (*SHOWN, f"/organizations/{day.organization.slug}")
    shown = {_normalized(day, path): _alike(day, http("GET", API + path).json()) for path in paths}
    return Left(rows(day.organization), deeds(day), shown)


def rows(organization: Organization) -> Counter[str]:
    """How many of each kind it has, in whatever way they are its own. What counts requests is left
    out: reading is counted as often as it is done, and calls here only while Redis does not."""
    found: dict[Any, set[Any]] = {Organization: {organization.pk}}
    reached = [(Organization, {organization.pk})]
    while reached:
        model, some = reached.pop()
        for relation in model._meta.get_fields(include_hidden=True):
            if isinstance(relation, ForeignObjectRel) and relation.field.column:
                child = relation.related_model
                theirs = child._base_manager.filter(**{f"{relation.field.name}__in": some})
                more = {*theirs.values_list("pk", flat=True)} - found.setdefault(child, set())
                if more:
                    found[child] |= more
                    reached.append((child, more))
    for counted in (RequestRecord, RateHit):
        found.pop(counted, None)
    return Counter({model._meta.label: len(some) for model, some in found.items() if some})


def deeds(day: Day) -> Counter[tuple[str, ...]]:
    found = AuditRecord.objects.filter(organization=day.organization.slug).exclude(code__in=AGAIN)
    names = ("code", "outcome", "actor_kind", "actor", "subject", "reason")
    return Counter(tuple(_normalized(day, one) for one in row) for row in found.values_list(*names))


def _normalized(day: Day, text: str) -> str:
    text = text.replace(day.organization.slug, "ORG").replace(day.chief.username, "CHIEF")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\b[0-9a-f]{16}\b", "KEY", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)


def _alike(day: Day, shape: Any) -> Any:
    if isinstance(shape, dict):
        return {name: _alike(day, one) for name, one in shape.items() if name not in OTHERS}
    if isinstance(shape, list):
        return [_alike(day, one) for one in shape]
    return _normalized(day, shape) if isinstance(shape, str) else shape


UNDISTURBED: list[Left] = []


def undisturbed(crib: Crib) -> Left:
    """What the same day leaves without cuts; spent once."""
    if not UNDISTURBED:
        UNDISTURBED.append(left(spend(crib)[0]))
    return UNDISTURBED[0]


EACH = [pytest.param((cut,), id=cut.name.lower(), marks=pytest.mark.part("walks"))
        for cut in Cut if cut is not Cut.UNANSWERED]  # fmt: skip


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param((Cut.UNANSWERED,), id="unanswered"),
        *EACH,
        pytest.param((*Cut,), id="each-after-the-other", marks=pytest.mark.part("walks")),
    ],
)
def test_a_day_over_a_flaky_connection_is_a_day(crib, committed, cuts):
    """Each request of the day is cut, at each of these points, before it goes through."""
    day, way = spend(crib, *cuts)
    assert len(way.broken) >= len(way.whole) * len(cuts) > 60
    usual, found = undisturbed(crib), left(day)
    assert found.deeds == usual.deeds
    assert found.rows == usual.rows
    assert found.shown == usual.shown
