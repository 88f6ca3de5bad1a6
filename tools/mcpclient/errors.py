"""How a conversation with an MCP server can fail. The texts are ours, or bounded quotations."""

from enum import StrEnum

from tools.mcpclient.challenge import AuthenticationChallenge

LONGEST_QUOTE = 2_000


class UpstreamCode(StrEnum):
    UNAVAILABLE = "UPSTREAM_UNAVAILABLE"  # nothing of the request has begun
    REFUSED = "UPSTREAM_REFUSED"  # credentials or rights that the server did not accept
    ERROR = "UPSTREAM_ERROR"  # the server answered with an error of the protocol
    INVALID = "UPSTREAM_INVALID"  # what it answered cannot be used
    INPUT_REQUIRED = "UPSTREAM_INPUT_REQUIRED"
    CHANGED = "UPSTREAM_CHANGED"  # not what was approved


class UpstreamFailure(Exception):
    """A definite failure. `data` is what the server sent about it beside a message."""

    code: str = UpstreamCode.ERROR
    data: object = None


class UpstreamUnavailable(UpstreamFailure):
    """The server has not the whole of the request, or said that it did not take it."""

    code = UpstreamCode.UNAVAILABLE


class SessionExpired(UpstreamUnavailable):
    """The server has forgotten our session; with a new one the request may be sent again."""


class UpstreamBusy(UpstreamUnavailable):
    """The server is there and has had enough of whoever asked: that says nothing about others."""


class AnswerLost(UpstreamFailure):
    """The server has the request; its answer did not come, or not whole."""


class InvalidAnswer(UpstreamFailure):
    """The server answered, against the protocol or beyond our bounds; `answer` is what came, where
    it is the answer to a call."""

    code = UpstreamCode.INVALID

    def __init__(self, message: str, answer: object = None) -> None:
        super().__init__(message)
        self.answer = answer


class UpstreamRefused(UpstreamFailure):
    code = UpstreamCode.REFUSED


class Unauthorized(UpstreamRefused):
    """The server wants other credentials than it was given, and says which."""

    def __init__(self, message: str, challenge: AuthenticationChallenge) -> None:
        super().__init__(message)
        self.challenge = challenge


class InputRequired(UpstreamFailure):
    """`requests` and `state` as the server gave them; who can answer calls again with both."""

    code = UpstreamCode.INPUT_REQUIRED

    def __init__(self, message: str, requests: object = None, state: object = None) -> None:
        super().__init__(message)
        self.requests, self.state = requests, state


class ToolChanged(UpstreamFailure):
    """The tool is not the one that was approved; `seen` is what stands there now, if anything."""

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
    """What a server said, as it may stand in a message of ours."""
    if not isinstance(text, str):
        return ""
    shown = "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"
