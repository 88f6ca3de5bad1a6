"""Tool groups: created, changed and deleted as administrators write them (name, parent, schedule),
and the groups and tools that each has as members."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from tools.catalog.list_fields import ListedFields
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.uniqueness import unique
from tools.definitions.texts.names import WILDCARD, flaw_in_group, is_reserved_address
from tools.definitions.values.schedules import read_schedule
from tools.errors import Conflict, Malformed
from tools.models import McpServer, Organization, Tool, ToolGroup, ToolService

DEEPEST = 10
BOUNDS = {"max_queue_age_s": 86_400, "max_cpu_percent": 100}
_NAMED = 20


class UnchangedField(Enum):
    """Marks a field that a change leaves unchanged, where None is a value."""

    KEPT = auto()


KEPT = UnchangedField.KEPT


def check_names(name: str, permissions: Iterable[str]) -> None:
    """Raises `Malformed`."""
    if name == WILDCARD:
        raise Malformed("'*' stands for every group and cannot be one.", code="name_invalid")
    if is_reserved_address("group", name):
        raise Malformed(f"The name {name} is reserved; choose another.", code="name_invalid")
    for text in (name, *permissions):
        if flaw := flaw_in_group(text):
            raise Malformed(f"The name {text[:60]!r} {flaw}.", code="name_invalid")


def read_opening(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that say when a group is open, of those that are given. Raises `Malformed`."""
    fields = ListedFields(dict(given), [])
    fields.reject_unknown(("schedule", *BOUNDS))
    columns: dict[str, Any] = {}
    if "schedule" in given:
        columns["schedule"] = read_schedule(fields, "schedule")
    for name, most in BOUNDS.items():
        if name in given:
            columns[name] = _bound(fields, name, most)
    if fields.flaws:
        raise Malformed(
            "When the group is open was not understood; see details.errors.",
            code="invalid_group",
            errors=fields.flaws,
        )
    return columns


def parent_for(group: ToolGroup, name: str | None) -> ToolGroup | None:
    """The group's parent of that name; its organization is locked. Raises `Malformed`."""
    if name is None:
        return None
    here = ToolGroup.objects.filter(organization=group.organization_id)
    parent = here.filter(name=name).first()
    if parent is None:
        raise Malformed(
            f"There is no group {name[:100]!r} that could be a parent. Create it first.",
            code="parent_unknown",
        )
    above = dict(here.values_list("name", "parent__name"))
    line = _line(name, above)
    if group.name in line:
        way = " in ".join([group.name, *line[: line.index(group.name) + 1]])
        raise Malformed(f"The group would be within itself: {way}.", code="group_cycle")
    below = max(
        len(_line(one, above, until=group.name)) for one in _with_descendants(group.name, above)
    )
    if len(line) + below > DEEPEST:
        raise Malformed(
            f"Groups nest at most {DEEPEST} deep; under {name} it would be {len(line) + below}.",
            code="group_too_deep",
        )
    return parent


def note_groups(organization: Organization, named: Iterable[str]) -> None:
    """Create the groups that something names, so that they can be found and granted."""
    for name in named:
        if name != WILDCARD:
            ToolGroup.objects.get_or_create(organization=organization, name=name)


def written(group: ToolGroup) -> dict[str, Any]:
    """The fields of a group beside its name, for the audit log."""
    return {
        "description": group.description,
        "permissions": group.permissions,
        "parent": group.parent.name if group.parent else None,
        "schedule": group.schedule,
        **{name: getattr(group, name) for name in BOUNDS},
    }


def dependants_of(group: ToolGroup) -> tuple[str, list[str]] | None:
    """The first kind of what names the group, in words, and the names; None when nothing does."""
    here = {"organization": group.organization_id}
    named = {"default_groups__contains": [group.name]}
    tools = Tool.objects.present().filter(**here, version__definition__group__contains=[group.name])
    kinds = (
        ("Tools are in", tools),
        ("Groups are within", ToolGroup.objects.filter(**here, parent=group)),
        ("Tool services give their tools", ToolService.objects.filter(**here, **named)),
        ("MCP servers give their tools", McpServer.objects.filter(**here, **named)),
    )
    for words, rows in kinds:
        if names := list(rows.values_list("name", flat=True)[:_NAMED]):
            return words, names
    return None


def _bound(fields: ListedFields, name: str, most: float) -> float | None:
    value = fields.raw[name]
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= most:  # neither is NaN
        fields.wrong(name, f"must be a number above 0, at most {most}, or null for no bound")
        return None
    return float(value)


def _line(name: str, above: Mapping[str, str | None], *, until: str | None = None) -> list[str]:
    """A group and those above it, up to `until` or to the root."""
    line = [name]
    while line[-1] != until and (parent := above.get(line[-1])) is not None:
        line.append(parent)
    return line


def _with_descendants(name: str, above: Mapping[str, str | None]) -> list[str]:
    """A group and all that are in it."""
    return [name, *(one for one in above if one != name and name in _line(one, above))]


class Through(StrEnum):
    OWN = "own"
    SOURCE = "source"  # default group of its service or server
    PARENT = "parent"  # parent of another of its groups


class Member(NamedTuple):
    tool: str
    through: Through


def memberships(tool: CatalogTool, snapshot: Snapshot) -> dict[str, Through]:
    """Every effective group, in the order of the names."""
    own = snapshot.own_groups(tool)
    unnamed = tool.definition.raw["group"] is None
    first = Through.SOURCE if unnamed and own != tool.definition.groups else Through.OWN
    return {
        name: first if name in own else Through.PARENT for name in sorted(snapshot.groups_of(tool))
    }


def members_of(name: str, snapshot: Snapshot) -> tuple[Member, ...]:
    """The tools in a group, in the order of their names."""
    return snapshot.settle("members", lambda: _members(snapshot)).get(name, ())


def line_of(name: str, snapshot: Snapshot) -> list[str]:
    """A group, its parent, the parent's parent, and so on."""
    line: list[str] = []
    above: str | None = name
    while above is not None and above not in line:
        line.append(above)
        group = snapshot.groups.get(above)
        above = group.parent if group else None
    return line


def _members(snapshot: Snapshot) -> MappingProxyType[str, tuple[Member, ...]]:
    found: dict[str, list[Member]] = defaultdict(list)
    for tool in snapshot.sorted_tools:
        for name, through in memberships(tool, snapshot).items():
            found[name].append(Member(tool.name, through))
    return MappingProxyType({name: tuple(members) for name, members in found.items()})


@transaction.atomic
def create_group(
    *,
    organization: Organization,
    name: str,
    by: Actor,
    description: str = "",
    permissions: list[str] | None = None,
    parent: str | None = None,
    **opening: Any,
) -> ToolGroup:
    """Raises `Malformed`; `Conflict` where the name exists, also when it was created
    concurrently."""
    check_names(name, permissions or ())
    columns = read_opening(opening)
    Organization.objects.next_revision(organization.pk)
    with unique(f"There is a group {name} already.", code="group_exists"):
        group = ToolGroup.objects.create(organization=organization, name=name)
    columns |= {"description": description, "permissions": permissions or []}
    return _write_group(group, by=by, before=None, parent=parent, columns=columns)


@transaction.atomic
def save_group(
    *,
    organization: Organization,
    name: str,
    by: Actor,
    description: str | None = None,
    permissions: list[str] | None = None,
    parent: str | UnchangedField | None = KEPT,
    **opening: Any,
) -> ToolGroup:
    """Create a group, or change its given fields. Raises `Malformed`.

    `opening`: `schedule`, `max_queue_age_s` and `max_cpu_percent`, as they were written.
    """
    check_names(name, permissions or ())
    columns = read_opening(opening)
    Organization.objects.next_revision(organization.pk)
    group, created = ToolGroup.objects.get_or_create(organization=organization, name=name)
    before = None if created else written(group)
    said = {"description": description, "permissions": permissions}
    columns |= {field: value for field, value in said.items() if value is not None}
    return _write_group(group, by=by, before=before, parent=parent, columns=columns)


def _write_group(
    group: ToolGroup,
    *,
    by: Actor,
    before: dict[str, Any] | None,
    parent: str | UnchangedField | None,
    columns: dict[str, Any],
) -> ToolGroup:
    if not isinstance(parent, UnchangedField):
        group.parent = parent_for(group, parent)
    for column, value in columns.items():
        setattr(group, column, value)
    if written(group) == before:
        return group
    group.save(update_fields=["parent", *columns])
    record_change(Event.GROUP_CHANGE, group.name, by, before, written(group))
    return group


@transaction.atomic
def delete_group(*, group: ToolGroup, by: Actor) -> None:
    """Raises `Conflict` while something names the group: tools would silently become
    unreachable."""
    Organization.objects.next_revision(group.organization_id)
    if found := dependants_of(group):
        words, names = found
        raise Conflict(
            f"{words} the group {group.name}: {', '.join(names)}.",
            code="has_dependants",
            dependants=names,
        )
    name, before = group.name, written(group)
    group.delete()
    record_change(Event.GROUP_DELETE, name, by, before, None)
