"""What a server says of the credentials it wants (WWW-Authenticate). Pure."""

import re
from dataclasses import dataclass

_LONGEST_CHALLENGE = 16_384
MOST_SCOPES = 100
_CHALLENGE_PARAMETER = re.compile(
    r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})\s*=\s*"
    r'(?:"((?:[^"\\]|\\.){0,8192})"|([^\s",]{1,8192}))\s*(?:,|$)'
)
_BEARER_SCHEME = re.compile(r"(?:^|,)\s*bearer(?:\s+|$)", re.IGNORECASE)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749, 3.3
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True)
class AuthenticationChallenge:
    """`scope` as it was asked for, in its order; empty where nothing was said."""

    resource_metadata: str = ""
    scope: tuple[str, ...] = ()
    error: str = ""

    @property
    def wants_more(self) -> bool:
        return self.error == "insufficient_scope"


NO_CHALLENGE = AuthenticationChallenge()


def parse_challenge(header: str) -> AuthenticationChallenge:
    """Of the first Bearer challenge; what cannot be read is as if it were not there."""
    found = _BEARER_SCHEME.search(header) if len(header) <= _LONGEST_CHALLENGE else None
    if found is None:
        return AuthenticationChallenge()
    given: dict[str, str] = {}
    at = found.end()
    while parameter := _CHALLENGE_PARAMETER.match(header, at):
        name, quoted, plain = parameter.groups()
        given.setdefault(name.lower(), plain or re.sub(r"\\(.)", r"\1", quoted or ""))
        at = parameter.end()
    error = given.get("error", "")
    return AuthenticationChallenge(
        given.get("resource_metadata", ""),
        parse_scopes(given.get("scope", "")),
        error if _ERROR_CODE.fullmatch(error) else "",
    )


def parse_scopes(text: str) -> tuple[str, ...]:
    """Each once; none at all where one is no scope."""
    found = tuple(dict.fromkeys(text.split()))
    well = len(found) <= MOST_SCOPES and all(_SCOPE.fullmatch(one) for one in found)
    return found if well else ()
