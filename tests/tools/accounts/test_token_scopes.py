"""A scoped token narrows its holder's grants in listings, in calls and at the claim, and never
widens them."""

from typing import Any

import pytest
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.accounts.grants import grant_actions
from tools.accounts.grants.grants import permissions_of
from tools.accounts.token_authentication import caller_of_token
from tools.catalog.groups import save_group
from tools.catalog.registry import registry
from tools.definitions.callers import Caller
from tools.execution.perform import perform
from tools.models import Agent, Execution, Organization, Token


def narrow(agent: Agent, **limits: Any) -> str:
    return factories.token(agent.service_account, **limits)


def caller_with(holds: list[str], token: list[str] | None, organization: Organization) -> Caller:
    """Written without the action, since a holder may have lost a grant that the token names."""
    agent = factories.agent(organization, groups=holds)
    text = narrow(agent)
    Token.objects.filter(user=agent.service_account).update(groups=token)
    return caller_of_token(text)


NARROWED = [
    # the holder's grants, the token's scope, the result
    (["a", "b"], None, {"a", "b"}),
    (["a", "b"], ["*"], {"a", "b"}),
    (["a", "b"], ["a"], {"a"}),
    (["a", "b"], [], set()),
    (["a", "b"], ["c"], set()),
    (["a", "b"], ["a", "c"], {"a"}),
    (["a", "b"], ["a", "*"], {"a", "b"}),
    (["*"], None, {"*"}),
    (["*"], ["*"], {"*"}),
    (["*"], ["a"], {"a"}),
    (["*"], [], set()),
    (["*", "a"], ["b"], {"b"}),
    ([], ["*"], set()),
    ([], ["a"], set()),
]


@pytest.mark.parametrize(("holds", "token", "left"), NARROWED)
def test_what_is_left_of_the_holders_groups(organization, holds, token, left):
    assert caller_with(holds, token, organization).granted_groups == left


def test_permissions_that_come_with_groups_follow_the_token(organization):
    for name in ("a", "b"):
        save_group(
            organization=organization,
            name=name,
            by=factories.actor(organization),
            permissions=[name],
        )
    caller = caller_with(["*"], ["a"], organization)
    snapshot = registry.snapshot(caller.organization_id, caller.revision)
    assert permissions_of(caller, snapshot) == {"a"}


def names(api: Api, query: str = "") -> list[str]:
    return [tool["name"] for tool in api.get(f"/tools{query}").json()["results"]]


def test_a_token_requests_its_own_groups_and_no_others(agent):
    api = Api(narrow(agent, groups=["read-only"]))
    assert names(api, "?group=read-only") == ["read_file", "validate_content"]
    check_error(api.get("/tools?group=write"), 403, "group_not_granted")
    check_error(api.get("/tools?group=*"), 403, "group_not_granted")
    check_error(api.get("/tools"), 403, "group_not_granted")  # an absent group means default


def test_a_token_shows_and_calls_its_own_tools_and_no_others(agent):
    api = Api(narrow(agent, tools=["read_file"]))
    assert names(api, "?group=read-only&group=write") == ["read_file"]
    check_error(api.get("/tools/write_file"), 404)
    parameters = {"path": "a", "content": "b"}
    refused = api.execute("write_file", parameters, group=["write"])
    body = check_error(refused, 403, "token_excludes_tool")
    row = Execution.objects.get(pk=body["execution_id"])
    assert (row.status, row.started_at) == ("PermissionDenied", None)
    record = AuditRecord.objects.get(execution_id=row.pk)
    assert (record.code, record.reason) == ("TOOL.DENY", "token_excludes_tool")


def test_a_token_for_no_tool_is_good_for_none(agent):
    assert names(Api(narrow(agent, tools=[])), "?group=read-only") == []


def test_a_token_for_every_tool_is_good_for_what_its_holder_has(organization):
    agent = factories.agent(organization, groups=["*"], tools=["read_file"])
    assert names(Api(narrow(agent, tools=["*"])), "?group=*") == ["read_file"]


def test_the_explanation_names_the_token(agent):
    api = Api(narrow(agent, tools=["read_file"]))
    rows = api.get("/tools/explain?group=read-only&group=write").json()["results"]
    assert [row["tool"] for row in rows if row["available"]] == ["read_file"]


def test_a_token_does_not_outlive_its_holders_grant(organization):
    agent = factories.agent(organization, groups=["read-only"], tools=["read_file"])
    api = Api(narrow(agent, groups=["read-only"], tools=["read_file"]))
    assert names(api, "?group=read-only") == ["read_file"]
    grant_actions.set_grants(agent=agent, by=factories.actor(organization), tools=[])
    assert names(api, "?group=read-only") == []
    grant_actions.set_grants(agent=agent, by=factories.actor(organization), groups=["write"])
    check_error(api.get("/tools?group=read-only"), 403, "group_not_granted")


def test_a_superusers_narrow_token_is_narrow_too(admin_user):
    token = factories.token(admin_user, groups=["read-only"], tools=["read_file"])
    api = Api(token)
    check_error(api.get("/tools?group=*"), 403, "group_not_granted")
    check_error(api.execute("validate_content", {}, group=["read-only"]), 403)
    assert names(api, "?group=read-only") == ["read_file"]


# --- at the claim ---------------------------------------------------------------------------------


def waiting(agent: Agent, text: str) -> Execution:
    answer = Api(text).execute("echo", {"text": "x"}, options={"wait_s": 0})
    return Execution.objects.get(pk=answer.json()["execution_id"])


NARROWER = {
    "its tools": ({"tools": ["read_file"]}, "token_excludes_tool"),
    "its tools, to none": ({"tools": []}, "token_excludes_tool"),
    "its groups": ({"groups": ["read-only"]}, "group_not_granted"),
    "its scopes": ({"scopes": ["read"]}, "caller_suspended"),
    "its life": ({"revoked_at": timezone.now()}, "caller_suspended"),
}


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(("change", "code"), NARROWER.values(), ids=NARROWER)
def test_a_token_that_was_narrowed_meanwhile_holds_at_the_claim(agent, organization, change, code):
    factories.tool(organization)
    execution = factories.execution(agent)
    Token.objects.filter(pk=execution.token_id).update(**change)
    perform(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("PermissionDenied", code)
    assert execution.output is None


def test_a_narrow_tokens_call_runs_within_what_it_is_good_for(crib, committed, agent, organization):
    factories.tool(organization)
    text = narrow(agent, groups=["default"], tools=["echo"])
    answer = Api(text).execute("echo", {"text": "x"})
    assert answer.json()["status"] == "Success", answer.json()


def test_a_visitor_who_was_sent_home_meanwhile_does_not_run(organization):
    """Acting in another organization is a grant, and the claim checks it again."""
    other = factories.organization(f"{organization.slug}-b")
    factories.tool(other)
    chief = factories.superuser(organization)
    api = Api(factories.token(chief))
    answer = api.post(
        "/executions",
        {"tool_name": "echo", "parameters": {"text": "x"}, "options": {"wait_s": 0}},
        **{"X-Organization": other.slug},
    )
    chief.is_superuser = False
    chief.save()
    execution = Execution.objects.get(pk=answer.json()["execution_id"])
    perform(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("PermissionDenied", "caller_suspended")


# --- issuing --------------------------------------------------------------------------------------


def test_a_tokens_limits_are_kept_and_shown(admin_api, agent):
    limits = {"groups": ["read-only"], "tools": ["read_file"]}
    made = admin_api.post(f"/agents/{agent.slug}/tokens", {"label": "ci", **limits})
    assert made.status_code == 201, made.json()
    (shown,) = admin_api.get(f"/agents/{agent.slug}/tokens").json()["results"]
    assert {name: shown[name] for name in limits} == limits
    assert names(Api(made.json()["token"]), "?group=read-only") == ["read_file"]


def test_a_token_without_limits_says_so(admin_api, agent):
    admin_api.post(f"/agents/{agent.slug}/tokens", {"groups": None})
    (shown,) = admin_api.get(f"/agents/{agent.slug}/tokens").json()["results"]
    assert (shown["groups"], shown["tools"]) == (None, None)


BEYOND = [
    {"groups": ["admin"]}, {"groups": ["read-only", "admin"]}, {"tools": ["ghost"]},
    {"tools": ["validate_content"]}, {"tools": ["read_file", "validate_content"]},
]  # fmt: skip


@pytest.mark.parametrize("limits", BEYOND, ids=str)
def test_a_token_beyond_its_agent_is_400(admin_api, organization, limits):
    agent = factories.agent(organization, groups=["read-only"], tools=["read_file"])
    answer = admin_api.post(f"/agents/{agent.slug}/tokens", limits)
    body = check_error(answer, 400, "token_beyond_holder")
    assert set(body["details"]) == set(limits)
    assert not Token.objects.filter(user=agent.service_account).exists()


@pytest.mark.parametrize("limits", [{"groups": "a"}, {"tools": [1]}, {"tools": [""]},
                                    {"groups": [None]}], ids=str)  # fmt: skip
def test_limits_that_are_no_names_are_400(admin_api, agent, limits):
    check_error(admin_api.post(f"/agents/{agent.slug}/tokens", limits), 400, "invalid")


def test_a_tool_reached_through_a_tool_group_is_the_agents_own(admin_api, organization):
    factories.tool(organization, "one", group=["desk"])
    agent = factories.agent(organization, groups=["desk"], tool_groups=["desk"])
    answer = admin_api.post(f"/agents/{agent.slug}/tokens", {"tools": ["one"]})
    assert answer.status_code == 201


def test_a_person_logs_in_for_a_narrow_token(client, admin_user):
    body = {
        "username": admin_user.username, "password": "correct horse", "scopes": ["read"],
        "groups": ["read-only"], "tools": ["read_file"],
    }  # fmt: skip
    made = client.post("/api/v1/tokens", body, "application/json")
    api = Api(made.json()["token"])
    assert names(api, "?group=read-only") == ["read_file"]
    check_error(api.execute("read_file", {"path": "a"}, group=["read-only"]), 403, "scope_missing")


def test_a_person_gets_no_token_beyond_themselves(client, organization):
    person = factories.person(organization, password="correct horse")
    body = {"username": person.username, "password": "correct horse", "groups": ["write"]}
    answer = client.post("/api/v1/tokens", body, "application/json")
    check_error(answer, 400, "token_beyond_holder")


def test_the_record_of_a_token_says_what_it_is_good_for(admin_api, agent, organization):
    admin_api.post(f"/agents/{agent.slug}/tokens", {"tools": ["read_file"]})
    record = AuditRecord.objects.get(organization=organization.slug, code="TOKEN.CREATE",
                                     subject=agent.service_account.username)  # fmt: skip
    assert record.details["after"]["tools"] == ["read_file"]
