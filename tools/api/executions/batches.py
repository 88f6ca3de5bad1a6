"""`/api/v1/batches`: many calls in one request. A batch is an execution of `run_batch`."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.idempotency import Keying, idempotency_key
from tools.api.common.serializer_fields import Flag, Items, State, Strict, Text, Whole, text_list
from tools.api.common.views import CallerView
from tools.api.executions.executions import (
    WAIT,
    ExecutionAnswer,
    InputAnswer,
    OptionsBody,
    build_call,
    execute_call,
    wait_for_execution,
)
from tools.definitions.batches import LONGEST_TOOL_NAME, MOST_INPUTS
from tools.definitions.callers import Caller, Scope
from tools.definitions.implementations.tool_types import RUN_BATCH
from tools.definitions.results import FINAL, Status
from tools.definitions.values.strict_json import MAX_VALUES
from tools.execution.confirmations import load_confirmations
from tools.models import Execution
from tools.shapes.executions import execution_shape
from tools.web.reauthentication import Proof, by_method
from tools.workflows import batches
from tools.workflows.batches import MOST_PARALLEL, BatchRow

MODES = ("sequential", "parallel")
_BATCH_PARAMETERS = ("inputs", "mode", "max_parallel", "stop_on_error")


class BatchInputBody(Strict):
    tool_name = Text(max_length=LONGEST_TOOL_NAME)
    parameters = serializers.DictField(required=False, default=dict)


class BatchBody(Strict):
    """Many calls. In a session they move its state one after the other."""

    inputs = Items(
        child=BatchInputBody(), min_length=1, max_length=MOST_INPUTS, help_text="In their order."
    )
    mode = serializers.ChoiceField(choices=MODES, required=False, default="sequential")
    max_parallel = Whole(
        required=False,
        default=8,
        min_value=1,
        max_value=MOST_PARALLEL,
        help_text="How many may be open at once, where it is parallel.",
    )
    stop_on_error = Flag(required=False, default=False)
    group = text_list(required=False, allow_null=True, default=None)
    state = State()
    session = Text(required=False, allow_null=True, default=None, max_length=64)
    options = OptionsBody(required=False)


class BatchCancelBody(Strict):
    positions = Items(
        child=Whole(min_value=0, max_value=MOST_INPUTS - 1),
        required=False,
        allow_null=True,
        default=None,
        max_length=MOST_INPUTS,
        help_text="Which of its calls; absent: all of it.",
    )


class BatchLineAnswer(serializers.Serializer[Any]):
    """An execution with its position; an input without one has the reason."""

    position = serializers.IntegerField()
    execution_id = serializers.UUIDField(allow_null=True)
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    input = InputAnswer()
    output = serializers.JSONField(allow_null=True)
    output_href = serializers.CharField(
        required=False,
        help_text="Where its output is read: there was no room for it among those before it.",
    )
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)


class BatchAnswer(serializers.Serializer[Any]):
    batch_id = serializers.UUIDField(help_text="The id of its own execution.")
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    mode = serializers.ChoiceField(choices=MODES)
    total = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    open = serializers.IntegerField(help_text="Begun, and not over.")
    waiting = serializers.IntegerField(help_text="Not begun yet.")
    results = BatchLineAnswer(many=True)
    execution = ExecutionAnswer(help_text="The batch as the execution that it is.")


ANSWERS = {
    200: BatchAnswer,
    202: BatchAnswer,
    429: None,
}


class BatchList(CallerView):
    keying = Keying.EXECUTION
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE

    @extend_schema(operation_id="create_batch", request=BatchBody, responses=ANSWERS)
    def post(self, request: Request) -> Response:
        """Make many calls. Every gate checks each of them; one approval covers all."""
        wanted = self.body(BatchBody)
        parameters = {name: wanted[name] for name in _BATCH_PARAMETERS}
        parameters["inputs"] = [dict(one) for one in parameters["inputs"]]
        call = build_call(
            wanted | {"tool_name": RUN_BATCH, "parameters": parameters},
            idempotency_key(request),
            at_its_door=True,
        )
        return _batch_response(self.caller, execute_call(self, call, wanted))


class BatchDetail(CallerView):
    @extend_schema(
        operation_id="get_batch",
        responses={200: BatchAnswer, 202: BatchAnswer},
        parameters=[WAIT],
    )
    def get(self, request: Request, batch_id: UUID) -> Response:
        """The current state; with `wait_s`, the response waits up to so long for the end."""
        batch = batches.find_batch(self.caller, batch_id)
        return _batch_response(self.caller, wait_for_execution(self.caller, request, batch))


class BatchCancel(CallerView):
    keying = Keying.IN_PROGRESS
    proof = by_method(post=Proof.NOT_NEEDED)
    scope = Scope.EXECUTE

    @extend_schema(
        operation_id="cancel_batch",
        request=BatchCancelBody,
        responses={200: BatchAnswer, 202: BatchAnswer},
    )
    def post(self, request: Request, batch_id: UUID) -> Response:
        """Cancel it, or some of its calls; ended calls do not change."""
        batch = batches.find_batch(self.caller, batch_id)
        batches.check_may_cancel(self.caller, batch)
        positions = self.body(BatchCancelBody, optional=True)["positions"]
        batch = batches.cancel_batch(caller=self.caller, batch=batch, positions=positions)
        return _batch_response(self.caller, batch)


def _batch_response(caller: Caller, batch: Execution) -> Response:
    lines = batches.batch_rows(caller, batch)
    held = load_confirmations([batch, *(line.execution for line in lines if line.execution)])
    results = [_row_shape(line, held) for line in lines]
    shown = execution_shape(batch, held.get(batch.pk))
    body = {
        "batch_id": str(batch.pk),
        "status": batch.stage,
        "mode": batch.parameters.get("mode", "sequential"),
        "total": len(results),
        **_count_rows(lines),
        "results": results,
        # Fields that are in its results are not repeated.
        "execution": shown
        | {"input": {"tool_name": batch.tool_name, "parameters": {}}}
        | ({"output": None} if results else {}),
    }
    if batch.is_final:
        return Response(body)
    return Response(body, 202, headers={"Location": f"/api/v1/batches/{batch.pk}"})


def _row_shape(line: BatchRow, held: dict[UUID, Any]) -> dict[str, Any]:
    if line.execution is not None:
        shown = execution_shape(line.execution, held.get(line.execution.pk))
        if line.cut:
            shown["output_href"] = f"/api/v1/executions/{line.execution.pk}/output"
        return {"position": line.position} | shown
    return {
        "position": line.position,
        "execution_id": str(line.execution_id) if line.execution_id else None,
        "status": line.status,
        "input": line.given._asdict(),
        "output": None,
        "error_code": line.error_code,
        "error_message": line.error_message,
    }


def _count_rows(lines: list[BatchRow]) -> dict[str, int]:
    over = sum(line.status in FINAL for line in lines)
    waiting = sum(line.execution_id is None and line.status not in FINAL for line in lines)
    succeeded = sum(line.status == Status.SUCCESS for line in lines)
    cancelled = sum(line.status == Status.CANCELLED for line in lines)
    return {
        "succeeded": succeeded,
        "failed": over - succeeded - cancelled,
        "cancelled": cancelled,
        "open": len(lines) - over - waiting,
        "waiting": waiting,
    }
