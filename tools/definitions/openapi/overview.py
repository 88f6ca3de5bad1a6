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
from tools.definitions.openapi.schemas import normalize_text
from tools.definitions.openapi.security import required_credential
from tools.definitions.openapi.servers import ServerVariable, server_variables

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
    variables: dict[str, ServerVariable] = field(default_factory=dict)


def read_overview(raw: Any) -> Overview:
    """Raises `BadDocument`."""
    document = OpenApiDescription(raw)
    operations = document.operations()
    servers = [text_in(one, "url") for one in list_in(document.raw, "servers")]
    return Overview(
        document.title,
        servers[0][:200] if servers else "",
        [
            *(_offered_operation(one) for one in operations),
            *(OfferedOperation(path, "", deprecated=False) for path in document.odd_paths),
        ],
        _credential_schemes(document, operations),
        server_variables(document),
    )


def _offered_operation(one: Operation) -> OfferedOperation:
    summary = text_in(one.own, "summary") or text_in(one.own, "description")
    said = normalize_text(summary, 200).replace("\n", " ")
    return OfferedOperation(one.key, said, one.own.get("deprecated") is True)


def _credential_schemes(
    document: OpenApiDescription, operations: list[Operation]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in operations:
        try:
            scheme = required_credential(document, one)
        except OperationFlaw:
            continue  # reported with the operation later
        if scheme and len(found) < MOST_SCHEMES:
            found.setdefault(*scheme)
    return found
