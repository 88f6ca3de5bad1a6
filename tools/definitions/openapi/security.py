"""Security requirements of an operation: the one credential that its requests need."""

from typing import Any

from tools.definitions.implementations.http import CREDENTIAL_NAME
from tools.definitions.openapi.document import (
    OpenApiDescription,
    Operation,
    OperationFlaw,
    object_in,
    text_in,
)
from tools.definitions.openapi.parameters import argument_name

RequiredCredential = tuple[str, str]  # the scheme's name, and the header it goes into


def required_credential(
    document: OpenApiDescription, operation: Operation
) -> RequiredCredential | None:
    """The first alternative that a credential can satisfy. Raises `OperationFlaw`."""
    wanted = operation.own.get("security", document.raw.get("security"))
    if not wanted or not isinstance(wanted, list):
        return None
    reasons = []
    for alternative in wanted:
        if alternative == {}:
            return None
        try:
            return _read_alternative(document, alternative)
        except OperationFlaw as reason:
            reasons.append(str(reason))
    raise OperationFlaw("it needs " + ", or ".join(reasons))


def _read_alternative(document: OpenApiDescription, alternative: Any) -> RequiredCredential:
    if not isinstance(alternative, dict) or len(alternative) != 1:
        raise OperationFlaw("several credentials at once, and a tool has one")
    (name,) = alternative
    schemes = object_in(object_in(document.raw, "components"), "securitySchemes")
    scheme = document.resolved(schemes.get(name))
    return _credential_name(name), _credential_header(name, scheme)


def _credential_header(name: str, scheme: dict[str, Any]) -> str:
    kind, place = text_in(scheme, "type"), text_in(scheme, "in")
    if kind == "apiKey" and place == "header":
        return text_in(scheme, "name")
    if kind == "apiKey" and place == "query":
        raise OperationFlaw(f"{name[:60]}, a key in the URL: secrets never stand in URLs")
    if kind == "http" and text_in(scheme, "scheme").lower() in {"basic", "bearer"}:
        return "Authorization"
    if kind in {"oauth2", "openIdConnect"}:
        return "Authorization"
    raise OperationFlaw(
        f"{name[:60]}, which is {kind[:40] or 'nothing'} in {place[:40] or 'no place'}"
    )


def _credential_name(name: str) -> str:
    return name if CREDENTIAL_NAME.fullmatch(name) else argument_name(name)[:63]
