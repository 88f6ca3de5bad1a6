from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser

from tools.definitions import strict_json
from tools.definitions.dialects import documents


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
        try:
            # Django's own reading of the body keeps its size within bounds; the stream's would not.
            request = (parser_context or {}).get("request")
            return strict_json.parse(stream.read() if request is None else request.body)
        except strict_json.BadJson as error:
            raise ParseError(f"The body cannot be used: {error}.") from None


class YamlParser(BaseParser):
    """YAML that says the same as JSON, for those who write chains."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        request = (parser_context or {}).get("request")
        raw = stream.read() if request is None else request.body
        found = documents.read(documents.decoded(raw))
        if len(found) != 1:
            raise ParseError("The body must hold one document.")
        return found[0].value
