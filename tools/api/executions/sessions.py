"""`/api/v1/sessions`: workflow sessions whose state, groups and history the server keeps."""

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.base import CallerView
from tools.api.common.conditional import ConditionalView, Representation
from tools.api.common.filters import AGENT, PERIOD, filtered, in_period
from tools.api.executions.session_bodies import (
    HistoryPage,
    OpenedSession,
    SessionBody,
    SessionDetailAnswer,
    SessionPage,
)
from tools.authorization.pins import session_pins
from tools.definitions.callers import Scope
from tools.execution import session_actions as actions
from tools.models import Session
from tools.shapes import session_shape, step_shape, transition_shape
from tools.web.pagination import OLDEST_FIRST, CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

MOST_STEPS = 50  # of a session's history, shown with it


_COLUMNS = {
    "open": "closed_at__isnull",
    "state": "state",
    "agent": "agent__slug",
    **in_period("created_at"),
}


class HistoryPages(CursorPages):
    orders = OLDEST_FIRST


class SessionList(CallerView):
    proof = by_method(post=Proof.NOT_NEEDED)
    scope = Scope.EXECUTE
    pagination_class = CursorPages

    @extend_schema(
        operation_id="list_sessions",
        responses=SessionPage,
        parameters=[
            OpenApiParameter("open", OpenApiTypes.BOOL, description="Only these."),
            OpenApiParameter("state", OpenApiTypes.STR, description="Only those in it."),
            AGENT,
            *PERIOD,
            *paging_parameters(newest_first()),
        ],
    )
    def get(self, request: Request) -> Response:
        """The caller's sessions, the newest first; a person's also others', where granted."""
        found = actions.readable(self.caller)
        state = {"state": self.named_state()} if "state" in self.query else {}
        found = filtered(found, {**self.query, **state}, _COLUMNS)
        pages = CursorPages()
        page = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([session_shape(row) for row in page])

    @extend_schema(
        operation_id="open_session",
        request=SessionBody,
        responses={201: OpenedSession},
    )
    def post(self, request: Request) -> Response:
        """The groups are fixed at creation, and never more than the caller was granted."""
        wanted = self.body(SessionBody, optional=True)
        session, warnings = actions.open_session(caller=self.caller, **wanted)
        return Response(
            session_shape(session)
            | {
                "warnings": warnings,
                "pins": session_pins(session),
            },
            status.HTTP_201_CREATED,
            headers={"Location": f"/api/v1/sessions/{session.pk}"},
        )


class SessionDetail(ConditionalView):
    proof = by_method(delete=Proof.NOT_NEEDED)
    scope = Scope.EXECUTE
    # Fields that calls, or changes of tools, alter; a change of the session only closes it.
    volatile = frozenset({"state", "entered_at", "pins", "tools", "transitions", "history"})

    def representation(self, session_id: UUID) -> Representation:
        return Representation(session_shape(actions.one_of(self.caller, session_id)))

    def lock(self, session_id: UUID) -> None:
        row = actions.one_of(self.caller, session_id)
        Session.objects.select_for_update(no_key=True).get(pk=row.pk)

    @extend_schema(operation_id="get_session", responses=SessionDetailAnswer)
    def get(self, request: Request, session_id: UUID) -> Response:
        """State, groups, available tools, transitions, and the latest of its history."""
        session = actions.one_of(self.caller, session_id)
        latest = actions.history(session).reverse()[:MOST_STEPS]
        shape: dict[str, Any] = session_shape(session) | {
            "pins": session_pins(session),
            "tools": [tool.name for tool in actions.available_tools(self.caller, session)],
            "transitions": [transition_shape(one) for one in actions.transitions(session)],
            "history": [step_shape(step, step.arguments, step.seen) for step in latest][::-1],
        }
        return self.answer(Representation(shape))

    @extend_schema(operation_id="close_session", responses={204: None})
    def delete(self, request: Request, session_id: UUID) -> Response:
        """No further call starts in it; a running one finishes. Safe to repeat."""
        with self.changing(session_id=session_id):
            session = actions.one_of(self.caller, session_id)
            actions.close_session(caller=self.caller, session=session)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionHistory(CallerView):
    pagination_class = HistoryPages

    @extend_schema(
        operation_id="list_session_history",
        responses=HistoryPage,
        parameters=paging_parameters(OLDEST_FIRST),
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """The calls of a session in their order, refused ones too."""
        session = actions.one_of(self.caller, session_id)
        pages = HistoryPages()
        page = pages.paginate_queryset(actions.history(session), request, self) or []
        steps = [step_shape(step, step.arguments, step.seen) for step in page]
        return pages.get_paginated_response(steps)
