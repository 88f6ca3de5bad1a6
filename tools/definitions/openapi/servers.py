"""The server URL of an operation, as the administrator or the document names it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tools.definitions.openapi.document import (
    BadOpenApiDocument,
    OpenApiDescription,
    Operation,
    OperationFlaw,
    list_in,
    names_in,
    object_in,
    text_in,
)

MOST_VARIABLES = 20
_TEMPLATE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class ServerVariable:
    """A variable in a URL. `allowed` is empty where every value is allowed."""

    name: str
    default: str
    allowed: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class OpenApiServers:
    """`server` is a URL in place of the document's own, `given` the values of its variables.

    Raises `BadOpenApiDocument` for a value without a variable.
    """

    document: OpenApiDescription
    server: str | None
    given: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.given:
            return
        known = server_variables(self.document)
        for name, value in self.given.items():
            if name not in known:
                said = ", ".join(known) or "it has none"
                raise BadOpenApiDocument(
                    f"No server of the document has the variable {name[:60]!r}; known: {said}."
                )
            allowed = known[name].allowed
            if allowed and value not in allowed:
                raise BadOpenApiDocument(
                    f"The variable {name[:60]!r} of the server must be one of "
                    f"{', '.join(allowed)[:200]}."
                )

    def of(self, operation: Operation) -> str:
        """The first of the nearest list. Raises `OperationFlaw`."""
        if self.server:
            return self.server
        for owner in (operation.own, operation.shared, self.document.raw):
            for server in list_in(owner, "servers")[:1]:
                url = self._filled(text_in(server, "url"), object_in(server, "variables"))
                if not urlsplit(url).netloc:
                    raise OperationFlaw(
                        f"its server is {url[:100]!r}, which names no host; say which server"
                    )
                return url
        raise OperationFlaw("the document names no server; say which")

    def _filled(self, url: str, variables: dict[str, Any]) -> str:
        return _TEMPLATE.sub(lambda one: self._value(variables, one[1]), url)

    def _value(self, variables: dict[str, Any], name: str) -> str:
        value = self.given.get(name, object_in(variables, name).get("default"))
        if not isinstance(value, str):
            raise OperationFlaw(
                f"the variable {name[:60]!r} of its server has no default; give it a value, or "
                "say which server"
            )
        return value


def server_variables(document: OpenApiDescription) -> dict[str, ServerVariable]:
    """The variables in the URL of the server, by name."""
    found: dict[str, ServerVariable] = {}
    for server in _first_servers(document):
        described = object_in(server, "variables")
        for name in _TEMPLATE.findall(text_in(server, "url")):
            raw = object_in(described, name)
            if len(found) < MOST_VARIABLES:
                allowed = tuple(names_in(raw, "enum"))
                said = text_in(raw, "description")[:200]
                found.setdefault(name, ServerVariable(name, text_in(raw, "default"), allowed, said))
    return found


def _first_servers(document: OpenApiDescription) -> Iterator[Any]:
    yield from list_in(document.raw, "servers")[:1]
    for operation in document.operations():
        for owner in (operation.own, operation.shared):
            yield from list_in(owner, "servers")[:1]
