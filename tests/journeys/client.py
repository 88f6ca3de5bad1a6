"""The product over real HTTP, as a program elsewhere would call it: the standard library only."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: http.client.HTTPMessage
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Http:
    """Calls one crib with one token. `Transfer-Encoding="chunked"` sends the body so; `source` is
    the client's own address."""

    def __init__(self, url: str, token: str = "", source: str = "127.0.0.1") -> None:
        self._place = urlsplit(url).netloc
        self._source = source
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        with self._sent(method, path, body, headers) as response:
            return Answer(response.status, response.headers, response.read())

    def execute(self, tool: str, parameters: Any = None, **body: Any) -> Answer:
        return self(
            "POST", f"/api/v1/tools/{tool}/execute", {"parameters": parameters or {}, **body}
        )

    @contextmanager
    def events(
        self, path: str, body: Any = None, **headers: str
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a stream, as they come; with a body they answer what it asks for."""
        method, wanted = "POST" if body else "GET", {"Accept": "text/event-stream", **headers}
        with self._sent(method, path, body, wanted) as response:
            assert response.status == 200, response.read()
            yield _parsed(response)

    @contextmanager
    def _sent(
        self, method: str, path: str, body: Any, headers: dict
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(
            self._place, timeout=40, source_address=(self._source, 0)
        )
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content is not None else {}
        try:
            chunked = headers.get("Transfer-Encoding") == "chunked"
            pieces = iter([content[:3], content[3:]]) if chunked and content else content
            connection.request(
                method,
                path,
                pieces,
                {**self._headers, **kind, **headers},
                encode_chunked=chunked,
            )
            yield connection.getresponse()
        finally:
            connection.close()


def _parsed(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for raw in response:
        line = raw.decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value
        elif event:
            yield event
            event = {}
