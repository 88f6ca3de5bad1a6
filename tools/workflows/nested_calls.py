"""A composite call during a turn: its own calls, and how it begins more of them."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils import timezone

from sandbox.spec import ResourceUsage
from tools.definitions.results import OPEN, Status
from tools.definitions.tool import ToolDefinition
from tools.errors import Conflict, Refused, Shed, ToolcribError
from tools.execution import answer, dispatch, outputs, sessions
from tools.execution.admit import admit
from tools.execution.call import Call, Parent, Performance
from tools.models import Execution
from tools.models.execution_queryset import MOST_PLACE, UNDO
from tools.models.ids import new_id
from tools.runners.tool_runs import ToolRun

MOST_CALLS = 1_000
ONCE_PER_PLACE = "execution_once_per_place"
_ABSENT_KEY = "absent"  # of its memory: calls that have no row
_USAGE_KEY = "spent"  # of its memory: what its turns used inside the sandbox
_OUTPUT_COLUMNS = (
    "organization_id", "output", "output_digest", "output_type", "output_expired_at",
)  # fmt: skip
_CALL_COLUMNS = (
    "pk", "place", "tool_name", "status", "error_code", "error_message", "error_details",
    "completed_at", "output_bytes",
)  # fmt: skip


class CompositionFailed(Exception):
    """Ends the composite call. Code and message are for its caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallPostponed(Exception):
    """A call cannot be accepted at the moment; the turn is run again soon."""


class TurnStopped(Exception):
    """This worker must stop, or has lost the row."""


@dataclass(frozen=True, slots=True)
class NestedCall:
    """A call of a composite call. `id` is None if it has no row, as for an unknown tool."""

    id: UUID | None
    place: str
    tool_name: str
    status: Status
    error_code: str = ""
    error_message: str = ""
    error_details: dict[str, Any] | None = None
    completed_at: datetime | None = None
    output_bytes: int | None = None

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def succeeded(self) -> bool:
        return self.status == Status.SUCCESS


class Composition:
    """A running composite call. A turn reads its calls and begins more of them."""

    def __init__(
        self,
        performance: Performance,
        stop: threading.Event,
        report_progress: Callable[[str], None],
    ) -> None:
        self._performance, self._stop = performance, stop
        self.report_progress = report_progress
        self.memory: dict[str, Any] = performance.execution.memory
        self.made_progress = False  # whether this turn has begun a call, or recorded an absent one

    @cached_property
    def calls(self) -> dict[str, NestedCall]:
        """The calls by place. A turn that has read their rows itself sets it."""
        calls = {one.place: one for one in calls_in_order(self.execution.pk)}
        return calls | absent_calls(self.memory)

    @property
    def execution(self) -> Execution:
        return self._performance.execution

    @property
    def performance(self) -> Performance:
        return self._performance

    @property
    def definition(self) -> ToolDefinition:
        return self._performance.definition

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters with the definition's defaults."""
        return {**self.definition.defaults, **self.execution.parameters}

    @property
    def raw_parameters(self) -> dict[str, Any]:
        """The parameters as they were sent, with references. Its own calls resolve them again, so
        that each of them records its sources."""
        return {**self.definition.defaults, **self.execution.asked}

    @property
    def timeout_s(self) -> float:
        return self.execution.timeout_s

    @property
    def deadline(self) -> datetime:
        """The timeout is counted from the first turn."""
        return (self.execution.started_at or timezone.now()) + timedelta(seconds=self.timeout_s)

    @property
    def out_of_time(self) -> bool:
        return timezone.now() >= self.deadline

    @property
    def cancelled(self) -> bool:
        return self.execution.cancel_requested_at is not None

    @property
    def open_count(self) -> int:
        """The number of its calls that have not ended."""
        return sum(one.open for one in self.calls.values())

    def save_memory(self) -> None:
        """Stores its memory before the end of the turn. Raises `TurnStopped`."""
        row = Execution.objects.held(self.execution.pk, self.execution.fence)
        if not row.update(memory=self.memory):
            raise TurnStopped

    @property
    def usage(self) -> dict[str, float]:
        """The resources that its turns used, as in an execution's metrics."""
        return {"cpu_time_ms": 0, "peak_memory_bytes": 0} | self.memory.get(_USAGE_KEY, {})

    def add_usage(self, usage: ResourceUsage) -> None:
        """Adds what this turn used inside the sandbox."""
        usage_before = self.usage
        self.memory[_USAGE_KEY] = {
            "cpu_time_ms": round(usage_before["cpu_time_ms"] + usage.cpu_time_ms, 3),
            "peak_memory_bytes": max(usage_before["peak_memory_bytes"], usage.peak_memory_bytes),
        }

    def is_unwanted(self, place: str) -> bool:
        """Whether the call of this place was cancelled before it began."""
        return place in self.execution.cancelled_places

    def build_run(self, parameters: dict[str, Any]) -> ToolRun:
        """A sandbox run of its own, for a turn that needs one."""
        performance = self._performance
        return ToolRun(
            organization=performance.caller.organization,
            definition=self.definition,
            parameters=parameters,
            timeout_s=self.timeout_s,
            stop=self._stop,
            level=performance.level,
            snapshot=performance.snapshot,
            execution_id=self.execution.pk,
            attempt=self.execution.attempt,
            caller=performance.actor.name,
            caller_kind=performance.actor.kind,
            caller_id=performance.actor.id,
        )

    def begin_call(
        self,
        place: str,
        tool_name: str,
        parameters: dict[str, Any],
        *,
        timeout_s: float | None = None,
        references: bool = False,
        session: str | None = None,
        at_its_door: bool = False,
        approval_reason: str = "",
    ) -> NestedCall:
        """The call of a place: accepted, ended or refused; the existing one, if any.

        `references`: the parameters were written by the caller of this call, so `$result` in them
        refers to an output. In the output of a tool it is data, also if that was passed to this
        call as its parameters. `session` is another session of the caller. A call `at_its_door`
        needs no grant of its group (`gates.EXEMPT_AT_ENTRY_POINT`), and has no session. With an
        `approval_reason` it awaits the approval of a user, who reads the reason.
        Raises `CallPostponed`, `TurnStopped` and `CompositionFailed`, which a turn does not catch.
        """
        if place in self.calls:
            return self.calls[place]
        self._check(place)
        call = Call(
            tool_name=tool_name,
            parameters=parameters,
            **self._session_options(session, outside=at_its_door),
            timeout_s=timeout_s,
            require_confirmation=bool(approval_reason),
            confirmation_reason=approval_reason,
            at_its_door=at_its_door,
            plain=not references or self.execution.options.get("plain") is True,
            id=new_id(),
            parent=Parent(self.execution.pk, place, self.execution.depth + 1),
        )
        self.calls[place] = begun = self._admit(call)
        self.made_progress = True
        return begun

    def record_absent_call(self, place: str, tool_name: str, code: str, message: str) -> NestedCall:
        """Records that a call failed without a row, because it can never be made."""
        record = _storable({"tool": tool_name[:128], "code": code, "message": message})
        self.memory.setdefault(_ABSENT_KEY, {})[place] = record
        self.calls[place] = absent = _absent_call(place, record)
        self.made_progress = True
        return absent

    def load_outputs(
        self, places: Iterable[str], *, most_bytes: int | None = None
    ) -> dict[str, Any]:
        """The outputs of these calls by place: in their order, up to `most_bytes` together.

        Calls that did not succeed, and expired outputs, are left out.
        """
        wanted = list(places)
        rows = Execution.objects.children_of(self.execution.pk).filter(
            place__in=wanted, status=Status.SUCCESS, output_expired_at__isnull=True
        )
        if most_bytes is not None:
            rows = rows.filter(place__in=_places_within_limit(wanted, rows, most_bytes))
        return {row.place: outputs.load_output(row) for row in rows.only("place", *_OUTPUT_COLUMNS)}

    def load_output(self, place: str) -> Any:
        return self.load_outputs([place]).get(place)

    def cancel_open_calls(self, places: Iterable[str] | None = None) -> None:
        """Cancels the open calls of these places, or all. A running call ends when its worker sees
        it."""
        for place, one in list(self.calls.items()):
            if one.open and one.id is not None and (places is None or place in places):
                self._cancel(place, one.id)

    def cancel_unwanted_calls(self) -> None:
        """Cancels calls that this turn began while a user cancelled their places."""
        row = Execution.objects.filter(pk=self.execution.pk)
        self.cancel_open_calls(row.values_list("cancelled_places", flat=True).get())

    def _cancel(self, place: str, execution_id: UUID) -> None:
        try:
            ended = answer.cancel_execution(execution_id, by=self._performance.actor)
        except Conflict:  # it has ended meanwhile
            ended = Execution.objects.answer(execution_id)
        self.calls[place] = _nested_call(ended)

    def _check(self, place: str) -> None:
        if self._stop.is_set():
            raise TurnStopped
        if len(self.calls) >= MOST_CALLS and not place.startswith(UNDO):
            raise CompositionFailed("TOO_MANY_CALLS", f"It may make {MOST_CALLS} calls, not more.")
        if not 0 < len(place) <= MOST_PLACE:
            raise ValueError(f"a place has 1 to {MOST_PLACE} characters")

    def _session_options(self, session: str | None, *, outside: bool) -> dict[str, Any]:
        """The session of the call, or the groups and the state of the composite call."""
        execution = self.execution
        if execution.session_id is not None:
            session = session or str(execution.session_id)
        if session is not None and not outside:
            return {"session": session}
        return {"group": execution.requested_groups, "state": execution.state}

    def _admit(self, call: Call) -> NestedCall:
        assert call.parent is not None  # set by begin_call
        try:
            execution = admit(self._performance.caller, call)
        except (Shed, sessions.SessionBusy):
            raise CallPostponed from None
        except Refused:  # the call has a row
            return _nested_call(Execution.objects.answer(call.id))
        except ToolcribError as refusal:
            return self.record_absent_call(
                call.parent.place, call.tool_name, refusal.code, refusal.message
            )
        except IntegrityError as error:
            if ONCE_PER_PLACE not in str(error):
                raise _busy_session_error(error) from None
            raise TurnStopped from None  # another worker runs this turn
        if execution.status == Status.PENDING:
            dispatch.wake_workers([execution.pk])
        return _nested_call(execution)


def calls_in_order(execution_id: UUID) -> list[NestedCall]:
    """The calls of a composite call, in the order of their creation."""
    rows = Execution.objects.children_of(execution_id).order_by("created_at", "pk")
    return [
        NestedCall(pk, place, name, Status(status), *more)
        for pk, place, name, status, *more in rows.values_list(*_CALL_COLUMNS)
    ]


def absent_calls(memory: dict[str, Any]) -> dict[str, NestedCall]:
    """The calls without a row, from the memory of a composite call."""
    records = memory.get(_ABSENT_KEY, {})
    return {place: _absent_call(place, record) for place, record in records.items()}


def _places_within_limit(
    places: list[str], rows: QuerySet[Execution], most_bytes: int
) -> list[str]:
    sizes = dict(rows.values_list("place", "output_bytes"))
    within_limit = []
    for place in places:
        most_bytes -= sizes.get(place) or 0
        if most_bytes < 0:
            break
        within_limit.append(place)
    return within_limit


def _busy_session_error(error: IntegrityError) -> Exception:
    """`CallPostponed` if another call of the session is open, else the error itself."""
    return CallPostponed() if "execution_one_open_per_session" in str(error) else error


def _nested_call(row: Execution) -> NestedCall:
    return NestedCall(
        row.pk,
        row.place,
        row.tool_name,
        Status(row.status),
        row.error_code,
        row.error_message,
        row.error_details,
        row.completed_at,
        row.output_bytes,
    )


def _absent_call(place: str, record: dict[str, str]) -> NestedCall:
    return NestedCall(
        None, place, record["tool"], Status.VALIDATION_ERROR, record["code"], record["message"], {}
    )


def _storable(texts: dict[str, str]) -> dict[str, str]:
    """The texts without characters that PostgreSQL cannot store."""
    return {
        key: text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
        for key, text in texts.items()
    }
