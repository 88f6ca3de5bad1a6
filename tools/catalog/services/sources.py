"""Sources of tools: services and servers, with default groups for tools that name none."""

from django.db import transaction

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.groups import note_groups
from tools.catalog.listed import ListedFields
from tools.definitions.texts.names import TOOL_NAME, flaw_in_group
from tools.errors import Malformed
from tools.models import McpServer, Organization, ToolService


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
