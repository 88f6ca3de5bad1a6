"""`/api/v1/sessions`: workflow sessions whose state, groups and history the server keeps."""

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.api.common.conditional import ConditionalView, Representation
from tools.api.common.pagination import AGENT, PERIOD, Page, filter_rows, period_columns
from tools.api.common.serializer_fields import State, Strict, Text, text_list
from tools.api.common.views import CallerView
from tools.authorization.pins import session_pins
from tools.definitions.callers import Scope
from tools.definitions.results import Status
from tools.models import Session
from tools.shapes.executions import session_shape, step_shape, transition_shape
from tools.web.cursor_pagination import OLDEST_FIRST, CursorPages, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method
from tools.workflows import session_actions

MOST_STEPS = 50  # of a session's history, shown with it
_COLUMNS = {
    "open": "closed_at__isnull",
    "state": "state",
    "agent": "agent__slug",
    **period_columns("created_at"),
}


class SessionBody(Strict):
    group = text_list(
        required=False,
        allow_null=True,
        default=None,
        help_text='Absent is ["default"], [] is none.',
    )
    state = State(help_text="To begin in.")
    pins = serializers.DictField(
        child=Text(allow_null=True, max_length=40),
        required=False,
        help_text="Versions by the names of tools, kept as long as the session.",
    )


class SessionAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    group = serializers.ListField(child=serializers.CharField())
    state = serializers.CharField()
    caller = serializers.CharField(help_text="Whose it is: an agent's slug or a person's name.")
    created_at = serializers.DateTimeField()
    entered_at = serializers.DateTimeField(help_text="When it came into its state.")
    closed_at = serializers.DateTimeField(allow_null=True)


class OpenedSession(SessionAnswer):
    pins = serializers.DictField(child=serializers.CharField())
    warnings = serializers.ListField(child=serializers.CharField())


class StepAnswer(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    tool_name = serializers.CharField()
    arguments = serializers.DictField(
        allow_null=True, help_text="null when they are large: read the execution."
    )
    status = serializers.ChoiceField(choices=[str(status) for status in Status])
    observation = serializers.CharField(help_text="Its beginning.")
    error_code = serializers.CharField(allow_null=True)
    cached = serializers.BooleanField()
    state_before = serializers.CharField()
    state_after = serializers.CharField()
    created_at = serializers.DateTimeField()
    completed_at = serializers.DateTimeField(allow_null=True)


class TransitionAnswer(serializers.Serializer[Any]):
    tool = serializers.CharField()
    to = serializers.CharField()
    timestamp = serializers.DateTimeField()
    execution_id = serializers.UUIDField()

    def get_fields(self) -> dict[str, Any]:
        """`from` is a keyword of Python."""
        return {"from": serializers.CharField(), **super().get_fields()}


class SessionDetailAnswer(SessionAnswer):
    pins = serializers.DictField(child=serializers.CharField())
    tools = serializers.ListField(
        child=serializers.CharField(), help_text="Those that exist in it now."
    )
    transitions = TransitionAnswer(many=True, help_text="The latest 200, in order.")
    history = StepAnswer(many=True, help_text="The latest 50 calls, in order.")


class SessionPage(Page):
    results = SessionAnswer(many=True)


class HistoryPage(Page):
    results = StepAnswer(many=True)


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
        found = session_actions.readable_sessions(self.caller)
        state = {"state": self.requested_state()} if "state" in self.query else {}
        found = filter_rows(found, {**self.query, **state}, _COLUMNS)
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
        session, warnings = session_actions.open_session(caller=self.caller, **wanted)
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
        return Representation(
            session_shape(session_actions.find_readable_session(self.caller, session_id))
        )

    def lock(self, session_id: UUID) -> None:
        row = session_actions.find_readable_session(self.caller, session_id)
        Session.objects.select_for_update(no_key=True).get(pk=row.pk)

    @extend_schema(operation_id="get_session", responses=SessionDetailAnswer)
    def get(self, request: Request, session_id: UUID) -> Response:
        """State, groups, available tools, transitions, and the latest of its history."""
        session = session_actions.find_readable_session(self.caller, session_id)
        latest = session_actions.session_history(session).reverse()[:MOST_STEPS]
        shape: dict[str, Any] = session_shape(session) | {
            "pins": session_pins(session),
            "tools": [tool.name for tool in session_actions.available_tools(self.caller, session)],
            "transitions": [
                transition_shape(one) for one in session_actions.latest_transitions(session)
            ],
            "history": [step_shape(step, step.arguments, step.seen) for step in latest][::-1],
        }
        return self.resource_response(Representation(shape))

    @extend_schema(operation_id="close_session", responses={204: None})
    def delete(self, request: Request, session_id: UUID) -> Response:
        """No further call starts in it; a running one finishes. Safe to repeat."""
        with self.open_change(session_id=session_id):
            session = session_actions.find_readable_session(self.caller, session_id)
            session_actions.close_session(caller=self.caller, session=session)
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
        session = session_actions.find_readable_session(self.caller, session_id)
        pages = HistoryPages()
        page = (
            pages.paginate_queryset(session_actions.session_history(session), request, self) or []
        )
        steps = [step_shape(step, step.arguments, step.seen) for step in page]
        return pages.get_paginated_response(steps)
