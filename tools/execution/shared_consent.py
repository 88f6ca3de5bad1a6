"""One question for all calls of a batch: what it is asked about, and which call may begin on it.

The batch's parameters are its calls, and a person's yes binds them together with the versions of
the tools that need one. A call begins on it when it is still the very input that stands at its
place, of a version that was shown; whatever else it must pass is asked when it is made.
"""

from collections import Counter
from typing import Any
from uuid import UUID

from tools.authorization.facts import question_of
from tools.catalog.snapshot import CatalogTool
from tools.definitions.batches import BatchInput, parse_batch_inputs
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import Status
from tools.errors import Refused
from tools.execution.context import Admission
from tools.models import Confirmation, ConfirmationStatus, Execution
from tools.policy import gates
from tools.policy.approval_requirements import ApprovalRequirement, requirement_of
from tools.policy.questions import NO_OPTIONS


def asked_for(admission: Admission) -> tuple[ApprovalRequirement | None, dict[str, Any]]:
    """What people are asked about a batch as a whole, and the tools that their yes is good for."""
    try:
        inputs = parse_batch_inputs(admission.parameters)
    except ValueError:  # its own turn will say so
        return admission.need, {}
    counted = Counter(one.tool_name for one in inputs)
    reasons: list[str] = []
    approvals, covers = 0, {}
    for name, count in counted.items():
        tool = admission.snapshot.tool(name)
        need = _need_of(admission, tool) if tool else None
        if tool is None or need is None:
            continue
        covers[name] = {"id": str(tool.id), "digest": tool.digest}
        times = "one call" if count == 1 else f"{count} calls"
        reasons += [f"{reason} ({times} of this batch.)" for reason in need.reasons]
        approvals = max(approvals, need.approvals)
    own = admission.need
    if not covers:
        return own, {}
    reasons = [*(own.reasons if own else ()), *reasons]
    return ApprovalRequirement(tuple(reasons), max(approvals, own.approvals if own else 1)), covers


def given(admission: Admission, need: ApprovalRequirement) -> bool:
    """Whether people have agreed to the batch with this call in it. The claim looks once more."""
    call = admission.call
    if call.parent is None or call.require_confirmation:
        return False
    shared = of_call(
        parent_id=call.parent.id,
        place=call.parent.place,
        tool=admission.resolved,
        parameters=admission.parameters,
    )
    return shared is not None and shared.approvals_needed >= need.approvals


def of_call(
    *, parent_id: UUID | None, place: str, tool: CatalogTool, parameters: object
) -> Confirmation | None:
    """The consent to a batch that one of its calls may begin on; None where there is none."""
    if parent_id is None:
        return None
    shared = (
        Confirmation.objects.select_related("execution__tool_version")
        .filter(
            execution=parent_id, status=ConfirmationStatus.APPROVED, execution__status__in=_ALIVE
        )
        .first()
    )
    if shared is None or not _covers(shared, tool):
        return None
    if shared.execution.started_at is None:
        return None
    return shared if _input(shared.execution, place) == (tool.name, parameters) else None


_ALIVE = (Status.RUNNING, Status.PENDING)


def _need_of(admission: Admission, tool: CatalogTool) -> ApprovalRequirement | None:
    """Nothing of a call that would be refused as things stand: nobody is asked about that."""
    question = question_of(admission.caller, tool, admission.asked, admission.snapshot)
    try:
        gates.authorize(question)
    except Refused:
        return None
    return requirement_of(question, NO_OPTIONS)


def _covers(shared: Confirmation, tool: CatalogTool) -> bool:
    shown = shared.covers.get(tool.name)
    return bool(shown == {"id": str(tool.id), "digest": tool.digest})


def _input(batch: Execution, place: str) -> BatchInput | None:
    if batch.tool_version.definition["implementation"].get("entry_point") != RUN_BATCH:
        return None
    inputs = parse_batch_inputs(batch.parameters)
    if not place.isascii() or not place.isdigit() or int(place) >= len(inputs):
        return None
    return inputs[int(place)]
