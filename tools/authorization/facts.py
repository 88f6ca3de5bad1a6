"""What gates read beside the catalog and the caller: grants, opening hours, the license tier, past
use, and the state of the audit log. The gates themselves read nothing.

Each answer is read when a gate asks for it, as it is then; what is cached is cached where it is
read.
"""

from collections.abc import Sequence
from uuid import UUID

from audit.log import log_status
from sandbox.spec import IsolationLevel
from tools import metrics
from tools.accounts.grants.grants import ToolGrants, grants, permissions_of
from tools.authorization.known_names import group_label
from tools.catalog import seats
from tools.catalog.group_openings import Openings, openings_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.catalog.tiers import excluded_level, forced_level, tier_now
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.texts.names import WILDCARD
from tools.errors import AuditHalted, Refused
from tools.models import Execution, LicenseTier
from tools.policy import call_gates, gates
from tools.policy.gates import GateCheck
from tools.policy.questions import (
    CallTerms,
    EffectiveRequest,
    Facts,
    Gate,
    Question,
    RequestQuestion,
)


class CurrentFacts:
    """As this process knows it now. The state of the audit log is at most a second old."""

    def audit_halted(self, organization: str) -> AuditHalted | None:
        try:
            log_status.check_halted_cached(organization)
        except log_status.LogHalted:
            return audit_halted()
        return None

    def grants(self, caller: Caller, snapshot: Snapshot) -> ToolGrants:
        return grants.find_grants(caller, snapshot.revision)

    def permissions(self, caller: Caller, snapshot: Snapshot) -> frozenset[str]:
        return permissions_of(caller, snapshot)

    def openings(self, snapshot: Snapshot) -> Openings:
        return openings_of(snapshot)

    def tier(self, snapshot: Snapshot) -> LicenseTier:
        return tier_now(snapshot)

    def has_seat(self, tool: CatalogTool, snapshot: Snapshot, limit: int) -> bool:
        return not (seats.put_out(tool) or tool.id in tools_without_seat(snapshot, limit))

    def excluded_level(
        self, tool: CatalogTool, tier: LicenseTier, levels: Sequence[IsolationLevel]
    ) -> IsolationLevel | None:
        return excluded_level(tier, forced_level(tool.definition, tool.origin), levels)

    def used_before(self, caller: Caller, tool: CatalogTool) -> bool:
        """A tool that was deleted and registered again under its name counts as another one."""
        return Execution.objects.filter(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            tool_version__tool_id=tool.id,
            status=Status.SUCCESS,
            unsuccessful__isnull=True,  # as the condition of the index says
        ).exists()


class TransactionFacts(CurrentFacts):
    """The same, with the state of the audit log in the open transaction: for what runs next."""

    def audit_halted(self, organization: str) -> AuditHalted | None:
        try:
            log_status.check_halted(organization)
        except log_status.LogHalted:
            return audit_halted()
        return None


class ClaimFacts(CurrentFacts):
    """The same, with the state of the audit log that the claim has read."""

    def __init__(self, execution: Execution) -> None:
        self._halted = execution.halted_reason is not None

    def audit_halted(self, organization: str) -> AuditHalted | None:
        return audit_halted() if self._halted else None


CURRENT: Facts = CurrentFacts()
IN_TRANSACTION: Facts = TransactionFacts()


def question_of(
    caller: Caller,
    tool: CatalogTool,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    *,
    at_entry_point: bool = False,
    call: CallTerms | None = None,
    facts: Facts = CURRENT,
) -> Question:
    return Question(caller, asked, snapshot, facts, tool, at_entry_point, call)


def tools_without_seat(snapshot: Snapshot, limit: int) -> frozenset[UUID]:
    """The custom tools beyond the limit of a tier."""
    return snapshot.settle(("beyond", limit), lambda: seats.tools_without_seat(snapshot, limit))


def authorize_call(question: Question, checks: tuple[GateCheck, ...]) -> list[str]:
    """Raises the first gate's refusal, else returns the warnings. An attempt to use groups that
    were not granted is counted."""
    try:
        return gates.authorize(question, checks)
    except Refused as refusal:
        if refusal.details.get("gate") == Gate.GRANTED_GROUPS:
            _count_escalation(frozenset(refusal.details["groups"]), question.snapshot)
        raise


def check_groups(caller: Caller, asked: EffectiveRequest, snapshot: Snapshot) -> list[str]:
    """Asks the gate of granted groups for a request without a tool, and counts a refusal.

    Returns warnings about names no group has; a strict caller gets `Malformed` for them.
    """
    try:
        return check_groups_uncounted(caller, asked, snapshot)
    except Refused as refusal:
        _count_escalation(frozenset(refusal.details["groups"]), snapshot)
        raise


def check_groups_uncounted(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot
) -> list[str]:
    """The same for a hypothetical request."""
    verdict = call_gates.granted_groups(RequestQuestion(caller, asked, snapshot, CURRENT))
    if verdict.error is not None:
        raise verdict.error
    return list(verdict.warnings)


def audit_halted() -> AuditHalted:
    """The reason is for administrators: it is in the record AUDIT.HALTED."""
    return AuditHalted(
        "The audit log of this organization does not agree with what was published of it, so "
        "nothing is executed. An administrator runs manage.py audit_verify, then audit_accept.",
        gate=Gate.ACCOUNTABLE.value,
    )


def _count_escalation(groups: frozenset[str], snapshot: Snapshot) -> None:
    metrics.escalation_attempts.labels("wildcard" if WILDCARD in groups else "group").inc()
    for name in groups:
        metrics.group_access_denied.labels(group_label(name, snapshot)).inc()
