"""Callers: people, agents and executions, and impersonation of agents by people. Bearer tokens are
authenticated in `token_authentication`.

People may call as an agent if they are superusers or have that grant, for every agent of their
organization or for one of them. The grant has effect only with the permission to read every
execution: an agent's calls may refer to its earlier outputs.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from django.db.models import QuerySet
from guardian.shortcuts import get_objects_for_user

from audit.actions import Actor
from config.logs import request_id
from tools.definitions.callers import Caller, CallerKind, Maker, Scope
from tools.definitions.texts.names import WILDCARD
from tools.errors import Forbidden, NotFound
from tools.models import Agent, Execution, Organization, User
from tools.models.callers import (
    Holder,
    TokenLimits,
    holder_of_account,
    holders_of_agents,
)

IMPERSONATE = "tools.impersonate_agent"
_READS = "tools.view_execution"
_UNLIMITED = TokenLimits(None, None, None)
_AGENT_LIMITS = TokenLimits([Scope.READ, Scope.EXECUTE], None, None)


def impersonable_agents(user_id: UUID) -> QuerySet[Agent]:
    """Agents of the person's own organization that they may impersonate."""
    user = User.objects.filter(pk=user_id, is_active=True, is_service_account=False).first()
    if user is None or not user.has_perm(_READS):
        return Agent.objects.none()
    here = Agent.objects.filter(organization_id=user.organization_id)
    if user.has_perm(IMPERSONATE):
        return here
    granted: QuerySet[Agent] = get_objects_for_user(
        user, IMPERSONATE, here, with_superuser=False, accept_global_perms=False
    )
    return granted


def caller_of_user(
    user: User, *, organization: Organization | None = None, source_ip: str = ""
) -> Caller:
    """A person in their own organization, or in another one they may act in."""
    home = organization or user.organization
    travels = user.is_superuser or home.pk == user.organization_id  # home's grants do not apply
    return Caller(
        kind=CallerKind.PERSON,
        name=user.username,
        organization_id=home.pk,
        organization=home.slug,
        revision=home.revision,
        user_id=user.pk,
        granted_groups=frozenset(
            [WILDCARD] if user.is_superuser else user.granted_groups if travels else ()
        ),
        granted_permissions=frozenset(
            [WILDCARD] if user.is_superuser else user.granted_permissions if travels else ()
        ),
        scopes=frozenset(Scope),
        is_superuser=user.is_superuser,
        source_ip=source_ip,
    )


def caller_of_execution(execution: Execution) -> Caller:
    """The caller that requested an execution, with its current grants.

    `active` is False when the caller has since been suspended, its token was revoked or may no
    longer execute, or it may no longer act in the organization or as the agent.
    """
    holder, limits, token_good = execution.account or holder_of_account(
        user=execution.user_id, organization=execution.organization_id, token=execution.token_id
    )
    caller = build_caller(
        holder, limits, token_id=execution.token_id, source_ip=execution.source_ip
    )
    good = holder.active and token_good and Scope.EXECUTE in caller.scopes
    if execution.made_by_id is not None:
        caller, allowed = _with_maker(caller, execution.made_by_id)
        good = good and allowed
    return caller if good and _may_act_there(holder) else replace(caller, active=False)


def caller_of_agent(agent: Agent) -> Caller:
    """An agent as its own token would bring it; `active` is False for a suspended one."""
    holder, _, _ = holder_of_account(
        user=agent.service_account_id, organization=agent.organization_id, token=None
    )
    return _caller_of(holder)


def callers_of_agents(agents: Iterable[Agent]) -> list[Caller]:
    """The same for many, in their order, with one query."""
    wanted = [agent.pk for agent in agents]
    holders = {holder.agent_id: holder for holder in holders_of_agents(wanted)}
    return [_caller_of(holders[pk]) for pk in wanted if pk in holders]


def caller_at_playground(person: Caller, agent: str | None, *, source_ip: str = "") -> Caller:
    """The person themselves, or the agent that they call tools as: with what it is granted, and no
    more. Raises `NotFound` for an agent they may not act as, `Forbidden` for a suspended one."""
    maker = Maker(person.user_id, person.name)
    if not agent:
        return replace(person, maker=maker)
    rows = impersonable_agents(person.user_id).filter(organization_id=person.organization_id)
    found = rows.filter(slug=agent).first()
    if found is None:
        raise NotFound(f"There is no agent {agent[:63]!r} for you.", code="agent_not_found")
    caller = caller_of_agent(found)
    if not caller.active:
        raise Forbidden(f"The agent {found.slug} is suspended.", code="agent_suspended")
    return replace(caller, maker=maker, source_ip=source_ip)


def caller_of_account(user: User) -> Caller:
    """The account's holder in their own organization, with all their grants and no narrowing
    token."""
    holder, _, _ = holder_of_account(user=user.pk, organization=user.organization_id, token=None)
    return build_caller(holder, _UNLIMITED, token_id=None)


def actor_of(caller: Caller) -> Actor:
    """The caller as evidence names it."""
    return Actor(
        kind=caller.kind,
        name=caller.name,
        organization=caller.organization,
        id=str(caller.agent_id or caller.user_id),
        token_id=str(caller.token_id or ""),
        source_ip=caller.source_ip,
        request_id=request_id.get(),
        made_by=_maker_name(caller),
    )


def act_in_organization(caller: Caller, slug: str | None) -> Caller:
    """The same person in the organization `slug`. Raises `NotFound` where it is not granted.

    Roles and a superuser's rights reach there; the groups and permissions that were granted at home
    do not.
    """
    if not slug or slug == caller.organization:
        return caller
    organization = Organization.objects.filter(slug=slug).first()
    if organization is None or not _may_act_in(caller, organization):
        raise NotFound(
            f"There is no organization {slug[:63]!r} for you.", code="organization_not_found"
        )
    return replace(
        caller if caller.is_superuser else without_grants(caller),
        organization_id=organization.pk,
        organization=organization.slug,
        revision=organization.revision,
    )


def without_grants(caller: Caller) -> Caller:
    """With none of the groups and permissions that its home organization granted."""
    return replace(caller, granted_groups=frozenset(), granted_permissions=frozenset())


def _maker_name(caller: Caller) -> str:
    """The person who acts for the caller, where that is another."""
    maker = caller.maker
    return f"{CallerKind.PERSON}:{maker.name}" if maker and maker.id != caller.user_id else ""


def _with_maker(caller: Caller, person: UUID) -> tuple[Caller, bool]:
    """With the person who made its call, and whether they may still make it."""
    if person == caller.user_id:
        return replace(caller, maker=Maker(person, caller.name)), True
    name = User.objects.values_list("username", flat=True).get(pk=person)
    allowed = impersonable_agents(person).filter(service_account=caller.user_id).exists()
    return replace(caller, maker=Maker(person, name)), allowed


def _may_act_there(holder: Holder) -> bool:
    """Or where they are granted to act, by current grants."""
    if holder.home_id == holder.organization_id or holder.superuser:
        return True
    place = Organization(pk=holder.organization_id)
    return User.objects.get(pk=holder.user_id).has_perm("tools.act_in_organization", place)


def _caller_of(holder: Holder) -> Caller:
    caller = build_caller(holder, _AGENT_LIMITS, token_id=None)
    return caller if holder.active else replace(caller, active=False)


def _narrow_groups(held: frozenset[str], wanted: list[str] | None) -> frozenset[str]:
    """The holder's groups within the token's list, in which "*" stands for all of the holder's."""
    if wanted is None or WILDCARD in wanted:
        return held
    return frozenset(wanted) if WILDCARD in held else held.intersection(wanted)


def build_caller(
    holder: Holder, limits: TokenLimits, *, token_id: UUID | None, source_ip: str = ""
) -> Caller:
    everything = [WILDCARD] if holder.superuser else None
    at_home = holder.home_id == holder.organization_id  # home's grants apply at home only
    held = holder.groups if at_home else []
    permitted = holder.permissions if at_home else []
    tools = limits.tools
    every_tool = tools is None or WILDCARD in tools
    groups = limits.groups
    every_group = groups is None or WILDCARD in groups
    return Caller(
        kind=CallerKind.AGENT if holder.agent_id else CallerKind.PERSON,
        name=holder.agent or holder.username,
        organization_id=holder.organization_id,
        organization=holder.organization,
        revision=holder.revision,
        user_id=holder.user_id,
        agent_id=holder.agent_id,
        token_id=token_id,
        granted_groups=_narrow_groups(frozenset(everything or held), limits.groups),
        granted_permissions=frozenset(everything or permitted),
        scopes=frozenset(Scope if limits.scopes is None else limits.scopes),
        token_tools=None if every_tool else frozenset(tools or ()),
        token_groups=None if every_group else frozenset(groups or ()),
        is_superuser=holder.superuser,
        strict=bool(holder.strict),
        source_ip=source_ip,
    )


def _may_act_in(caller: Caller, organization: Organization) -> bool:
    if caller.is_superuser:
        return True
    user = User.objects.filter(pk=caller.user_id, is_active=True).first()
    return user is not None and user.has_perm("tools.act_in_organization", organization)
