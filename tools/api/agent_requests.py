"""`/api/v1/agent/requests`: a question for an agent. A request is an execution of `run_agent`."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunRequest, StepEvent
from tools.agents.recordings import find_run
from tools.agents.run_parameters import (
    ITERATIONS,
    MOST_HISTORY,
    MOST_ITERATIONS,
    MOST_QUESTION,
    MOST_TOKENS,
    PATTERNS,
    REACT,
    THRESHOLD,
    TOKENS,
)
from tools.api.common import event_streams
from tools.api.common.content_types import EventStreamRenderer, JSONRenderer
from tools.api.common.idempotency import Keying, idempotency_key
from tools.api.common.pagination import AGENT, PERIOD, SESSION, Page, filter_rows, period_columns
from tools.api.common.serializer_fields import (
    Flag,
    Items,
    Seconds,
    State,
    Strict,
    Text,
    Whole,
    text_list,
)
from tools.api.common.views import CallerView
from tools.api.executions.executions import (
    WAIT,
    ExecutionAnswer,
    OptionsBody,
    execute_call,
    wait_for_execution,
)
from tools.definitions.callers import Caller, Scope
from tools.definitions.results import Status
from tools.definitions.values.server_sent_events import encode_event
from tools.definitions.values.strict_json import MAX_VALUES
from tools.models import Execution
from tools.shapes.executions import agent_request_line, agent_request_shape
from tools.web.cursor_pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

_COLUMNS = {"agent": "agent__slug", "session": "session", **period_columns("created_at")}
_GIVEN = (
    "question", "pattern", "history", "model", "max_iterations", "max_tokens", "max_cost",
    "confidence", "thresholds", "continues", "replays", "shared_with",
)  # fmt: skip


class PastStepBody(Strict):
    thought = Text(required=False, default="", allow_blank=True, max_length=20_000)
    action = Text(required=False, default="", allow_blank=True, max_length=128)
    arguments = serializers.DictField(required=False, default=dict)
    observation = Text(required=False, default="", allow_blank=True, max_length=100_000)


class AgentRequestBody(Strict):
    """A question for an agent, and the limits of the run."""

    question = Text(
        required=False,
        max_length=MOST_QUESTION,
        help_text="Left out, it is that of the request which this one continues or replays.",
    )
    pattern = serializers.ChoiceField(choices=PATTERNS, required=False, default=REACT)
    group = text_list(required=False, allow_null=True, default=None)
    state = State()
    session = Text(
        required=False,
        allow_null=True,
        default=None,
        max_length=64,
        help_text="Left out, it has one of its own, which is closed at its end.",
    )
    history = Items(child=PastStepBody(), required=False, default=list, max_length=MOST_HISTORY)
    model = Text(required=False, allow_blank=True, default="", max_length=200)
    max_iterations = Whole(
        required=False, default=ITERATIONS, min_value=1, max_value=MOST_ITERATIONS
    )
    max_tokens = Whole(required=False, default=TOKENS, min_value=1, max_value=MOST_TOKENS)
    max_cost = serializers.RegexField(
        r"\A[0-9]{1,9}(\.[0-9]{1,6})?\Z", required=False, allow_null=True, default=None,
        max_length=20, trim_whitespace=False,
    )  # fmt: skip
    confidence = Seconds(
        required=False,
        default=THRESHOLD,
        min_value=0,
        max_value=1,
        help_text="Of a plan: a person is asked about a step that is less sure.",
    )
    thresholds = serializers.DictField(
        child=Seconds(min_value=0, max_value=1), required=False, default=dict
    )
    continues = serializers.UUIDField(required=False, allow_null=True, default=None)
    replays = serializers.UUIDField(
        required=False,
        allow_null=True,
        default=None,
        help_text="A request whose recorded results stand for calls: no tool is called.",
    )
    shared_with = Items(
        child=Text(max_length=63),
        required=False,
        default=list,
        max_length=20,
        help_text="Agents that may go on from this request, if they have the same rights.",
    )
    stream = Flag(required=False, default=False, help_text="Answer with Server-Sent Events.")
    options = OptionsBody(required=False)


class TokensAnswer(serializers.Serializer[Any]):
    input = serializers.IntegerField()
    output = serializers.IntegerField()


class AgentStepAnswer(serializers.Serializer[Any]):
    step = serializers.IntegerField()
    thought = serializers.CharField()
    action = serializers.CharField(allow_null=True)
    arguments = serializers.DictField(allow_null=True)
    observation = serializers.CharField(allow_null=True)
    status = serializers.CharField(help_text="Of the action; empty before it begins.")
    execution_id = serializers.UUIDField(allow_null=True)
    not_called = serializers.ListField(
        child=serializers.CharField(),
        help_text="Tools that the model called in the same turn; only the first call is made.",
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Such as that the reply was cut at its length."
    )
    tokens = TokensAnswer()
    cost = serializers.CharField()
    duration_ms = serializers.FloatField()


class AgentRequestAnswer(serializers.Serializer[Any]):
    request_id = serializers.UUIDField(help_text="The id of its own execution.")
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    pattern = serializers.ChoiceField(choices=PATTERNS)
    question = serializers.CharField()
    answer = serializers.CharField(allow_null=True)
    steps = AgentStepAnswer(many=True)
    plan = serializers.DictField(allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    state = serializers.CharField(help_text="Where the workflow is now.")
    tokens = TokensAnswer()
    cost = serializers.CharField()
    duration_ms = serializers.FloatField(help_text="Of its calls together.")
    error_code = serializers.CharField(allow_null=True)
    error_message = serializers.CharField(allow_null=True)
    execution = ExecutionAnswer(help_text="The request as the execution that it is.")


class AgentRequestLine(serializers.Serializer[Any]):
    request_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    pattern = serializers.ChoiceField(choices=PATTERNS)
    question = serializers.CharField(help_text="Its beginning.")
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)


class AgentRequestPage(Page):
    results = AgentRequestLine(many=True)


ANSWERS: dict[Any, Any] = {
    200: AgentRequestAnswer,
    202: AgentRequestAnswer,
    (200, "text/event-stream"): OpenApiTypes.STR,
    429: None,
}


class AgentRequestList(CallerView):
    keying = Keying.EXECUTION
    proof = by_method(post=Proof.NOT_NEEDED)
    most_values = MAX_VALUES
    scope = Scope.EXECUTE
    pagination_class = CursorPages
    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(
        operation_id="list_agent_requests",
        responses=AgentRequestPage,
        parameters=[
            OpenApiParameter("status", OpenApiTypes.STR, enum=[*Status]),
            AGENT,
            SESSION,
            *PERIOD,
            *paging_parameters(newest_first()),
        ],
    )
    def get(self, request: Request) -> Response:
        """The caller's requests of agents, the newest first."""
        found = agent_requests.recent_runs(self.caller)
        if "status" in self.query:
            found = found.at_stage(self.query["status"])
        found = filter_rows(found, self.query, _COLUMNS)
        pages = CursorPages()
        page: list[Execution] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([agent_request_line(row) for row in page])

    @extend_schema(
        operation_id="create_agent_request",
        request=AgentRequestBody,
        responses=ANSWERS,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Send a request to an agent. Every gate checks each of its calls; with `stream`, its steps
        come as events: `thought`, `action`, `observation`, `answer`, `end`."""
        wanted = self.body(AgentRequestBody)
        call = agent_requests.build_call(
            self.caller, _run_request(wanted, idempotency_key(request))
        )
        if wanted["stream"]:
            options = (wanted.get("options") or {}) | {"wait_s": 0}
            run = execute_call(self, call, {"options": options})
            return event_streams.stream_response(
                self.caller, agent_requests.follow_run(self.caller, run.pk, 0), _encode_step
            )
        return _agent_request_response(self.caller, execute_call(self, call, wanted))


class AgentRequestDetail(CallerView):
    @extend_schema(
        operation_id="get_agent_request",
        responses={200: AgentRequestAnswer, 202: AgentRequestAnswer},
        parameters=[WAIT],
    )
    def get(self, request: Request, request_id: UUID) -> Response:
        """The current state; with `wait_s`, the response waits up to so long for the end."""
        run = find_run(self.caller, request_id)
        return _agent_request_response(self.caller, wait_for_execution(self.caller, request, run))


class AgentRequestEvents(CallerView):
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @extend_schema(
        operation_id="follow_agent_request",
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[event_streams.LAST_EVENT],
    )
    def get(self, request: Request, request_id: UUID) -> HttpResponseBase:
        """Server-Sent Events: its steps so far, then those to come, until it is over."""
        run = find_run(self.caller, request_id)
        after = event_streams.last_event_number(request)
        return event_streams.stream_response(
            self.caller, agent_requests.follow_run(self.caller, run.pk, after), _encode_step
        )


def _run_request(body: dict[str, Any], key: str | None) -> AgentRunRequest:
    options = body.get("options") or {}
    given = {name: body[name] for name in _GIVEN if body.get(name) is not None}
    given["history"] = [dict(step) for step in given["history"]]
    for name in ("continues", "replays"):
        if name in given:
            given[name] = str(given[name])
    return AgentRunRequest(
        given,
        group=body["group"],
        state=body["state"],
        session=body["session"],
        timeout_s=options.get("timeout"),
        idempotency_key=key or options.get("execution_id"),
    )


def _agent_request_response(caller: Caller, run: Execution) -> Response:
    body = agent_request_shape(agent_requests.load_report(caller, run))
    if run.is_final:
        return Response(body)
    address = f"/api/v1/agent/requests/{run.pk}"
    return Response(body, 202, headers={"Location": address})


def _encode_step(event: StepEvent) -> bytes:
    return encode_event(event.kind, event.data, number=event.number)
