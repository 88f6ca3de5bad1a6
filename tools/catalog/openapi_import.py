"""Tools from an OpenAPI document: registered, or brought up to date where they are there already.

What the document says of a tool is taken from it each time; what people decided about the tool,
who may call it, when, how often and at what price, stays as they decided it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import transaction

from audit.actions import Actor
from tools.catalog.actions import changing, register_tool, update_tool
from tools.catalog.verified import check_current
from tools.definitions.openapi import BadDocument, Draft, drafts
from tools.definitions.openapi.drafts import SOURCE
from tools.definitions.tool import Definition, read_definition
from tools.errors import Malformed, ToolcribError
from tools.models import EgressCredential, Organization, Tool

MOST_CHANGES = 100
Row = dict[str, Any]
# Of a tool that is there already, the document decides these and no other field.
_DOCUMENTED = (
    *("title", "description", "parameters", "input_schema", "output_schema", "implementation"),
    "metadata",
)


def import_openapi(
    *,
    organization: Organization,
    document: Any,
    by: Actor,
    pick: Sequence[str] = (),
    group: list[str] | None = None,
    server: str | None = None,
    credentials: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> list[Row]:
    """A row for every operation that was picked: `key`, `name`, `result` (created, updated,
    unchanged or refused), `errors`, `changes` of a tool that is there, and `notes`.

    Each for itself: a bad one keeps no good one out. With `dry_run` everything is tried and
    nothing kept. Raises `Malformed` for what is no such document.
    """
    try:
        found = drafts(document, pick=pick, server=server, group=group, credentials=credentials)
    except BadDocument as error:
        raise Malformed(str(error), code="invalid_document") from None
    if not dry_run:
        return [_imported(organization, draft, group, by) for draft in found]
    with transaction.atomic():
        rows = [_imported(organization, draft, group, by) for draft in found]
        transaction.set_rollback(True)
    return rows


def _imported(organization: Organization, draft: Draft, group: list[str] | None, by: Actor) -> Row:
    row: Row = {"key": draft.key, "name": draft.name, "changes": [], "notes": [*draft.notes]}
    if draft.flaws:
        return row | {"result": "refused", "errors": [*draft.flaws]}
    try:
        with transaction.atomic():
            _check_credential(organization, draft)
            result, changes = _saved(organization, draft, group, by)
    except ToolcribError as error:
        errors = error.details.get("errors") or [{"field": "", "message": error.message}]
        return row | {"result": "refused", "errors": errors}
    return row | {"result": result, "errors": [], "changes": changes}


def _saved(
    organization: Organization, draft: Draft, group: list[str] | None, by: Actor
) -> tuple[str, list[dict[str, Any]]]:
    name = draft.definition["name"]
    tool = (
        Tool.objects.present()
        .select_related("version", "organization")
        .filter(organization=organization, name__iexact=name)
        .first()
    )
    if tool is None:
        register_tool(organization=organization, definition=draft.definition, by=by)
        return "created", []
    if not _difference(tool, draft, group)[1]:
        return "unchanged", []
    tool = changing(tool)  # what people decide meanwhile stands
    after, changes = _difference(tool, draft, group)
    update_tool(tool=tool, definition=after, by=by)
    return "updated", changes


def _difference(
    tool: Tool, draft: Draft, group: list[str] | None
) -> tuple[Definition, list[dict[str, Any]]]:
    check_current(tool)
    assert tool.version is not None
    before = tool.version.definition
    after = _merged(before, draft, group)
    return after, [*_changes(before, after, "")][:MOST_CHANGES]


def _merged(before: Definition, draft: Draft, group: list[str] | None) -> Definition:
    """The tool as the document has it now. Raises `Malformed` where it is none of its tools."""
    wanted = read_definition(draft.definition)
    known, new = before["metadata"], wanted["metadata"]
    if known.get("source") != SOURCE or known.get("document") != new["document"]:
        message = f"is the name of a tool that did not come from {new['document'] or 'it'!r}"
        raise _refused("name", f"{message}; rename or delete that one first")
    merged = {**before, **{field: wanted[field] for field in _DOCUMENTED}}
    merged["name"] = before["name"]
    merged["metadata"] = {**known, **new}
    if group is not None:
        merged["group"] = wanted["group"]
    if before["implementation"].get("method") != wanted["implementation"]["method"]:
        merged["delivery"], merged["constraints"] = wanted["delivery"], wanted["constraints"]
    return merged


def _check_credential(organization: Organization, draft: Draft) -> None:
    """Made beforehand, by somebody who has the secret. Raises `Malformed`."""
    name = draft.definition["implementation"].get("credential")
    if name is None:
        return
    row = EgressCredential.objects.filter(organization=organization, name=name).first()
    if row is None:
        message = (
            f"needs the credential {name} with the header {draft.header}: make it, and name it "
            "where the list of allowed hosts has the server"
        )
        raise _refused("implementation.credential", message)
    if row.header.lower() != draft.header.lower():
        message = f"{name} goes into the header {row.header}; the document wants {draft.header}"
        raise _refused("implementation.credential", message)


def _refused(field: str, message: str) -> Malformed:
    errors = [{"field": field, "message": message}]
    return Malformed("The operation was not imported.", code="not_imported", errors=errors)


def _changes(before: Any, after: Any, place: str) -> Iterator[dict[str, Any]]:
    """Every field that differs, by its path: `implementation.url`; lists are compared whole."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield {"field": place, "before": before, "after": after}
        return
    for name in dict.fromkeys([*before, *after]):
        inner = f"{place}.{name}" if place else name
        yield from _changes(before.get(name), after.get(name), inner)
