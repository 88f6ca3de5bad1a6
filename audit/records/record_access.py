"""Reading evidence is on record too: reader, address and filters. The results are not."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditLeaf, AuditPayload, AuditRecord, Checkpoint
from audit.records import payloads, record_search
from audit.records.record_search import Position, RecordSearch

MAY_OPEN = "audit.view_auditpayload"


@dataclass(frozen=True, slots=True)
class SealPosition:
    """A record's place in its log, and when that was first signed."""

    log: str
    index: int
    leaf_hash: str
    signed_at: datetime | None


@dataclass(frozen=True, slots=True)
class PayloadView:
    """The input and output. `state` is none, withheld, erased or shown."""

    state: str
    content: dict[str, Any] | None = None
    salt: str = ""
    erased_at: datetime | None = None
    erased_by: str = ""


@dataclass(frozen=True, slots=True)
class AuditPage:
    records: list[AuditRecord]
    newer: Position | None
    older: Position | None


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    record: AuditRecord
    payload: PayloadView
    sealed: SealPosition | None


@transaction.atomic
def read_page(
    wanted: RecordSearch, size: int, position: Position | None, *, by: Actor
) -> AuditPage:
    upward = position is not None and position.upward
    found = record_search.search_page(wanted, size + 1, position)
    more = len(found) > size
    shown = found[-size:] if upward else found[:size]
    details = {"filters": wanted.filters, "opened": wanted.opened, "found": len(shown)}
    record(Event.AUDIT_READ, by=by, outcome=Outcome.SUCCESS, subject="records", details=details)
    newer = shown and (more if upward else position is not None)
    older = shown and (position != record_search.OLDEST if upward else more)
    return AuditPage(
        shown,
        Position.from_record(shown[0], upward=True) if newer else None,
        Position.from_record(shown[-1]) if older else None,
    )


@transaction.atomic
def open_record(record_id: UUID, *, by: Actor, may_open: bool) -> OpenedRecord | None:
    """None where the actor's organization has no such record."""
    found = record_search.organization_records(by.organization).filter(pk=record_id).first()
    if found is None:
        return None
    payload = read_payload(found, may_open=may_open)
    record(
        Event.AUDIT_READ,
        by=by,
        outcome=Outcome.SUCCESS,
        subject=f"record:{record_id}",
        execution_id=found.execution_id,
        details={"record": str(record_id), "code": found.code, "payload": payload.state},
    )
    return OpenedRecord(found, payload, seal_position(record_id))


def read_payload(found: AuditRecord, *, may_open: bool) -> PayloadView:
    row = AuditPayload.objects.filter(pk=found.pk, organization=found.organization).first()
    if row is None:
        return PayloadView("none")
    if row.erased_at is not None:
        return PayloadView("erased", erased_at=row.erased_at, erased_by=row.erased_by)
    if not may_open:
        return PayloadView("withheld")
    try:
        content = payloads.open_payload(found.pk)
    except payloads.PayloadErased:
        return PayloadView("erased", erased_by="a new key for the organization")
    return PayloadView("shown", content["payload"], content["salt"])


def seal_position(record_id: UUID) -> SealPosition | None:
    leaf = AuditLeaf.objects.filter(record_id=record_id).select_related("log").first()
    if leaf is None:
        return None
    over = Checkpoint.objects.filter(log_id=leaf.log_id, size__gt=leaf.index)
    first = over.order_by("size", "id").only("created_at").first()
    signed_at = first.created_at if first else None
    return SealPosition(leaf.log.name, leaf.index, bytes(leaf.hash).hex(), signed_at)
