"""Self-announced tool services: received, reviewed and approved by a person, and open while their
lease lasts.

Nothing of one is deleted when its lease runs out; its tools are closed until it is back.
"""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome
from tools.catalog.actions import register_tool, set_enabled, update_tool
from tools.catalog.services import services
from tools.definitions.callers import CallerKind
from tools.definitions.services import Announcement, has_valid_signature, read_announcement
from tools.definitions.tool import Definition
from tools.errors import Conflict, Forbidden, InvalidDefinition
from tools.models import Organization, ServiceStatus, Tool, ToolService, ToolStatus

MOST_PENDING = 100  # of one organization: more could not be reviewed
_FIELDS = ("status", "digest", "announced_digest")


def hear(*, organization: Organization, document: str, key: str, signature: str) -> ToolService:
    """Record a service's announcement. It has no effect before a person approves it.

    Raises `InvalidDefinition` for what cannot be read, `Forbidden` for a name that is another's.
    """
    if not has_valid_signature(document, key, signature):
        raise InvalidDefinition("The announcement's signature is not its key's.", errors=[])
    said = read_announcement(document, organization=organization.slug)
    here = ToolService.objects.filter(organization=organization, name=said.name)
    seen = here.filter(key=key, announced_digest=said.digest)
    if seen.update(last_seen=timezone.now()):
        return seen.get()
    with transaction.atomic():
        Organization.objects.next_revision(organization.pk)
        row = here.first() or _newcomer(organization, said, key)
        if row.key != key:
            raise Forbidden(
                f"The name {said.name} belongs to another key.",
                code="service_key_differs",
                service=said.name,
            )
        _note(row, said)
    return row


@transaction.atomic
def approve_service(
    *, row: ToolService, digest: str, by: Actor, reconsider: bool = False
) -> ToolService:
    """Approves the latest announcement, with its tools. `digest` identifies what was read.

    Raises `Conflict` for any other digest, where its queue or its tools are in the way, and for a
    rejected announcement without `reconsider`.
    """
    row = _changing(row, digest)
    if row.status == ServiceStatus.REJECTED and not reconsider:
        raise Conflict(
            "Somebody has rejected this announcement; say reconsider to approve it nevertheless.",
            code="service_rejected",
        )
    before, was = _states(row), services.written(row)
    said = read_announcement(row.announcement, organization=row.organization.slug)
    services.check_tools(
        row, said.service["config_params"], but=frozenset(one["name"] for one in said.tools)
    )
    services.fill(row, said.service)
    if row.digest != said.digest:
        row.digest, row.serving = said.digest, False  # until its lease is seen
    row.status = ServiceStatus.APPROVED
    row.save(update_fields=[*_FIELDS, "serving", *services.COLUMNS])
    for definition in said.tools:
        _provide(row, definition, by)
    _retire(row, said, by)
    _record(Event.SERVICE_APPROVE, row, by, before | was, _states(row) | services.written(row))
    return row


@transaction.atomic
def reject_service(*, row: ToolService, digest: str, by: Actor, reason: str = "") -> ToolService:
    """Reject the latest announcement; an earlier approval of it ends. Raises `Conflict`."""
    row = _changing(row, digest)
    before = _states(row)
    row.status = ServiceStatus.REJECTED
    if row.digest == digest:
        row.digest, row.serving = "", False
    row.save(update_fields=[*_FIELDS, "serving"])
    _record(Event.SERVICE_REJECT, row, by, before, _states(row), reason=reason)
    return row


def note_lease(*, row: ToolService, until: datetime | None) -> None:
    """Record until when a process holds the lease of the approved announcement; None where none
    does.

    A service that stops or returns changes the catalog's revision, so that every process sees it.
    """
    now = timezone.now()
    serving = until is not None and until > now
    same = ToolService.objects.filter(pk=row.pk, digest=row.digest, serving=serving)
    seen: dict[str, Any] = {"lease_until": until, "last_seen": now} if serving else {}
    if not row.digest or (same.update(**seen) if seen else same.exists()):
        return
    with transaction.atomic():
        Organization.objects.next_revision(row.organization_id)
        changed = ToolService.objects.filter(pk=row.pk, digest=row.digest, serving=not serving)
        if changed.update(serving=serving, **seen):
            event = Event.SERVICE_OPEN if serving else Event.SERVICE_CLOSE
            before, after = {"serving": not serving}, {"serving": serving}
            _record(event, row, _itself(row.organization, row.name), before, after)


def refuse(*, organization: Organization, name: str, why: str) -> None:
    """Audits an announcement under a name that belongs to another service."""
    record(
        Event.SERVICE_REFUSE, by=_itself(organization, name), outcome=Outcome.DENIED,
        subject=name, reason=why,
    )  # fmt: skip


def _newcomer(organization: Organization, said: Announcement, key: str) -> ToolService:
    waiting = ToolService.objects.filter(
        organization=organization, status=ServiceStatus.PENDING, digest=""
    )
    if waiting.count() >= MOST_PENDING:
        raise Forbidden(
            f"{MOST_PENDING} services wait for a person already.",
            code="too_many_pending",
            service=said.name,
        )
    return ToolService(organization=organization, name=said.name, key=key, serving=False)


def _note(row: ToolService, said: Announcement) -> None:
    """An announcement that was approved before needs no approval; any other waits."""
    new = row._state.adding
    before = None if new else _states(row)
    row.announced_digest, row.announcement = said.digest, said.document
    approved = row.digest == said.digest
    row.status = ServiceStatus.APPROVED if approved else ServiceStatus.PENDING
    row.last_seen = timezone.now()
    row.save()
    _record(
        Event.SERVICE_ANNOUNCE, row, _itself(row.organization, row.name), before, _states(row)
    )  # fmt: skip


def _changing(row: ToolService, digest: str) -> ToolService:
    """The current row, with its organization locked, if it is the one that was read."""
    Organization.objects.next_revision(row.organization_id)
    row = ToolService.objects.select_related("organization__tier").get(pk=row.pk)
    if not row.announced:
        raise Conflict(
            "People wrote this service; nobody needs to approve it.", code="not_announced"
        )
    if row.announced_digest != digest:
        raise Conflict(
            "The service has announced something else since; read it again.",
            code="digest_differs",
            digest=row.announced_digest,
        )
    return row


def _provide(row: ToolService, definition: Definition, by: Actor) -> None:
    found = Tool.objects.present().filter(
        organization=row.organization, name__iexact=definition["name"]
    )
    tool = found.select_related("version", "organization").first()
    if tool is None:
        register_tool(organization=row.organization, definition=definition, by=by)
    elif tool.pk in {one.pk for one in services.tools_of(row)}:
        update_tool(tool=tool, definition=definition, by=by)
    else:
        raise Conflict(f"There is a tool {tool.name} that is another's.", code="tool_exists")


def _retire(row: ToolService, said: Announcement, by: Actor) -> None:
    """Tools the service had announced and does so no more stay, switched off."""
    named = {one["name"] for one in said.tools}
    if not named:
        return
    for tool in services.tools_of(row):
        if tool.name not in named and tool.status == ToolStatus.ACTIVE:
            set_enabled(tool=tool, enabled=False, by=by, reason="no longer announced")


def _states(row: ToolService) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _FIELDS}


def _itself(organization: Organization, name: str) -> Actor:
    return Actor(CallerKind.SYSTEM, f"service {name}"[:100], organization.slug)


def _record(
    event: Event,
    row: ToolService,
    by: Actor,
    before: dict[str, Any] | None,
    after: dict[str, Any],
    **more: Any,
) -> None:
    record(
        event, by=by, outcome=Outcome.CHANGED, subject=row.name, digest=row.announced_digest,
        details={**difference(before, after), **more},
    )  # fmt: skip
