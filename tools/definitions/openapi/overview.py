"""The overview of an OpenAPI document that a person chooses operations from before an import."""

from dataclasses import dataclass, field
from typing import Any

from tools.definitions.openapi.document import (
    OpenApiDescription,
    Operation,
    OperationFlaw,
    list_in,
    text_in,
)
from tools.definitions.openapi.schemas import plain_text
from tools.definitions.openapi.security import needed
from tools.definitions.openapi.servers import Variable, variables_of

MOST_SCHEMES = 20


@dataclass(frozen=True)
class OfferedOperation:
    """One operation. `key` is what picks it: `GET /path`, or the path alone where it cannot be
    read."""

    key: str
    summary: str
    deprecated: bool


@dataclass(frozen=True)
class Overview:
    """`schemes`: the names of its credentials, and the header of each; `variables`: the variables
    in the URLs of its servers."""

    title: str
    address: str
    operations: list[OfferedOperation]
    schemes: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def overview(raw: Any) -> Overview:
    """Raises `BadDocument`."""
    document = OpenApiDescription(raw)
    operations = document.operations()
    servers = [text_in(one, "url") for one in list_in(document.raw, "servers")]
    return Overview(
        document.title,
        servers[0][:200] if servers else "",
        [
            *(_offered(one) for one in operations),
            *(OfferedOperation(path, "", deprecated=False) for path in document.odd_paths),
        ],
        _schemes(document, operations),
        variables_of(document),
    )


def _offered(one: Operation) -> OfferedOperation:
    summary = text_in(one.own, "summary") or text_in(one.own, "description")
    said = plain_text(summary, 200).replace("\n", " ")
    return OfferedOperation(one.key, said, one.own.get("deprecated") is True)


def _schemes(document: OpenApiDescription, operations: list[Operation]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in operations:
        try:
            scheme = needed(document, one)
        except OperationFlaw:
            continue  # reported with the operation later
        if scheme and len(found) < MOST_SCHEMES:
            found.setdefault(*scheme)
    return found
