"""Credentials that the egress broker adds to requests. Their values are write-only."""

import re
from typing import Any

from django.db import transaction

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.egress.rules.egress_policy import HostRule
from sandbox.egress.rules.host_rules import read_rule
from tools.catalog.list_fields import ListedFields, described
from tools.catalog.sandbox.hosts import Item, credentials_in
from tools.catalog.signatures import sealed_texts
from tools.catalog.uniqueness import unique
from tools.definitions.tool import PROFILE_NAME, ToolDefinition
from tools.errors import Conflict, InvalidDefinition, Malformed, NotFound
from tools.models import EgressCredential, Organization, SandboxProfile, Tool

MASK = "…"
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,64}")


@transaction.atomic
def create_credential(
    *, organization: Organization, credential: Any, by: Actor
) -> EgressCredential:
    """Raises `Malformed` with an error per wrong field, `Conflict`."""
    name, header, value = _read(credential)
    Organization.objects.next_revision(organization.pk)
    row = EgressCredential(organization=organization, name=name, header=header)
    row.sealed = sealed_texts.seal(value, organization=organization.pk, row=row.pk)
    with unique(f"There is a credential {name} already.", code="credential_exists"):
        row.save(force_insert=True)
    record_change(Event.CREDENTIAL_CREATE, row.name, by, None, _written(row), id=str(row.pk))
    return row


@transaction.atomic
def replace_credential(*, row: EgressCredential, credential: Any, by: Actor) -> EgressCredential:
    """Another header, another value, or both; the mask in place of a value keeps it."""
    kept = isinstance(credential, dict) and credential.get("value") in (None, MASK)
    name, header, value = _read(credential | {"value": "kept"} if kept else credential)
    if name != row.name:
        raise _invalid([{"field": "name", "message": "cannot be changed; lists of hosts name it"}])
    Organization.objects.next_revision(row.organization_id)
    row.refresh_from_db()
    before, row.header = _written(row), header
    if kept and _written(row) == before:
        return row
    if not kept:
        row.sealed = sealed_texts.seal(value, organization=row.organization_id, row=row.pk)
    row.save(update_fields=["header", "sealed", "updated_at"])
    said = "kept" if kept else "replaced"
    record_change(
        Event.CREDENTIAL_CHANGE, row.name, by, before, _written(row), value=said, id=str(row.pk)
    )
    return row


@transaction.atomic
def delete_credential(*, row: EgressCredential, by: Actor) -> None:
    """Raises `Conflict` while a list of hosts or a tool names it."""
    Organization.objects.next_revision(row.organization_id)
    dependants = _dependants(row)
    if dependants:
        raise Conflict(
            f"The credential {row.name} is named by: {', '.join(dependants)}.",
            code="has_dependants",
            dependants=dependants,
        )
    record_change(Event.CREDENTIAL_DELETE, row.name, by, _written(row), None, id=str(row.pk))
    row.delete()


def find_credential(organization: Organization, name: str) -> EgressCredential:
    """Raises `NotFound`, also for another organization's."""
    found = EgressCredential.objects.filter(organization=organization, name=name).first()
    if found is None:
        raise NotFound(f"There is no credential {name[:63]!r}.", code="credential_not_found")
    return found


def check_named(organization: Organization, field: str, items: list[Item]) -> None:
    """Checks that every credential in a list of hosts exists. Raises `Malformed`.

    Call it while the organization's row is locked: credentials are deleted under the same lock.
    """
    named = credentials_in(items)
    there = set(organization.egress_credentials.values_list("name", flat=True)) if named else set()
    flaws = [
        {"field": f"{field}[{at}].credential", "message": "names no credential of yours"}
        for at, item in enumerate(items)
        if credentials_in([item]) - there
    ]
    if flaws:
        raise Malformed(
            "A list of hosts names credentials that are not there; see details.errors.",
            code="invalid_hosts",
            errors=flaws,
        )


def check_of_tool(organization: Organization, tool: ToolDefinition) -> None:
    """Checks that the credential of a definition exists. Raises `InvalidDefinition`.

    At a call, the lists of hosts decide whether the tool's host may get it.
    """
    name = tool.credential
    if name is None or any(one.name == name for one in organization.egress_credentials.all()):
        return
    flaw = {"field": "implementation.credential", "message": "names no credential of yours"}
    raise InvalidDefinition("The definition was not accepted: see details.errors.", errors=[flaw])


def _dependants(row: EgressCredential) -> list[str]:
    holds = {"allowed_hosts__contains": [{"credential": row.name}]}
    profiles = SandboxProfile.objects.filter(organization_id=row.organization_id, **holds)
    found = [f"sandbox-profile/{name}" for name in profiles.values_list("name", flat=True)]
    own = Organization.objects.filter(pk=row.organization_id, **holds)
    found += [f"organization/{slug}" for slug in own.values_list("slug", flat=True)]
    tools = Tool.objects.present().filter(
        organization_id=row.organization_id,
        version__definition__implementation__credential=row.name,
    )
    return [*found, *(f"tool/{name}" for name in tools.values_list("name", flat=True))]


def _read(raw: Any) -> tuple[str, str, str]:
    """Name, header and value. No message repeats a value."""
    if not isinstance(raw, dict):
        raise Malformed("A credential is a JSON object.", code="invalid_credential")
    fields = ListedFields(raw, [])
    fields.reject_unknown(("name", "header", "value"))
    name, header = fields.text("name", longest=63), fields.text("header", longest=64)
    value = _value(fields)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-'")
    if header and not _HEADER.fullmatch(header):
        fields.wrong("header", "must be the name of a header: letters, digits, '_' and '-'")
    elif header:
        fields.note("header", _flaw_in(header, "value"))
    if fields.flaws:
        raise _invalid(fields.flaws)
    return name, header, value


def _value(fields: ListedFields) -> str:
    value = fields.raw.get("value")
    if isinstance(value, str) and value and _flaw_in("X-Credential", value) is None:
        return value
    fields.wrong("value", "must be 1 to 8192 printable ASCII characters, no space at an end")
    return ""


def _flaw_in(header: str, value: str) -> str | None:
    """Headers that the broker would not add to a request."""
    rule = HostRule("example.com", headers=((header, value),))
    return described(lambda: read_rule(rule))


def _invalid(errors: list[dict[str, str]]) -> Malformed:
    message = "The credential was not accepted; see details.errors."
    return Malformed(message, code="invalid_credential", errors=errors)


def _written(row: EgressCredential) -> dict[str, str]:
    """The audited form, without the value."""
    return {"name": row.name, "header": row.header}
