"""MCP servers with OAuth are connected by a person and called with a token, which is refreshed in
time."""

import threading
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.db import connection
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.stubs.identity_provider import consented, guarded_serving
from tests.stubs.web import Reply
from tests.tools.approval_requests import ended_execution
from tools.catalog.mcp import mcp_consents, mcp_import, mcp_servers, mcp_tokens
from tools.catalog.mcp.upstreams import client_pool
from tools.errors import Conflict, Malformed, NotFound, Unavailable
from tools.execution.perform import perform
from tools.mcpclient.errors import UpstreamRefused, UpstreamUnavailable
from tools.models import McpAuthorization, McpConsent, Organization

pytestmark = pytest.mark.usefixtures("committed", "loopback_is_open")
BACK = "http://localhost/oauth/callback/"


@pytest.fixture
def stub():
    with guarded_serving() as made:
        yield made


@pytest.fixture
def ada(organization):
    return factories.person(organization)


@pytest.fixture
def server(organization, stub, actor):
    row = mcp_servers.create_server(
        organization=organization, server={"name": "far", "url": stub.mcp.url}, by=actor
    )
    yield row
    client_pool().forget_server(str(row.pk))


def answered(url):
    return dict(parse_qsl(urlsplit(consented(url)).query))


def connected(row, user, by, owner=""):
    url, _ = mcp_consents.begin_consent(row=row, owner=owner, user=user, redirect_uri=BACK)
    return mcp_consents.finish_consent(user=user, parameters=answered(url), by=by)


def imported(row, by, owner=""):
    mcp_import.refresh(row=row, by=by, owner=owner)
    (done,) = mcp_import.import_tools(row=row, items=[{"tool": "echo"}], by=by)
    assert done.errors == []


def called(agent):
    execution = factories.execution(agent, "echo", a=1)
    perform(execution.pk)
    return until(lambda: ended_execution(execution))


def runs_out(row):
    McpAuthorization.objects.filter(server=row).update(expires_at=timezone.now())
    Organization.objects.next_revision(row.organization_id)


def token_of(row, owner="", **options):
    row.refresh_from_db()
    return mcp_tokens.access_token(mcp_import.of_row(row), owner, **options)


def records(organization, code):
    return AuditRecord.objects.filter(organization=organization.slug, code=code)


def test_a_connected_server_is_called_with_its_token(agent, organization, server, stub, ada, actor):
    with pytest.raises(Unavailable, match="401"):
        mcp_import.refresh(row=server, by=actor)
    authorization = connected(server, ada, actor)
    imported(server, actor)
    assert called(agent).status == "Success"
    assert stub.tokens == ["access-2"]
    assert (authorization.issuer, authorization.flaw) == (stub.oauth.issuer, "")
    assert b"access-2" not in bytes(authorization.sealed)
    said = records(organization, "MCP.AUTHORIZE").get()
    assert said.details["issuer"] == stub.oauth.issuer and "access" not in str(said.details)


def test_a_token_that_a_server_repeats_is_redacted(agent, server, stub, ada, actor):
    connected(server, ada, actor)
    imported(server, actor)
    stub.mcp.tools["echo"].does = lambda given: {
        "content": [{"type": "text", "text": f"it was {stub.tokens[-1]}"}]
    }
    done = called(agent)
    assert done.status == "Success" and "access-" not in str(done.output)


def test_a_token_is_renewed_before_it_runs_out(server, stub, ada, actor):
    connected(server, ada, actor)
    assert token_of(server) == "access-2"
    runs_out(server)
    assert token_of(server) == "access-3"
    assert token_of(server) == "access-3"
    grants = [form["grant_type"] for form in stub.oauth.forms]
    assert grants == ["authorization_code", "refresh_token"]


def test_a_token_the_server_refuses_is_renewed_once_and_the_call_made_again(
    agent, server, stub, ada, actor
):
    connected(server, ada, actor)
    imported(server, actor)
    stub.revoked.add("access-2")
    assert called(agent).status == "Success"
    assert stub.tokens == ["access-2", "access-3"]
    stub.revoked |= {f"access-{number}" for number in range(100)}
    done = called(agent)
    assert (done.status, done.error_code) == ("Failed", "UPSTREAM_REFUSED")
    assert stub.tokens == ["access-2", "access-3", "access-4"]


def test_of_many_callers_one_renews(server, stub, ada, actor):
    connected(server, ada, actor)
    runs_out(server)
    row, found = mcp_import.of_row(server), []

    def ask():
        try:
            found.append(mcp_tokens.access_token(row, ""))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["access-3"] * 4
    assert [form["grant_type"] for form in stub.oauth.forms].count("refresh_token") == 1


def test_a_renewal_that_is_refused_says_who_must_connect_again(
    agent, organization, server, stub, ada, actor
):
    connected(server, ada, actor)
    imported(server, actor)
    stub.oauth.refused.add("refresh-2")
    runs_out(server)
    for _ in range(2):
        done = called(agent)
        assert (done.status, done.error_code) == ("Failed", "UPSTREAM_REFUSED")
        assert "an administrator must connect the MCP server far again" in done.error_message
    assert [form["grant_type"] for form in stub.oauth.forms].count("refresh_token") == 1
    lost = records(organization, "MCP.AUTHORIZATION_LOST").get()
    assert "invalid_grant" in lost.details["reason"] and "refresh-2" not in str(lost.details)
    connected(server, ada, actor)
    assert called(agent).status == "Success"


def test_an_authorization_server_that_is_down_takes_nothing_away(server, stub, ada, actor):
    connected(server, ada, actor)
    runs_out(server)
    working, stub.oauth.web.replies["/token"] = stub.oauth.web.replies["/token"], Reply(503)
    with pytest.raises(UpstreamUnavailable):
        token_of(server)
    assert McpAuthorization.objects.get(server=server).flaw == ""
    stub.oauth.web.replies["/token"] = working
    assert token_of(server) == "access-3"


def test_a_process_that_died_during_a_renewal_does_not_block_others(server, stub, ada, actor):
    connected(server, ada, actor)
    past = timezone.now() - timedelta(seconds=1)
    McpAuthorization.objects.filter(server=server).update(expires_at=past, renewing_until=past)
    assert token_of(server) == "access-3"


def test_rights_that_were_missing_are_asked_for_with_the_next_consent(
    agent, server, stub, ada, actor
):
    connected(server, ada, actor)
    imported(server, actor)
    stub.wants = "tools write"
    done = called(agent)
    assert (done.status, done.error_code) == ("Failed", "UPSTREAM_REFUSED")
    url, _ = mcp_consents.begin_consent(row=server, owner="", user=ada, redirect_uri=BACK)
    assert dict(parse_qsl(urlsplit(url).query))["scope"] == "tools write"


def test_everybody_has_a_consent_of_his_own_where_the_server_says_so(server, stub, ada, actor):
    mcp_servers.change_server(row=server, changes={"credential_scope": "user"}, by=actor)
    with pytest.raises(Malformed):
        connected(server, ada, actor)
    own = f"user:{ada.username}"
    connected(server, ada, actor, owner=own)
    assert token_of(server, f"user:{ada.pk}") == "access-2"
    other = factories.person(server.organization)
    assert token_of(server, f"user:{other.pk}") == ""
    mcp_import.refresh(row=server, by=actor, owner=own)
    with pytest.raises(Unavailable, match=f"no credentials of user:{other.username}"):
        mcp_import.refresh(row=server, by=actor, owner=f"user:{other.username}")
    with pytest.raises(Malformed, match="There is no 'user:nobody-of-that-name' here"):
        mcp_import.refresh(row=server, by=actor, owner="user:nobody-of-that-name")


def test_a_token_goes_to_no_other_address(server, stub, ada, actor):
    connected(server, ada, actor)
    changes = {"url": "https://elsewhere.example/mcp"}
    with pytest.raises(Malformed):
        mcp_servers.change_server(row=server, changes=changes, by=actor)
    server.refresh_from_db()
    server.url = "https://elsewhere.example/mcp"
    with pytest.raises(UpstreamRefused, match="another address"):
        mcp_tokens.access_token(mcp_import.of_row(server), "")


def test_what_was_begun_is_good_once_for_who_began_it_and_not_for_long(
    organization, server, stub, ada, actor
):
    url, _ = mcp_consents.begin_consent(row=server, owner="", user=ada, redirect_uri=BACK)
    back = answered(url)
    for user, parameters in (
        (factories.person(organization), back),
        (ada, back | {"state": "x"}),
        (ada, {}),
    ):
        with pytest.raises(NotFound):
            mcp_consents.finish_consent(user=user, parameters=parameters, by=actor)
    mcp_consents.finish_consent(user=ada, parameters=back, by=actor)
    with pytest.raises(NotFound):
        mcp_consents.finish_consent(user=ada, parameters=back, by=actor)
    url, _ = mcp_consents.begin_consent(row=server, owner="", user=ada, redirect_uri=BACK)
    McpConsent.objects.filter(server=server).update(expires_at=timezone.now())
    with pytest.raises(Conflict, match="too long"):
        mcp_consents.finish_consent(user=ada, parameters=answered(url), by=actor)


@pytest.mark.parametrize(
    "change", [{"iss": "https://evil.example"}, {"code": "other"}, {"error": "access_denied"}]
)
def test_an_answer_that_is_not_good_connects_nothing(server, stub, ada, actor, change):
    url, _ = mcp_consents.begin_consent(row=server, owner="", user=ada, redirect_uri=BACK)
    with pytest.raises(Conflict):
        mcp_consents.finish_consent(user=ada, parameters=answered(url) | change, by=actor)
    assert not McpAuthorization.objects.filter(server=server).exists()


def test_a_client_credentials_grant_needs_no_consent(server, stub, actor):
    with pytest.raises(Conflict, match="client"):
        mcp_consents.connect_client(row=server, owner="", by=actor)
    entered = {"client_id": "me", "client_secret": "s3cret", "grant": "client_credentials"}
    mcp_consents.set_client(row=server, client=entered, by=actor)
    mcp_consents.connect_client(row=server, owner="", by=actor)
    runs_out(server)
    first, second = token_of(server), token_of(server)
    assert first == second and stub.oauth.clients == ["me:s3cret"] * 2


def test_a_server_that_was_disconnected_gets_no_token(server, stub, ada, actor):
    connected(server, ada, actor)
    mcp_consents.disconnect(row=server, owner="", by=actor)
    assert token_of(server) == ""
    with pytest.raises(NotFound):
        mcp_consents.disconnect(row=server, owner="", by=actor)
