"""What a claimed call is held against before it runs, and the record that it begins."""

from audit.actions import record
from audit.events import Event, Outcome
from audit.inserts import InsertRow
from tools.catalog.signatures import versions
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.execution.context import Performance


def is_authentic(tool: CatalogTool, snapshot: Snapshot) -> bool:
    """Whether what this process remembers of the tool has the signature that it was given."""
    return not tool.flaw and versions.authentic(
        organization=snapshot.organization,
        tool=tool.id,
        name=tool.name,
        number=tool.number,
        label=tool.version,
        definition=tool.definition,
        version_digest=tool.digest,
        origin=tool.origin,
        signature=tool.signature,
        key_id=tool.key_id,
        keys=snapshot.keys,
    )


def start_evidence(performance: Performance) -> list[InsertRow]:
    """The rows of its record. Its payload is small, and shows before the run that the result's will
    find room."""
    execution = performance.execution
    evidence: list[InsertRow] = []
    record(
        Event.TOOL_START,
        by=performance.actor,
        outcome=Outcome.STARTED,
        subject=execution.tool_name,
        digest=performance.tool.digest,
        execution_id=execution.pk,
        payload={"options": execution.options},
        details={
            "session": str(execution.session_id) if execution.session_id else None,
            "requested_groups": execution.requested_groups,
            "granted_groups": sorted(performance.caller.granted_groups),
            "state": execution.state,
            "version": performance.tool.version,
            "isolation": performance.level,
            "sandbox_profile": performance.definition.sandbox_profile,
            "attempt": execution.attempt,
            "fence": execution.fence,
            "worker": performance.worker,
            **execution.parentage,
        },
        into=evidence,
    )
    return evidence
