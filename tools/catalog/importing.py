"""Bringing tools, services and servers from anywhere into the catalog.

One transaction for the whole, a savepoint for each item; services and servers go before the tools
that name them. A dry run does all of it and takes it back, so that it answers what would happen.
What is there already, as it is wanted, is not written again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DataError, IntegrityError, transaction

from audit.actions import Actor
from tools.catalog import actions
from tools.catalog.importing_items import (
    CREATED,
    REFUSED,
    UNCHANGED,
    UPDATED,
    Imported,
    check_first,
    error_at,
    errors_of,
    name_of,
    prompt_id,
    stronger,
    with_key,
)
from tools.catalog.importing_sources import (
    known_sources,
    same_server,
    same_service,
    save_server,
    save_service,
)
from tools.catalog.verified import trusted
from tools.definitions.dialects.items import Item, Kind
from tools.definitions.dialects.settling import Known, read_prompt, settled
from tools.definitions.servers import read_server
from tools.definitions.services import read_service
from tools.definitions.tool import digest, read_definition
from tools.errors import InvalidDefinition, ToolcribError
from tools.models import Organization, Tool


@dataclass(frozen=True)
class Way:
    """How an import is done."""

    group: list[str] | None = None  # of the tools that name none; None leaves them as they are
    server: str = ""  # of the tools of a server that name none
    dry_run: bool = False
    atomic: bool = False


class _TakenBack(Exception):
    """Ends a transaction whose work is not kept."""


def import_items(
    *, organization: Organization, items: list[Item], by: Actor, way: Way | None = None
) -> list[Imported]:
    """What became of each item, in their order."""
    way = way or Way()
    work = _Import(organization, by, way, known_sources(organization))
    try:
        with transaction.atomic():
            found = work.perform(items)
            refused = sum(one.result == REFUSED for one in found)
            if way.dry_run or (way.atomic and refused):
                raise _TakenBack
    except _TakenBack:
        pass
    return _nothing_written(found, items, refused) if way.atomic and refused else found


def has_changed(items: list[Item], done: list[Imported]) -> bool:
    """Whether a tool that was there already is another now."""
    pairs = zip(items, done, strict=True)
    return any(one.result == UPDATED and item.kind == Kind.TOOL for item, one in pairs)


def _nothing_written(found: list[Imported], items: list[Item], refused: int) -> list[Imported]:
    others = f"{refused} other item{'s were' if refused > 1 else ' was'}"
    message = f"nothing of this import was written: {others} refused"
    return [
        one
        if one.result in {REFUSED, UNCHANGED}
        else replace(one, result=REFUSED, errors=[error_at("", message, item)])
        for one, item in zip(found, items, strict=True)
    ]


@dataclass
class _Import:
    organization: Organization
    by: Actor
    way: Way
    known: Known
    used: dict[str, str] = field(default_factory=dict)  # by prompt: what became of a tool of it

    def perform(self, items: list[Item]) -> list[Imported]:
        done: dict[int, Imported] = {}
        self._learn(items)
        seen: dict[tuple[Kind | None, str], Item] = {}
        for kind in (Kind.SERVICE, Kind.SERVER, Kind.TOOL, Kind.PROMPT, None):
            for at, item in enumerate(items):
                if item.kind == kind:
                    done[at] = self._guarded(item, seen)
        return [done[at] for at in range(len(items))]

    def _learn(self, items: list[Item]) -> None:
        """Prompts are parts of the tools that name them."""
        prompts, system = {}, ""
        for item in items:
            if item.kind != Kind.PROMPT or item.flaw or item.id == "template-index":
                continue
            if item.id == "system":
                system = item.value if isinstance(item.value, str) else ""
                continue
            try:
                prompts[prompt_id(item)] = read_prompt(item.value)
            except InvalidDefinition:
                continue  # said when it is the item's turn
        self.known = replace(self.known, prompts=prompts, system=system, server=self.way.server)

    def _guarded(self, item: Item, seen: dict[tuple[Kind | None, str], Item]) -> Imported:
        """One item, kept or taken back by itself."""
        name = name_of(item)
        try:
            if item.flaw:
                raise InvalidDefinition(item.flaw, errors=[])
            check_first(item, name, seen)
            with transaction.atomic():
                return Imported(item.key, name, self._result(item))
        except ToolcribError as error:
            return Imported(item.key, name, REFUSED, errors_of(error, item))
        except (DataError, IntegrityError):
            message = "could not be stored: a value of it cannot be used, or changed meanwhile"
            return Imported(item.key, name, REFUSED, [error_at("", message, item)])

    def _result(self, item: Item) -> str:
        kinds: dict[Kind, Callable[[Item], str]] = {
            Kind.SERVICE: self._service,
            Kind.SERVER: self._server,
            Kind.TOOL: self._tool,
            Kind.PROMPT: self._prompt,
        }
        assert item.kind is not None
        return kinds[item.kind](item)

    def _service(self, item: Item) -> str:
        descriptor = read_service(with_key(item, "id"))
        result = UNCHANGED
        if not same_service(self.organization, descriptor):
            created = save_service(
                organization=self.organization, descriptor=descriptor, by=self.by
            )
            result = CREATED if created else UPDATED
        there = {**self.known.services, descriptor["id"]: descriptor["config_params"]}
        self.known = replace(self.known, services=there)
        return result

    def _server(self, item: Item) -> str:
        descriptor = read_server(item.value, item.id)
        result = UNCHANGED
        if not same_server(self.organization, descriptor):
            created = save_server(organization=self.organization, descriptor=descriptor, by=self.by)
            result = CREATED if created else UPDATED
        there = {**self.known.servers, descriptor.name: descriptor.remote_name}
        self.known = replace(self.known, servers=there)
        return result

    def _tool(self, item: Item) -> str:
        raw, canonical = self._definition(item)
        tool = _tool_named(self.organization, canonical["name"])
        template = item.value.get("template")
        if tool is None:
            tool = actions.register_tool(organization=self.organization, definition=raw, by=self.by)
            actions.set_switches(tool=tool, definition=raw, by=self.by)
            result = CREATED
        else:
            result = self._change(tool, raw, canonical)
        if isinstance(template, str):
            self.used[template] = stronger(self.used.get(template), result)
        return result

    def _change(self, tool: Tool, raw: dict[str, Any], canonical: dict[str, Any]) -> str:
        """A new version, or the switches of the current one, where they are not what is wanted."""
        version = tool.version
        assert version is not None
        if not trusted(tool):
            raise InvalidDefinition(
                f"The stored version of {tool.name} is not what was signed; an import cannot "
                "vouch for it. Restore a version or delete the tool first.",
                errors=[],
            )
        changed = digest(canonical) != version.digest
        if changed:
            wanted = _unlabelled(raw) if _has_label(tool, raw.get("version")) else raw
            tool = actions.update_tool(tool=tool, definition=wanted, by=self.by)
        switched = actions.set_switches(tool=tool, definition=raw, by=self.by)
        return UPDATED if changed or switched else UNCHANGED

    def _definition(self, item: Item) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is to be registered, and its canonical form, with all that is wrong at once."""
        raw, flaws = settled(with_key(item, "name"), self.known)
        if self.way.group is not None and raw.get("group") is None:
            raw = raw | {"group": self.way.group}
        try:
            canonical = read_definition(raw)
        except InvalidDefinition as error:
            named = {flaw["field"] for flaw in flaws}
            read = [flaw for flaw in error.details["errors"] if flaw["field"] not in named]
            raise InvalidDefinition(error.message, errors=flaws + read) from None
        if flaws:
            raise InvalidDefinition("The definition was not accepted.", errors=flaws)
        return raw, canonical

    def _prompt(self, item: Item) -> str:
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


def _tool_named(organization: Organization, name: str) -> Tool | None:
    rows = Tool.objects.present().select_related("version", "organization__tier")
    return rows.filter(organization=organization, name=name).first()


def _has_label(tool: Tool, label: Any) -> bool:
    return isinstance(label, str) and tool.versions.filter(label=label).exists()


def _unlabelled(raw: dict[str, Any]) -> dict[str, Any]:
    """A file keeps its label for longer than what it says; here no two versions share one."""
    return {key: value for key, value in raw.items() if key != "version"}


def permissions(organization: Organization, items: list[Item]) -> list[str]:
    """What a person needs, beside registering tools, to import these."""
    kinds = {item.kind for item in items}
    names = [name_of(item) for item in items if item.kind == Kind.TOOL]
    there = Tool.objects.present().filter(organization=organization, name__in=names)
    return [
        *(["change_tool"] if there.exists() else []),
        *(["add_toolservice", "change_toolservice"] if Kind.SERVICE in kinds else []),
        *(["add_mcpserver", "change_mcpserver"] if Kind.SERVER in kinds else []),
    ]
