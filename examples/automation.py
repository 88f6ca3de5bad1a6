"""Administration by a script, over a connection that may break at any byte.

Where no whole answer arrived, the request may have been carried out or not. So every POST has an
idempotency key, every change the tag under which its thing was read, and the same request is sent
again until one answer arrives whole. Only the standard library is needed.
"""

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

ATTEMPTS = 12
LOST = (OSError, http.client.HTTPException)  # http.client has both for a broken connection
NOT_NOW = frozenset({409, 429, 503})  # where the answer has `Retry-After`


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    content: bytes
    repeated: bool  # an earlier attempt may have been carried out

    @property
    def tag(self) -> str:
        return str(self.headers["ETag"])

    @property
    def shape(self) -> Any:
        return json.loads(self.content) if self.content else None


class Refused(Exception):
    """The API said no, and would say so again."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} {answer.content.decode(errors='replace')[:500]}")
        self.answer = answer


class Crib:
    """The API as one account; `headers` beside its token are for a browser's session."""

    def __init__(
        self,
        url: str,
        token: str = "",
        headers: dict[str, str] | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        place = urlsplit(url)
        secure = place.scheme == "https"
        self._connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._place, self._pause = place.netloc, pause
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers |= headers or {}

    def get(self, path: str) -> Answer:
        return _done(self._send("GET", path))

    def post(self, path: str, body: Any = None, *, key: str = "", tag: str = "") -> Answer:
        """Do it once. A script that may be started again keeps its keys, or derives them from its
        job: `close-books-2026-01/create-agent`. With a `tag`, 412 is for the caller to decide."""
        conditions = {"Idempotency-Key": key or str(uuid4())} | ({"If-Match": tag} if tag else {})
        return _done(self._send("POST", path, body, conditions))

    def change(
        self,
        path: str,
        wanted: dict[str, Any],
        *,
        unseen: dict[str, Any] | None = None,
        method: str = "PATCH",
    ) -> Any:
        """The thing with every member of `wanted` in it, and of `unseen`: secrets, which no answer
        shows.

        412 says that it is another by now. That may be this very change, whose answer was lost:
        then nothing is left to do. Otherwise it is made on what is there now.
        """
        read = self.get(path)
        for _ in range(ATTEMPTS):
            answer = self._send(method, path, wanted | (unseen or {}), {"If-Match": read.tag})
            if answer.status != 412:
                return _done(answer).shape
            read = self.get(path)
            if answer.repeated and holds(read.shape, wanted):
                return read.shape
        raise Refused(answer)

    def delete(self, path: str, tag: str = "*") -> None:
        """404 says that it is gone. After a lost answer that was this very request."""
        answer = self._send("DELETE", path, None, {"If-Match": tag})
        if not (answer.repeated and answer.status == 404):
            _done(answer)

    def finished(self, answer: Answer) -> Any:
        """A call at its end: 202 is followed at its `Location`."""
        while answer.status == 202:
            answer = self.get(f"{answer.headers['Location']}?wait_s=30")
        return answer.shape

    def _send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """The first whole answer that is no `NOT_NOW`; the same bytes each time."""
        content = None if body is None else json.dumps(body).encode()
        typed = {} if content is None else {"Content-Type": "application/json"}
        repeated, problem = False, ""
        for attempt in range(ATTEMPTS):
            wait_s: float = min(0.1 * 2**attempt, 10)
            try:
                answer = self._once(
                    method, path, content, self._headers | typed | (headers or {}), repeated
                )
            except LOST as error:
                repeated, problem = True, repr(error)
            else:
                if answer.status not in NOT_NOW or "Retry-After" not in answer.headers:
                    return answer
                wait_s = float(answer.headers["Retry-After"])
                problem = str(answer.status)
            self._pause(wait_s)
        raise ConnectionError(f"{method} {path} {ATTEMPTS} times in vain, at last: {problem}")

    def _once(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: dict[str, str],
        repeated: bool,
    ) -> Answer:
        connection = self._connect(self._place, timeout=90)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            # http.client takes a head that was cut off for a whole one. An answer of the API has a
            # length, comes in chunks, or has no body by its status.
            if response.length is None and not response.chunked:
                raise http.client.IncompleteRead(b"")
            return Answer(response.status, response.headers, response.read(), repeated)
        finally:
            connection.close()


def holds(shape: Any, wanted: Any) -> bool:
    """Whether all that was wanted stands there, whatever stands beside it."""
    if isinstance(wanted, dict):
        return isinstance(shape, dict) and all(
            name in shape and holds(shape[name], one) for name, one in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(shape, list):
        return len(shape) == len(wanted) and all(map(holds, shape, wanted))
    return bool(shape == wanted)


def _done(answer: Answer) -> Answer:
    if answer.status >= 300:
        raise Refused(answer)
    return answer
