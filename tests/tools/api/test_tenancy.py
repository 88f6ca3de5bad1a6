"""Tenant isolation: two organizations use the same names, and neither sees rows of the other.

The attacker holds every permission in one organization and knows every identifier of the other.
"""

import json
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse
from guardian.shortcuts import assign_perm

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.savepoints import rolled_back
from tests.tools.shapes import check_error
from tools.accounts.grants.grant_ids import grant_id
from tools.models import (
    Agent,
    EgressCredential,
    Execution,
    Organization,
    SandboxProfile,
    Session,
    Token,
    Tool,
    ToolGroup,
    User,
)
from tools.models.permission import GrantRow

SECRET = "c4nary-of-theirs"  # in every text of the other organization
SCOPES = ["read", "execute", "manage"]


class Place:
    """An organization with the same names as the other, and texts of its own."""

    def __init__(self, organization: Organization, text: str) -> None:
        self.organization = organization
        self.tool = factories.tool(
            organization, "twin", description=text, group=["desk"], required_permissions=[]
        )
        self.agent = factories.agent(organization, "bot", groups=["*"], description=text)
        self.token = factories.token(self.agent.service_account, label=text)
        self.execution = factories.execution(self.agent, "twin", group=["desk"], text=text)
        self.session = Session.objects.create(
            organization=organization,
            user=self.agent.service_account,
            agent=self.agent,
            groups=["desk"],
            state=text,
        )
        ToolGroup.objects.filter(organization=organization, name="desk").update(description=text)


@pytest.fixture
def theirs(organization: Organization) -> Place:
    """The other organization, with the secret in every text."""
    return Place(factories.organization(f"org-{uuid4().hex[:12]}"), SECRET)


@pytest.fixture
def mine(organization: Organization) -> Place:
    return Place(organization, "of mine")


@pytest.fixture
def attacker(organization: Organization) -> User:
    """A person with all of Django's permissions in one organization, no superuser."""
    made = factories.person(
        organization, is_staff=True, granted_groups=["*"], granted_permissions=["*"]
    )
    made.user_permissions.set(Permission.objects.all())
    return made


@pytest.fixture
def api(attacker: User) -> Api:
    return Api(factories.token(attacker, scopes=SCOPES))


@pytest.fixture
def browser(attacker: User) -> Client:
    client = Client()
    client.force_login(attacker, backend="tools.accounts.login.login.PeopleBackend")
    return client


def text(response: Any) -> str:
    parts = response.streaming_content if response.streaming else [response.content]
    return b"".join(parts).decode()


LISTS = [
    "/tools?group=*", "/tools?group=desk&q=twin", "/tools/explain?group=*", "/tools/lint",
    "/tools/graph?group=*",
    "/executions", "/executions?tool=twin", "/executions?status=Pending", "/sessions",
    "/confirmations?status=all", "/confirmation-rules", "/groups", "/groups/desk", "/agents",
    "/agents/bot", "/agents/bot/tokens", "/grants", "/grants?tool=twin", "/grants?agent=bot",
    "/states/graph", "/sandbox-profiles", "/egress-credentials", "/requests", "/requests?agent=bot",
    "/usage?by=agent,tool", "/audit/records", "/audit/records?agent=bot", "/audit/records?q=c4nary",
    "/audit/alerts", "/tools/twin", "/tools/twin/versions",
    "/groups/recommendations?question=twin",
]  # fmt: skip


def test_no_list_and_no_name_shows_anything_of_theirs(mine, theirs, api, subtests):
    for path in LISTS:
        with subtests.test(path=path):
            answer = api.get(path)
            assert answer.status_code == 200, answer.content
            assert SECRET not in text(answer)
            assert theirs.organization.slug not in text(answer)
            assert str(theirs.execution.pk) not in text(answer)


def test_naming_their_organization_without_the_grant_is_as_if_it_were_not(
    mine, theirs, api, subtests
):
    for path in LISTS:
        with subtests.test(path=path):
            there = api.get(path, **{"X-Organization": theirs.organization.slug})
            nowhere = api.get(path, **{"X-Organization": "never-made"})
            assert there.status_code == nowhere.status_code == 404
            assert there.json()["code"] == nowhere.json()["code"] == "organization_not_found"


def test_an_agent_stays_where_it_lives(mine, theirs):
    api = factories.api(mine.agent)
    for header in ("X-Organization", "x-organization"):
        answer = api.get("/tools?group=*", **{header: theirs.organization.slug})
        assert SECRET not in text(answer), header


METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]


def test_their_identifiers_are_not_there_whatever_the_method(mine, theirs, api, subtests):
    token = Token.objects.filter(user=theirs.agent.service_account).latest("created_at")
    record = AuditRecord.objects.filter(organization=theirs.organization.slug).earliest("id")
    paths = (
        f"/executions/{theirs.execution.pk}", f"/executions/{theirs.execution.pk}/cancel",
        f"/executions/{theirs.execution.pk}/events", f"/sessions/{theirs.session.pk}",
        f"/sessions/{theirs.session.pk}/history", f"/agents/bot/tokens/{token.pk}",
        f"/tokens/{token.pk}", f"/audit/records/{record.pk}",
    )  # fmt: skip
    for method, path in product(METHODS, paths):
        with subtests.test(method=method, path=path):
            body = {} if method[0] == "P" else None
            parts = (str(uuid4()) if len(part) == 36 else part for part in path.split("/"))
            answer = getattr(api, method.lower())(path, body)
            nobodys = getattr(api, method.lower())("/".join(parts), body)
            assert answer.status_code == nobodys.status_code
            assert answer.status_code in (404, 405) or method == "OPTIONS"
            assert SECRET not in text(answer)
            theirs.execution.refresh_from_db()
            token.refresh_from_db()
            assert (theirs.execution.status, token.revoked_at) == ("Pending", None)


CHANGES = [
    ("patch", "/tools/twin", {"title": "mine now"}), ("post", "/tools/twin/disable", None),
    ("delete", "/tools/twin", None), ("patch", "/groups/desk", {"description": "mine now"}),
    ("patch", "/agents/bot", {"description": "mine now"}), ("post", "/agents/bot/suspend", None),
    ("post", "/agents/bot/tokens", {}), ("post", "/grants", {"agent": "bot", "permissions": ["p"]}),
    ("patch", "/agents/bot", {"groups": []}), ("post", "/cache/invalidate", {"tool": "twin"}),
]  # fmt: skip


def test_a_change_by_a_shared_name_changes_ones_own_alone(mine, theirs, api, subtests):
    before = _state(theirs)
    for method, path, body in CHANGES:
        with subtests.test(method=method, path=path, body=body), rolled_back():
            answer = getattr(api, method)(path, body)
            assert answer.status_code < 300, answer.content
            assert _state(theirs) == before


def _state(place: Place) -> dict[str, Any]:
    organization = Organization.objects.get(pk=place.organization.pk)
    account = User.objects.get(pk=place.agent.service_account_id)
    return {
        "revision": organization.revision,
        "tools": list(Tool.objects.filter(organization=organization).values()),
        "groups": list(ToolGroup.objects.filter(organization=organization).values()),
        "agents": list(Agent.objects.filter(organization=organization).values()),
        "grants": (account.granted_groups, account.granted_permissions),
        "tokens": Token.objects.filter(user=account).count(),
    }


def test_a_cursor_of_theirs_shows_ones_own_page(mine, theirs, attacker, api):
    their_boss = factories.superuser(theirs.organization)
    their_api = Api(factories.token(their_boss, scopes=SCOPES))
    for path in ("/executions", "/agents", "/audit/records", "/grants", "/tools?group=*"):
        joint = "&" if "?" in path else "?"
        cursor = their_api.get(f"{path}{joint}page_size=1").json()["next"]
        if cursor:
            query = cursor.partition("?")[2]
            answer = api.get(f"{path.partition('?')[0]}?{query}")
            assert answer.status_code == 200, answer.content
            assert SECRET not in text(answer)


def test_their_names_in_a_filter_find_nothing(mine, theirs, api):
    factories.tool(theirs.organization, "only-theirs", group=["their-desk"])
    factories.agent(theirs.organization, "only-their-bot")
    for path in (
        "/executions?tool=only-theirs", "/grants?agent=only-their-bot", "/grants?tool=only-theirs",
        "/grants?group=their-desk", "/requests?agent=only-their-bot",
        "/audit/records?agent=only-their-bot", f"/audit/records?execution={theirs.execution.pk}",
    ):  # fmt: skip
        assert api.get(path).json()["results"] == [], path


def test_a_session_of_theirs_is_entered_by_no_user_of_mine(mine, theirs):
    answer = factories.api(mine.agent).execute(
        "twin", {"text": "x"}, group=["desk"], session=str(theirs.session.pk)
    )
    assert answer.status_code in (400, 404), answer.content
    assert not Execution.objects.filter(session=theirs.session).exists()


def test_an_idempotency_key_of_theirs_gives_nothing_of_theirs(mine, theirs):
    """The same key, tool, parameters and name of the agent, in another organization."""
    body = {"tool_name": "twin", "parameters": {"text": SECRET}, "group": ["desk"],
            "options": {"wait_s": 0}}  # fmt: skip
    key = {"Idempotency-Key": "one-key"}
    first = factories.api(theirs.agent).post("/executions", body, **key).json()
    second = factories.api(mine.agent).post("/executions", body, **key).json()
    assert first["execution_id"] != second["execution_id"]


def test_object_permissions_on_their_rows_open_nothing_here(mine, theirs, attacker):
    """Written past all checks, as a superuser might by mistake."""
    person = factories.person(mine.organization, granted_groups=["*"])
    group = Group.objects.create(name=f"g-{uuid4().hex[:8]}")
    person.groups.add(group)
    for holder in (person, group):
        assign_perm("execute_tool", holder, theirs.tool)
        assign_perm("execute_toolgroup", holder, theirs.organization.groups.get(name="desk"))
        assign_perm("change_agent", holder, theirs.agent)
    api = Api(factories.token(person, scopes=SCOPES))
    assert api.get("/tools?group=*").json()["results"] == []
    check_error(api.get("/tools/twin"), 404)
    check_error(api.execute("twin", {"text": "x"}, group=["desk"]), 403, "tool_not_granted")
    check_error(api.patch("/agents/bot", {"description": "x"}), 403)


def test_groups_that_home_granted_open_no_tool_elsewhere(mine, theirs):
    person = factories.person(mine.organization, granted_groups=["desk"])
    assign_perm("execute_tool", person, theirs.tool)
    api, there = Api(factories.token(person)), {"X-Organization": theirs.organization.slug}
    check_error(api.get("/tools?group=desk", **there), 404)
    assign_perm("act_in_organization", person, theirs.organization)
    check_error(api.get("/tools?group=desk", **there), 403, "group_not_granted")
    assert SECRET not in api.get("/tools?group=", **there).content.decode()


def test_the_permission_to_act_anywhere_as_a_model_permission_opens_nothing(mine, theirs, attacker):
    """Django's model permission would include every organization; it grants none."""
    assert attacker.has_perm("tools.act_in_organization")
    api = Api(factories.token(attacker))
    check_error(api.get("/tools", **{"X-Organization": theirs.organization.slug}), 404)


def test_grants_of_theirs_are_neither_given_nor_taken(mine, theirs, api):
    body = {"agent": "only-their-bot", "permissions": ["p"]}
    factories.agent(theirs.organization, "only-their-bot", permissions=["q"])
    check_error(api.post("/grants", body), 404, "agent_not_found")
    row = grant_id(GrantRow("agent", "only-their-bot", "permission", "q"))
    check_error(api.delete(f"/grants/{row}"), 404)
    person = factories.person(theirs.organization)
    check_error(api.post("/grants", {"user": person.username, "permissions": ["p"]}), 404)


def test_a_token_for_their_tool_is_not_made_here(mine, theirs, api):
    factories.tool(theirs.organization, "only-theirs")
    answer = api.post("/agents/bot/tokens", {"tools": ["only-theirs"]})
    check_error(answer, 400, "token_beyond_holder")


def test_a_profile_or_credential_of_theirs_is_named_by_no_user_here(mine, theirs, api):
    boss = Api(factories.token(factories.superuser(theirs.organization), scopes=SCOPES))
    wall = {"name": "their-wall"}
    key = {"name": "their-key", "header": "X-Key", "value": "v"}
    assert boss.post("/sandbox-profiles", wall).status_code == 201
    assert boss.post("/egress-credentials", key).status_code == 201
    for path in ("/sandbox-profiles/their-wall", "/egress-credentials/their-key"):
        for method, body in (("get", None), ("patch", {}), ("delete", None)):
            check_error(getattr(api, method)(path, body), 404)
    tool = factories.definition("sly", constraints={"sandbox_profile": "their-wall"})
    assert api.post("/tools", tool).status_code in (400, 404, 409)
    there = theirs.organization
    assert SandboxProfile.objects.filter(organization=there, name="their-wall").exists()
    assert EgressCredential.objects.filter(organization=there, name="their-key").exists()


def test_organizations_and_tiers_are_beyond_who_is_no_superuser(mine, theirs, api):
    slugs = (theirs.organization.slug, mine.organization.slug, "never-made")
    for path in ("/organizations", *(f"/organizations/{slug}" for slug in slugs)):
        check_error(api.get(path), 403, "not_permitted")


# --- pages ----------------------------------------------------------------------------------------


def test_no_page_shows_anything_of_theirs(mine, theirs, browser):
    for path in (
        "/", "/?q=twin", "/tools/twin/", "/tools/twin/versions/1/", "/executions/",
        "/executions/?agent=bot", f"/executions/?before={theirs.execution.pk}", "/audit/",
        "/audit/?agent=bot", "/audit/?q=c4nary", f"/audit/?execution={theirs.execution.pk}",
        "/audit/alerts/", "/sandbox/",
    ):  # fmt: skip
        answer = browser.get(path, headers={"X-Organization": theirs.organization.slug})
        assert answer.status_code == 200, path
        assert text(answer).count(SECRET) == text(answer).count(f"q={SECRET}"), path
        assert theirs.organization.slug not in text(answer), path


def test_their_execution_has_no_page(mine, theirs, browser):
    place = f"/executions/{theirs.execution.pk}/"
    assert browser.get(place).status_code == browser.head(place).status_code == 404
    assert browser.get(f"{place}?part=result").status_code == 404
    assert browser.post(f"{place}cancel").status_code == 404
    theirs.execution.refresh_from_db()
    assert theirs.execution.status == "Pending"


# --- the Django admin -----------------------------------------------------------------------------


ROWS = [
    ("tool", lambda p: p.tool), ("agent", lambda p: p.agent),
    ("toolgroup", lambda p: p.organization.groups.get(name="desk")),
    ("toolversion", lambda p: p.tool.version), ("execution", lambda p: p.execution),
    ("organization", lambda p: p.organization), ("session", lambda p: p.session),
    ("token", lambda p: Token.objects.filter(user=p.agent.service_account).earliest("pk")),
    ("user", lambda p: factories.person(p.organization, first_name=SECRET)),
]  # fmt: skip


@pytest.mark.part("matrices")
def test_the_administration_shows_staff_nothing_of_theirs(mine, theirs, browser, subtests):
    for model, row_of in ROWS:
        with subtests.test(model=model):
            row = row_of(theirs)
            for query in ("", "?q=c4nary", f"?organization__id__exact={theirs.organization.pk}"):
                answer = browser.get(reverse(f"admin:tools_{model}_changelist") + query)
                assert SECRET not in text(answer).replace('value="c4nary"', ""), query
                assert str(row.pk) not in text(answer)
            for page in ("change", "history", "delete"):
                address = reverse(f"admin:tools_{model}_{page}", args=[row.pk])
                for answer in (browser.get(address), browser.post(address, {"post": "yes"})):
                    assert answer.status_code in (302, 403, 404), page
                    assert SECRET not in text(answer)
            assert type(row).objects.filter(pk=row.pk).exists()


@pytest.mark.part("matrices")
def test_no_user_hands_out_permissions_on_their_rows(mine, theirs, attacker, browser, subtests):
    for model in ("tool", "agent", "toolgroup", "organization"):
        base = f"/admin/tools/{model}/{dict(ROWS)[model](theirs).pk}/permissions/"
        for address in (base, f"{base}user-manage/{attacker.pk}/", f"{base}group-manage/1/"):
            with subtests.test(address=address):
                for answer in (browser.get(address), browser.post(address, {"permissions": []})):
                    assert answer.status_code in (403, 404)


def test_no_user_hands_out_permissions_to_their_people(mine, theirs, browser):
    person = factories.person(theirs.organization)
    address = f"/admin/tools/tool/{mine.tool.pk}/permissions/user-manage/{person.pk}/"
    answer = browser.post(address, {"permissions": ["execute_tool"]})
    assert answer.status_code == 404
    assert not person.has_perm("tools.execute_tool", mine.tool)


def test_an_action_on_their_rows_does_nothing(mine, theirs, browser):
    before = _state(theirs)
    for model, action, row in (
        ("tool", "disable", theirs.tool), ("agent", "suspend", theirs.agent),
        ("token", "revoke", Token.objects.filter(user=theirs.agent.service_account).first()),
    ):  # fmt: skip
        data = {"action": action, "_selected_action": str(row.pk)}
        browser.post(reverse(f"admin:tools_{model}_changelist"), data)
    assert _state(theirs) == before
    assert not Token.objects.filter(
        user=theirs.agent.service_account, revoked_at__isnull=False
    ).exists()


def test_evidence_of_a_deed_elsewhere_stands_where_it_was_done(mine, theirs):
    """A superuser's change there is recorded there, and not here."""
    chief = factories.superuser(mine.organization)
    api = Api(factories.token(chief, scopes=SCOPES))
    there = {"X-Organization": theirs.organization.slug}
    assert api.patch("/agents/bot", {"description": "seen"}, **there).status_code == 200
    records = AuditRecord.objects.filter(actor=chief.username, code="ADMIN.AGENT_CHANGE")
    assert {record.organization for record in records} == {theirs.organization.slug}
    assert "seen" in json.dumps([record.details for record in records])
