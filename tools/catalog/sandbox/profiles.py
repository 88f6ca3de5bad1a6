"""Reads and writes sandbox profiles. A change increments the revision."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.client import SandboxClient
from sandbox.levels import at_least
from sandbox.spec import MIB, Backend, IsolationLevel, Language, Limits
from tools.catalog.list_fields import ListedFields
from tools.catalog.sandbox import credentials
from tools.catalog.sandbox.hosts import mounts_of, outside, read_hosts, read_paths
from tools.catalog.tiers import require_level, tier_of
from tools.catalog.uniqueness import unique
from tools.definitions.tool import PROFILE_NAME, Definition, ToolDefinition
from tools.definitions.values import durations
from tools.definitions.vocabulary import ToolType
from tools.errors import Conflict, Forbidden, InvalidDefinition, Malformed, NotFound, Unavailable
from tools.models import Organization, SandboxProfile, Tool

Body = dict[str, Any]
_NAMED = 20
_GIB = 1024 * MIB
_DEFAULTS = Limits()
NO_NETWORK = frozenset({Backend.DEGRADED, Backend.MONTY})
FIELDS = (
    "name", "description", "backend", "minimum_isolation", "allow_filesystem", "allowed_paths",
    "allow_network", "allowed_hosts", "proxy", "network_when_restricted", "max_memory_bytes",
    "max_cpu_time", "max_processes", "max_disk_bytes", "max_files",
    "quota_bytes", "quota_files",
)  # fmt: skip


@lru_cache(maxsize=1)
def sandbox_client() -> SandboxClient:
    """Connections to sandboxd and to the egress broker; kept, never made in a call."""
    return SandboxClient(settings.SANDBOX_SOCKET, settings.EGRESS_SOCKET)


def read_profile(raw: Any, *, organization: str) -> Body:
    """The columns of a profile's row. Raises `Malformed` with an error per wrong field."""
    if not isinstance(raw, dict):
        raise Malformed("A sandbox profile is a JSON object.", code="invalid_sandbox_profile")
    fields = ListedFields(raw, [])
    fields.reject_unknown(FIELDS)
    columns = {**_identity(fields), **_reach(fields, organization), **_limits(fields)}
    _check_together(fields, columns)
    if fields.flaws:
        raise _invalid(fields.flaws)
    return columns


def create_profile(
    *, organization: Organization, profile: Any, by: Actor, everywhere: bool = False
) -> SandboxProfile:
    """A new profile. `everywhere` lets it share paths outside the organization's workspace.

    Raises `Malformed`, `Conflict`, `Forbidden`; `Unavailable` when sandboxd cannot check paths.
    """
    require_license(organization)
    columns = read_profile(profile, organization=organization.slug)
    require_level(organization.pk, IsolationLevel(columns["minimum_isolation"]))
    _examine(columns["allowed_paths"], [], organization, everywhere=everywhere)
    with transaction.atomic():
        Organization.objects.next_revision(organization.pk)
        credentials.check_named(organization, "allowed_hosts", columns["allowed_hosts"])
        taken = f"There is a sandbox profile {columns['name']} already."
        with unique(taken, code="profile_exists"):
            row = SandboxProfile.objects.create(organization=organization, **columns)
        record_change(Event.PROFILE_CREATE, row.name, by, None, written(row))
    return row


def replace_profile(
    *, row: SandboxProfile, profile: Any, by: Actor, everywhere: bool = False
) -> SandboxProfile:
    """Replace all fields of a profile but its name. Raises what `create_profile` raises."""
    examine_profile(row=row, profile=profile, everywhere=everywhere)
    return keep_profile(row=row, profile=profile, by=by, known_paths=row.allowed_paths)


def examine_profile(*, row: SandboxProfile, profile: Any, everywhere: bool = False) -> None:
    """Checks the new fields; sandboxd checks new paths, so no transaction should be open. Raises
    what `create_profile` raises."""
    columns = _columns_for(row, profile)
    _examine(columns["allowed_paths"], row.allowed_paths, row.organization, everywhere=everywhere)


@transaction.atomic
def keep_profile(
    *, row: SandboxProfile, profile: Any, by: Actor, known_paths: list[dict[str, str]]
) -> SandboxProfile:
    """Stores fields that were checked when the row had the `known_paths`. Raises what
    `create_profile` raises."""
    organization = row.organization
    columns = _columns_for(row, profile)
    Organization.objects.next_revision(organization.pk)
    row.refresh_from_db()
    if columns["allowed_paths"] == known_paths != row.allowed_paths:
        raise Conflict(f"The paths of {row.name} were changed at this moment. Look again.")
    credentials.check_named(organization, "allowed_hosts", columns["allowed_hosts"])
    _check_tools(row, Backend(columns["backend"]))
    before = written(row)
    for column, value in columns.items():
        setattr(row, column, value)
    if written(row) == before:
        return row
    row.save(update_fields=[*columns, "updated_at"])
    record_change(Event.PROFILE_CHANGE, row.name, by, before, written(row))
    return row


def _columns_for(row: SandboxProfile, profile: Any) -> Body:
    organization = row.organization
    require_license(organization)
    columns = read_profile(profile, organization=organization.slug)
    if columns["name"] != row.name:
        raise _invalid([{"field": "name", "message": "cannot be changed; tools name it"}])
    require_level(organization.pk, IsolationLevel(columns["minimum_isolation"]))
    return columns


@transaction.atomic
def delete_profile(*, row: SandboxProfile, by: Actor) -> None:
    """Raises `Conflict` while tools name it: they could not run any more."""
    Organization.objects.next_revision(row.organization_id)
    names = list(tools_with(row).values_list("name", flat=True)[:_NAMED])
    if names:
        raise Conflict(
            f"Tools name the sandbox profile {row.name}: {', '.join(names)}.",
            code="has_dependants",
            dependants=names,
        )
    record_change(Event.PROFILE_DELETE, row.name, by, written(row), None)
    row.delete()


def find_profile(organization: Organization, name: str) -> SandboxProfile:
    """Raises `NotFound`, also for another organization's profile."""
    found = (
        SandboxProfile.objects.select_related("organization__tier")
        .filter(organization=organization, name=name)
        .first()
    )
    if found is None:
        raise NotFound(f"There is no sandbox profile {name[:63]!r}.", code="profile_not_found")
    return found


def written(row: SandboxProfile) -> Body:
    """A profile as one would write it."""
    columns = {name: getattr(row, name) for name in FIELDS if name != "max_cpu_time"}
    shown = columns | {"max_cpu_time": durations.format_duration(row.max_cpu_s)}
    return {name: shown[name] for name in FIELDS}


def check_reference(organization: Organization, definition: Definition) -> None:
    """Checks that a definition may name its profile and its credential.

    Raises `Forbidden`, `InvalidDefinition`. Call it while the organization's row is locked:
    profiles and credentials are deleted under the same lock.
    """
    tool = ToolDefinition(definition)
    credentials.check_of_tool(organization, tool)
    if tool.sandbox_profile is None:
        return
    require_license(organization)
    row = organization.sandbox_profiles.filter(name=tool.sandbox_profile).first()
    if row is None:
        raise _unusable("names no sandbox profile of this organization")
    if flaw := _flaw_of_backend(Backend(row.backend), definition):
        raise _unusable(f"{row.name} has the backend {row.backend}, which {flaw}")


def require_license(organization: Organization) -> None:
    """Checked against the current tier."""
    tier = tier_of(organization.pk)
    if not tier.custom_sandbox_profiles:
        raise Forbidden(
            f"The {tier.name} licence does not include sandbox profiles of your own.",
            code="license_excludes_profiles",
        )


def tools_with(row: SandboxProfile) -> QuerySet[Tool]:
    return Tool.objects.present().filter(
        organization_id=row.organization_id,
        version__definition__constraints__sandbox_profile=row.name,
    )


def _identity(fields: ListedFields) -> Body:
    name = fields.text("name", longest=63)
    if name and not PROFILE_NAME.fullmatch(name):
        fields.wrong("name", "may hold only letters, digits, '_', '.' and '-'")
    return {
        "name": name,
        "description": fields.text("description", "", longest=1_000),
        "backend": fields.choice("backend", Backend, Backend.PROCESS),
        "minimum_isolation": fields.choice(
            "minimum_isolation", IsolationLevel, IsolationLevel.STANDARD
        ),
    }


def _reach(fields: ListedFields, organization: str) -> Body:
    return {
        "allow_filesystem": fields.boolean("allow_filesystem", False),
        "allowed_paths": read_paths(fields, "allowed_paths", organization),
        "allow_network": fields.boolean("allow_network", False),
        "allowed_hosts": read_hosts(fields, "allowed_hosts"),
        "proxy": fields.boolean("proxy", False),
        "network_when_restricted": fields.boolean("network_when_restricted", False),
    }


def _limits(fields: ListedFields) -> Body:
    cpu_time = fields.duration(
        "max_cpu_time", durations.format_duration(_DEFAULTS.cpu_s), longest_s=86_400
    )
    return {
        "max_memory_bytes": fields.integer(
            "max_memory_bytes", _DEFAULTS.memory_bytes, least=8 * MIB, most=64 * _GIB
        ),
        "max_cpu_s": durations.parse_duration(str(cpu_time)),
        "max_processes": fields.integer("max_processes", None, least=1, most=256),
        "max_disk_bytes": fields.integer(
            "max_disk_bytes", _DEFAULTS.tmp_bytes, least=4096, most=_GIB
        ),
        "max_files": fields.integer("max_files", _DEFAULTS.tmp_inodes, least=1, most=100_000),
        "quota_bytes": fields.integer(
            "quota_bytes", _DEFAULTS.shared_bytes, least=4096, most=1024 * _GIB
        ),
        "quota_files": fields.integer(
            "quota_files", _DEFAULTS.shared_files, least=1, most=1_000_000
        ),
    }


def _check_together(fields: ListedFields, columns: Body) -> None:
    """Without namespaces, neither a level above Standard nor network isolation is possible."""
    backend, level = columns["backend"], IsolationLevel(columns["minimum_isolation"])
    if backend in NO_NETWORK and columns["allow_network"]:
        fields.wrong("allow_network", f"the backend {backend} has no network")
    if backend == Backend.DEGRADED and not at_least(IsolationLevel.STANDARD, level):
        fields.wrong("minimum_isolation", f"the backend {backend} gives Standard at most")


def _examine(
    items: list[dict[str, str]],
    known: list[dict[str, str]],
    organization: Organization,
    *,
    everywhere: bool,
) -> None:
    """Lets sandboxd, which will mount the paths, open them. Unchanged paths are not checked.

    Raises `Malformed`; `Forbidden` for paths that are not this organization's to share.
    """
    if not items or items == known:
        return
    if not everywhere and (beyond := outside(items, organization.slug)):
        raise Forbidden(
            "Only a superuser may share what lies outside the organization's workspace: "
            f"{', '.join(beyond)[:500]}.",
            code="not_permitted",
        )
    try:
        found = sandbox_client().examine(mounts_of(items))
    except OSError:
        raise Unavailable(
            "sandboxd did not answer, and it must open the paths. Try again in a moment.",
            code="sandbox_unreachable",
        ) from None
    if found:
        places = {item["path"]: at for at, item in enumerate(items)}
        raise _invalid(
            [
                {"field": f"allowed_paths[{places[path]}].path", "message": f"{path}: {flaw}"}
                for path, flaw in found.items()
            ]
        )


def _check_tools(row: SandboxProfile, backend: Backend) -> None:
    """Checks that the tools that name the profile could run with the change."""
    if backend == row.backend:
        return
    for tool in tools_with(row).select_related("version"):
        assert tool.version is not None
        if flaw := _flaw_of_backend(backend, tool.version.definition):
            message = f"{backend} {flaw}, and the tool {tool.name} is something else"
            raise _invalid([{"field": "backend", "message": message}])


def _flaw_of_backend(backend: Backend, definition: Definition) -> str | None:
    """What a backend cannot run, as an end of a sentence."""
    tool = ToolDefinition(definition)
    if backend == Backend.MONTY and tool.type in {ToolType.BUILTIN, ToolType.HTTP}:
        return "runs code of your own only"
    if backend != Backend.PROCESS and tool.language != Language.PYTHON:
        return "runs Python only"
    return None


def _unusable(message: str) -> InvalidDefinition:
    flaw = {"field": "constraints.sandbox_profile", "message": message}
    return InvalidDefinition("The definition was not accepted: see details.errors.", errors=[flaw])


def _invalid(flaws: Iterable[dict[str, str]]) -> Malformed:
    errors = list(flaws)
    count = len(errors)
    return Malformed(
        f"The sandbox profile was not accepted: {count} field{'s are' if count > 1 else ' is'} "
        "wrong; see details.errors.",
        code="invalid_sandbox_profile",
        errors=errors,
    )
