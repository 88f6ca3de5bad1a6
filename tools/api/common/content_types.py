from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from config.http.errors import encode_json
from tools.definitions.dialects import import_documents
from tools.definitions.values import strict_json


class StrictJSONParser(BaseParser):
    """JSON on which no two readers can disagree (API contract, "JSON at the edge")."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _, _, charset = (media_type or "").lower().partition("charset=")
        if charset and charset.partition(";")[0].strip(' "') not in {"utf-8", "utf8"}:
            raise UnsupportedMediaType(media_type or "")
        view = (parser_context or {}).get("view")
        most_values = getattr(view, "most_values", strict_json.MAX_VALUES)
        try:
            return strict_json.parse(_raw_body(stream, parser_context), most_values=most_values)
        except strict_json.BadJson as error:
            raise ParseError(f"The body cannot be used: {error}.") from None


class YamlParser(BaseParser):
    """YAML that is equivalent to JSON, for authors of chains."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        found = import_documents.parse_documents(
            import_documents.decode_document(_raw_body(stream, parser_context))
        )
        if len(found) != 1:
            raise ParseError("The body must hold one document.")
        return found[0].value


def _raw_body(stream: IO[Any], parser_context: Mapping[str, Any] | None) -> Any:
    """As it was read, whole, before anything else happened (config/http/request_bodies.py)."""
    request = (parser_context or {}).get("request")
    return stream.read() if request is None else request.body


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
