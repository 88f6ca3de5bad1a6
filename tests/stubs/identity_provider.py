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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.stubs.mcp import MODERN, McpStub
from tests.stubs.web import Reply, Seen, Web, serving

CLIENT, SECRET = "crib", "a secret of the client"


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

    def requests_for(self, path: str) -> list[Seen]:
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
        seen = [one.headers.get("authorization", "") for one in self.oauth.requests_for("/mcp")]
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
    """The address to which an authorization server without a login page redirects the browser."""
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=30)
    try:
        connection.request("GET", f"{target.path}?{target.query}")
        return str(connection.getresponse().headers["Location"])
    finally:
        connection.close()


@lru_cache
def rsa_key(name: str = "one") -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": name, "use": "sig"})


class OpenIdStub:
    """Has no login page: each browser is the person of `claims`. A code is valid once."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.claims: dict[str, Any] = {
            "sub": "subject-1",
            "preferred_username": "mira",
            "given_name": "Mira",
            "family_name": "Okafor",
        }
        self.token: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.signs_with = rsa_key()
        self.forms: list[dict[str, str]] = []
        self.asked: list[dict[str, str]] = []
        self.metadata: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": web.url("/authorize"),
            "token_endpoint": web.url("/token"),
            "jwks_uri": web.url("/keys"),
            "userinfo_endpoint": web.url("/userinfo"),
            "id_token_signing_alg_values_supported": ["RS256", "none", "HS256"],
        }
        self._codes: dict[str, dict[str, str]] = {}
        self._count = itertools.count(1)
        web.replies["/.well-known/openid-configuration"] = lambda _: _json(self.metadata)
        web.replies["/keys"] = lambda _: _json({"keys": [rsa_key().as_dict(private=False)]})
        web.replies["/authorize"] = self._authorize
        web.replies["/token"] = self._token
        web.replies["/userinfo"] = lambda _: _json({"sub": self.claims["sub"], **self.userinfo})

    @property
    def issuer(self) -> str:
        return self.web.url("").rstrip("/")

    def consent(self, url: str) -> str:
        """The address that the browser is sent back to, for the address it was sent to."""
        asked = dict(parse_qsl(urlsplit(url).query))
        self.asked.append(asked)
        code = f"code-{next(self._count)}"
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?code={code}&state={asked['state']}"

    def _authorize(self, seen: Seen) -> Reply:
        return Reply(302, [("Location", self.consent(seen.target))])

    def _token(self, seen: Seen) -> Reply:
        form = dict(parse_qsl(seen.body.decode()))
        self.forms.append(form)
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge or not _is_client(seen):
            return _json({"error": "invalid_grant"}, 400)
        return _json(
            {
                "access_token": "an access token",
                "token_type": "Bearer",
                "expires_in": 60,
                "id_token": self._signed(asked),
            }
        )

    def _signed(self, asked: dict[str, str]) -> str:
        now = int(time.time())
        said = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "auth_time": now,
            "nonce": asked.get("nonce"),
            **self.claims,
            **self.token,
        }
        header = {"alg": "RS256", "kid": self.signs_with.kid}
        return jwt.encode(header, said, self.signs_with)


def _is_client(seen: Seen) -> bool:
    basic = seen.headers.get("authorization", "").removeprefix("Basic ")
    return base64.b64decode(basic).decode() == f"{CLIENT}:{SECRET}"


@contextmanager
def openid_serving() -> Iterator[OpenIdStub]:
    with serving() as web:
        yield OpenIdStub(web)
