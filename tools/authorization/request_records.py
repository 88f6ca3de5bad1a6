"""Records what a request asked for and what was left for it (Tool groups specification, 8.2):
counted, stored as a row that can be queried, and logged as one JSON line.

The lists of names depend on the catalog, the groups and the state alone. They are computed and
stored once for each, and rows refer to them. A catalog's names are stored once a revision, so that
a new set of groups costs the size of these groups and not of the catalog.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from audit.canonical import commitment
from audit.inserts import InsertRow, insert_rows, json_value
from config.logs import request_id
from tools import metrics
from tools.accounts.user_permissions import may
from tools.authorization.known_names import drop_unknown_names, group_label, state_label
from tools.catalog.group_openings import is_reached, openings_of
from tools.catalog.groups import members_of
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.models import CatalogNames, Execution, RequestRecord, StateTransition, ToolFilter
from tools.models.ids import least_id, new_id
from tools.policy.availability import matches_state
from tools.policy.questions import EffectiveRequest

log = logging.getLogger("tools.requests")
_NAMES_IN_A_LINE = 100  # the row has them all
_CLOCKS = timedelta(days=1)  # between processes that make ids, and the database
_MOST_REMEMBERED = 10_000
KNOWN_FOR_S = 3600  # less than a day: then retention may delete what is not stored any longer
_stored_at: dict[str, float] = {}  # digests of what is known to have a row, and since when
# An existing row counts as stored now, and is not deleted meanwhile.
_AS_NEW: dict[str, Any] = {
    "update_conflicts": True,
    "unique_fields": ["digest"],
    "update_fields": ["created_at"],
}


@dataclass(frozen=True)
class FilteredCatalog:
    """What groups and a state leave of a catalog. Tools in no list are removed by the groups.

    `digest` names the catalog's revision, the groups and the state, and with them the lists.
    """

    catalog: str
    digest: str
    available: tuple[str, ...]
    by_state: tuple[str, ...]
    out_of_service: tuple[str, ...]

    def by_group(self, snapshot: Snapshot) -> Iterator[str]:
        rest = {*self.available, *self.by_state, *self.out_of_service}
        return (tool.name for tool in snapshot.sorted_tools if tool.name not in rest)


def filter_catalog(asked: EffectiveRequest, snapshot: Snapshot) -> FilteredCatalog:
    """Examines only the tools of the requested groups: a catalog is larger than a request."""
    asked, closed = drop_unknown_names(asked, snapshot), openings_of(snapshot).closed
    return snapshot.remember(
        ("filtered", asked, closed), lambda: _filter_catalog(asked, snapshot, closed)
    )


def count_request(asked: EffectiveRequest, snapshot: Snapshot) -> None:
    """A group or state that no row names is counted under one word: labels stay bounded."""
    for name in asked.groups:
        label = group_label(name, snapshot)
        metrics.group_requests.labels(label).inc()
        if label != name:
            metrics.unknown_names.labels("group").inc()
    if state_label(asked.state, snapshot) != asked.state:
        metrics.unknown_names.labels("state").inc()


def write_record(
    caller: Caller,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    *,
    kind: str,
    session_id: UUID | None = None,
    execution_id: UUID | None = None,
    duration_ms: float | None = None,
) -> None:
    """Write the row. An execution's duration is in its own row."""
    record = build_record(
        caller,
        asked,
        snapshot,
        kind=kind,
        session_id=session_id,
        execution_id=execution_id,
        duration_ms=duration_ms,
    )
    insert_rows(record)


def build_record(
    caller: Caller,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    *,
    kind: str,
    session_id: UUID | None = None,
    execution_id: UUID | None = None,
    duration_ms: float | None = None,
) -> InsertRow:
    """The row, for a statement that writes others too. The lists it refers to are written here,
    where this process has not done so within the hour."""
    found = filter_catalog(asked, snapshot)
    _store_lists(found, snapshot)
    return (
        RequestRecord,
        {
            "id": new_id(),
            "organization_id": caller.organization_id,
            "request_id": request_id.get(),
            "kind": kind,
            "actor_kind": str(caller.kind),
            "actor": caller.name,
            "user_id": caller.user_id,
            "session_id": session_id,
            "execution_id": execution_id,
            "requested_groups": sorted(asked.groups),
            "initial_state": asked.state,
            "tool_filter_id": found.digest,
            "execution_ms": duration_ms,
            "state_transitions": json_value([]),
        },
    )


def record_listing(
    caller: Caller, asked: EffectiveRequest, snapshot: Snapshot, *, shown: int, began: float
) -> None:
    """Records a finished listing. `began` is of `time.perf_counter`."""
    metrics.filtered_tools.observe(shown)
    if not shown:
        metrics.empty_lists.inc()
    duration_ms = round((time.perf_counter() - began) * 1000, 3)
    write_record(caller, asked, snapshot, kind="list", duration_ms=duration_ms)
    log_request(caller, asked, snapshot, duration_ms=duration_ms)


def log_request(
    caller: Caller,
    asked: EffectiveRequest,
    snapshot: Snapshot,
    *,
    duration_ms: float,
    transitions: Iterable[dict[str, str]] = (),
) -> None:
    """Log the line, once the request is over. Long lists are cut there, and their length is
    logged."""
    found = filter_catalog(asked, snapshot)
    by_group = found.by_group(snapshot)
    line: dict[str, Any] = {
        "organization": caller.organization,
        "caller": str(caller),
        "requested_groups": sorted(asked.groups),
        "initial_state": asked.state,
        "state_transitions": list(transitions),
        "available_tools": found.available[:_NAMES_IN_A_LINE],
        "filtered_by_group": tuple(islice(by_group, _NAMES_IN_A_LINE)),
        "filtered_by_state": found.by_state[:_NAMES_IN_A_LINE],
        "available_count": len(found.available),
        "tool_count": len(snapshot.tools),
        "execution_time": f"{duration_ms / 1000:.3f}s",
    }
    log.info("request", extra=line)


@dataclass(frozen=True)
class RequestDetails:
    """A row with what became known after it was written."""

    row: RequestRecord
    transitions: list[dict[str, str]]
    duration_ms: float | None


def readable(
    caller: Caller,
    *,
    actor: str | None = None,
    kind: str | None = None,
    group: str | None = None,
    state: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[RequestRecord]:
    """An agent's own requests; for a person with the permission also those of others. Months that
    are outside of the period are not read."""
    found = RequestRecord.objects.select_related("tool_filter__catalog").filter(
        organization_id=caller.organization_id
    )
    if not may(caller, "view_execution"):
        found = found.filter(user_id=caller.user_id)
    wanted = {
        "actor": actor,
        "kind": kind,
        "requested_groups__contains": [group] if group else None,
        "initial_state": state,
        "at__gte": since,
        "pk__gte": least_id(since, -_CLOCKS) if since else None,
        "at__lt": until,
        "pk__lt": least_id(until, _CLOCKS) if until else None,
    }
    return found.filter(**{name: value for name, value in wanted.items() if value})


def describe_records(rows: Sequence[RequestRecord]) -> list[RequestDetails]:
    identifiers = [row.execution_id for row in rows if row.execution_id]
    steps = {
        step.execution_id: step
        for step in StateTransition.objects.filter(execution_id__in=identifiers)
    }
    ended = Execution.objects.filter(pk__in=identifiers).values_list("pk", "duration_ms")
    lengths = dict(ended)
    return [_describe_record(row, steps, lengths) for row in rows]


def _describe_record(
    row: RequestRecord, steps: dict[UUID, StateTransition], lengths: dict[UUID, float | None]
) -> RequestDetails:
    if row.execution_id is None:
        return RequestDetails(row, row.state_transitions, row.execution_ms)
    step = steps.get(row.execution_id)
    return RequestDetails(
        row, [_describe_transition(step)] if step else [], lengths.get(row.execution_id)
    )


def _describe_transition(step: StateTransition) -> dict[str, str]:
    at = step.at.isoformat().replace("+00:00", "Z")
    return {"tool": step.tool_name, "from": step.from_state, "to": step.to_state, "timestamp": at}


def _filter_catalog(
    asked: EffectiveRequest, snapshot: Snapshot, closed: frozenset[str]
) -> FilteredCatalog:
    """A tool that fails the group test is in that list only (ruling 7); so does one all of whose
    requested groups are closed."""
    available, by_state, out_of_service = [], [], []
    for tool in _tools_of_groups(asked.groups, snapshot):
        if not is_reached(tool, asked.groups, snapshot, closed):
            continue
        if not tool.enabled:
            out_of_service.append(tool.name)
        elif matches_state(tool.definition.states, asked.state):
            available.append(tool.name)
        else:
            by_state.append(tool.name)
    catalog = f"{snapshot.organization_id} {snapshot.revision}"
    return FilteredCatalog(
        commitment(catalog),
        commitment([catalog, sorted(asked.groups), asked.state, sorted(closed)]),
        tuple(available),
        tuple(by_state),
        tuple(out_of_service),
    )


def _tools_of_groups(groups: frozenset[str], snapshot: Snapshot) -> Sequence[CatalogTool]:
    if WILDCARD in groups:
        return snapshot.sorted_tools
    members = {member.tool for name in groups for member in members_of(name, snapshot)}
    return [snapshot.tools[name] for name in sorted(members, key=str.lower)]


def _store_lists(found: FilteredCatalog, snapshot: Snapshot) -> None:
    """The lists' own rows, once an hour and process; another process may have been faster."""
    if not _is_known(found.catalog):
        names = [tool.name for tool in snapshot.sorted_tools]
        row = CatalogNames(digest=found.catalog, names=names)
        CatalogNames.objects.bulk_create([row], **_AS_NEW)
        transaction.on_commit(lambda: _remember(found.catalog))
    if not _is_known(found.digest):
        lists = ToolFilter(
            digest=found.digest,
            catalog_id=found.catalog,
            available_tools=list(found.available),
            filtered_by_state=list(found.by_state),
            out_of_service=list(found.out_of_service),
        )
        ToolFilter.objects.bulk_create([lists], **_AS_NEW)
        transaction.on_commit(lambda: _remember(found.digest))


def _remember(digest: str) -> None:
    if len(_stored_at) >= _MOST_REMEMBERED:
        _stored_at.clear()
    _stored_at[digest] = time.monotonic()


def _is_known(digest: str) -> bool:
    return time.monotonic() - _stored_at.get(digest, -KNOWN_FOR_S) < KNOWN_FOR_S
