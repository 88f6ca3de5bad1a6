"""Imports tools, services and servers of any format into the catalog.

One transaction for the whole, a savepoint for each item; services and servers go before the tools
that name them. A dry run does all of it and takes it back, so that it answers what would happen.
What is there already, as it is wanted, is not written again.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DataError, IntegrityError, transaction
from django.db.models import QuerySet

from audit.actions import Actor
from tools.catalog import actions
from tools.catalog.imports.import_results import (
    CREATED,
    REFUSED,
    UNCHANGED,
    UPDATED,
    ItemImportResult,
    check_first,
    check_identifier,
    error_at,
    errors_of,
    is_unchanged_server,
    is_unchanged_service,
    keyed_fields,
    known_sources,
    name_of,
    prompt_id,
    save_server,
    save_service,
    stronger,
    titled,
    with_key,
    written_fields,
)
from tools.catalog.signatures.version_signatures import trusted
from tools.definitions.descriptors import Flaws
from tools.definitions.dialects.import_entries import ImportItem, ImportItemKind
from tools.definitions.dialects.import_references import (
    KnownReferences,
    read_prompt,
    resolve_references,
    server_field,
)
from tools.definitions.servers import read_server
from tools.definitions.services import read_service
from tools.definitions.texts import names
from tools.definitions.tool import definition_digest, read_definition
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition, ToolcribError
from tools.models import Organization, Tool, ToolStatus

_BY_COMMAND = "system:command:"  # of a version that a command wrote


@dataclass(frozen=True)
class ImportOptions:
    """How an import is done."""

    group: list[str] | None = None  # of the tools that name none; None leaves them as they are
    server: str = ""  # for tools of a server that name none
    dry_run: bool = False
    atomic: bool = False


class _RolledBack(Exception):
    """Rolls back the transaction."""


def import_items(
    *,
    organization: Organization,
    items: list[ImportItem],
    by: Actor,
    way: ImportOptions | None = None,
) -> list[ItemImportResult]:
    """The result of each item, in order."""
    way = way or ImportOptions()
    work = _ItemImport(organization, by, way, known_sources(organization))
    try:
        with transaction.atomic():
            found = work.perform(items)
            refused = sum(one.result == REFUSED for one in found)
            if way.dry_run or (way.atomic and refused):
                raise _RolledBack
    except _RolledBack:
        pass
    return _nothing_written(found, items, refused) if way.atomic and refused else found


def has_changed(items: list[ImportItem], done: list[ItemImportResult]) -> bool:
    """Whether an existing tool was changed."""
    pairs = zip(items, done, strict=True)
    return any(one.result == UPDATED and item.kind == ImportItemKind.TOOL for item, one in pairs)


def _nothing_written(
    found: list[ItemImportResult], items: list[ImportItem], refused: int
) -> list[ItemImportResult]:
    others = f"{refused} other item{'s were' if refused > 1 else ' was'}"
    message = f"nothing of this import was written: {others} refused"
    return [
        one
        if one.result in {REFUSED, UNCHANGED}
        else replace(one, result=REFUSED, errors=[error_at("", message, item)])
        for one, item in zip(found, items, strict=True)
    ]


@dataclass
class _ItemImport:
    organization: Organization
    by: Actor
    way: ImportOptions
    known: KnownReferences
    claimed: frozenset[str] = frozenset()  # identifiers of the tools of this import
    findings: Flaws = field(default_factory=list)  # of the item whose turn it is
    saved: Tool | None = None  # likewise
    used: dict[str, str] = field(default_factory=dict)  # by prompt: the result of a tool with it

    def perform(self, items: list[ImportItem]) -> list[ItemImportResult]:
        done: dict[int, ItemImportResult] = {}
        self._learn(items)
        self.claimed = frozenset(
            one.id for one in items if one.kind == ImportItemKind.TOOL and one.keyed
        )
        seen: dict[tuple[ImportItemKind | None, str], ImportItem] = {}
        for kind in (
            ImportItemKind.SERVICE,
            ImportItemKind.SERVER,
            ImportItemKind.TOOL,
            ImportItemKind.PROMPT,
            None,
        ):
            for at, item in enumerate(items):
                if item.kind == kind:
                    done[at] = self._guarded(item, seen)
        found = [done[at] for at in range(len(items))]
        note_same_titles(self.organization, items, found)
        return found

    def _learn(self, items: list[ImportItem]) -> None:
        """Prompts are parts of the tools that name them."""
        prompts, system = {}, ""
        for item in items:
            if item.kind != ImportItemKind.PROMPT or item.flaw or item.id == "template-index":
                continue
            if item.id == "system":
                system = item.value if isinstance(item.value, str) else ""
                continue
            try:
                prompts[prompt_id(item)] = read_prompt(item.value)
            except InvalidDefinition:
                continue  # reported with the item later
        self.known = replace(self.known, prompts=prompts, system=system, server=self.way.server)

    def _guarded(
        self, item: ImportItem, seen: dict[tuple[ImportItemKind | None, str], ImportItem]
    ) -> ItemImportResult:
        """Import one item, committed or rolled back by itself."""
        name, self.findings, self.saved = name_of(item), [], None
        try:
            if item.flaw:
                raise InvalidDefinition(item.flaw, errors=[])
            check_first(item, name, seen)
            with transaction.atomic():
                result = self._result(item)
            findings = [
                {"code": one["code"], **error_at(one["field"], one["message"], item)}
                for one in self.findings
            ]
            name = self.saved.name if self.saved else name
            return ItemImportResult(item.key, name, result, [], findings)
        except ToolcribError as error:
            return ItemImportResult(item.key, name, REFUSED, errors_of(error, item))
        except (DataError, IntegrityError):
            message = "could not be stored: a value of it cannot be used, or changed meanwhile"
            return ItemImportResult(item.key, name, REFUSED, [error_at("", message, item)])

    def _result(self, item: ImportItem) -> str:
        kinds: dict[ImportItemKind, Callable[[ImportItem], str]] = {
            ImportItemKind.SERVICE: self._service,
            ImportItemKind.SERVER: self._server,
            ImportItemKind.TOOL: self._tool,
            ImportItemKind.PROMPT: self._prompt,
        }
        assert item.kind is not None
        return kinds[item.kind](item)

    def _service(self, item: ImportItem) -> str:
        check_identifier(item, "id", required=True)
        value = with_key(item, "id")
        try:
            descriptor = read_service(value)
        except InvalidDefinition as error:
            flaws = written_fields(error.details["errors"], value)
            raise InvalidDefinition(error.message, errors=flaws) from None
        result = UNCHANGED
        if not is_unchanged_service(self.organization, descriptor):
            created = save_service(
                organization=self.organization, descriptor=descriptor, by=self.by
            )
            result = CREATED if created else UPDATED
        there = {**self.known.services, descriptor["id"]: descriptor["config_params"]}
        self.known = replace(self.known, services=there)
        return result

    def _server(self, item: ImportItem) -> str:
        if item.keyed and isinstance(item.value, dict):
            check_identifier(item, "name", required=False)
        descriptor = read_server(item.value, item.id)
        result = UNCHANGED
        if not is_unchanged_server(self.organization, descriptor):
            created = save_server(organization=self.organization, descriptor=descriptor, by=self.by)
            result = CREATED if created else UPDATED
        there = {**self.known.servers, descriptor.name: descriptor.remote_name}
        self.known = replace(self.known, servers=there)
        return result

    def _tool(self, item: ImportItem) -> str:
        tool = tool_of(self.organization, item, self.claimed)
        if tool is None and item.keyed:
            self._note_same_name(item)
        raw, canonical = self._definition(item, tool)
        template = item.value.get("template")
        missing = self._missing_server(canonical, item)
        if missing:  # nothing enables it before its server is there
            raw = {key: value for key, value in raw.items() if key != "enabled"}
        if tool is None:
            tool = actions.register_tool(organization=self.organization, definition=raw, by=self.by)
            actions.set_switches(tool=tool, definition=raw, by=self.by)
            result = CREATED
        else:
            result = self._change(tool, raw, canonical)
        if self._hold(tool, missing) and result == UNCHANGED:
            result = UPDATED
        if item.keyed and tool.config_key != item.id:
            Tool.objects.filter(pk=tool.pk).update(config_key=item.id)
        self.saved = tool
        if isinstance(template, str):
            self.used[template] = stronger(self.used.get(template), result)
        return result

    def _note_same_name(self, item: ImportItem) -> None:
        other = _same_name(_present(self.organization), item, self.claimed)
        if other is not None:
            message = (
                f"is the name of another tool, and no import wrote {other.name}: both are kept. "
                f"Where they are one tool, delete {other.name} or import tool/{other.name}"
            )
            self.findings.append({"code": "name_of_another", "field": "name", "message": message})

    def _change(self, tool: Tool, raw: dict[str, Any], canonical: dict[str, Any]) -> str:
        """A new version, or the switches of the current one, where they differ."""
        version = tool.version
        assert version is not None
        if not trusted(tool):
            raise InvalidDefinition(
                f"The stored version of {tool.name} is not what was signed; an import cannot "
                "vouch for it. Restore a version or delete the tool first.",
                errors=[],
            )
        changed = definition_digest(canonical) != version.digest
        if changed:
            wanted = _unlabelled(raw) if _has_label(tool, raw.get("version")) else raw
            tool = actions.update_tool(tool=tool, definition=wanted, by=self.by)
        switched = actions.set_switches(tool=tool, definition=raw, by=self.by)
        return UPDATED if changed or switched else UNCHANGED

    def _missing_server(self, canonical: dict[str, Any], item: ImportItem) -> str:
        """Why a tool of an MCP server has to wait; "" where its server is there."""
        server = canonical["implementation"].get("server")
        if canonical["type"] != ToolType.MCP or server in self.known.servers:
            return ""
        named = server_field(item.value)
        reason = f"There is no MCP server {server}" if named else "It names no MCP server"
        code, place = ("server_missing", named) if named else ("server_unnamed", "mcp-tool")
        message = f"{reason}: the tool is pending. Add the server, then import the tool again."
        self.findings.append({"code": code, "field": place, "message": message})
        return f"{reason}. Add the server, then enable the tool."

    def _hold(self, tool: Tool, missing: str) -> bool:
        """Whether the tool began or ended to wait for its server."""
        tool.refresh_from_db(fields=["status"])
        if missing and tool.status == ToolStatus.ACTIVE:
            actions.set_pending(tool=tool, reason=missing, by=self.by)
            return True
        if not missing and tool.status == ToolStatus.PENDING:
            actions.set_enabled(tool=tool, enabled=True, by=self.by)
            return True
        return False

    def _definition(
        self, item: ImportItem, tool: Tool | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The definition to register, and its canonical form. Raises all errors at once."""
        value, wrong = with_key(item, "name"), Flaws()
        if item.keyed:
            value, wrong, noted = titled(item)
            self.findings += noted
            if tool is not None and tool.name != item.id:
                value["name"] = tool.name
                if not tool.config_key:
                    message = (
                        f"is the old name of this tool: an earlier version imported it as "
                        f"{tool.name}, and it keeps that name"
                    )
                    self.findings.append({"code": "old_name", "field": "name", "message": message})
        raw, flaws = resolve_references(value, self.known)
        flaws = wrong + flaws
        if self.way.group is not None and raw.get("group") is None:
            raw = raw | {"group": self.way.group}
        try:
            canonical = read_definition(raw)
        except InvalidDefinition as error:
            named = {flaw["field"] for flaw in flaws}
            read = [flaw for flaw in error.details["errors"] if flaw["field"] not in named]
            if item.keyed:
                read = keyed_fields(read, item)
            raise InvalidDefinition(error.message, errors=flaws + read) from None
        if flaws:
            raise InvalidDefinition("The definition was not accepted.", errors=flaws)
        return raw, canonical

    def _prompt(self, item: ImportItem) -> str:
        """Kept in the tools that name it, and nowhere else."""
        if item.id in {"system", "template-index"}:
            return UNCHANGED
        read_prompt(item.value)
        result = self.used.get(prompt_id(item))
        if result is None:
            raise InvalidDefinition(
                "A prompt is kept in the tools that name it; no tool of this import does.",
                errors=[],
            )
        return result


def _present(organization: Organization) -> QuerySet[Tool]:
    there = Tool.objects.present().select_related("version", "organization__tier")
    return there.filter(organization=organization)


def tool_of(
    organization: Organization, item: ImportItem, claimed: frozenset[str] = frozenset()
) -> Tool | None:
    """The tool that an item is about. A keyed one is found by its key, by its identifier, and by
    the `name` under which earlier versions imported it; `claimed` are identifiers of other items
    that have a better right to that name."""
    there = _present(organization)
    name = name_of(item)
    if not names.TOOL_NAME.fullmatch(name):
        return None
    if not item.keyed:
        return there.filter(name=name).first()
    found = there.filter(config_key=name).first() or there.filter(config_key="", name=name).first()
    old = None if found else _same_name(there, item, claimed)
    return old if old is not None and _imported_before(old, item) else found


def _same_name(there: QuerySet[Tool], item: ImportItem, claimed: frozenset[str]) -> Tool | None:
    """The tool whose name is the `name` of a keyed item, and which may be that item's."""
    value = item.value if isinstance(item.value, dict) else {}
    old, kind = value.get("name"), value.get("type")
    plain = isinstance(old, str) and names.TOOL_NAME.fullmatch(old) and isinstance(kind, str)
    if not plain or old in claimed or kind == ToolType.BUILTIN:
        return None
    found = there.filter(config_key="", name=old, type=kind).first()
    if found is None or found.version is None:
        return None
    return found if found.version.definition.get("title") in (None, value.get("title")) else None


def _imported_before(tool: Tool, item: ImportItem) -> bool:
    """Whether the tool is an earlier import of the item: a command of the operator wrote its first
    version, or that version has the item's description. What a person imported over REST looks
    like a registered tool otherwise."""
    first = tool.versions.order_by("number").first()
    if first is None:
        return False
    described = bool(first.definition["description"] == item.value.get("description"))
    return first.created_by.startswith(_BY_COMMAND) or described


def note_same_titles(
    organization: Organization, items: list[ImportItem], done: list[ItemImportResult]
) -> None:
    """A finding for each tool whose title another tool has too."""
    kept = {one.name for item, one in zip(items, done, strict=True)
            if item.kind == ImportItemKind.TOOL and one.result != REFUSED}  # fmt: skip
    if not kept:
        return
    by_title: dict[str, list[str]] = defaultdict(list)
    rows = Tool.objects.present().filter(organization=organization).order_by("name")
    for name, title in rows.values_list("name", "version__definition__title"):
        if title:
            by_title[title.casefold()].append(name)
    alike = {name: others for others in by_title.values() for name in others if len(others) > 1}
    for item, one in zip(items, done, strict=True):
        if item.kind == ImportItemKind.TOOL and one.name in kept & alike.keys():
            others = ", ".join(name for name in alike[one.name] if name != one.name)
            message = f"is the title of another tool too: {others[:200]}"
            place = "name" if item.keyed else "title"
            one.findings.append({"code": "same_title", **error_at(place, message, item)})


def _has_label(tool: Tool, label: Any) -> bool:
    return isinstance(label, str) and tool.versions.filter(label=label).exists()


def _unlabelled(raw: dict[str, Any]) -> dict[str, Any]:
    """A file may keep its label when its content changes; here no two versions share one."""
    return {key: value for key, value in raw.items() if key != "version"}


def permissions(organization: Organization, items: list[ImportItem]) -> list[str]:
    """The permissions that an import of these items needs, beside registering tools."""
    kinds = {item.kind for item in items}
    named = [name_of(item) for item in items if item.kind == ImportItemKind.TOOL]
    there = Tool.objects.present().filter(organization=organization, name__in=named)
    return [
        *(["change_tool"] if there.exists() else []),
        *(["add_toolservice", "change_toolservice"] if ImportItemKind.SERVICE in kinds else []),
        *(["add_mcpserver", "change_mcpserver"] if ImportItemKind.SERVER in kinds else []),
    ]
