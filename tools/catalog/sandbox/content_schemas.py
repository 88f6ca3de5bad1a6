"""Named schemas of `validate_content`. A change is a new version; none is ever edited."""

from typing import Any

import rfc8785
from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.spec import Limits, Preloaded, RunOutcome, SandboxSpec
from tools.builtin.content_definitions import SCHEMAS
from tools.builtin.manifest import ISOLATED
from tools.catalog.list_fields import ListedFields
from tools.catalog.sandbox.profiles import sandbox_client
from tools.catalog.uniqueness import unique
from tools.definitions.texts import names
from tools.definitions.tool import PROFILE_NAME, definition_digest
from tools.errors import Conflict, Malformed, NotFound, Unavailable
from tools.models import ContentSchema, ContentSchemaVersion, Organization, SchemaKind

MOST_BYTES = 256 * 1024
MOST_SCHEMAS = 1_000
MOST_VERSIONS = 1_000
_FORMATS = {SchemaKind.JSON: "json", SchemaKind.TABLE: "csv", SchemaKind.XML: "xml"}
_TRIED_FOR_S = 10.0


def create_schema(*, organization: Organization, schema: Any, by: Actor) -> ContentSchema:
    """Its first version. Raises `Malformed`, `Conflict`; `Unavailable` when it cannot be tried."""
    name, kind, description = _identity(schema)
    _try(organization, kind, schema["document"])
    with transaction.atomic():
        Organization.objects.next_revision(organization.pk)
        rows = organization.content_schemas
        if rows.count() >= MOST_SCHEMAS:
            raise Conflict(f"There are {MOST_SCHEMAS} schemas already.", code="too_many_schemas")
        with unique(f"There is a schema {name} already.", code="schema_exists"):
            row = rows.create(name=name, kind=kind, description=description)
        version = _add(row, schema, by)
        record_change(Event.SCHEMA_CREATE, row.name, by, None, _written(row, version))
    return row


def add_version(*, row: ContentSchema, change: Any, by: Actor) -> ContentSchemaVersion:
    """Change the schema from the next call on. An unchanged schema makes no new version.

    Raises `Malformed`, `Conflict`, `Unavailable`; `NotFound` where it was deleted meanwhile.
    """
    try_version(row=row, change=change)
    return keep_version(row=row, change=change, by=by)


def try_version(*, row: ContentSchema, change: Any) -> None:
    """Takes seconds, so no transaction should be open. Raises `Malformed`, `Unavailable`."""
    fields = ListedFields(change, [])
    fields.reject_unknown(("document", "note"))
    _document(fields, SchemaKind(row.kind))
    _raise(fields)
    _try(row.organization, SchemaKind(row.kind), change["document"])


@transaction.atomic
def keep_version(*, row: ContentSchema, change: Any, by: Actor) -> ContentSchemaVersion:
    """Stores a schema that was tried. Raises `Conflict`; `NotFound` where it was deleted
    meanwhile."""
    Organization.objects.next_revision(row.organization_id)
    before = newest(row)
    if before.digest == definition_digest(change["document"]):
        return before
    if before.number >= MOST_VERSIONS:
        message = f"{row.name} has {MOST_VERSIONS} versions; keep it under another name."
        raise Conflict(message, code="too_many_versions")
    version = _add(row, change, by)
    row.save(update_fields=["updated_at"])
    said = _written(row, before), _written(row, version)
    record_change(Event.SCHEMA_CHANGE, row.name, by, *said)
    return version


@transaction.atomic
def delete_schema(*, row: ContentSchema, by: Actor) -> None:
    """Delete it with all its versions; calls that name it are refused from now on. Raises
    `NotFound`."""
    Organization.objects.next_revision(row.organization_id)
    record_change(Event.SCHEMA_DELETE, row.name, by, _written(row, newest(row)), None)
    row.delete()


def find_schema(organization: Organization, name: str) -> ContentSchema:
    """Raises `NotFound`, also for another organization's."""
    rows = ContentSchema.objects.with_latest().filter(organization=organization)
    found = rows.filter(name=name).first() if "\x00" not in name else None
    if found is None:
        raise _not_there(name)
    return found


def find_version(row: ContentSchema, number: int) -> ContentSchemaVersion:
    """Raises `NotFound`."""
    found = row.versions.filter(number=number).first()
    if found is None:
        raise NotFound(f"{row.name} has no version {number}.", code="version_not_found")
    return found


def newest(row: ContentSchema) -> ContentSchemaVersion:
    """Raises `NotFound` where it was deleted since the row was read: none is without versions."""
    found = row.versions.order_by("-number").first()
    if found is None:
        raise _not_there(row.name)
    return found


def _not_there(name: str) -> NotFound:
    return NotFound(f"There is no schema {name[:63]!r}.", code="schema_not_found")


def _add(row: ContentSchema, given: Any, by: Actor) -> ContentSchemaVersion:
    number = row.versions.count() + 1
    return row.versions.create(
        number=number,
        document=given["document"],
        digest=definition_digest(given["document"]),
        note=given.get("note", ""),
        created_by=f"{by.kind}:{by.name}",
    )


def _identity(raw: Any) -> tuple[str, SchemaKind, str]:
    if not isinstance(raw, dict):
        raise _invalid([{"field": "", "message": "a schema is a JSON object"}])
    fields = ListedFields(raw, [])
    fields.reject_unknown(("name", "kind", "description", "document", "note"))
    name = fields.text("name", longest=63)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-'")
    if name in SCHEMAS:
        fields.wrong("name", "is the name of a schema of the product")
    if names.is_reserved_address("schema", name):
        fields.wrong("name", "is reserved; choose another")
    description = fields.text("description", "", longest=500)
    kind = raw.get("kind", SchemaKind.JSON)
    if kind not in SchemaKind.values:
        fields.wrong("kind", f"must be one of {', '.join(SchemaKind.values)}")
        kind = SchemaKind.JSON
    _document(fields, SchemaKind(kind))
    _raise(fields)
    return str(name), SchemaKind(kind), description


def _document(fields: ListedFields, kind: SchemaKind) -> None:
    document, needed = fields.raw.get("document"), str if kind == SchemaKind.XML else dict
    if not isinstance(document, needed):
        fields.wrong("document", "must be a text" if needed is str else "must be an object")
        return
    try:
        size = len(rfc8785.dumps(document))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        fields.wrong("document", "holds numbers or characters that cannot be kept")
        return
    if size > MOST_BYTES:
        fields.wrong("document", f"is larger than {MOST_BYTES} bytes")
    fields.text("note", "", longest=1000)


def _try(organization: Organization, kind: SchemaKind, document: Any) -> None:
    """Tries the schema once inside the sandbox, where it will be used: a schema may be made to
    hang.

    Raises `Malformed`, `Unavailable`.
    """
    builtin = ISOLATED["validate_content"]
    parameters = {"content": "", "format": _FORMATS[kind], slot_of(kind): document}
    spec = SandboxSpec(
        organization=organization.slug,
        profile=builtin.profile(organization.slug),
        limits=Limits(wall_s=_TRIED_FOR_S),
        program=Preloaded(builtin.module),
        parameters=parameters,
    )
    try:
        result = sandbox_client().run(spec)
    except OSError:
        raise _untried("sandboxd did not answer") from None
    if result.outcome == RunOutcome.SUCCESS:
        return
    if result.error_code != "SCHEMA_INVALID" and result.outcome == RunOutcome.SANDBOX_ERROR:
        raise _untried("the sandbox does not run it")
    message = result.error_message if result.error_code == "SCHEMA_INVALID" else "takes too much"
    raise _invalid([{"field": "document", "message": message or "cannot be used"}])


def _untried(reason: str) -> Unavailable:
    return Unavailable(f"The schema cannot be tried now: {reason}.", code="sandbox_unreachable")


def slot_of(kind: SchemaKind | str) -> str:
    """The parameter of `validate_content` that takes such a schema."""
    return "xsd" if kind == SchemaKind.XML else "schema"


def _raise(fields: ListedFields) -> None:
    if fields.flaws:
        raise _invalid(fields.flaws)


def _invalid(flaws: list[dict[str, str]]) -> Malformed:
    return Malformed(
        "The schema was not accepted; see details.errors.", code="invalid_schema", errors=flaws
    )


def _written(row: ContentSchema, version: ContentSchemaVersion) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "description": row.description,
        "version": version.number,
        "digest": version.digest,
    }
