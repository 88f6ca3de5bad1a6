"""`/audit/`: inclusion proofs of records, and the signed checkpoints of a log, to download."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render

from audit.log import checkpoints, key_files, proofs
from audit.log.checkpoints import BadNote, CheckpointStatement
from audit.log.proofs import NotProvable
from audit.models import Checkpoint
from audit.records import record_access, record_search
from audit.verification.record_proofs import ProofStep, prove_record
from audit.verifier import toolcrib_verify
from tools.accounts.callers import actor_of
from tools.ui.audit.audit_records import PERMISSION, count_open
from tools.web.listing import Column, Listing
from tools.web.pages import PageRequest, page

_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class CheckpointListRow:
    row: Checkpoint
    root: str
    statement: CheckpointStatement | None  # None for an invalid note
    keys: list[str]  # keys of this installation with a valid signature


@page(PERMISSION)
def record_proof(request: PageRequest, record_id: UUID) -> HttpResponse:
    """Each step of the inclusion proof of one record, computed now."""
    by = actor_of(request.caller)
    may_open = request.user.has_perm(record_access.MAY_OPEN)
    opened = record_access.open_record(record_id, by=by, may_open=may_open)
    if opened is None:
        raise Http404
    steps: list[ProofStep] = []
    wait = ""
    try:
        steps = prove_record(opened.record, opened.payload)
    except NotProvable as reason:
        wait = str(reason)
    context = {
        "record": opened.record,
        "steps": steps,
        "wait": wait,
        "holds": bool(steps) and all(step.holds for step in steps),
        "keys": _verifier_keys(by.organization),
        "alerts": count_open(by.organization),
    }
    return render(request, "audit/proof.html", context)


@page(PERMISSION)
def record_line(request: PageRequest, record_id: UUID) -> HttpResponse:
    """The record's line, byte for byte as it is sealed. The download is recorded."""
    by = actor_of(request.caller)
    if not record_search.organization_records(by.organization).filter(pk=record_id).exists():
        raise Http404
    line = proofs.disclose_line(record_id, by=lambda organization: by)
    return _text_file(f"{record_id}.line", line)


@page(PERMISSION)
def verifier(request: PageRequest) -> HttpResponse:
    """The program that verifies a proof without Toolcrib."""
    source = Path(toolcrib_verify.__file__)
    return _text_file(source.name, source.read_text("utf-8"))


class CheckpointListing(Listing):
    """The checkpoints of the user's log, the newest first."""

    view, template, noun = "audit-checkpoints", "audit/checkpoints.html", "checkpoint"
    order, place, page_size, counted, below = "-held", "size", 50, False, True
    columns = [
        Column("held", "Held", lambda one: one.row.size, sort="size"),
        Column("signed", "Signed", lambda one: one.statement and one.statement.at),
        Column("keys", "By the key", lambda one: one.keys),
        Column("root", "Root", lambda one: one.root),
        Column("files", "Take away"),
    ]

    def rows(self) -> QuerySet[Checkpoint]:
        return Checkpoint.objects.filter(log__name=self.caller.organization)

    def prepare(self, rows: list[Checkpoint]) -> list[CheckpointListRow]:
        log = self.caller.organization
        return [_checkpoint_row(row, log) for row in rows]

    def context(self) -> dict[str, Any]:
        log = self.caller.organization
        return {"keys": _verifier_keys(log), "alerts": count_open(log)}


@page(PERMISSION)
def checkpoint_list(request: PageRequest) -> HttpResponseBase:
    return CheckpointListing(request).respond()


@page(PERMISSION)
def consistency_proof(request: PageRequest, checkpoint_id: int) -> HttpResponse:
    """The consistency proof: since a checkpoint, the log was only appended to."""
    found = _find_checkpoint(request, checkpoint_id)
    try:
        proof = proofs.growth_proof(found.log.name, found.size)
    except NotProvable as reason:
        raise Http404(str(reason)) from None
    return _text_file(f"{found.size}.growth-proof", proof)


@page(PERMISSION)
def checkpoint_note(request: PageRequest, checkpoint_id: int) -> HttpResponse:
    """A checkpoint as it was published, to store it elsewhere."""
    found = _find_checkpoint(request, checkpoint_id)
    return _text_file(f"{found.size}.note", found.note)


def _find_checkpoint(request: PageRequest, checkpoint_id: int) -> Checkpoint:
    mine = Checkpoint.objects.filter(log__name=request.caller.organization)
    return get_object_or_404(mine.select_related("log"), pk=checkpoint_id)


def _checkpoint_row(row: Checkpoint, log: str) -> CheckpointListRow:
    root = bytes(row.root).hex()
    try:
        keys = checkpoints.signed_by(row.note, key_files.trusted_keys(log))
        return CheckpointListRow(row, root, checkpoints.read_note(row.note), keys)
    except BadNote:
        return CheckpointListRow(row, root, None, [])


def _verifier_keys(log: str) -> list[str]:
    """The public keys in the verifier's format, the current signing key first."""
    name = key_files.log_origin(log)
    return [
        checkpoints.verifier_key(name, public) for public in key_files.trusted_keys(log).values()
    ]


def _text_file(name: str, content: Any) -> HttpResponse:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type=_TEXT, headers=disposition)
