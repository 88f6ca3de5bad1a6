"""What a turn of a composite call sees, and how it begins calls of its own."""

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
ONCE = "execution_once_per_place"
_ABSENT = "absent"  # in its memory: calls of which there can be no row
_SPENT = "spent"  # in its memory: what its own turns used in the sandbox
_OUTPUT = (
    "organization_id", "output", "output_digest", "output_type", "output_expired_at",
)  # fmt: skip
_SEEN = (
    "pk", "place", "tool_name", "status", "error_code", "error_message", "error_details",
    "completed_at", "output_bytes",
)  # fmt: skip


class CannotGoOn(Exception):
    """The composite call ends here. Code and message are for its caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotNow(Exception):
    """There is no room for a call at this moment; the turn is taken again soon."""


class Stopped(Exception):
    """This worker is to stop, or has lost the row."""


@dataclass(frozen=True, slots=True)
class NestedCall:
    """A call of the composite one. `id` is None where there is no row: no such tool, for one."""

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
    """A composite call in the middle of its life."""

    def __init__(
        self, performance: Performance, stop: threading.Event, tell: Callable[[str], None]
    ) -> None:
        self._performance, self._stop = performance, stop
        self.tell = tell
        self.memory: dict[str, Any] = performance.execution.memory
        self.came_on = False  # whether this turn has begun, or given up, a call

    @cached_property
    def calls(self) -> dict[str, NestedCall]:
        """By their places; a turn that has read their rows itself sets it."""
        found = {one.place: one for one in calls_in_order(self.execution.pk)}
        return found | absent_calls(self.memory)

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
        """With the definition's defaults for those left out."""
        return {**self.definition.defaults, **self.execution.parameters}

    @property
    def raw_parameters(self) -> dict[str, Any]:
        """The same as they were sent, with references: its own calls resolve them once more, so
        that each of them knows what it was made of."""
        return {**self.definition.defaults, **self.execution.asked}

    @property
    def timeout_s(self) -> float:
        return self.execution.timeout_s

    @property
    def deadline(self) -> datetime:
        """Counted from its first turn."""
        return (self.execution.started_at or timezone.now()) + timedelta(seconds=self.timeout_s)

    @property
    def out_of_time(self) -> bool:
        return timezone.now() >= self.deadline

    @property
    def cancelled(self) -> bool:
        return self.execution.cancel_requested_at is not None

    @property
    def open(self) -> int:
        """How many of its calls are not over."""
        return sum(one.open for one in self.calls.values())

    def remember(self) -> None:
        """Keep its memory as it is now, whatever becomes of this turn. Raises `Stopped`."""
        row = Execution.objects.held(self.execution.pk, self.execution.fence)
        if not row.update(memory=self.memory):
            raise Stopped

    @property
    def spent(self) -> dict[str, float]:
        """By its own turns, as an execution's metrics have it."""
        return {"cpu_time_ms": 0, "peak_memory_bytes": 0} | self.memory.get(_SPENT, {})

    def used(self, usage: ResourceUsage) -> None:
        """In the sandbox, by the turn it is in."""
        spent = self.spent
        self.memory[_SPENT] = {
            "cpu_time_ms": round(spent["cpu_time_ms"] + usage.cpu_time_ms, 3),
            "peak_memory_bytes": max(spent["peak_memory_bytes"], usage.peak_memory_bytes),
        }

    def unwanted(self, place: str) -> bool:
        """Whether the call of this place was cancelled before it began."""
        return place in self.execution.cancelled_places

    def job(self, parameters: dict[str, Any]) -> ToolRun:
        """A sandboxed run of its own, for a turn that needs one."""
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

    def begin(
        self,
        place: str,
        tool_name: str,
        parameters: dict[str, Any],
        *,
        timeout_s: float | None = None,
        references: bool = False,
        session: str | None = None,
        at_its_door: bool = False,
        consent_because: str = "",
    ) -> NestedCall:
        """The call of a place: accepted, over or refused; the one that was made before, if any.

        `references` says that the parameters are as the caller of this call wrote them: only there
        `$result` points at an output. In what tools gave back it is data like any other, also where
        that was passed on to this call as its parameters. What undoes another is always made.
        `session` is one of its caller's, where it is not the one that this call is in; a call
        `at_its_door` lends nothing (`authorization.LENT`) and is in none. Where it says
        `consent_because`, a person is asked for approval, and shown that.
        Raises `NotNow`, `Stopped` and `CannotGoOn`, which a turn passes on.
        """
        if place in self.calls:
            return self.calls[place]
        self._check(place)
        call = Call(
            tool_name=tool_name,
            parameters=parameters,
            **self._asked_in(session, outside=at_its_door),
            timeout_s=timeout_s,
            require_confirmation=bool(consent_because),
            confirmation_reason=consent_because,
            at_its_door=at_its_door,
            plain=not references or self.execution.options.get("plain") is True,
            id=new_id(),
            parent=Parent(self.execution.pk, place, self.execution.depth + 1),
        )
        self.calls[place] = found = self._admitted_call(call)
        self.came_on = True
        return found

    def give_up(self, place: str, tool_name: str, code: str, message: str) -> NestedCall:
        """A call that cannot be made, and never will be: it has failed, without a row."""
        said = _plain({"tool": tool_name[:128], "code": code, "message": message})
        self.memory.setdefault(_ABSENT, {})[place] = said
        self.calls[place] = found = _made_absent(place, said)
        self.came_on = True
        return found

    def outputs(self, places: Iterable[str], *, most_bytes: int | None = None) -> dict[str, Any]:
        """What these calls gave back, by place, in their order as long as there is room.

        Of those that did not succeed there is nothing, nor of those whose output has expired.
        """
        wanted = list(places)
        rows = Execution.objects.filter(
            parent=self.execution.pk,
            place__in=wanted,
            status=Status.SUCCESS,
            output_expired_at__isnull=True,
        )
        if most_bytes is not None:
            rows = rows.filter(place__in=_fitting(wanted, rows, most_bytes))
        return {row.place: outputs.load_output(row) for row in rows.only("place", *_OUTPUT)}

    def output(self, place: str) -> Any:
        return self.outputs([place]).get(place)

    def cancel_open(self, places: Iterable[str] | None = None) -> None:
        """Those named, or all: at once what has not begun, the rest as soon as its worker hears."""
        for place, one in list(self.calls.items()):
            if one.open and one.id is not None and (places is None or place in places):
                self._cancel(place, one.id)

    def cancel_unwanted(self) -> None:
        """Cancel calls that began while they were cancelled: a cancellation ends what has begun,
        and a turn looks once more when it has begun what it could."""
        row = Execution.objects.filter(pk=self.execution.pk)
        self.cancel_open(row.values_list("cancelled_places", flat=True).get())

    def _cancel(self, place: str, execution_id: UUID) -> None:
        try:
            ended = answer.cancel_execution(execution_id, by=self._performance.actor)
        except Conflict:  # it was over sooner
            ended = Execution.objects.answer(execution_id)
        self.calls[place] = _nested_call(ended)

    def _check(self, place: str) -> None:
        if self._stop.is_set():
            raise Stopped
        if len(self.calls) >= MOST_CALLS and not place.startswith(UNDO):
            raise CannotGoOn("TOO_MANY_CALLS", f"It may make {MOST_CALLS} calls, not more.")
        if not 0 < len(place) <= MOST_PLACE:
            raise ValueError(f"a place has 1 to {MOST_PLACE} characters")

    def _asked_in(self, session: str | None, *, outside: bool) -> dict[str, Any]:
        """In its session, or in the groups and the state that it was asked in itself."""
        execution = self.execution
        if execution.session_id is not None:
            session = session or str(execution.session_id)
        if session is not None and not outside:
            return {"session": session}
        return {"group": execution.requested_groups, "state": execution.state}

    def _admitted_call(self, call: Call) -> NestedCall:
        assert call.parent is not None  # who calls this has said so
        try:
            execution = admit(self._performance.caller, call)
        except (Shed, sessions.Overtaken):
            raise NotNow from None
        except Refused:  # with a row of its own
            return _nested_call(Execution.objects.answer(call.id))
        except ToolcribError as absence:
            return self._absent(call, absence)
        except IntegrityError as error:
            if ONCE not in str(error):
                raise sessions_busy(error) from None
            raise Stopped from None  # another worker took this very turn: the row is its own
        if execution.status == Status.PENDING:
            dispatch.wake_workers([execution.pk])
        return _nested_call(execution)

    def _absent(self, call: Call, absence: ToolcribError) -> NestedCall:
        assert call.parent is not None
        return self.give_up(call.parent.place, call.tool_name, absence.code, absence.message)


def calls_in_order(execution_id: UUID) -> list[NestedCall]:
    """Of a composite call, as they were made."""
    rows = Execution.objects.filter(parent=execution_id).order_by("created_at", "pk")
    return [
        NestedCall(pk, place, name, Status(status), *more)
        for pk, place, name, status, *more in rows.values_list(*_SEEN)
    ]


def absent_calls(memory: dict[str, Any]) -> dict[str, NestedCall]:
    """Calls of which there can be no row, as a composite one remembers them."""
    absent = memory.get(_ABSENT, {})
    return {place: _made_absent(place, said) for place, said in absent.items()}


def _fitting(places: list[str], rows: QuerySet[Execution], left: int) -> list[str]:
    sizes = dict(rows.values_list("place", "output_bytes"))
    found = []
    for place in places:
        left -= sizes.get(place) or 0
        if left < 0:
            break
        found.append(place)
    return found


def sessions_busy(error: IntegrityError) -> Exception:
    """Where another call of the session was faster, it is tried again; else it is a fault."""
    return NotNow() if "execution_one_open_per_session" in str(error) else error


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


def _made_absent(place: str, said: dict[str, str]) -> NestedCall:
    return NestedCall(
        None, place, said["tool"], Status.VALIDATION_ERROR, said["code"], said["message"], {}
    )


def _plain(said: dict[str, str]) -> dict[str, str]:
    """As a row can hold it, whatever the call named."""
    return {
        key: text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
        for key, text in said.items()
    }
