import json
from urllib.parse import parse_qsl, urlsplit

import pytest

from sandbox.egress.dial import Dialer, Resolver, client_context
from sandbox.egress.rules.addresses import AddressGate, read_network
from tests.stubs.identity_provider import oauth_serving
from tests.stubs.web import Reply, endless
from tools.httpclient.outbound import EventLoopThread
from tools.mcpclient.authorization_servers import (
    AuthorizationFailed,
    ClientIdentity,
    Fetcher,
    OAuthClient,
)
from tools.mcpclient.errors import (
    NO_CHALLENGE,
    AuthenticationChallenge,
    InvalidAnswer,
    UpstreamUnavailable,
    parse_challenge,
)
from tools.mcpclient.oauth import (
    MOST_STEP_UPS,
    OAuthTokens,
    PendingAuthorization,
    begin_authorization,
    finish_authorization,
    refresh_tokens,
    request_client_credentials,
)

IDENTITY = ClientIdentity("https://crib.example/back")


def run(work):
    """In a loop of its own thread, as in production, because browser tests leave a loop in this
    one."""
    loop = EventLoopThread()
    try:
        return loop.submit(work).result(30)
    finally:
        loop.close()


@pytest.fixture
def server():
    with oauth_serving() as stub:
        yield stub


@pytest.fixture
def fetch():
    resolver = Resolver()
    dialer = Dialer(resolver, AddressGate([read_network("127.0.0.0/8")]), client_context())
    yield Fetcher(lambda scheme: dialer)
    resolver.close()


@pytest.fixture
def consent(server, fetch):
    """Completes the authorization redirect; `change` overrides parameters of the callback."""

    def go(identity=IDENTITY, challenge=NO_CHALLENGE, previous=None, **change):
        async def begin_and_finish():
            url, pending = await begin_authorization(
                fetch, server.url, identity, challenge, previous
            )
            answer = await fetch("GET", url, [], b"")
            back = dict(parse_qsl(urlsplit(answer.headers["location"]).query)) | change
            back = {name: value for name, value in back.items() if value is not None}
            return await finish_authorization(fetch, pending, back)

        return run(begin_and_finish())

    return go


def begin_consent(server, fetch, identity=IDENTITY, **options):
    return run(begin_authorization(fetch, server.url, identity, **options))


def test_consent_brings_tokens_bound_to_issuer_and_resource(server, consent):
    tokens = consent()

    assert tokens.header == ("Authorization", "Bearer access-2")
    assert (tokens.issuer, tokens.resource) == (server.issuer, server.url)
    assert server.forms[0]["resource"] == server.url
    assert server.clients == ["me:client/secret"]
    assert server.registered[0]["application_type"] == "web"


def test_a_refresh_token_that_was_replaced_is_not_sent_again(server, fetch, consent):
    first = consent()
    second = run(refresh_tokens(fetch, first))
    third = run(refresh_tokens(fetch, second))

    sent = [form.get("refresh_token") for form in server.forms]
    assert sent == [None, first.refresh, second.refresh]
    assert len({first.access, second.access, third.access}) == 3


def test_a_refused_refresh_says_so_without_the_secret(server, fetch, consent):
    tokens = consent()
    server.refused.add(tokens.refresh)

    with pytest.raises(AuthorizationFailed) as refusal:
        run(refresh_tokens(fetch, tokens))

    assert refusal.value.error == "invalid_grant"
    assert tokens.refresh not in str(refusal.value)


def test_a_server_that_is_down_does_not_end_the_authorization(server, fetch, consent):
    tokens = consent()
    server.web.replies["/token"] = Reply(503)

    with pytest.raises(UpstreamUnavailable):
        run(refresh_tokens(fetch, tokens))


def test_metadata_of_another_issuer_is_refused(server, fetch):
    server.metadata["issuer"] += "/"

    with pytest.raises(AuthorizationFailed, match="of another one"):
        begin_consent(server, fetch)


@pytest.mark.parametrize("other", ["https://evil.example/mcp", "/mcp/below", "/mc", "/mcp?a=1"])
def test_metadata_of_another_resource_is_refused(server, fetch, other):
    server.resource["resource"] = other if ":" in other else server.web.url(other)

    with pytest.raises(AuthorizationFailed, match="of another server"):
        begin_consent(server, fetch)


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_a_server_without_s256_is_refused_before_anything_is_registered(server, fetch, methods):
    server.metadata["code_challenge_methods_supported"] = methods or []
    if methods is None:
        del server.metadata["code_challenge_methods_supported"]

    with pytest.raises(AuthorizationFailed, match="S256"):
        begin_consent(server, fetch)

    assert server.registered == []


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "change",
    [
        {"state": "another"},
        {"state": "ü"},
        {"state": None},
        {"iss": None},
        {"iss": "https://evil.example"},
        {"code": None},
        {"error": "access_denied"},
    ],
)
def test_an_answer_that_is_not_ours_redeems_no_code(server, consent, change):
    with pytest.raises(AuthorizationFailed):
        consent(**change)

    assert server.forms == []


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "body",
    [
        b"garbage",
        b"[]",
        b'{"access_token": 1, "token_type": "Bearer"}',
        b'{"access_token": "a\\r\\nX: y", "token_type": "Bearer"}',
        b'{"access_token": "a", "token_type": "DPoP"}',
        b'{"access_token": "a"}',
        b'{"access_token": "", "token_type": "Bearer"}',
    ],
)
def test_an_answer_without_a_token_that_can_be_used_is_refused(server, consent, body):
    server.web.replies["/token"] = Reply(200, [], body)

    with pytest.raises(InvalidAnswer):
        consent()


def test_an_endless_answer_is_not_read_to_its_end(server, consent):
    server.web.replies["/token"] = endless()

    with pytest.raises(InvalidAnswer, match="authorization server answered with more than"):
        consent()


def test_a_redirect_of_the_token_request_is_not_followed(server, consent):
    server.web.replies["/token"] = Reply(307, [("Location", server.web.url("/elsewhere"))])

    with pytest.raises(AuthorizationFailed, match="307"):
        consent()

    assert server.requests_for("/elsewhere") == []


@pytest.mark.parametrize("url", ["http://idp.example/token", "file:///etc/passwd", 7, "https://"])
def test_an_endpoint_that_is_not_https_is_refused(server, fetch, url):
    server.metadata["token_endpoint"] = url

    with pytest.raises((AuthorizationFailed, InvalidAnswer)):
        begin_consent(server, fetch)


def test_an_address_that_the_operator_did_not_open_is_not_called(server, fetch):
    server.resource["authorization_servers"] = ["https://10.0.0.1"]

    with pytest.raises(UpstreamUnavailable, match="authorization server cannot be reached"):
        begin_consent(server, fetch)


def test_a_step_up_keeps_what_was_asked_before(server, fetch, consent):
    tokens = consent()
    wanted = AuthenticationChallenge(scope=("write",), error="insufficient_scope")

    _, pending = begin_consent(server, fetch, challenge=wanted, previous=tokens)

    assert pending.scope == ("tools", "write")
    assert len(server.registered) == 1


def test_a_step_up_that_asks_for_nothing_new_is_given_up(server, fetch, consent):
    wanted = AuthenticationChallenge(scope=("tools",), error="insufficient_scope")

    with pytest.raises(AuthorizationFailed, match="consent did not bring"):
        begin_consent(server, fetch, challenge=wanted, previous=consent())


def test_steps_up_have_an_end(server, fetch, consent):
    tokens = consent()
    for number in range(MOST_STEP_UPS):
        wanted = AuthenticationChallenge(scope=(f"more{number}",), error="insufficient_scope")
        tokens = consent(challenge=wanted, previous=tokens)
    wanted = AuthenticationChallenge(scope=("one-more",), error="insufficient_scope")

    with pytest.raises(AuthorizationFailed, match="consent did not bring"):
        begin_consent(server, fetch, challenge=wanted, previous=tokens)


def test_at_another_issuer_nothing_of_the_first_is_used(server, fetch, consent):
    tokens = consent()
    with oauth_serving() as second:
        server.resource["authorization_servers"] = [second.issuer]
        _, pending = begin_consent(server, fetch, previous=tokens)

        assert len(second.registered) == 1
        assert pending.issuer == second.issuer


def test_a_client_that_was_entered_for_another_issuer_is_not_named(server, fetch):
    entered = OAuthClient("own", "secret", issuer="https://idp.example")

    with pytest.raises(AuthorizationFailed, match="another authorization server"):
        begin_consent(server, fetch, ClientIdentity(IDENTITY.redirect_uri, registered=entered))


def test_a_document_names_the_client_only_where_documents_are_taken(server, fetch):
    identity = ClientIdentity(IDENTITY.redirect_uri, document="https://crib.example/client.json")
    _, without = begin_consent(server, fetch, identity)
    server.metadata["client_id_metadata_document_supported"] = True
    _, pending = begin_consent(server, fetch, identity)

    assert (without.client.id, pending.client.id) == ("me", identity.document)


def test_offline_access_is_asked_for_where_it_is_offered(server, fetch):
    _, without = begin_consent(server, fetch)
    server.metadata["scopes_supported"] = ["offline_access"]
    _, pending = begin_consent(server, fetch)

    assert (without.scope, pending.scope) == (("tools",), ("tools", "offline_access"))


def test_a_client_credentials_grant_needs_no_consent(server, fetch):
    own = OAuthClient("own", "se:cret")
    tokens = run(request_client_credentials(fetch, server.url, own))

    assert tokens.access == "access-1"
    assert server.clients == ["own:se:cret"]


def test_what_is_stored_comes_back_and_shows_no_secret(server, fetch, consent):
    _, pending = begin_consent(server, fetch)
    tokens = consent()
    kept = [json.loads(json.dumps(one.stored())) for one in (pending, tokens)]

    assert PendingAuthorization.restored(kept[0]) == pending
    assert OAuthTokens.restored(kept[1]) == tokens
    secrets = (pending.state, pending.verifier, tokens.access, tokens.refresh, "client/secret")
    assert not any(one in f"{pending!r}{tokens!r}" for one in secrets)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", AuthenticationChallenge()),
        ("Basic realm=x", AuthenticationChallenge()),
        ('Bearer scope="a  b a"', AuthenticationChallenge(scope=("a", "b"))),
        (
            'Basic realm="x", Bearer error=invalid_token',
            AuthenticationChallenge(error="invalid_token"),
        ),
        (
            'bearer resource_metadata="https://a/\\"b", error="insufficient_scope"',
            AuthenticationChallenge('https://a/"b', error="insufficient_scope"),
        ),
        ('Bearer scope="\x01", error="<script>"', AuthenticationChallenge()),
        ("Bearer " + "a" * 100_000, AuthenticationChallenge()),
    ],
)
def test_a_challenge_is_read_as_far_as_it_can_be(header, expected):
    assert parse_challenge(header) == expected
