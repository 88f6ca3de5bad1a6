"""Organizations with the product's own tools. Making one by the product's actions takes 335
statements, so each process does that once.

Tests that are rolled back share that one, `ready()`. Every other organization is a copy of it,
`copied()`: the same tools, groups, versions and words, signed by a key of its own, in about a dozen
statements; it lacks the audit records of its tools and groups.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Permission
from django.db import connection, transaction
from django.db.models import ForeignObjectRel, Model

from audit.actions import Actor
from tools.accounts import account_actions
from tools.accounts.grants.grants import EXECUTE, grants
from tools.builtin.workspaces import workspace_path
from tools.catalog.builtins import install_builtins
from tools.catalog.registry import registry
from tools.catalog.signatures import newest
from tools.catalog.signatures.keys import current_key
from tools.catalog.signatures.versions import statement_of
from tools.catalog.snapshot import Snapshot
from tools.models import Agent, LicenseTier, Organization, Tool, ToolGroup, ToolVersion, User
from tools.models.tool import ToolWords
from tools.models.user import default_groups

_USE_VERSIONS = """
UPDATE tools_tool SET version_id = tools_toolversion.id FROM tools_toolversion
WHERE tools_toolversion.tool_id = tools_tool.id AND tools_tool.organization_id = %s
"""
_COPY_WORDS = """
INSERT INTO tools_toolwords (tool_id, organization_id, digest, words, letters)
SELECT tools_tool.id, tools_tool.organization_id, known.digest, known.words::tsvector, known.letters
FROM tools_tool JOIN unnest(%s::text[], %s::text[], %s::text[], %s::text[])
    AS known(name, digest, words, letters) ON known.name = tools_tool.name
WHERE tools_tool.organization_id = %s
"""


@dataclass(frozen=True)
class _Template:
    """What an organization has from the start, apart from its own name and keys."""

    revision: int
    groups: list[ToolGroup]
    tools: list[Tool]
    words: list[tuple[str, str, str, str]]  # tool, digest, words, letters


def system_actor(slug: str) -> Actor:
    return Actor("system", "tests", slug)


def create_organization_rows(slug: str, tier: str = "Enterprise") -> Organization:
    """As the product makes one, with a record of each tool and group."""
    row = account_actions.create_organization(
        slug=slug, name=slug, tier=_tier(tier), by=system_actor(slug)
    )
    install_builtins(organization=row, by=system_actor(slug))
    row.refresh_from_db()
    return row


@cache
def _prepared() -> Snapshot:
    """The catalog of the shared organization. Call it first where its rows are committed."""
    row = create_organization_rows(f"org-{uuid4().hex[:12]}")
    return registry.snapshot(row.pk, row.revision)


def prepare() -> None:
    """Make the shared organization, outside of every test's transaction."""
    _prepared(), _template(), _newest_versions()


def ready() -> Organization:
    """The shared organization, for a test that takes back what it changes."""
    return Organization.objects.get(pk=_prepared().organization_id)


def restore() -> None:
    """Forget what a test left outside of the database of the shared organization."""
    registry.forget()
    grants.forget()
    if not _prepared.cache_info().currsize:
        return
    known = _prepared()
    known._remembered.clear()  # it is by the minute, or what a client asked
    registry._snapshots[known.organization_id] = known
    file, content = _newest_versions()
    if file.stat().st_size != len(content):
        file.write_bytes(content)
    for entry in workspace_path(known.organization).iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


@cache
def _newest_versions() -> tuple[Path, bytes]:
    file = newest._path(_prepared().organization_id)
    return file, file.read_bytes()


def copied(slug: str, tier: str) -> Organization:
    template = _template()
    row = account_actions.create_organization(
        slug=slug, name=slug, tier=_tier(tier), by=system_actor(slug)
    )
    Organization.objects.filter(pk=row.pk).update(revision=template.revision)
    row.revision = template.revision
    workspace_path(slug)
    _copy_groups(row, template.groups)
    _copy_tools(row, template)
    return row


def copied_agent(
    organization: Organization,
    slug: str,
    *,
    groups: list[str] | None = None,
    permissions: list[str] | None = None,
    description: str = "",
    strict: bool = False,
) -> Agent:
    """An agent that may execute every tool of its groups, in four statements rather than the 26 of
    `tools.accounts.account_actions.create_agent`; it lacks the audit records of its creation and
    grants."""
    account = User.objects.create(
        username=f"agent:{organization.slug}:{slug}",
        password="!",
        organization=organization,
        is_service_account=True,
        granted_groups=default_groups() if groups is None else groups,
        granted_permissions=permissions or [],
    )
    User.user_permissions.through.objects.create(user=account, permission_id=_execute_every_tool())
    return Agent.objects.create(
        organization=organization, slug=slug, description=description, service_account=account,
        strict=strict,
    )  # fmt: skip


def remove(used: list[UUID]) -> None:
    """Take organizations away with every row that refers to them, directly or by others. What is
    written for good, the audit's records and heads, names them by text and stays."""
    doomed: dict[type[Model], set[Any]] = {Organization: set(used)}
    reached: list[tuple[type[Model], set[Any]]] = [(Organization, set(used))]
    while reached:
        model, rows = reached.pop()
        for relation in model._meta.get_fields(include_hidden=True):
            if not (isinstance(relation, ForeignObjectRel) and relation.field.column):
                continue
            child, found = relation.related_model, {f"{relation.field.name}__in": rows}
            if not child._meta.managed:
                continue  # a view
            known = doomed.setdefault(child, set())
            more = set(child._base_manager.filter(**found).values_list("pk", flat=True)) - known
            if more:
                known |= more
                reached.append((child, more))
    doomed = {model: rows for model, rows in doomed.items() if rows}
    with transaction.atomic(), connection.cursor() as cursor:
        _triggers("DISABLE", doomed, cursor)  # what keeps rows as they are
        for model, rows in doomed.items():
            model._base_manager.filter(pk__in=[*rows])._raw_delete(connection.alias)
        _triggers("ENABLE", doomed, cursor)


def _triggers(change: str, models: Iterable[type[Model]], cursor: Any) -> None:
    """Those for foreign keys are of the system, and go on: what they have to check comes first."""
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
    for model in models:
        cursor.execute(f"ALTER TABLE {model._meta.db_table} {change} TRIGGER USER")


@cache
def _execute_every_tool() -> int:
    every = Permission.objects.get(content_type__app_label="tools", codename=EXECUTE)
    return every.pk


def _tier(name: str) -> LicenseTier:
    return LicenseTier.objects.get(name=name)


@cache
def _template() -> _Template:
    pattern = ready()
    groups = list(ToolGroup.objects.filter(organization=pattern).order_by("created_at"))
    tools = list(Tool.objects.filter(organization=pattern).select_related("version").order_by("pk"))
    words = ToolWords.objects.filter(organization=pattern).extra(select={"text": "words::text"})
    found = words.values_list("tool__name", "digest", "text", "letters")
    return _Template(pattern.revision, groups, tools, [tuple(row) for row in found])


def _copy_groups(organization: Organization, groups: list[ToolGroup]) -> None:
    copies = {
        row.pk: ToolGroup(
            organization=organization, name=row.name, description=row.description,
            permissions=row.permissions,
        )
        for row in groups
    }  # fmt: skip
    for row in groups:
        copies[row.pk].parent = copies[row.parent_id] if row.parent_id else None
    ToolGroup.objects.bulk_create(copies.values())


def _copy_tools(organization: Organization, template: _Template) -> None:
    rows = [
        Tool(organization=organization, name=tool.name, type=tool.type, revision=tool.revision)
        for tool in template.tools
    ]
    Tool.objects.bulk_create(rows)
    key = current_key(organization, system_actor(organization.slug))
    ToolVersion.objects.bulk_create(
        _version(organization.slug, row, tool.version, key)
        for row, tool in zip(rows, template.tools, strict=True)
    )
    with connection.cursor() as cursor:
        cursor.execute(_USE_VERSIONS, [organization.pk])
        columns = [list(column) for column in zip(*template.words, strict=True)]
        cursor.execute(_COPY_WORDS, [*columns, organization.pk])


def _version(slug: str, tool: Tool, version: Any, key: Any) -> ToolVersion:
    statement = statement_of(
        organization=slug, tool=tool.pk, name=tool.name, number=version.number,
        label=version.label, version_digest=version.digest, origin=version.origin,
    )  # fmt: skip
    return ToolVersion(
        tool=tool, number=version.number, label=version.label, definition=version.definition,
        digest=version.digest, key_id=key.key_id, signature=key.sign(statement),
        created_by=version.created_by, note=version.note, origin=version.origin,
    )  # fmt: skip
