"""`/api/v1/executions`: create, read, follow and cancel a call."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common import event_streams
from tools.api.common.authentication import note_rate
from tools.api.common.content_types import EventStreamRenderer, JSONRenderer
from tools.api.common.idempotency import Keying, idempotency_key
from tools.api.common.pagination import (
    AGENT,
    PERIOD,
    SESSION,
    TOOL,
    Page,
    filter_rows,
    period_columns,
)
from tools.api.common.serializer_fields import (
    Duration,
    Flag,
    Seconds,
    State,
    Strict,
    Text,
    choice_field,
    text_list,
)
from tools.api.common.views import CallerView
from tools.api.documentation import CALL, CALL_OF_TOOL, RESULT
from tools.definitions.callers import Caller, Scope
from tools.definitions.results import Status
from tools.definitions.values.server_sent_events import encode_event
from tools.definitions.values.strict_json import MAX_VALUES
from tools.errors import Malformed
from tools.execution import answer, confirmations, events
from tools.execution.call import Call
from tools.execution.outputs import readable_executions
from tools.models import Agent, Execution, ExecutionEvent, Resolution
from tools.shapes.executions import execution_shape
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

_COLUMNS = {
    "tool": "tool_name",
    "agent": "user__in",
    "state": "state",
    "session": "session",
    "code": "error_code",
    "parent": "parent",
    **period_columns("created_at"),
}
MOST_WAIT_S = 60
WAIT = OpenApiParameter(
    "wait_s", OpenApiTypes.INT, description="Answer when it is over, after 60 seconds at most."
)


class OptionsBody(Strict):
    timeout = Duration(required=False, help_text="At most the tool's own, such as PT10S.")
    require_confirmation = Flag(required=False, default=False)
    wait_s = Seconds(required=False, default=30, min_value=0, max_value=60)
    # The field has the name of an attribute of DRF's serializers, here and where noted below.
    context = serializers.DictField(  # type: ignore[assignment]
        required=False, help_text="Never read by a gate."
    )
    execution_id = Text(required=False, max_length=200, help_text="An idempotency key.")


class ToolCallBody(Strict):
    """A call of the tool in the address."""

    tool_name = Text(required=False, max_length=128)
    parameters = serializers.DictField(required=False, default=dict)
    group = text_list(required=False, allow_null=True, default=None)
    state = State()
    session = Text(required=False, allow_null=True, default=None, max_length=64)
    options = OptionsBody(required=False)


class CallBody(ToolCallBody):
    tool_name = Text(max_length=128)


class ResolutionBody(Strict):
    outcome = serializers.ChoiceField(choices=Resolution.choices)
    reason = Text(max_length=500, help_text="How you know.")


class InputAnswer(serializers.Serializer[Any]):
    tool_name = serializers.CharField()
    parameters = serializers.DictField()


class MetadataAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    tool_version = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    duration_ms = serializers.FloatField(allow_null=True)
    output_size = serializers.IntegerField(allow_null=True)
    sandbox_id = serializers.CharField(allow_null=True)
    execution_metrics = serializers.DictField()


class RateAnswer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(help_text="Calls a minute.")
    used = serializers.IntegerField(help_text="This one included.")
    resets_in_s = serializers.IntegerField(help_text="Until the oldest of them no longer counts.")


class StoredOutputAnswer(serializers.Serializer[Any]):
    href = serializers.CharField(help_text="Where it is read, in ranges if one likes.")
    content_type = serializers.CharField()
    digest = serializers.CharField()


class ReferenceAnswer(serializers.Serializer[Any]):
    place = serializers.CharField(help_text="In the parameters, as a JSON Pointer.")
    execution_id = serializers.UUIDField()
    path = serializers.CharField(help_text="In that execution, such as /output/items/0.")
    bytes = serializers.IntegerField(help_text="Of the value, as JSON.")


class ParentAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    place = serializers.CharField(help_text="By which its parent knows it.")


class ExecutionAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    status = choice_field(Status)
    parent = ParentAnswer(allow_null=True, help_text="The call that made this one.")
    input = InputAnswer()
    references = ReferenceAnswer(many=True, help_text="Outputs put into the parameters.")
    output = serializers.JSONField(allow_null=True)
    stored_output = StoredOutputAnswer(
        allow_null=True, help_text="Where `output` is that is too large to stand here."
    )
    output_expired_at = serializers.DateTimeField(
        allow_null=True, help_text="When the organization's time for outputs was over."
    )
    observation = serializers.CharField()
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)
    error_details = serializers.DictField(
        help_text="`effect_possible` where an effect may have happened all the same."
    )
    cached = serializers.BooleanField()
    cost = serializers.CharField()
    metadata = MetadataAnswer()
    session = serializers.DictField(allow_null=True)
    confirmation = serializers.DictField(allow_null=True)
    resolution = serializers.DictField(
        allow_null=True, help_text="A person's word on an outcome that was not known."
    )
    warnings = serializers.ListField(child=serializers.CharField())
    rate = RateAnswer(
        required=False, help_text="To who made the call, where the tool has a limit per minute."
    )


class ExecutionPage(Page):
    results = ExecutionAnswer(many=True)


ANSWERS = {
    200: ExecutionAnswer,
    202: ExecutionAnswer,
    429: None,
}


class ToolExecute(CallerView):
    keying = Keying.EXECUTION
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE

    @extend_schema(
        operation_id="execute_tool",
        request=ToolCallBody,
        responses=ANSWERS,
        examples=[CALL_OF_TOOL, RESULT],
    )
    def post(self, request: Request, name: str) -> Response:
        """Call the tool; the answer waits up to `wait_s` seconds for its result."""
        wanted = self.body(ToolCallBody)
        if wanted.get("tool_name", name) != name:
            raise Malformed("tool_name names another tool than the address does.")
        return _execute(self, wanted | {"tool_name": name})


class ExecutionList(CallerView):
    keying = Keying.EXECUTION
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE
    pagination_class = CursorPages

    @extend_schema(
        operation_id="list_executions",
        responses=ExecutionPage,
        parameters=[
            OpenApiParameter("status", OpenApiTypes.STR, enum=[*Status]),
            OpenApiParameter("code", OpenApiTypes.STR, description="The error code that it has."),
            OpenApiParameter("parent", OpenApiTypes.UUID, description="Calls that it made."),
            OpenApiParameter("state", OpenApiTypes.STR, description="The workflow state before."),
            TOOL,
            AGENT,
            SESSION,
            *PERIOD,
            *paging_parameters(newest_first()),
        ],
    )
    def get(self, request: Request) -> Response:
        """The caller's executions, the newest first; with the permission, a person's list has those
        of others."""
        found = readable_executions(self.caller).shown()
        if "status" in self.query:
            found = found.at_stage(self.query["status"])
        found = filter_rows(found, self._filters(), _COLUMNS)
        pages = CursorPages()
        page: list[Execution] = pages.paginate_queryset(found, request, self) or []
        held = confirmations.load_confirmations(page)
        return pages.get_paginated_response(
            [execution_shape(row, held.get(row.pk)) for row in page]
        )

    def _filters(self) -> dict[str, Any]:
        """An agent by its service account, which an index of the calls has."""
        state = {"state": self.requested_state()} if "state" in self.query else {}
        query = {**self.query, **state}
        if "agent" not in query:
            return dict(query)
        here = Agent.objects.filter(organization_id=self.caller.organization_id)
        named = here.filter(slug=query["agent"]).values_list("service_account", flat=True)
        return {**query, "agent": list(named)}

    @extend_schema(
        operation_id="create_execution",
        request=CallBody,
        responses=ANSWERS,
        examples=[CALL, RESULT],
    )
    def post(self, request: Request) -> Response:
        """Call a tool."""
        return _execute(self, self.body(CallBody))


class ExecutionDetail(CallerView):
    @extend_schema(
        operation_id="get_execution",
        responses={200: ExecutionAnswer, 202: ExecutionAnswer},
        parameters=[WAIT],
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """The current state; with `wait_s`, the response waits up to so long for the end."""
        execution = answer.find_execution(self.caller, execution_id)
        return _execution_response(wait_for_execution(self.caller, request, execution), held=True)


class ExecutionCancel(CallerView):
    keying = Keying.IN_PROGRESS
    proof = by_method(post=Proof.NOT_NEEDED)
    bodiless = frozenset({"POST"})
    scope = Scope.EXECUTE

    @extend_schema(
        operation_id="cancel_execution",
        request=None,
        responses={200: ExecutionAnswer, 202: ExecutionAnswer},
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Cancel it: at once when it has not begun, otherwise as soon as its worker is notified."""
        execution = answer.find_execution(self.caller, execution_id)
        return _execution_response(answer.cancel(caller=self.caller, execution=execution))


class ExecutionResolve(CallerView):
    proof = by_method(post=Proof.NEEDED)
    scope = Scope.AGENTS

    @extend_schema(
        operation_id="resolve_execution",
        request=ResolutionBody,
        responses=ExecutionAnswer,
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Resolve an unknown outcome of a call. Only people may, and once."""
        word = self.body(ResolutionBody)
        execution = answer.find_execution(self.caller, execution_id)
        execution = answer.resolve(
            caller=self.caller,
            execution=execution,
            outcome=Resolution(word["outcome"]),
            reason=word["reason"],
        )
        return _execution_response(execution, held=True)


class ExecutionEvents(CallerView):
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @extend_schema(
        operation_id="follow_execution",
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[event_streams.LAST_EVENT],
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        """Server-Sent Events: what happened, then what happens, until it is over."""
        execution = answer.find_execution(self.caller, execution_id)
        after = event_streams.last_event_number(request)
        return event_streams.stream_response(
            self.caller, events.follow_events(execution.pk, after), _encode_execution_event
        )


def build_call(
    wanted: dict[str, Any], key: str | None = None, *, at_its_door: bool = False
) -> Call:
    """A validated body as a call."""
    options = wanted.get("options") or {}
    given = {
        name: wanted[name] for name in ("tool_name", "parameters", "group", "state", "session")
    }
    return Call(
        **given,
        timeout_s=options.get("timeout"),
        require_confirmation=options.get("require_confirmation", False),
        idempotency_key=key or options.get("execution_id"),
        at_its_door=at_its_door,
    )


def _execute(view: CallerView, wanted: dict[str, Any]) -> Response:
    return _execution_response(
        execute_call(view, build_call(wanted, idempotency_key(view.request)), wanted)
    )


def execute_call(view: CallerView, call: Call, wanted: dict[str, Any]) -> Execution:
    """The execution of a call, over or as it is after `wait_s`. Raises what refused it."""
    wait_s = (wanted.get("options") or {}).get("wait_s", 30)
    with event_streams.waiting_slot(view.caller) as free:  # without one it is answered 202
        wait_s = wait_s if free else 0
        execution = answer.execute(caller=view.caller, call=call, wait_s=wait_s)
    note_rate(view.request, "call", execution.rate)
    view.replayed = execution.pk != call.id
    if (refusal := answer.refusal_of(execution)) is not None:
        raise refusal
    return execution


def wait_for_execution(caller: Caller, request: Request, execution: Execution) -> Execution:
    """With `wait_s` in the URL, waits up to so long for the end."""
    wait_s = _parse_wait_s(request.query_params.get("wait_s"))
    if wait_s and not execution.is_final:
        with event_streams.waiting_slot(caller) as free:
            return answer.wait_for(execution, wait_s) if free else execution
    return execution


def _execution_response(execution: Execution, *, held: bool = False) -> Response:
    """200 once it is over, 202 with its address until then.

    Reading its approval costs a query, so it is done only where `held` or the row says that there
    is one.
    """
    shown = held or execution.status == Status.REQUIRES_CONFIRMATION
    found = confirmations.load_confirmations([execution]).get(execution.pk) if shown else None
    if execution.is_final:
        return Response(execution_shape(execution, found))
    address = f"/api/v1/executions/{execution.pk}"
    return Response(execution_shape(execution, found), 202, headers={"Location": address})


def _parse_wait_s(raw: str | None) -> float:
    if not raw:
        return 0
    if not raw.isascii() or not raw.isdigit() or len(raw) > 2 or int(raw) > MOST_WAIT_S:
        raise Malformed(f"wait_s must be a whole number from 0 to {MOST_WAIT_S}.")
    return int(raw)


def _encode_execution_event(event: ExecutionEvent) -> bytes:
    body = {
        "execution_id": str(event.execution_id),
        "event_type": event.type,
        "message": event.message,
        "timestamp": event.created_at.isoformat().replace("+00:00", "Z"),
    }
    return encode_event(event.type, body, number=event.sequence)
