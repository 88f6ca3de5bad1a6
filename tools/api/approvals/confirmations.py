"""`/api/v1/confirmations`: calls awaiting approval, and `/api/v1/confirmation-rules`.

People read with a session or a token; they decide with a session alone.
"""

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from config.http import errors
from tools.api.approvals.confirmation_bodies import (
    ConfirmationAnswer,
    ConfirmationPage,
    DecidedList,
    DecisionBody,
    DecisionsBody,
    RuleAnswer,
    RuleBody,
    RuleChange,
    RulePage,
)
from tools.api.common.base import CallerView
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.filters import AGENT, PERIOD, TOOL, filtered, in_period
from tools.api.common.idempotency import Keying
from tools.approvals import confirmation_rules, decisions
from tools.approvals.decisions import Decided, Word
from tools.definitions.callers import Scope
from tools.errors import ToolcribError
from tools.models import Confirmation, ConfirmationRule, ConfirmationStatus
from tools.shapes import confirmation_shape, rule_shape
from tools.web.pagination import CursorPages, by_name, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

DECIDED = {200: ConfirmationAnswer}
ALL = "all"
_CHOICES = (*ConfirmationStatus.values, ALL)
_COLUMNS = {
    "tool": "execution__tool_name",
    "agent": "execution__agent__slug",
    **in_period("created_at"),
}
_RULE = {200: RuleAnswer}


class ConfirmationList(CallerView):
    @extend_schema(
        operation_id="list_confirmations",
        responses=ConfirmationPage,
        parameters=[
            OpenApiParameter("status", OpenApiTypes.STR, enum=[*_CHOICES], default="pending"),
            TOOL,
            AGENT,
            *PERIOD,
            *paging_parameters(newest_first()),
        ],
    )
    def get(self, request: Request) -> Response:
        """Calls awaiting approval, the newest first; with `status`, decided ones."""
        wanted = self.query.get("status", ConfirmationStatus.PENDING)
        found = filtered(_found(self, wanted), self.query, _COLUMNS)
        pages = CursorPages()
        page: list[Confirmation] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response([confirmation_shape(row) for row in page])


class ConfirmationDetail(CallerView):
    @extend_schema(operation_id="get_confirmation", responses=ConfirmationAnswer)
    def get(self, request: Request, confirmation_id: UUID) -> Response:
        return Response(confirmation_shape(decisions.one_of(self.caller, confirmation_id)))


class ConfirmationDecide(CallerView):
    """One person's decision on one call. `bound_hash` identifies exactly what is approved."""

    keying = Keying.IN_PROGRESS
    scope = Scope.AGENTS
    proof = by_method(post=Proof.NEEDED)

    approve = False

    @extend_schema(request=DecisionBody, responses=DECIDED)
    def post(self, request: Request, confirmation_id: UUID) -> Response:
        """Requires a person's session; every token is refused."""
        wanted = self.body(DecisionBody)
        word = Word(confirmation_id, approve=self.approve, **wanted)
        return Response(confirmation_shape(decisions.decide(caller=self.caller, word=word)))


class ConfirmationsDecide(CallerView):
    keying = Keying.IN_PROGRESS
    scope = Scope.AGENTS
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="decide_confirmations", request=DecisionsBody, responses=DecidedList
    )
    def post(self, request: Request) -> Response:
        """Many decisions at once, each with its own hash; one result for each, in order."""
        words = [Word(**item) for item in self.body(DecisionsBody)["decisions"]]
        found = decisions.decide_many(caller=self.caller, words=words)
        return Response({"results": [_result(one) for one in found]})


class RuleView(ConditionalView):
    volatile = frozenset({"touches", "touches_count"})

    def representation(self, name: str) -> Representation:
        row = confirmation_rules.find_rule(self.organization, name)
        return Representation(rule_shape(row, self.current()))


class RuleList(RuleView):
    scope = Scope.CATALOG
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_confirmation_rules",
        parameters=paging_parameters(by_name()),
        responses=RulePage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_confirmationrule")
        rows = ConfirmationRule.objects.filter(organization_id=self.caller.organization_id)
        pages = CursorPages(by_name())
        page: list[ConfirmationRule] = (
            pages.paginate_queryset(rows.select_related("agent"), request, self) or []
        )
        snapshot = self.snapshot
        return pages.get_paginated_response([rule_shape(row, snapshot) for row in page])

    @extend_schema(
        operation_id="create_confirmation_rule",
        request=RuleBody,
        responses={201: RuleAnswer},
    )
    def post(self, request: Request) -> Response:
        """Applies from the next call on, and to calls that have not begun."""
        self.require("add_confirmationrule")
        wanted = self.body(RuleBody)
        row = confirmation_rules.create_rule(
            organization=self.organization, name=wanted.pop("name"), wanted=wanted, by=self.actor
        )
        headers = {"Location": f"/api/v1/confirmation-rules/{row.name}"}
        return self.answer(self.representation(row.name), status.HTTP_201_CREATED, headers)


class RuleDetail(RuleView):
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_confirmation_rule", responses=_RULE)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_confirmationrule")
        row = confirmation_rules.find_rule(self.organization, name)
        return self.answer(Representation(rule_shape(row, self.snapshot)))

    @extend_schema(operation_id="replace_confirmation_rule", request=RuleChange, responses=_RULE)
    @conditional("change_confirmationrule")
    def put(self, request: Request, name: str) -> Response:
        """Replace the rule; missing fields get the defaults of a new rule."""
        row = confirmation_rules.find_rule(self.organization, name)
        return self._change(row, self.body(RuleChange))

    @extend_schema(operation_id="change_confirmation_rule", request=RuleChange, responses=_RULE)
    @conditional("change_confirmationrule")
    def patch(self, request: Request, name: str) -> Response:
        """Change the given fields."""
        row = confirmation_rules.find_rule(self.organization, name)
        return self._change(row, confirmation_rules.amended(row, self.body(RuleChange)))

    @extend_schema(operation_id="delete_confirmation_rule", responses={204: None})
    @conditional("delete_confirmationrule")
    def delete(self, request: Request, name: str) -> Response:
        """Calls that the rule holds already still need an approval."""
        row = confirmation_rules.find_rule(self.organization, name)
        confirmation_rules.delete_rule(row=row, by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _change(self, row: ConfirmationRule, wanted: dict[str, Any]) -> Response:
        row = confirmation_rules.change_rule(row=row, wanted=wanted, by=self.actor)
        return self.answer(self.representation(row.name))


def _found(view: CallerView, wanted: str) -> Any:
    if wanted == ConfirmationStatus.PENDING:
        return decisions.pending(view.caller)
    rows = decisions.readable(view.caller)
    return rows if wanted == ALL else rows.filter(status=wanted)


def _result(one: Decided) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "confirmation": confirmation_shape(one.confirmation) if one.confirmation else None,
        "error": _error(one.refusal) if one.refusal else None,
    }


def _error(refusal: ToolcribError) -> dict[str, Any]:
    return errors.error_body(refusal.code, refusal.message, refusal.details)
