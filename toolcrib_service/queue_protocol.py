"""The wire format between Toolcrib and a tool service: names of streams, requests and answers.
Pure.

A request is one entry of the queue's stream: `id`, `token`, `deadline_ms` and the envelope of
specification S2 (`user`, `config`, `arguments`) as JSON. Its answers are entries of a stream that
Toolcrib makes for this one call: `id`, `token`, a count `n` from 1, and `error`, `response`,
`end_of_stream` as JSON. All keys of an organization begin with its own prefix, so that a broker's
user can be confined to it.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GROUP = "service"
MAX_REQUEST = 16 * 1024 * 1024  # characters of an envelope
CHUNK = 64 * 1024  # characters of one answer; a longer text is sent in several
KEPT_MS = 60_000  # how long marks of a call outlive its deadline
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ID = re.compile(r"[0-9a-f]{32}")
_DIGITS = re.compile(r"[0-9]{1,15}")


class Malformed(ValueError):
    """An invalid entry; the text says why."""


def key_prefix(organization: str) -> str:
    """Of all keys of an organization's services."""
    if not _SLUG.fullmatch(organization):
        raise Malformed("an organization's name has lower-case letters, digits and hyphens only")
    return f"toolcrib:{organization}:svc:"


def announcements_key(organization: str) -> str:
    """The stream of announcements."""
    return key_prefix(organization) + "announcements"


@dataclass(frozen=True, slots=True)
class Queue:
    """The keys behind a queue's name. The name itself may be anything, so it is hashed."""

    organization: str
    name: str

    @property
    def base(self) -> str:
        digest = hashlib.sha256(self.name.encode("utf-8", "replace")).hexdigest()
        return f"{key_prefix(self.organization)}{digest[:32]}"

    @property
    def requests(self) -> str:
        return f"{self.base}:requests"

    @property
    def accepting(self) -> str:
        """Processes that take requests, each with the time until which it is believed."""
        return f"{self.base}:accepting"

    @property
    def alive(self) -> str:
        """Processes that may be working on one, including stopping ones."""
        return f"{self.base}:alive"

    @property
    def served(self) -> str:
        """Digests of announcements of live processes."""
        return f"{self.base}:served"

    def claim(self, call: str) -> str:
        """The owner of the request: a process, or `WITHDRAWN`. The first writer has it."""
        return f"{self.base}:claim:{call}"

    def cancel(self, call: str) -> str:
        return f"{self.base}:cancel:{call}"

    def replies(self, call: str) -> str:
        return f"{self.base}:replies:{call}"


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    token: str
    deadline_ms: int  # by the broker's clock
    user: str
    config: dict[str, Any]
    arguments: dict[str, Any]

    def envelope(self) -> str:
        """As specification S2 has it: `config` and `arguments` are JSON texts in it."""
        envelope = {
            "user": self.user,
            "config": json.dumps(self.config),
            "arguments": json.dumps(self.arguments),
        }
        return json.dumps(envelope)

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> "Request":
        """Raises `Malformed`."""
        call, deadline = fields.get("id", ""), fields.get("deadline_ms", "")
        if not _ID.fullmatch(call) or not _DIGITS.fullmatch(deadline):
            raise Malformed("a request has an id and a deadline")
        body = fields.get("body", "")
        if len(body) > MAX_REQUEST:
            raise Malformed("a request is too long")
        envelope = _json_object(body, "envelope")
        user = envelope.get("user")
        if not isinstance(user, str):
            raise Malformed("an envelope names its user")
        config, arguments = (
            _json_object(envelope.get(name), name) for name in ("config", "arguments")
        )
        return cls(call, fields.get("token", ""), int(deadline), user, config, arguments)


@dataclass(frozen=True, slots=True)
class Response:
    response: str = ""
    end_of_stream: bool = False
    error_type: str | None = None  # None where there is no error
    error_message: str = ""

    def fields(self, request: Request, n: int) -> dict[str, str]:
        error = None
        if self.error_type is not None:
            error = {"type": self.error_type, "message": self.error_message}
        answer = {"error": error, "response": self.response, "end_of_stream": self.end_of_stream}
        return {"id": request.id, "token": request.token, "n": str(n), "body": json.dumps(answer)}

    @classmethod
    def read(cls, body: str, parse: Callable[[str], Any]) -> "Response":
        """Raises `Malformed`, and what `parse` raises."""
        answer = parse(body)
        if not isinstance(answer, dict):
            raise Malformed("an answer is an object")
        error, text = answer.get("error"), answer.get("response", "")
        end = answer.get("end_of_stream", False)
        if not isinstance(text, str) or not isinstance(end, bool):
            raise Malformed("response is a text and end_of_stream is true or false")
        if error is None:
            return cls(text, end)
        if not isinstance(error, dict):
            raise Malformed("an error has a type and a message")
        kind, message = error.get("type", ""), error.get("message", "")
        if not isinstance(kind, str) or not isinstance(message, str):
            raise Malformed("an error has a type and a message, both texts")
        return cls(text, True, kind, message)


def shorten_error(response: Response) -> Response:
    """An error ends the stream, and its message is cut to the length of one answer."""
    if response.error_type is None:
        return response
    return Response("", True, response.error_type, split_text(response.error_message)[0])


def broker_message(place: str, fields: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """An entry as a message of other brokers: the id is its correlation, the body its body."""
    headers = {name: fields[name] for name in ("token", "deadline_ms", "n") if name in fields}
    return {
        "body": fields["body"],
        "routing_key": place,
        "correlation_id": fields["id"],
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": headers,
        **more,
    }


def message_fields(message: Any) -> dict[str, str]:
    """A message of another broker as an entry; values that are no text are left out."""
    body = message.body
    if isinstance(body, bytes | memoryview):
        body = bytes(body).decode("utf-8", "replace")
    known = dict(message.headers or {})
    properties = dict(message.properties or {})
    known |= {"id": properties.get("correlation_id"), "reply_to": properties.get("reply_to")}
    known["body"] = body
    names = ("id", "token", "deadline_ms", "n", "reply_to", "body")
    return {name: value for name in names if isinstance(value := known.get(name), str)} | {
        "reply_to": known["reply_to"] if isinstance(known["reply_to"], str) else ""
    }


def as_text(value: Any) -> str:
    """A text unchanged, other values as JSON; without characters that strict readers refuse."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def split_text(text: str) -> list[str]:
    """At least one, each short enough for one answer."""
    return [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)] or [""]


def _json_object(text: Any, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise Malformed(f"{what} is no JSON text") from None
    if not isinstance(value, dict):
        raise Malformed(f"{what} is no JSON object")
    return value
