"""`/api/v1/confirmations`: calls awaiting approval, and `/api/v1/confirmation-rules`.

People read with a session or a token; they decide with a session alone.
"""

from typing import Any
from urllib.parse import quote
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from config.http import errors
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.errors import ErrorAnswer
from tools.api.common.idempotency import Keying
from tools.api.common.pagination import AGENT, PERIOD, TOOL, Page, filter_rows, period_columns
from tools.api.common.serializer_fields import Flag, Strict, Text, Whole
from tools.api.common.views import CallerView
from tools.approvals import confirmation_rules, decisions
from tools.approvals.decisions import LONGEST_REASON, MOST_AT_ONCE, Decided, Word
from tools.definitions.callers import Scope
from tools.definitions.fields import DECIMAL
from tools.errors import ToolcribError
from tools.models import Confirmation, ConfirmationRule, ConfirmationStatus
from tools.shapes.executions import confirmation_shape, rule_shape
from tools.web.cursor_pagination import CursorPages, by_name, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

ALL = "all"
_CHOICES = (*ConfirmationStatus.values, ALL)
_COLUMNS = {
    "tool": "execution__tool_name",
    "agent": "execution__agent__slug",
    **period_columns("created_at"),
}


class DecisionBody(Strict):
    bound_hash = Text(max_length=64, help_text="Of what was read, to the letter.")
    reason = Text(
        required=False,
        default="",
        allow_blank=True,
        max_length=LONGEST_REASON,
        help_text="On record; a refusal's is told to the caller.",
    )


class OneDecision(DecisionBody):
    id = serializers.UUIDField()
    approve = Flag()


class DecisionsBody(Strict):
    decisions = OneDecision(  # type: ignore[call-arg] # of the list that `many` makes
        many=True, allow_empty=False, max_length=MOST_AT_ONCE
    )


@extend_schema_field(
    {"type": ["string", "integer"], "pattern": f"^{DECIMAL.pattern}$", "minimum": 0}
)
class ConfirmationAmountField(serializers.DecimalField):
    """An exact amount, sent as text or as a whole number; never a float."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_digits=18, decimal_places=6, **options)

    def to_internal_value(self, data: Any) -> Any:
        text = str(data) if isinstance(data, int) and not isinstance(data, bool) else data
        if not isinstance(text, str) or not DECIMAL.fullmatch(text):
            self.fail("invalid")
        return super().to_internal_value(data)


class RuleChange(Strict):
    """Every given condition must match."""

    enabled = Flag(required=False)
    tool = Text(required=False, allow_null=True, max_length=128)
    group = Text(required=False, allow_null=True, max_length=100)
    agent = Text(required=False, allow_null=True, max_length=63)
    min_cost = ConfirmationAmountField(required=False, allow_null=True)
    side_effects = Flag(required=False, help_text="Only tools that may have side effects.")
    first_use = Flag(
        required=False, help_text="Only while the caller has never used the tool with success."
    )
    approvals_needed = Whole(required=False, min_value=1, max_value=2)
    every_call = Flag(
        required=False, help_text="Must be true for a rule without conditions, and only there."
    )


class RuleBody(RuleChange):
    name = Text(max_length=100)


class DecisionAnswer(serializers.Serializer[Any]):
    by = serializers.CharField()
    approved = serializers.BooleanField()
    reason = serializers.CharField()
    at = serializers.DateTimeField()


class ConfirmationAnswer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    status = serializers.CharField(help_text=", ".join(ConfirmationStatus.values))
    bound_hash = serializers.CharField()
    reasons = serializers.ListField(child=serializers.CharField())
    approvals_needed = serializers.IntegerField()
    approvals = serializers.IntegerField()
    decisions = DecisionAnswer(many=True)
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    spent_at = serializers.DateTimeField(allow_null=True)
    execution_id = serializers.UUIDField()
    execution_status = serializers.CharField()
    tool_name = serializers.CharField()
    tool_version = serializers.CharField()
    digest = serializers.CharField()
    agent = serializers.CharField(allow_null=True)
    account = serializers.CharField()
    parameters = serializers.DictField()
    group = serializers.ListField(child=serializers.CharField(), allow_null=True)
    session = serializers.UUIDField(allow_null=True)
    state = serializers.CharField()
    options = serializers.DictField()
    cost = serializers.CharField()


class ConfirmationPage(Page):
    results = ConfirmationAnswer(many=True)


class DecidedAnswer(serializers.Serializer[Any]):
    """The result of one decision of many: its confirmation, or why it was refused."""

    id = serializers.UUIDField()
    confirmation = ConfirmationAnswer(allow_null=True)
    error = ErrorAnswer(allow_null=True)


class DecidedList(serializers.Serializer[Any]):
    results = DecidedAnswer(many=True)


class RuleAnswer(serializers.Serializer[Any]):
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    tool = serializers.CharField(allow_null=True)
    group = serializers.CharField(allow_null=True)
    agent = serializers.CharField(allow_null=True)
    min_cost = serializers.CharField(allow_null=True)
    side_effects = serializers.BooleanField()
    first_use = serializers.BooleanField()
    approvals_needed = serializers.IntegerField()
    every_call = serializers.BooleanField()
    touches = serializers.ListField(
        child=serializers.CharField(), help_text="The tools it can hold now, the first 50 of them."
    )
    touches_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()


class RulePage(Page):
    results = RuleAnswer(many=True)


DECIDED = {200: ConfirmationAnswer}
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
        found = filter_rows(_filter_confirmations(self, wanted), self.query, _COLUMNS)
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
        return Response({"results": [_decision_result(one) for one in found]})


class RuleView(ConditionalView):
    volatile = frozenset({"touches", "touches_count"})

    def representation(self, name: str) -> Representation:
        row = confirmation_rules.find_rule(self.organization, name)
        return Representation(rule_shape(row, self.current_snapshot()))


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
        headers = {"Location": f"/api/v1/confirmation-rules/{quote(row.name)}"}
        return self.resource_response(
            self.representation(row.name), status.HTTP_201_CREATED, headers
        )


class RuleDetail(RuleView):
    scope = Scope.CATALOG
    proof = by_method(put=Proof.NEEDED, patch=Proof.NEEDED, delete=Proof.NEEDED)

    @extend_schema(operation_id="get_confirmation_rule", responses=_RULE)
    def get(self, request: Request, name: str) -> Response:
        self.require("view_confirmationrule")
        row = confirmation_rules.find_rule(self.organization, name)
        return self.resource_response(Representation(rule_shape(row, self.snapshot)))

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
        return self._change(row, confirmation_rules.merge_changes(row, self.body(RuleChange)))

    @extend_schema(operation_id="delete_confirmation_rule", responses={204: None})
    @conditional("delete_confirmationrule")
    def delete(self, request: Request, name: str) -> Response:
        """Calls that the rule holds already still need an approval."""
        row = confirmation_rules.find_rule(self.organization, name)
        confirmation_rules.delete_rule(row=row, by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _change(self, row: ConfirmationRule, wanted: dict[str, Any]) -> Response:
        row = confirmation_rules.change_rule(row=row, wanted=wanted, by=self.actor)
        return self.resource_response(self.representation(row.name))


def _filter_confirmations(view: CallerView, wanted: str) -> Any:
    if wanted == ConfirmationStatus.PENDING:
        return decisions.pending(view.caller)
    rows = decisions.readable(view.caller)
    return rows if wanted == ALL else rows.filter(status=wanted)


def _decision_result(one: Decided) -> dict[str, Any]:
    return {
        "id": str(one.id),
        "confirmation": confirmation_shape(one.confirmation) if one.confirmation else None,
        "error": _refusal_error(one.refusal) if one.refusal else None,
    }


def _refusal_error(refusal: ToolcribError) -> dict[str, Any]:
    return errors.error_body(refusal.code, refusal.message, refusal.details)
