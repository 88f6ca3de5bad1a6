"""The errors of MCP servers, and their authentication challenges (WWW-Authenticate).

The messages are ours, or quote a server up to a limit.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

MOST_SCOPES = 100
LONGEST_QUOTE = 2_000
_LONGEST_CHALLENGE = 16_384
_CHALLENGE_PARAMETER = re.compile(
    r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})\s*=\s*"
    r'(?:"((?:[^"\\]|\\.){0,8192})"|([^\s",]{1,8192}))\s*(?:,|$)'
)
_BEARER_SCHEME = re.compile(r"(?:^|,)\s*bearer(?:\s+|$)", re.IGNORECASE)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")  # RFC 6749, 3.3
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True)
class AuthenticationChallenge:
    """What a server says about the credentials it demands. `scope` keeps its order."""

    resource_metadata: str = ""
    scope: tuple[str, ...] = ()
    error: str = ""

    @property
    def insufficient_scope(self) -> bool:
        return self.error == "insufficient_scope"


NO_CHALLENGE = AuthenticationChallenge()


def parse_challenge(header: str) -> AuthenticationChallenge:
    """The first Bearer challenge of the header; parameters that cannot be read are ignored."""
    match = _BEARER_SCHEME.search(header) if len(header) <= _LONGEST_CHALLENGE else None
    if match is None:
        return AuthenticationChallenge()
    parameters: dict[str, str] = {}
    position = match.end()
    while parameter := _CHALLENGE_PARAMETER.match(header, position):
        name, quoted, plain = parameter.groups()
        parameters.setdefault(name.lower(), plain or re.sub(r"\\(.)", r"\1", quoted or ""))
        position = parameter.end()
    error = parameters.get("error", "")
    return AuthenticationChallenge(
        parameters.get("resource_metadata", ""),
        parse_scopes(parameters.get("scope", "")),
        error if _ERROR_CODE.fullmatch(error) else "",
    )


def parse_scopes(text: str) -> tuple[str, ...]:
    """Each scope once; none if one of them is invalid."""
    scopes = tuple(dict.fromkeys(text.split()))
    valid = len(scopes) <= MOST_SCOPES and all(_SCOPE.fullmatch(one) for one in scopes)
    return scopes if valid else ()


class UpstreamCode(StrEnum):
    UNAVAILABLE = "UPSTREAM_UNAVAILABLE"  # the server has not started the request
    REFUSED = "UPSTREAM_REFUSED"  # the server did not accept the credentials
    ERROR = "UPSTREAM_ERROR"  # the server answered with an error of JSON-RPC
    INVALID = "UPSTREAM_INVALID"  # the answer cannot be used
    INPUT_REQUIRED = "UPSTREAM_INPUT_REQUIRED"
    CHANGED = "UPSTREAM_CHANGED"  # the tool is not the approved one


class UpstreamFailure(Exception):
    """A definite failure. `data` is what the server sent about it in addition to a message."""

    code: str = UpstreamCode.ERROR
    data: object = None


class UpstreamUnavailable(UpstreamFailure):
    """The server did not receive the complete request, or did not accept it."""

    code = UpstreamCode.UNAVAILABLE


class SessionExpired(UpstreamUnavailable):
    """The server has forgotten our session. The request may be sent again in a new one."""


class UpstreamBusy(UpstreamUnavailable):
    """The server is reachable and limits the rate of this caller."""


class AnswerLost(UpstreamFailure):
    """The server has the request; its complete answer did not arrive."""


class InvalidAnswer(UpstreamFailure):
    """The server's message violates the protocol or exceeds our limits. `answer` is the message, if
    it is the answer to a call."""

    code = UpstreamCode.INVALID

    def __init__(self, message: str, answer: object = None) -> None:
        super().__init__(message)
        self.answer = answer


class UpstreamRefused(UpstreamFailure):
    """The server or the authorization server does not accept the credentials."""

    code = UpstreamCode.REFUSED


class Unauthorized(UpstreamRefused):
    """The server demands other credentials; `challenge` says which."""

    def __init__(self, message: str, challenge: AuthenticationChallenge) -> None:
        super().__init__(message)
        self.challenge = challenge


class InputRequired(UpstreamFailure):
    """The server requests input: `requests` and `state` are parameters of the repeated call."""

    code = UpstreamCode.INPUT_REQUIRED

    def __init__(self, message: str, requests: object = None, state: object = None) -> None:
        super().__init__(message)
        self.requests, self.state = requests, state


class ToolChanged(UpstreamFailure):
    """The tool is not the approved one; `seen` is the tool that is listed now, if any."""

    code = UpstreamCode.CHANGED

    def __init__(self, message: str, seen: object = None) -> None:
        super().__init__(message)
        self.seen = seen


class JsonRpcError(UpstreamFailure):
    """An error of JSON-RPC."""

    def __init__(self, number: int, text: str, data: object = None) -> None:
        super().__init__(f"The MCP server answered with error {number}: {text}")
        self.number, self.text, self.data = number, text, data


def quote_text(text: object, longest: int = LONGEST_QUOTE) -> str:
    """A server's text as our messages may quote it: printable, and not longer than `longest`."""
    if not isinstance(text, str):
        return ""
    quoted = "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)
    return quoted if len(quoted) <= longest else f"{quoted[:longest]}…"
