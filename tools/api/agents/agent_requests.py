"""`/api/v1/agent/requests`: a question for an agent. A request is an execution of `run_agent`."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tools.agents import agent_requests, following
from tools.agents.agent_requests import AgentRunRequest
from tools.agents.following import StepEvent
from tools.api.agents.agent_request_bodies import (
    AgentRequestAnswer,
    AgentRequestBody,
    AgentRequestPage,
)
from tools.api.common import streams
from tools.api.common.base import CallerView
from tools.api.common.filters import AGENT, PERIOD, SESSION, filtered, in_period
from tools.api.common.idempotency import Keying, key_of
from tools.api.common.renderers import EventStreamRenderer, JSONRenderer
from tools.api.executions.executions import WAIT, made, waited_for
from tools.definitions.callers import Caller, Scope
from tools.definitions.results import Status
from tools.definitions.values.strict_json import MAX_VALUES
from tools.models import Execution
from tools.shapes import agent_request_line, agent_request_shape
from tools.web.pagination import CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

ANSWERS: dict[Any, Any] = {
    200: AgentRequestAnswer,
    202: AgentRequestAnswer,
    (200, "text/event-stream"): OpenApiTypes.STR,
    429: None,
}
_COLUMNS = {"agent": "agent__slug", "session": "session", **in_period("created_at")}
_GIVEN = (
    "question", "pattern", "history", "model", "max_iterations", "max_tokens", "max_cost",
    "confidence", "thresholds", "continues", "replays", "shared_with",
)  # fmt: skip


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
        found = agent_requests.lately(self.caller)
        if "status" in self.query:
            found = found.at_stage(self.query["status"])
        found = filtered(found, self.query, _COLUMNS)
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
        call = agent_requests.call_of(self.caller, _wanted(wanted, key_of(request)))
        if wanted["stream"]:
            options = (wanted.get("options") or {}) | {"wait_s": 0}
            run = made(self, call, {"options": options})
            return streams.streamed(self.caller, following.follow(self.caller, run.pk, 0), _sent)
        return _answer(self.caller, made(self, call, wanted))


class AgentRequestDetail(CallerView):
    @extend_schema(
        operation_id="get_agent_request",
        responses={200: AgentRequestAnswer, 202: AgentRequestAnswer},
        parameters=[WAIT],
    )
    def get(self, request: Request, request_id: UUID) -> Response:
        """The current state; with `wait_s`, the response waits up to so long for the end."""
        run = agent_requests.one_of(self.caller, request_id)
        return _answer(self.caller, waited_for(self.caller, request, run))


class AgentRequestEvents(CallerView):
    renderer_classes = [EventStreamRenderer, JSONRenderer]

    @extend_schema(
        operation_id="follow_agent_request",
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
        parameters=[streams.LAST_EVENT],
    )
    def get(self, request: Request, request_id: UUID) -> HttpResponseBase:
        """Server-Sent Events: its steps so far, then those to come, until it is over."""
        run = agent_requests.one_of(self.caller, request_id)
        after = streams.last_event(request)
        return streams.streamed(self.caller, following.follow(self.caller, run.pk, after), _sent)


def _wanted(body: dict[str, Any], key: str | None) -> AgentRunRequest:
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


def _answer(caller: Caller, run: Execution) -> Response:
    body = agent_request_shape(agent_requests.report_of(caller, run))
    if run.over:
        return Response(body)
    address = f"/api/v1/agent/requests/{run.pk}"
    return Response(body, 202, headers={"Location": address})


def _sent(event: StepEvent) -> bytes:
    return streams.event(event.number, event.kind, event.data)
