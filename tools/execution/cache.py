"""The result cache: outputs of pure tools are reused while they are valid.

Only successful outputs that fit their output schema are stored, and every gate is evaluated before
one is used. The key has everything that an output depends on: organization, tool, version, the
organization's revision (its configuration and its grants: any change makes new keys) and the
parameters. All callers of an organization share the outputs, except of tools that get the caller's
name or credentials: there each caller has outputs of its own.

Of concurrent calls with the same key one runs. The claims of the others are undone until it ends.
"""

import time
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.canonical import commitment
from audit.events import Event, Outcome
from tools import metrics
from tools.accounts.callers import actor_of
from tools.catalog.mcp.upstreams import owner_of
from tools.catalog.registry import registry
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.vocabulary import ToolType
from tools.execution import sessions
from tools.execution.call import Admission, Hit, PackedOutput, Performance, Result
from tools.limits import budgets
from tools.models import CacheEntry, Execution, Organization, StoredOutput


class WaitingForLeader(Exception):
    """Another execution computes the same output; this one waits for it."""


def find_answer(admission: Admission) -> Hit | None:
    """The cached output, if there is one. Sets the cache key of the call in any case."""
    if admission.resolved.definition.cache_ttl_s is None:
        return None
    admission.cache_key = build_cache_key(
        admission.resolved, admission.snapshot, admission.parameters, admission.caller
    )
    return _find_valid_answer(admission.cache_key)


def build_cache_key(tool: CatalogTool, snapshot: Snapshot, parameters: Any, caller: Caller) -> str:
    return commitment(
        {
            "organization": str(snapshot.organization_id),
            "tool": str(tool.id),
            "version": tool.digest,
            "revision": snapshot.revision,
            "parameters": parameters,
            "of": _answer_owner(tool, snapshot, caller),
        }
    )


def _answer_owner(tool: CatalogTool, snapshot: Snapshot, caller: Caller) -> str:
    """The owner part of the key; empty if all callers share the output."""
    if tool.definition.type == ToolType.SERVICE:
        return str(caller)
    if tool.definition.type == ToolType.MCP:
        server = snapshot.mcp_servers.get(tool.definition.raw["implementation"]["server"])
        return (
            owner_of(server, caller.kind, caller.agent_id or caller.user_id)
            if server
            else str(caller)
        )
    return ""


def hit_columns(admission: Admission, hit: Hit) -> dict[str, Any]:
    """The columns of an execution that ended when it was created."""
    now = timezone.now()
    return {
        "output": hit.output,
        "observation": hit.observation,
        "output_bytes": hit.output_bytes,
        "output_digest": hit.output_digest,
        "output_type": hit.output_type,
        "warnings": [*admission.warnings, *hit.warnings],
        "cached": True,
        "cached_from": hit.execution_id,
        "state_after": admission.resolved.definition.raw["state"] or admission.asked.state,
        "started_at": now,
        "completed_at": now,
        "duration_ms": round((time.perf_counter() - admission.began) * 1000, 3),
    }


def record_hit(admission: Admission, hit: Hit) -> None:
    """Records a call that was answered from the cache like one that ran."""
    execution = admission.accepted
    budgets.settle(execution.pk, spent=admission.cost)
    sessions.move_state_for_hit(admission, execution)
    record(
        Event.TOOL_CACHE_HIT,
        by=actor_of(admission.caller),
        outcome=Outcome.SUCCESS,
        subject=execution.tool_name,
        digest=admission.resolved.digest,
        execution_id=execution.pk,
        payload={
            "parameters": execution.asked,
            **({} if hit.output_digest else {"output": hit.output}),
        },
        sensitive=admission.resolved.definition.sensitive,
        details={
            "granted_groups": sorted(admission.caller.granted_groups),
            "requested_groups": execution.requested_groups,
            "state": execution.state,
            "cached_from": str(hit.execution_id),
            **execution.references,
            "cost": str(admission.cost),
            **execution.parentage,
            **({"output_digest": hit.output_digest} if hit.output_digest else {}),
        },
    )
    metrics.cache_lookups.labels(execution.tool_name, "hit").inc()
    metrics.executions.labels(execution.tool_name, Status.SUCCESS).inc()


def find_or_lead(performance: Performance) -> None:
    """Sets a cached result that was stored meanwhile, or makes this call compute it.

    Raises `WaitingForLeader` while another execution computes it.
    """
    execution, tool = performance.execution, performance.tool
    if performance.result is not None or not execution.cache_key:
        return
    key = build_cache_key(tool, performance.snapshot, execution.parameters, performance.caller)
    if CacheEntry.objects.lead(
        key, organization=execution.organization_id, tool=tool.id, execution=execution.pk
    ):
        performance.leads = key
        metrics.cache_lookups.labels(tool.name, "miss").inc()
        return
    hit = _find_valid_answer(key)
    if hit is None:
        raise WaitingForLeader
    performance.result = Result(
        Status.SUCCESS,
        output=hit.output,
        cost=tool.definition.cost_per_hit,
        cached_from=hit.execution_id,
        packed_output=_packed_output(hit),
        observation=hit.observation,
        warnings=hit.warnings,
    )
    metrics.cache_lookups.labels(tool.name, "shared").inc()


def store_answer(performance: Performance, result: Result) -> None:
    """Stores the output, in the transaction that ends the execution which computed it."""
    ttl_s = performance.definition.cache_ttl_s
    if not performance.leads or ttl_s is None:
        return
    if result.status == Status.SUCCESS:
        CacheEntry.objects.fill(
            performance.leads,
            execution=performance.execution.pk,
            ttl_s=ttl_s,
            warnings=result.warnings,
        )
    else:
        release_lead(performance.execution.pk)


def release_lead(execution_id: UUID) -> None:
    """It ended without an output: the next waiting execution computes it."""
    CacheEntry.objects.led_by(execution_id).delete()


def waiting_executions(performance: Performance) -> list[UUID]:
    """The executions that waited for the output of this one, which has ended."""
    if not performance.leads:
        return []
    waiting = Execution.objects.open(Status.PENDING).filter(
        open__cache_key=performance.execution.cache_key
    )
    return list(waiting.order_by("created_at").values_list("pk", flat=True))


@transaction.atomic
def invalidate(
    *, organization: Organization, by: Actor, tool: str | None = None, group: str | None = None
) -> int:
    """Deletes the cached outputs of a tool, of a group's tools, or of the organization.

    Returns how many there were. An output that is being computed is not stored either.
    """
    entries = CacheEntry.objects.filter(organization=organization)
    if tool is not None or group is not None:
        entries = entries.filter(tool__in=_tools_to_invalidate(organization, tool, group))
    count, _ = entries.delete()
    record(
        Event.CACHE_INVALIDATE,
        by=by,
        outcome=Outcome.CHANGED,
        subject=tool or group or organization.slug,
        details={"tool": tool, "group": group, "entries": count},
    )
    return count


def delete_expired() -> None:
    CacheEntry.objects.expired().delete()


def _tools_to_invalidate(
    organization: Organization, tool: str | None, group: str | None
) -> list[UUID]:
    snapshot = registry.snapshot(organization.pk, organization.revision)
    return [
        one.id
        for one in snapshot.sorted_tools
        if (tool is None or one.name == tool)
        and (group is None or group in snapshot.groups_of(one))
    ]


def _find_valid_answer(key: str) -> Hit | None:
    entry = CacheEntry.objects.good(key).select_related("execution").only(
        "key",
        "warnings",
        "execution__output",
        "execution__observation",
        "execution__output_bytes",
        "execution__output_digest",
        "execution__output_type",
        "execution__output_expired_at",
        "execution__organization_id",
    ).first()  # fmt: skip
    if entry is None or entry.execution.output_expired_at is not None:
        return None
    source = entry.execution
    digest = source.output_digest
    if digest and not StoredOutput.objects.touch(source.organization_id, digest):
        return None
    return Hit(
        source.pk,
        source.output,
        source.observation,
        source.output_bytes,
        digest,
        source.output_type,
        entry.warnings,
    )


def _packed_output(hit: Hit) -> PackedOutput | None:
    if not hit.output_digest:
        return None
    return PackedOutput(None, hit.output_bytes, hit.output_digest, hit.output_type)
