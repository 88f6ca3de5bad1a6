"""Tool services as administrators write them, and whether a tool fits its service."""

from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.groups import note_groups
from tools.catalog.list_fields import ListedFields
from tools.catalog.uniqueness import unique
from tools.definitions.descriptors import canonical_key
from tools.definitions.services import Descriptor, config_flaws, read_service
from tools.definitions.texts.names import TOOL_NAME, flaw_in_group
from tools.definitions.tool import Definition
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, InvalidDefinition, Malformed, NotFound
from tools.models import McpServer, Organization, Tool, ToolService

COLUMNS = ("request_queue", "response_queue", "config_params", "default_groups")
_NAMED = 20


@transaction.atomic
def create_service(*, organization: Organization, service: Any, by: Actor) -> ToolService:
    """Raises `InvalidDefinition` with an error per wrong field, `Conflict`."""
    said = read_service(service)
    Organization.objects.next_revision(organization.pk)
    taken = f"There is a tool service {said['id']} already."
    if ToolService.objects.filter(organization=organization, name=said["id"]).exists():
        raise Conflict(taken, code="service_exists")  # before its queue is reported as taken
    row = ToolService(organization=organization, name=said["id"])
    fill(row, said)
    with unique(taken, code="service_exists"):
        row.save(force_insert=True)
    note_change(row, by, None)
    return row


@transaction.atomic
def change_service(*, row: ToolService, changes: dict[str, Any], by: Actor) -> ToolService:
    """Change the given fields. Raises what `create_service` raises, and `Conflict` with dependants
    where tools would no longer fit."""
    Organization.objects.next_revision(row.organization_id)
    row.refresh_from_db()
    before, given = written(row), {canonical_key(str(key)): value for key, value in changes.items()}
    said = read_service({"id": row.name, **before, **given})
    if said["id"] != row.name:
        flaw = {"field": "id", "message": "cannot be changed; tools name it"}
        raise InvalidDefinition("The tool service was not accepted.", errors=[flaw])
    if row.announced and any(said[one] != before[one] for one in COLUMNS[:3]):
        raise Conflict(
            "The service says of itself what it is; only its groups are yours to change.",
            code="service_announced",
        )
    check_tools(row, said["config_params"])
    fill(row, said)
    if written(row) != before:
        row.save(update_fields=COLUMNS)
        note_change(row, by, before)
    return row


@transaction.atomic
def delete_service(*, row: ToolService, by: Actor) -> None:
    """Raises `Conflict` while tools name it."""
    Organization.objects.next_revision(row.organization_id)
    _refuse([tool.name for tool in tools_of(row)], f"Tools are of the service {row.name}")
    said = difference(written(row), None)
    row.delete()
    record(
        Event.SOURCE_DELETE, by=by, outcome=Outcome.CHANGED, subject=row.name,
        details={"kind": "toolservice", **said},
    )  # fmt: skip


def find_service(organization: Organization, name: str) -> ToolService:
    """Raises `NotFound`, also for another organization's."""
    found = ToolService.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no tool service {name[:128]!r}.", code="service_not_found")
    return found


def check_service(organization: Organization, canonical: Definition) -> None:
    """Checks that a tool's service exists and accepts its values. Raises `InvalidDefinition`.

    Call it while the organization's row is locked: services change under the same lock.
    """
    if canonical["type"] != ToolType.SERVICE:
        return
    name, config = (canonical["implementation"][key] for key in ("service", "config"))
    row = ToolService.objects.filter(organization=organization, name=name).first()
    if row is None or (row.announced and not row.digest):
        word = "is no tool service of yours" if row is None else "is not approved yet"
        flaws = [{"field": "implementation.service", "message": word}]
    else:
        flaws = config_flaws(row.config_params, config)
    if flaws:
        raise InvalidDefinition(
            "The definition does not fit its tool service: see details.errors.", errors=flaws
        )


def check_tools(
    row: ToolService, params: list[dict[str, Any]], *, but: frozenset[str] = frozenset()
) -> None:
    """Checks that the existing tools fit those parameters, `but` some. Raises `Conflict`."""
    unfit = [
        tool.name
        for tool in tools_of(row)
        if tool.name not in but and config_flaws(params, _config_of(tool))
    ]
    _refuse(unfit, f"Tools of the service {row.name} would no longer fit it")


def tools_of(row: ToolService) -> QuerySet[Tool]:
    """Those whose current version names the service."""
    present = Tool.objects.present().filter(
        organization=row.organization_id,
        type=ToolType.SERVICE,
        version__definition__implementation__service=row.name,
    )
    return present.select_related("version", "organization")


def fill(row: ToolService, said: Descriptor) -> None:
    """The row as the descriptor has it. Raises `Conflict` where another one has the queue."""
    taken = ToolService.objects.filter(
        organization=row.organization_id, request_queue=said["request_queue"]
    ).exclude(pk=row.pk)
    if other := taken.values_list("name", flat=True).first():
        raise Conflict(
            f"The tool service {other} has that request queue already.", code="queue_taken"
        )
    for column in COLUMNS:
        setattr(row, column, said[column])
    note_groups(row.organization, row.default_groups or ())


def written(row: ToolService) -> dict[str, Any]:
    return {column: getattr(row, column) for column in COLUMNS}


def note_change(row: ToolService, by: Actor, before: dict[str, Any] | None) -> None:
    record(
        Event.SOURCE_CHANGE, by=by, outcome=Outcome.CHANGED, subject=row.name,
        details={"kind": "toolservice", **difference(before, written(row))},
    )  # fmt: skip


def _config_of(tool: Tool) -> dict[str, Any]:
    assert tool.version is not None
    return tool.version.definition["implementation"]["config"]


def _refuse(names: list[str], words: str) -> None:
    if names:
        raise Conflict(
            f"{words}: {', '.join(names[:_NAMED])}.",
            code="has_dependants",
            dependants=names[:_NAMED],
        )


@transaction.atomic
def save_source[Kind: (ToolService, McpServer)](
    *,
    kind: type[Kind],
    organization: Organization,
    name: str,
    by: Actor,
    default_groups: list[str] | None,
) -> Kind:
    """Create a source, or change its groups. Raises `Malformed`.

    Without default groups its tools that name none are in `default`; with an empty list they are
    reached only through `*` (rulings 2 and 19).
    """
    _check(name, default_groups)
    Organization.objects.next_revision(organization.pk)
    source, created = kind.objects.get_or_create(organization=organization, name=name)
    before = None if created else {"default_groups": source.default_groups}
    source.default_groups = default_groups
    source.save(update_fields=["default_groups"])
    note_groups(organization, default_groups or ())
    record(
        Event.SOURCE_CHANGE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=name,
        details={
            "kind": kind._meta.model_name,
            **difference(before, {"default_groups": default_groups}),
        },
    )
    return source


def _check(name: str, default_groups: list[str] | None) -> None:
    fields = ListedFields({"default_groups": default_groups}, [])
    if not TOOL_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-', at most 128")
    fields.texts("default_groups", None, flaw_of=flaw_in_group)
    if fields.flaws:
        raise Malformed(
            "The source was not accepted; see details.errors.",
            code="invalid_source",
            errors=fields.flaws,
        )
