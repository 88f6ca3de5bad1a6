"""OAuth authorization of MCP servers over REST; the redirect leads to a page."""

import pytest

from tests import factories
from tests.api import Api
from tests.stubs.identity_provider import guarded_serving
from tests.tools.shapes import check_error
from tools.models import McpAuthorization, McpOAuthClient, McpServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("loopback_is_open")]
PLACE = "/mcp-servers/far/authorizations"


@pytest.fixture
def stub():
    with guarded_serving() as made:
        yield made


@pytest.fixture
def far(admin_api, stub):
    admin_api.post("/mcp-servers", {"name": "far", "url": stub.mcp.url})


def test_a_client_is_entered_and_its_secret_never_shown(organization, admin_api, far):
    entered = {"client_id": "me", "client_secret": "s3cret-canary", "grant": "client_credentials"}
    answers = [admin_api.put("/mcp-servers/far/oauth-client", entered)]
    answers += [admin_api.put("/mcp-servers/far/oauth-client", {"client_secret": "•••"})]
    answers += [admin_api.get(PLACE)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[-1].json()["client"] == {
        "client_id": "me", "client_secret": "•••", "grant": "client_credentials",
    }  # fmt: skip
    assert "canary" not in "".join(answer.content.decode() for answer in answers)
    kept = McpOAuthClient.objects.get(server__organization=organization)
    assert b"canary" not in bytes(kept.sealed or b"")
    cleared = admin_api.put("/mcp-servers/far/oauth-client", {"client_secret": ""})
    assert cleared.json()["client_secret"] is None
    assert admin_api.delete("/mcp-servers/far/oauth-client").status_code == 204
    gone = admin_api.delete("/mcp-servers/far/oauth-client")
    check_error(gone, 404, "oauth_client_not_found")


NO_CLIENTS = [
    {}, {"client_id": 7}, {"client_id": "me", "grant": "password"}, {"client_id": "me", "x": 1},
    {"client_id": "me", "client_secret": "a\nb"}, {"client_id": "me", "client_secret": 7}, [],
]  # fmt: skip


def test_a_client_that_is_none_is_refused(admin_api, far, subtests):
    for wrong in NO_CLIENTS:
        with subtests.test(wrong=wrong):
            check_error(admin_api.put("/mcp-servers/far/oauth-client", wrong), 400)


def test_a_client_that_acts_for_itself_is_connected_listed_and_disconnected(admin_api, far, stub):
    admin_api.put(
        "/mcp-servers/far/oauth-client",
        {"client_id": "me", "client_secret": "s", "grant": "client_credentials"},
    )
    assert admin_api.post(PLACE, {}).json() == {"authorization_url": None, "expires_at": None}
    (listed,) = admin_api.get(PLACE).json()["results"]
    assert (listed["owner"], listed["issuer"], listed["good"]) == ("", stub.oauth.issuer, True)
    assert "access-" not in str(listed)
    assert admin_api.delete(f"{PLACE}/organization").status_code == 204
    check_error(admin_api.delete(f"{PLACE}/organization"), 404, "authorization_not_found")


@pytest.mark.parametrize("body", [{"owner": "agent:x"}, {"owner": 7}, {"color": "red"}])
def test_an_owner_the_server_does_not_know_is_refused(admin_api, far, body):
    check_error(admin_api.post(PLACE, body), 400)


def test_an_authorization_server_that_is_not_there_is_said(organization, admin_api, far, stub):
    stub.oauth.web.replies.clear()
    answer = admin_api.post(PLACE, {})
    check_error(answer, 409, "authorization_failed")
    assert not McpAuthorization.objects.filter(server__organization=organization).exists()


def test_a_person_may_connect_for_himself_and_for_nobody_else(organization, admin_api, far):
    admin_api.patch("/mcp-servers/far", {"credential_scope": "user"})
    ada = factories.person(organization)
    factories.permit(ada, "view_mcpserver")
    own = Api(factories.token(ada, scopes=["read", "manage"]))
    begun = own.post(PLACE, {"owner": f"user:{ada.username}"}, Host="localhost")
    assert begun.status_code == 200 and "state=" in begun.json()["authorization_url"]
    check_error(own.post(PLACE, {"owner": "user:somebody"}), 403)
    check_error(own.delete(f"{PLACE}/user:somebody"), 403)
    check_error(own.put("/mcp-servers/far/oauth-client", {"client_id": "x"}), 403)


def test_nobody_sees_another_organizations_authorizations(organization, far):
    elsewhere = factories.organization("authorizations-elsewhere")
    token = factories.token(factories.superuser(elsewhere), scopes=["read", "manage"])
    check_error(Api(token).get(PLACE), 404, "mcp_server_not_found")
    assert McpServer.objects.filter(organization=organization, name="far").exists()
