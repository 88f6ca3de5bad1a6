"""An identity provider that speaks OpenID Connect, on loopback over real HTTP.

with openid_serving() as provider:
    provider.claims["groups"] = ["crib-admins"]
    provider.token["nonce"] = "another"          # what an ID token says instead
"""

import base64
import hashlib
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.stubs.web import Reply, Seen, Web, serving

CLIENT, SECRET = "crib", "a secret of the client"


@lru_cache
def rsa_key(name: str = "one") -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": name, "use": "sig"})


class OpenIdStub:
    """Asks nobody: whoever comes is the person of `claims`. A code is good once."""

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


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, [("Content-Type", "application/json")], json.dumps(value).encode())


@contextmanager
def openid_serving() -> Iterator[OpenIdStub]:
    with serving() as web:
        yield OpenIdStub(web)
