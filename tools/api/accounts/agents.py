"""`/api/v1/agents`: agents, their grants and their tokens. For people only."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts import account_actions
from tools.accounts.grants import grant_queries
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.pagination import Page, filter_rows
from tools.api.common.serializer_fields import (
    Flag,
    Items,
    Strict,
    Text,
    Whole,
    text_list,
)
from tools.authorization import pins
from tools.catalog.bounds import MOST
from tools.definitions.callers import Scope
from tools.definitions.values import strict_json
from tools.errors import NotFound
from tools.limits import allowances
from tools.limits.allowances import AMOUNT, MOST_QUOTAS
from tools.models import Agent, Token, User
from tools.models.agent import AllowanceKind, AllowancePeriod
from tools.shapes.accounts import agent_shape, allowances_shape
from tools.web.cursor_pagination import CursorPages, by_name, paging_parameters
from tools.web.field_actions import change_agent_fields
from tools.web.reauthentication import Proof, by_method


class AllowanceAmountField(serializers.CharField):
    """A decimal text such as "2.50", or a whole number: a fraction as a number is not exact."""

    def to_internal_value(self, data: Any) -> Decimal:  # type: ignore[override]
        text = str(data) if isinstance(data, int) and not isinstance(data, bool) else data
        if not isinstance(text, str) or not AMOUNT.fullmatch(text):
            raise serializers.ValidationError(
                'This must be a decimal text of at most six places, such as "2.50".'
            )
        return Decimal(text)


class BudgetBody(Strict):
    amount = AllowanceAmountField()
    period = serializers.ChoiceField(choices=AllowancePeriod.values)


class QuotaBody(Strict):
    tool = Text(max_length=128, required=False, allow_null=True, default=None)
    kind = serializers.ChoiceField(choices=AllowanceKind.values)
    period = serializers.ChoiceField(choices=AllowancePeriod.values)
    amount = AllowanceAmountField()


class BudgetAnswer(serializers.Serializer[Any]):
    amount = serializers.CharField()
    period = serializers.ChoiceField(choices=AllowancePeriod.values)
    used = serializers.CharField()
    held = serializers.CharField(help_text="By calls that are not over.")
    resets_at = serializers.DateTimeField()


class QuotaAnswer(BudgetAnswer):
    tool = serializers.CharField(allow_null=True, help_text="Null: all tools together.")
    kind = serializers.ChoiceField(choices=AllowanceKind.values)


class AgentBody(Strict):
    slug = Text(max_length=63)
    description = Text(required=False, max_length=500, allow_blank=True)
    groups = text_list(required=False, allow_null=True)
    tools = text_list(required=False, allow_null=True)
    tool_groups = text_list(required=False, allow_null=True)
    permissions = text_list(required=False, allow_null=True)
    strict = Flag(required=False)


class AgentChange(Strict):
    description = Text(required=False, max_length=500, allow_blank=True)
    groups = text_list(required=False)
    tools = text_list(required=False)
    tool_groups = text_list(required=False)
    permissions = text_list(required=False)
    strict = Flag(required=False)
    active = Flag(required=False)
    max_in_flight = Whole(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MOST,
        help_text="How many of its calls may be open at once; null is no limit.",
    )
    pins = serializers.DictField(
        child=Text(allow_null=True, max_length=40),
        required=False,
        help_text="Versions by the names of tools; null takes a pin away, others stay.",
    )
    budget = BudgetBody(
        required=False, allow_null=True, help_text="The cost of all tools; null removes it."
    )
    quotas = Items(
        child=QuotaBody(),
        required=False,
        max_length=MOST_QUOTAS,
        help_text="Replaces the list. The budget stays unless an entry is for the cost of all.",
    )


class SuspendBody(Strict):
    reason = Text(
        required=False,
        max_length=500,
        allow_blank=True,
        default="",
        help_text="Stands in the record.",
    )


class AgentAnswer(serializers.Serializer[Any]):
    slug = serializers.CharField()
    description = serializers.CharField()
    active = serializers.BooleanField()
    strict = serializers.BooleanField()
    max_in_flight = serializers.IntegerField(allow_null=True)
    groups = serializers.ListField(child=serializers.CharField())
    tools = serializers.ListField(child=serializers.CharField())
    tool_groups = serializers.ListField(child=serializers.CharField())
    permissions = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    pins = serializers.DictField(child=serializers.CharField())
    budget = BudgetAnswer(allow_null=True)
    quotas = QuotaAnswer(many=True)


class AgentPage(Page):
    results = AgentAnswer(many=True)


def agent_shapes(agents: Sequence[Agent]) -> list[dict[str, object]]:
    """For many agents with a constant number of queries."""
    tools, groups = grant_queries.granted_tools_and_groups(agents)
    pinned, bounds = pins.pins_of_many(agents), allowances.allowances_of_many(agents)
    return [
        agent_shape(agent, tools[agent.pk])
        | {"tool_groups": groups[agent.pk], "pins": pinned[agent.pk]}
        | allowances_shape(bounds[agent.pk])
        for agent in agents
    ]


class AgentView(ConditionalView):
    scope = Scope.AGENTS

    def lock(self, slug: str, **_: Any) -> None:
        """Locks the account first, as changes of grants do."""
        accounts = User.objects.select_for_update()
        accounts.values_list("pk").get(pk=self.find_agent(slug).service_account_id)
        super().lock()

    def agents(self) -> QuerySet[Agent]:
        return Agent.objects.filter(organization_id=self.caller.organization_id).select_related(
            "service_account", "organization"
        )

    def find_agent(self, slug: str) -> Agent:
        found = self.agents().filter(slug=slug).first()
        if found is None:
            raise NotFound(f"There is no agent {slug[:63]!r}.", code="agent_not_found")
        return found

    def find_token(self, agent: Agent, token_id: UUID) -> Token:
        token = agent.service_account.tokens.filter(pk=token_id).first()
        if token is None:
            raise NotFound("The agent has no such token.", code="token_not_found")
        return token

    def shape(self, agent: Agent) -> dict[str, object]:
        return agent_shapes([agent])[0]


class OneAgent(AgentView):
    def representation(self, slug: str) -> Representation:
        return Representation(self.shape(self.find_agent(slug)))

    def covered_fields(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The limits of quotas, not their use."""
        budget, quotas = shape["budget"], shape["quotas"]
        return shape | {
            "budget": budget and _quota_limits(budget),
            "quotas": [*map(_quota_limits, quotas)],
        }


class AgentList(OneAgent):
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_agents",
        parameters=[
            OpenApiParameter("q", OpenApiTypes.STR, description="In slug or description."),
            OpenApiParameter("active", OpenApiTypes.BOOL),
            *paging_parameters(by_name("slug")),
        ],
        responses=AgentPage,
    )
    def get(self, request: Request) -> Response:
        self.require("view_agent")
        pages = CursorPages(by_name("slug"))
        found = filter_rows(self.agents(), self.query, {"active": "active"})
        if text := self.query.get("q", "").strip():
            found = found.filter(Q(slug__icontains=text) | Q(description__icontains=text))
        page: list[Agent] = pages.paginate_queryset(found, request, self) or []
        return pages.get_paginated_response(agent_shapes(page))

    @extend_schema(
        operation_id="create_agent",
        request=AgentBody,
        responses={201: AgentAnswer},
    )
    def post(self, request: Request) -> Response:
        """A new agent is granted the group `default` and nothing else, unless grants are given.

        Where neither tools nor tool groups are named it may execute all of its groups' tools. You
        can only grant what you hold.
        """
        self.require("add_agent")
        wanted = self.body(AgentBody)
        agent = account_actions.create_agent(
            organization=self.organization, by=self.actor, giver=self.caller, **wanted
        )
        headers = {"Location": f"/api/v1/agents/{agent.slug}"}
        return self.resource_response(
            self.representation(agent.slug), status.HTTP_201_CREATED, headers
        )


def _widens_rights(request: HttpRequest, **_: Any) -> bool:
    try:
        changes = strict_json.parse(request.body)
    except strict_json.BadJson:
        return False  # refused in any case
    return not (isinstance(changes, dict) and account_actions.only_weakens(changes))


class AgentDetail(OneAgent):
    proof = by_method(patch=_widens_rights)

    @extend_schema(operation_id="get_agent", responses=AgentAnswer)
    def get(self, request: Request, slug: str) -> Response:
        self.require("view_agent")
        return self.resource_response(self.representation(slug))

    @extend_schema(
        operation_id="change_agent",
        request=AgentChange,
        responses=AgentAnswer,
    )
    @conditional("change_agent")
    def patch(self, request: Request, slug: str) -> Response:
        """Change the given fields, all or nothing. Revoked grants apply from the next request
        on."""
        agent, wanted = self.find_agent(slug), self.body(AgentChange)
        change_agent_fields(agent=agent, by=self.actor, giver=self.caller, changes=wanted)
        return self.resource_response(self.representation(slug))


class AgentSuspend(OneAgent):
    proof = by_method(post=Proof.NOT_NEEDED)

    @extend_schema(
        operation_id="suspend_agent",
        request=SuspendBody,
        responses=AgentAnswer,
    )
    @conditional("change_agent")
    def post(self, request: Request, slug: str) -> Response:
        """Refused everywhere from the next request on; `PATCH {"active": true}` takes it back.

        Waiting calls are refused when they would start; running ones end by themselves, or are
        stopped by `cancel`.
        """
        agent, reason = self.find_agent(slug), self.body(SuspendBody, optional=True)["reason"]
        account_actions.change_agent(agent=agent, by=self.actor, active=False, reason=reason)
        return self.resource_response(self.representation(slug))


def _quota_limits(quota: dict[str, Any]) -> dict[str, Any]:
    return {field: quota[field] for field in quota.keys() - {"used", "held", "resets_at"}}
