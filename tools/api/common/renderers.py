from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer

from config.http.errors import encode_json


class JSONRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else encode_json(data)


class EventStreamRenderer(BaseRenderer):
    """Named so that `Accept: text/event-stream` is understood; the stream writes itself."""

    media_type = "text/event-stream"
    format = "events"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return encode_json(data)
