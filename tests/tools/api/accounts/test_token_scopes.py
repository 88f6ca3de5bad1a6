"""What a token may manage: its scopes, and its restriction to groups or tools."""

import pytest
from django.test import Client

from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.models import Token, Tool, ToolGroup

PASSWORD = "correct horse"
READ_ONLY = (
    "/agents", "/tiers", "/organizations", "/grants", "/mcp-servers", "/messages",
    "/states/graph", "/tools/echo/versions", "/signing-keys", "/egress-credentials",
)  # fmt: skip
CHANGES = {
    "catalog": ("post", "/groups", {"name": "desk"}),
    "agents": ("post", "/agents", {"slug": "magpie"}),
    "audit": ("post", "/audit/erasures", {"agent": "x", "reason": "asked for"}),
    "organization": ("post", "/signing-keys", None),
}


def token(user, *scopes, **limits):
    return Api(factories.token(user, scopes=scopes or ["read", "execute", "manage"], **limits))


@pytest.fixture
def echo(organization):
    return factories.tool(organization, group=["desk"])


@pytest.mark.usefixtures("echo")
def test_who_reads_the_administration_needs_no_more_than_to_read(admin_user, subtests):
    api = token(admin_user, "read")
    for path in READ_ONLY:
        with subtests.test(path=path):
            assert api.get(path).status_code == 200


@pytest.mark.parametrize("scope", CHANGES)
def test_a_scope_changes_its_own_part_and_no_other(admin_user, scope, subtests):
    api = token(admin_user, "read", "execute", scope)
    for part, (method, path, body) in CHANGES.items():
        with subtests.test(part=part):
            answer = getattr(api, method)(path, body)
            if part == scope:
                assert answer.status_code in (200, 201), answer.content
            else:
                check_error(answer, 403, "scope_missing")


def test_manage_goes_on_meaning_all_of_it(admin_user, subtests):
    api = token(admin_user, "manage")
    for part, (method, path, body) in CHANGES.items():
        with subtests.test(part=part):
            assert getattr(api, method)(path, body).status_code in (200, 201)


def test_calls_of_others_are_ended_with_the_scope_agents(organization, agent, admin_user):
    factories.tool(organization, "slow")
    call = factories.execution(agent, "slow")
    path = f"/executions/{call.pk}/cancel"
    check_error(token(admin_user, "read", "execute", "catalog").post(path), 403, "scope_missing")
    assert token(admin_user, "read", "execute", "agents").post(path).status_code in (200, 202)


# --- narrowed -------------------------------------------------------------------------------------

BEYOND = [
    ("delete", "/tools/other", None),
    ("patch", "/tools/other", {"description": "Mine."}),
    ("post", "/tools/other/disable", None),
    ("post", "/tools", factories.definition("third")),
    ("post", "/groups", {"name": "fresh"}),
    ("patch", "/groups/default", {"description": "Mine."}),
    ("patch", "/agents/bot", {"description": "Mine."}),
    ("post", "/agents", {"slug": "magpie"}),
    ("post", "/agents/bot/tokens", {}),
    ("post", "/grants", {"agent": "bot", "tools": ["echo"]}),
    ("post", "/signing-keys", None),
    ("post", "/audit/erasures", {"agent": "x", "reason": "asked for"}),
    ("post", "/cache/invalidate", {"tool": "echo"}),
]


@pytest.mark.parametrize("limits", [{"tools": ["echo"]}, {"groups": ["desk"]}], ids=str)
def test_a_narrowed_token_manages_nothing_else(organization, admin_user, echo, limits, subtests):
    factories.tool(organization, "other")
    bot = factories.agent(organization, "bot")
    api = token(admin_user, **limits)
    beyond = [*BEYOND, ("patch", f"/organizations/{organization.slug}", {"name": "Mine"})]
    for method, path, body in beyond:
        with subtests.test(method=method, path=path):
            found = check_error(getattr(api, method)(path, body), 403, "token_narrowed")
            assert "narrowed to" in found["message"]
    assert Tool.objects.get(organization=organization, name="other").enabled
    assert not Token.objects.filter(user__agent=bot).exists()


@pytest.mark.parametrize("limits", [{"tools": ["echo"]}, {"groups": ["desk"]}], ids=str)
def test_a_narrowed_token_manages_its_tools(admin_user, echo, limits):
    api = token(admin_user, **limits)
    assert api.patch("/tools/echo", {"description": "Other words."}).status_code == 200
    assert api.post("/tools/echo/versions/1.0.0/restore").status_code == 200
    assert api.post("/tools/echo/disable").status_code == 200
    assert api.delete("/tools/echo").status_code == 204


def test_a_token_of_a_group_takes_no_tool_out_of_it(organization, admin_user, echo):
    api = token(admin_user, groups=["desk"])
    for group in (["default"], ["desk", "default"]):
        check_error(api.patch("/tools/echo", {"group": group}), 403, "token_narrowed")
    row = Tool.objects.get(organization=organization, name="echo")
    assert row.version.definition["group"] == ["desk"] and row.versions.count() == 1


def test_a_tool_that_is_in_other_groups_too_is_not_the_tokens(organization, admin_user):
    factories.tool(organization, group=["desk", "default"])
    api = token(admin_user, groups=["desk"])
    check_error(api.delete("/tools/echo"), 403, "token_narrowed")


def test_a_token_of_a_group_describes_it_and_gives_nothing_with_it(organization, admin_user, echo):
    api = token(admin_user, groups=["desk"])
    assert api.patch("/groups/desk", {"description": "Ours."}).status_code == 200
    for change in ({"permissions": ["p"]}, {"parent": "default"}):
        check_error(api.patch("/groups/desk", change), 403, "token_narrowed")
    row = ToolGroup.objects.get(organization=organization, name="desk")
    assert row.parent is None
    check_error(token(admin_user, tools=["echo"]).delete("/groups/desk"), 403, "token_narrowed")


def test_every_group_and_every_tool_is_no_narrowing(admin_user, echo):
    api = token(admin_user, groups=["*"], tools=["*"])
    assert api.post("/groups", {"name": "fresh"}).status_code == 201


# --- the holder's own tokens ----------------------------------------------------------------------


def login(user, **more):
    body = {"username": user.username, "password": PASSWORD, **more}
    return Client().post("/api/v1/tokens", body, "application/json")


def newest(user):
    return user.tokens.latest("created_at")


def test_a_personal_token_reads_and_executes_unless_more_is_asked_for(admin_user):
    api = Api(login(admin_user).json()["token"])
    assert newest(admin_user).scopes == ["read", "execute"]
    check_error(api.post("/groups", {"name": "fresh"}), 403, "scope_missing")
    assert login(admin_user, scopes=["catalog"]).status_code == 201
    assert newest(admin_user).scopes == ["catalog"]


def test_own_tokens_are_listed_without_their_secrets(admin_user, agent):
    text = factories.token(admin_user, scopes=["read"], label="ci", tools=["*"])
    factories.token(agent.service_account)
    Api(text).get("/tools")
    body = Api(text).get("/tokens?page_size=1").json()
    (row,) = body["results"]
    assert body["next"] is None
    assert (row["label"], row["scopes"], row["groups"], row["tools"]) == (
        "ci",
        ["read"],
        None,
        ["*"],
    )
    assert row["last_used_at"] and row["expires_at"] and row["created_at"]
    assert text[13:] not in str(body) and "secret_hash" not in row


def test_own_tokens_are_paged(admin_user):
    for _ in range(3):
        text = factories.token(admin_user, scopes=["read"])
    body = Api(text).get("/tokens?page_size=2").json()
    assert len(body["results"]) == 2 and body["next"]


def test_a_list_of_tokens_is_no_users_without_a_token(db):
    assert Client().get("/api/v1/tokens").status_code == 401


def test_a_token_that_reads_revokes_itself_and_no_other(admin_user):
    factories.token(admin_user, scopes=["manage"], label="other")
    other, api = newest(admin_user), token(admin_user, "read")
    mine = newest(admin_user)
    check_error(api.delete(f"/tokens/{other.pk}"), 403, "scope_missing")
    assert api.delete(f"/tokens/{mine.pk}").status_code == 204
    check_error(api.get("/tools"), 401)
    other.refresh_from_db()
    assert other.usable


def test_a_token_that_manages_revokes_others_of_its_holder(admin_user):
    factories.token(admin_user)
    other = newest(admin_user)
    narrow = token(admin_user, "read", "manage", tools=["read_file"])
    check_error(narrow.delete(f"/tokens/{other.pk}"), 403, "token_narrowed")
    assert token(admin_user, "read", "catalog").delete(f"/tokens/{other.pk}").status_code == 204
