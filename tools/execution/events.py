"""What happened to an execution, as rows that can be replayed and followed."""

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from uuid import UUID

from django.db import connection

from audit.actions import writing_evidence
from audit.inserts import InsertRow
from config.http import request_queue
from tools.definitions.results import EventType
from tools.execution import bell
from tools.models import Execution, ExecutionEvent

HEARTBEAT_S = 15.0


def append(
    execution_id: UUID, kind: EventType, message: str = "", evidence: Sequence[InsertRow] = ()
) -> None:
    """Add the next event; call it in the transaction of what it is about. Raises `Unwritable` where
    the evidence beside it cannot be written."""
    with writing_evidence() if evidence else nullcontext():
        ExecutionEvent.objects.append(execution_id, kind, message, evidence)


def first_of(execution_id: UUID, kind: EventType, message: str = "") -> InsertRow:
    """The first event of an execution, for the statement that writes its row."""
    values = {"execution_id": execution_id, "sequence": 1, "type": str(kind)}
    return ExecutionEvent, values | {"message": message[:1000]}


def follow(execution_id: UUID, after: int) -> Generator[ExecutionEvent | None]:
    """Events past number `after`, then live ones, until the execution is over or its reader has
    disconnected.

    Yields None every `HEARTBEAT_S` while nothing happens, so that a reader who left is noticed. No
    database connection is held while waiting.
    """
    with bell.listening(execution_id) as listener:
        silent_s = 0.0
        while not request_queue.disconnected():
            over = Execution.objects.only("status").get(pk=execution_id).is_final
            fresh = list(
                ExecutionEvent.objects.filter(execution_id=execution_id, sequence__gt=after)
            )
            connection.close()
            yield from fresh
            if over:
                return
            after = fresh[-1].sequence if fresh else after
            silent_s = 0.0 if fresh else silent_s + bell.GLANCE_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                yield None
            listener.wait(bell.GLANCE_S)
