"""An MCP server behind an authorization server, both on loopback over real HTTP.

with oauth_serving() as stub:
    stub.metadata["issuer"] = "https://another.example"
    stub.web.replies["/token"] = Reply(302, [("Location", "/elsewhere")])
    ...
    assert stub.forms[0]["grant_type"] == "authorization_code"
"""

import base64
import hashlib
import http.client
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.stubs.mcp import MODERN, McpStub
from tests.stubs.web import Reply, Seen, Web, serving


class OAuthStub:
    """Consents to everything. A refresh token is good once; `refused` are never good."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.metadata: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": web.url("/authorize"),
            "token_endpoint": web.url("/token"),
            "registration_endpoint": web.url("/register"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.resource: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": [self.issuer],
            "scopes_supported": ["tools"],
        }
        self.registered: list[dict[str, Any]] = []
        self.forms: list[dict[str, str]] = []
        self.clients: list[str] = []
        self.refused: set[str] = set()
        self._challenges: dict[str, str] = {}
        self._refreshing: set[str] = set()
        self._count = itertools.count(1)
        web.replies["/.well-known/oauth-protected-resource/mcp"] = lambda _: _json(self.resource)
        web.replies["/.well-known/oauth-authorization-server/as"] = lambda _: _json(self.metadata)
        web.replies["/register"] = self._register
        web.replies["/authorize"] = self._authorize
        web.replies["/token"] = self._token

    @property
    def url(self) -> str:
        return self.web.url("/mcp")

    @property
    def issuer(self) -> str:
        return self.web.url("/as")

    def asked(self, path: str) -> list[Seen]:
        return [one for one in self.web.seen if one.target.partition("?")[0] == path]

    def _register(self, seen: Seen) -> Reply:
        self.registered.append(json.loads(seen.body))
        return _json({"client_id": "me", "client_secret": "client/secret"}, 201)

    def _authorize(self, seen: Seen) -> Reply:
        asked = dict(parse_qsl(urlsplit(seen.target).query))
        code = f"code-{next(self._count)}"
        self._challenges[code] = asked["code_challenge"]
        back = f"{asked['redirect_uri']}?code={code}&state={asked['state']}&iss={self.issuer}"
        return Reply(302, [("Location", back)])

    def _token(self, seen: Seen) -> Reply:
        form = dict(parse_qsl(seen.body.decode()))
        self.forms.append(form)
        basic = seen.headers.get("authorization", "").removeprefix("Basic ")
        self.clients.append(unquote(base64.b64decode(basic).decode()))
        if not self._is_good(form):
            return _json({"error": "invalid_grant", "error_description": str(form)}, 400)
        number = next(self._count)
        self._refreshing.add(f"refresh-{number}")
        given = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}"}
        return _json(given | {"token_type": "Bearer", "expires_in": 3600})

    def _is_good(self, form: dict[str, str]) -> bool:
        if form["grant_type"] == "client_credentials":
            return True
        if form["grant_type"] == "refresh_token":
            token = form["refresh_token"]
            good = token in self._refreshing and token not in self.refused
            self._refreshing.discard(token)
            return good
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        expected = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return self._challenges.pop(form["code"], None) == expected


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, [("Content-Type", "application/json")], json.dumps(value).encode())


@contextmanager
def oauth_serving() -> Iterator[OAuthStub]:
    with serving() as web:
        yield OAuthStub(web)


class Guarded:
    """An MCP server that takes calls only with a token of its authorization server that is not
    among the `revoked`; `wants` is what it says in a challenge beside where to go."""

    def __init__(self, web: Web) -> None:
        self.oauth, self.mcp = OAuthStub(web), McpStub(web, MODERN, streamed=True)
        self.revoked: set[str] = set()
        self.wants = ""
        self._behind = web.replies["/mcp"]
        web.replies["/mcp"] = self._reply

    @property
    def tokens(self) -> list[str]:
        """That calls came with, each once, in their order."""
        seen = [one.headers.get("authorization", "") for one in self.oauth.asked("/mcp")]
        return list(dict.fromkeys(one.removeprefix("Bearer ") for one in seen if one))

    def _reply(self, seen: Seen) -> Any:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if not token.startswith("access-") or token in self.revoked:
            place = self.oauth.web.url("/.well-known/oauth-protected-resource/mcp")
            return Reply(401, [("WWW-Authenticate", f'Bearer resource_metadata="{place}"')])
        if self.wants:
            more = f'Bearer error="insufficient_scope", scope="{self.wants}"'
            return Reply(403, [("WWW-Authenticate", more)])
        return self._behind(seen) if callable(self._behind) else self._behind


@contextmanager
def guarded_serving() -> Iterator[Guarded]:
    with serving() as web:
        yield Guarded(web)


def consented(url: str) -> str:
    """What the browser is sent back to by an authorization server that asks nobody."""
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=30)
    try:
        connection.request("GET", f"{target.path}?{target.query}")
        return str(connection.getresponse().headers["Location"])
    finally:
        connection.close()
