"""Verifies the signature of every version of every tool, and repairs what an operator accepts."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.db.models import F

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.catalog.actions import add_version, changing
from tools.catalog.signatures import newest
from tools.catalog.signatures.keys import keys_of
from tools.catalog.signatures.newest import SignatureFileState
from tools.catalog.signatures.version_signatures import verifies
from tools.errors import Conflict
from tools.models import Organization, Tool, ToolVersion

ALTERED, DISTRUSTED, ROLLED_BACK = "altered", "key_distrusted", "rolled_back"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A version that is not what was signed. `current` where it is the one in use."""

    tool: str
    version: str
    number: int
    key_id: str
    current: bool
    problem: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Evidence:
    """The keys and numbers that versions are verified with."""

    noted: SignatureFileState
    keys: Mapping[str, bytes]
    ever: Mapping[str, bytes]

    @classmethod
    def load_evidence(cls, organization: Organization) -> "Evidence":
        noted = newest.newest.read_state(organization.pk)
        ever = keys_of(organization.pk, noted, distrusted=True)
        return cls(noted, keys_of(organization.pk, noted), ever)

    def problem(self, tool: Tool, version: ToolVersion) -> str | None:
        """A rollback is reported before a distrusted key, so that a rolled-back version is not
        signed again."""
        if not verifies(tool, version, self.ever):
            return ALTERED
        in_use = version.pk == tool.version_id and tool.deleted_at is None
        if in_use and version.number < self.noted.numbers.get(tool.pk, 0):
            return ROLLED_BACK
        return None if verifies(tool, version, self.keys) else DISTRUSTED


def wrong_in(organization: Organization) -> tuple[int, list[Wrong]]:
    """How many versions were examined, and those that are wrong, or in use by another tool."""
    evidence, looked_at, found = Evidence.load_evidence(organization), 0, _misled(organization)
    for tool, version in _versions(organization):
        looked_at += 1
        if problem := evidence.problem(tool, version):
            current = version.pk == tool.version_id
            found.append(
                Wrong(tool.name, version.label, version.number, version.key_id, current, problem)
            )
    return looked_at, found


@transaction.atomic
def resign(*, tool: Tool, by: Actor) -> Tool:
    """The same definition as a new version under the current key. Raises `Conflict`, unless its
    only problem is a distrusted key, so that an altered version is never signed."""
    tool = changing(tool)
    assert tool.version is not None
    version = tool.version
    if Evidence.load_evidence(tool.organization).problem(tool, version) != DISTRUSTED:
        raise Conflict(
            f"The version {version.label[:40]} of {tool.name} cannot be signed again: it was "
            "altered, or nothing is wrong with it.",
            code="cannot_resign",
        )
    add_version(tool, version.definition, label=None, by=by, note=f"Signs {version.label} again.")
    said = {"before": {"key_id": version.key_id}, "after": {"key_id": tool.version.key_id}}
    _record(Event.TOOL_RESIGN, tool, by, said)
    return tool


@transaction.atomic
def accept_rollback(*, organization: Organization, by: Actor) -> list[str]:
    """Accepts the versions in use although newer ones were seen, after a backup was restored."""
    Organization.objects.next_revision(organization.pk)
    evidence, accepted = Evidence.load_evidence(organization), []
    for tool in _tools(organization):
        assert tool.version is not None
        if evidence.problem(tool, tool.version) != ROLLED_BACK:
            continue
        newest.append(organization.pk, [f"accept {tool.pk} {tool.version.number}"])
        seen = evidence.noted.numbers[tool.pk]
        said = {"before": {"number": seen}, "after": {"number": tool.version.number}}
        _record(Event.ROLLBACK_ACCEPT, tool, by, said)
        accepted.append(tool.name)
    return accepted


def _tools(organization: Organization) -> Iterator[Tool]:
    rows = Tool.objects.present().filter(organization=organization, version__isnull=False)
    yield from rows.select_related("version", "organization").order_by("name")


def _versions(organization: Organization) -> Iterator[tuple[Tool, ToolVersion]]:
    """Also those of tools that were deleted: evidence refers to them."""
    rows = ToolVersion.objects.filter(tool__organization=organization)
    for version in rows.select_related("tool__organization").order_by("tool__name", "number"):
        yield version.tool, version


def _misled(organization: Organization) -> list[Wrong]:
    """Tools whose version in use is none of theirs, or none at all: no action leaves one so."""
    rows = Tool.objects.present().filter(organization=organization).select_related("version")
    found = rows.exclude(version__tool=F("pk")).order_by("name")
    return [_misled_by(tool.name, tool.version) for tool in found]


def _misled_by(name: str, version: ToolVersion | None) -> Wrong:
    if version is None:
        return Wrong(name, "", 0, "", True, ALTERED)
    return Wrong(name, version.label, version.number, version.key_id, True, ALTERED)


def _record(event: Event, tool: Tool, by: Actor, said: dict[str, Any]) -> None:
    digest = tool.version.digest if tool.version else ""
    record(event, by=by, outcome=Outcome.CHANGED, subject=tool.name, digest=digest, details=said)
