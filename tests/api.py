"""The REST API as a client sees it."""

import json
from typing import Any

from django.http import HttpResponse
from django.test import Client

BASE = "/api/v1"


class Api:
    """Calls with one token. What comes back is Django's response; `.json()` is its body."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._client = Client()

    def __getattr__(self, method: str) -> Any:
        def call(path: str, body: Any = None, **headers: str) -> HttpResponse:
            content = {} if body is None else {"data": json.dumps(body)}
            return self._client.generic(
                method.upper(),
                f"{BASE}{path}",
                content_type="application/json",
                headers={"Authorization": f"Bearer {self.token}", **headers},
                **content,
            )

        return call

    def execute(self, tool: str, parameters: Any = None, **body: Any) -> HttpResponse:
        return self.post(f"/tools/{tool}/execute", {"parameters": parameters or {}, **body})
