"""Imports tools from an OpenAPI document: registers them, or updates the existing ones.

Each import updates a tool's fields that come from the document; people's settings of the tool, such
as who may call it, when, how often and at what price, are kept. Another method or URL is a change
of the upstream, which a person has to approve.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.actions import Actor
from tools.catalog.actions import changing, register_tool, update_tool
from tools.catalog.imports.import_results import CREATED, REFUSED, REVIEW, UNCHANGED, UPDATED
from tools.catalog.locked_catalog import LockedCatalog
from tools.catalog.signatures import drift
from tools.catalog.signatures.version_signatures import check_current
from tools.definitions.openapi import (
    BadOpenApiDocument,
    OperationDraft,
    draft_operations,
    operation_identity,
)
from tools.definitions.openapi.operations import LONGEST_NAME, OPENAPI_SOURCE
from tools.definitions.texts.names import with_digest
from tools.definitions.tool import Definition, read_definition
from tools.errors import Malformed, ToolcribError
from tools.models import Decision, Organization, Tool, UpstreamChange

MOST_CHANGES = 100
Row = dict[str, Any]
# The only fields of an existing tool that the document decides.
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
    variables: Mapping[str, str] | None = None,
    credentials: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> list[Row]:
    """A row for every operation that was picked: `key`, `name`, `result` (created, updated,
    unchanged, review or refused), `errors`, `changes` of a tool that is there, and `notes`.

    Each is imported by itself, so that an invalid one does not stop the others. With `dry_run`
    everything is tried and rolled back. Raises `Malformed` for what is no such document.
    """
    try:
        found = draft_operations(
            document, pick=pick, server=server, variables=variables, group=group,
            credentials=credentials,
        )  # fmt: skip
    except BadOpenApiDocument as error:
        raise Malformed(str(error), code="invalid_document") from None
    work = _OpenApiImport(organization, group, by, moved=bool(server or variables))
    if not dry_run:
        return [work.imported(draft) for draft in found]
    with transaction.atomic():
        work.catalog = LockedCatalog.for_many(work.organization, by)
        rows = [work.imported(draft) for draft in found]
        transaction.set_rollback(True)
    return rows


@dataclass
class _OpenApiImport:
    """`moved`: whether this import sets the server's URL. `catalog`: where everything is one
    transaction."""

    organization: Organization
    group: list[str] | None
    by: Actor
    moved: bool
    catalog: LockedCatalog | None = None
    headers: dict[str, str] = field(init=False)  # of credentials, by their names
    names: dict[str, UUID] = field(init=False)  # of tools, without a difference of case
    operations: dict[tuple[str, str], list[tuple[str, UUID]]] = field(init=False)
    waiting: set[UUID] = field(init=False)  # tools of which a change is not approved

    def __post_init__(self) -> None:
        """Data that is read once for all operations of an import."""
        rows = Organization.objects.prefetch_related("egress_credentials")
        self.organization = rows.get(pk=self.organization.pk)
        here = {"organization": self.organization}
        self.headers = {one.name: one.header for one in self.organization.egress_credentials.all()}
        self.names, self.operations = {}, defaultdict(list)
        tools = Tool.objects.present().filter(**here).order_by("created_at", "id")
        for pk, name, known in tools.values_list("pk", "name", "version__definition__metadata"):
            self.names[name.casefold()] = pk
            if isinstance(known, dict) and known.get("source") == OPENAPI_SOURCE:
                place = str(known.get("document")), operation_identity(str(known.get("operation")))
                self.operations[place].append((name, pk))
        decisions = (Decision.OPEN, Decision.REJECTED)
        changes = UpstreamChange.objects.filter(
            tool__organization=self.organization, decision__in=decisions
        )
        self.waiting = set(changes.values_list("tool_id", flat=True))

    def imported(self, draft: OperationDraft) -> Row:
        row: Row = {"key": draft.key, "name": draft.name, "changes": [], "notes": [*draft.notes]}
        if draft.flaws:
            return row | {"result": REFUSED, "errors": [*draft.flaws]}
        try:
            self._check_credential(draft)
            return row | {"errors": []} | self._saved(draft)
        except ToolcribError as error:
            errors = error.field_errors()
            return row | {"result": REFUSED, "errors": errors}

    def _saved(self, draft: OperationDraft) -> Row:
        pk = self._tool_of(draft)
        if pk is None and draft.name.casefold() in self.names:
            draft = self._disambiguate_name(draft)
        pk = pk or self.names.get(draft.name.casefold())
        if pk is None:
            made = register_tool(
                organization=self.organization,
                definition=draft.definition,
                by=self.by,
                catalog=self.catalog,
            )
            self.names[made.name.casefold()] = made.pk
            return {"name": made.name, "result": CREATED}
        tool = Tool.objects.present().select_related("version", "organization").get(pk=pk)
        with transaction.atomic():
            return {"name": tool.name} | self._changed(tool, draft)

    def _tool_of(self, draft: OperationDraft) -> UUID | None:
        """The tool that this operation became, whatever its name is."""
        title = draft.definition["metadata"]["document"]
        found = self.operations.get((title, operation_identity(draft.key)), [])
        own = [pk for name, pk in found if name.casefold() == draft.name.casefold()]
        return next(iter(own), found[0][1] if found else None)

    def _disambiguate_name(self, draft: OperationDraft) -> OperationDraft:
        """The definition, with another name where its name is that of another operation's tool."""
        title, pk = draft.definition["metadata"]["document"], self.names[draft.name.casefold()]
        other = any(
            pk in {one for _, one in self.operations.get((title, known), [])}
            for known in draft.operations
        )
        if not other:
            return draft
        name = with_digest(draft.name, draft.key, longest=LONGEST_NAME)
        return replace(draft, name=name, definition={**draft.definition, "name": name})

    def _changed(self, tool: Tool, draft: OperationDraft) -> Row:
        after, changes = _difference(tool, draft, self.group)
        if not changes and tool.pk not in self.waiting:
            return {"result": UNCHANGED}
        assert tool.version is not None
        if changes and _leads_elsewhere(tool.version.definition, after, moved=self.moved):
            return {"changes": changes} | self._reviewed(tool, after)
        tool = changing(tool)  # concurrent decisions of people are kept
        after, changes = _difference(tool, draft, self.group)
        tool = update_tool(tool=tool, definition=after, by=self.by)
        if tool.pk in self.waiting:  # the document has the approved definition again
            drift.note_upstream(tool=tool, seen=after, by=self.by)
        return {"result": UPDATED if changes else UNCHANGED, "changes": changes}

    def _reviewed(self, tool: Tool, after: Definition) -> Row:
        change = drift.note_upstream(tool=tool, seen=after, by=self.by)
        if change is not None and change.decision == Decision.REJECTED:
            raise _refused("operation", "is a change of its tool that a person has rejected")
        note = (
            "The tool would ask for something else under its name. It stays as it was approved "
            "until a person has approved the change."
        )
        return {"result": REVIEW, "notes": [note]}

    def _check_credential(self, draft: OperationDraft) -> None:
        """Made beforehand, by a holder of the secret. Raises `Malformed`."""
        name = draft.definition["implementation"].get("credential")
        if name is None:
            return
        header = self.headers.get(name)
        if header is None:
            message = (
                f"needs the credential {name} with the header {draft.header}: make it, and name "
                "it where the list of allowed hosts has the server"
            )
            raise _refused("implementation.credential", message)
        if header.lower() != draft.header.lower():
            message = f"{name} goes into the header {header}; the document wants {draft.header}"
            raise _refused("implementation.credential", message)


def _leads_elsewhere(before: Definition, after: Definition, *, moved: bool) -> bool:
    """Whether calls would have another method or URL than a person approved. Names of path
    parameters make no difference."""
    old, new = before["implementation"], after["implementation"]
    if old.get("method") != new["method"]:
        return True
    known = before["metadata"].get("operation")
    if known and operation_identity(str(known)) != operation_identity(
        after["metadata"]["operation"]
    ):
        return True
    return not moved and operation_identity(str(old.get("url"))) != operation_identity(new["url"])


def _difference(
    tool: Tool, draft: OperationDraft, group: list[str] | None
) -> tuple[Definition, list[dict[str, Any]]]:
    check_current(tool)
    assert tool.version is not None
    before = tool.version.definition
    after = _merged(before, draft, group)
    return after, [*_changes(before, after, "")][:MOST_CHANGES]


def _merged(before: Definition, draft: OperationDraft, group: list[str] | None) -> Definition:
    """The tool as the document has it now. Raises `Malformed` where it is none of its tools."""
    wanted = read_definition(draft.definition)
    known, new = before["metadata"], wanted["metadata"]
    if known.get("source") != OPENAPI_SOURCE or known.get("document") != new["document"]:
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
