"""`/api/v1/agents`: agents, their grants and their tokens. For people only."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from tools.accounts import account_actions
from tools.accounts.grants import grant_actions, grants_of_many
from tools.accounts.grants.impersonation import check_may_issue
from tools.api.common.bodies import (
    AgentAnswer,
    AgentBody,
    AgentChange,
    AgentPage,
    NewTokenAnswer,
    RotationBody,
    SuspendBody,
    TokenBody,
    TokenPage,
)
from tools.api.common.conditional import ConditionalView, Representation, conditional
from tools.api.common.filters import filtered
from tools.authorization import pins
from tools.definitions.callers import Scope
from tools.definitions.values import strict_json
from tools.errors import NotFound
from tools.limits import allowances
from tools.models import Agent, Token, User
from tools.shapes import agent_shape, allowances_shape, token_shape
from tools.web.pagination import CursorPages, by_name, newest_first, paging_parameters
from tools.web.reauthentication import Proof, by_method

GRANTS = ("groups", "tools", "tool_groups", "permissions")
BOUNDS = ("budget", "quotas")


def agent_shapes(agents: Sequence[Agent]) -> list[dict[str, object]]:
    """For many agents with a constant number of queries."""
    tools, groups = grants_of_many.tools_and_groups(agents)
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
        accounts.values_list("pk").get(pk=self.agent(slug).service_account_id)
        super().lock()

    def agents(self) -> QuerySet[Agent]:
        return Agent.objects.filter(organization_id=self.caller.organization_id).select_related(
            "service_account", "organization"
        )

    def agent(self, slug: str) -> Agent:
        found = self.agents().filter(slug=slug).first()
        if found is None:
            raise NotFound(f"There is no agent {slug[:63]!r}.", code="agent_not_found")
        return found

    def token(self, agent: Agent, token_id: UUID) -> Token:
        token = agent.service_account.tokens.filter(pk=token_id).first()
        if token is None:
            raise NotFound("The agent has no such token.", code="token_not_found")
        return token

    def shape(self, agent: Agent) -> dict[str, object]:
        return agent_shapes([agent])[0]


class OneAgent(AgentView):
    def representation(self, slug: str) -> Representation:
        return Representation(self.shape(self.agent(slug)))

    def covered(self, shape: dict[str, Any]) -> dict[str, Any]:
        """The limits of quotas, not their use."""
        budget, quotas = shape["budget"], shape["quotas"]
        return shape | {"budget": budget and _allowed(budget), "quotas": [*map(_allowed, quotas)]}


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
        found = filtered(self.agents(), self.query, {"active": "active"})
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
        return self.answer(self.representation(agent.slug), status.HTTP_201_CREATED, headers)


def _gives_power(request: HttpRequest, **_: Any) -> bool:
    try:
        changes = strict_json.parse(request.body)
    except strict_json.BadJson:
        return False  # refused in any case
    return not (isinstance(changes, dict) and account_actions.only_weakens(changes))


class AgentDetail(OneAgent):
    proof = by_method(patch=_gives_power)

    @extend_schema(operation_id="get_agent", responses=AgentAnswer)
    def get(self, request: Request, slug: str) -> Response:
        self.require("view_agent")
        return self.answer(self.representation(slug))

    @extend_schema(
        operation_id="change_agent",
        request=AgentChange,
        responses=AgentAnswer,
    )
    @conditional("change_agent")
    def patch(self, request: Request, slug: str) -> Response:
        """Change the given fields, all or nothing. Revoked grants apply from the next request
        on."""
        agent, wanted = self.agent(slug), self.body(AgentChange)
        grants = {kind: wanted.pop(kind) for kind in GRANTS if kind in wanted}
        if grants:
            grant_actions.grant(agent=agent, by=self.actor, giver=self.caller, **grants)
        if bounds := {kind: wanted.pop(kind) for kind in BOUNDS if kind in wanted}:
            allowances.set_allowances(agent=agent, by=self.actor, changes=bounds)
        if "pins" in wanted:
            held = wanted.pop("pins")
            pins.set_pins(agent=agent, pins=held, by=self.actor, giver=self.caller)
        if wanted:
            account_actions.change_agent(agent=agent, by=self.actor, **wanted)
        return self.answer(self.representation(slug))


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
        agent, reason = self.agent(slug), self.body(SuspendBody, optional=True)["reason"]
        account_actions.change_agent(agent=agent, by=self.actor, active=False, reason=reason)
        return self.answer(self.representation(slug))


class TokenList(AgentView):
    secret = ("token",)
    proof = by_method(post=Proof.NEEDED)

    @extend_schema(
        operation_id="list_agent_tokens",
        parameters=paging_parameters(newest_first()),
        responses=TokenPage,
    )
    def get(self, request: Request, slug: str) -> Response:
        self.require("view_token")
        tokens = self.agent(slug).service_account.tokens.all()
        pages = CursorPages()
        page: list[Token] = pages.paginate_queryset(tokens, request, self) or []
        return pages.get_paginated_response([token_shape(token) for token in page])

    def check_replay(self, **place: Any) -> None:
        narrowing = self.body(TokenBody, optional=True)
        check_may_issue(
            self.caller,
            self.agent(place["slug"]).service_account,
            groups=narrowing.get("groups"),
            tools=narrowing.get("tools"),
        )

    @extend_schema(
        operation_id="create_agent_token",
        request=TokenBody,
        responses={201: NewTokenAnswer},
    )
    def post(self, request: Request, slug: str) -> Response:
        """A new token for the agent; it is shown in this answer and never again.

        A token cannot permit more than you hold: narrow it by `groups` and `tools`, or ask a user
        who holds as much.
        """
        self.require("add_token")
        agent = self.agent(slug)
        token, text = account_actions.create_token(
            user=agent.service_account,
            by=self.actor,
            giver=self.caller,
            **self.body(TokenBody, optional=True),
        )
        return issued(token, text, request.path)


class OneToken(AgentView):
    volatile = frozenset({"last_used_at"})

    def representation(self, slug: str, token_id: UUID) -> Representation:
        return Representation(token_shape(self.token(self.agent(slug), token_id)))


class TokenDetail(OneToken):
    proof = by_method(delete=Proof.NOT_NEEDED)

    @extend_schema(operation_id="revoke_agent_token", responses={204: None})
    @conditional("delete_token")
    def delete(self, request: Request, slug: str, token_id: UUID) -> Response:
        """Revoke it: refused from the next request on."""
        account_actions.revoke_token(token=self.token(self.agent(slug), token_id), by=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _allowed(quota: dict[str, Any]) -> dict[str, Any]:
    return {field: quota[field] for field in quota.keys() - {"used", "held", "resets_at"}}


def _may_replace(view: ConditionalView) -> None:
    view.require("add_token")
    view.require("delete_token")


class TokenRotation(OneToken):
    proof = by_method(post=Proof.NEEDED)
    secret = ("token",)

    @extend_schema(
        operation_id="rotate_agent_token",
        request=RotationBody,
        responses={201: NewTokenAnswer},
    )
    @conditional(_may_replace)
    def post(self, request: Request, slug: str, token_id: UUID) -> Response:
        """A new token with the same scopes, groups and tools; the old one ends after the overlap.

        It is shown in this answer and never again, and lasts as long as the old one did.
        """
        wanted = self.body(RotationBody, optional=True)
        return rotated(self, self.token(self.agent(slug), token_id), wanted)


def issued(token: Token, text: str, address: str) -> Response:
    """The one answer that shows a new token. `address` is where tokens of its holder are."""
    ends = token_shape(token)["expires_at"]
    shape = {"id": str(token.pk), "token": text, "expires_at": ends}
    headers = {"Location": f"{address}/{token.pk}"}
    return Response(shape, status.HTTP_201_CREATED, headers=headers)


def rotated(
    view: ConditionalView, token: Token, wanted: dict[str, Any], *, renew: bool = True
) -> Response:
    made, text = account_actions.rotate_token(
        token=token,
        by=view.actor,
        giver=view.caller,
        overlap_s=wanted.get("overlap", 0),
        renew=renew,
    )
    return issued(made, text, view.request.path.rsplit("/", 2)[0])
