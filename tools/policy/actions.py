"""Organizations, agents, their grants and tokens. Every change of a grant counts the organization's
revision up, so that a revocation holds from the next request on, in every process."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from guardian.shortcuts import assign_perm, get_objects_for_user, remove_perm

from audit.actions import Actor, record
from audit.events import Event, Outcome
from sandbox.spec import IsolationLevel
from tools.catalog.credentials import check_named
from tools.catalog.hosts import read_hosts
from tools.catalog.listed import Listed
from tools.definitions import names
from tools.definitions.callers import Scope
from tools.errors import Conflict, Malformed, NotFound
from tools.models import Agent, LicenseTier, Organization, Token, Tool, User
from tools.policy.grants import EXECUTE
from tools.policy.tokens import hashed, new_token

AGENT_SCOPES = (Scope.READ, Scope.EXECUTE)


@transaction.atomic
def create_organization(*, slug: str, name: str, tier: LicenseTier, by: Actor) -> Organization:
    if not names.SLUG.fullmatch(slug):
        raise Malformed(f"{slug[:63]!r} is no slug: lower-case letters, digits and hyphens.")
    if Organization.objects.filter(slug=slug).exists():
        raise Conflict(f"There is an organization {slug} already.", code="organization_exists")
    organization = Organization.objects.create(slug=slug, name=name, tier=tier)
    _record(Event.ORGANIZATION_CREATE, by, slug, tier=tier.name)
    return organization


@transaction.atomic
def set_tier(*, organization: Organization, tier: LicenseTier, by: Actor) -> None:
    Organization.objects.next_revision(organization.pk)
    Organization.objects.filter(pk=organization.pk).update(tier=tier)
    _record(Event.TIER_CHANGE, by, organization.slug, tier=tier.name)


@transaction.atomic
def rename_organization(*, organization: Organization, name: str, by: Actor) -> None:
    """Its slug stays: evidence and workspaces are named by it."""
    Organization.objects.filter(pk=organization.pk).update(name=name)
    _record(Event.ORGANIZATION_CHANGE, by, organization.slug, name=name)


@transaction.atomic
def set_isolation(*, organization: Organization, minimum: IsolationLevel, by: Actor) -> None:
    """No tool of the organization runs at a lower level from its next call on."""
    Organization.objects.next_revision(organization.pk)
    Organization.objects.filter(pk=organization.pk).update(minimum_isolation=minimum)
    _record(Event.ORGANIZATION_CHANGE, by, organization.slug, minimum_isolation=minimum)


@transaction.atomic
def set_allowed_hosts(*, organization: Organization, hosts: list[Any], by: Actor) -> None:
    """What the built-in web_fetch may reach; `["*"]` is every public host. Raises `Malformed`."""
    fields = Listed({"allowed_hosts": hosts}, [])
    items = read_hosts(fields, "allowed_hosts")
    if fields.flaws:
        raise Malformed(
            "The list of hosts was not accepted; see details.errors.",
            code="invalid_hosts",
            errors=fields.flaws,
        )
    Organization.objects.next_revision(organization.pk)
    check_named(organization, "allowed_hosts", items)
    Organization.objects.filter(pk=organization.pk).update(allowed_hosts=items)
    _record(Event.ORGANIZATION_CHANGE, by, organization.slug, allowed_hosts=items)


@transaction.atomic
def change_tier(*, tier: LicenseTier, by: Actor, **changes: Any) -> LicenseTier:
    """Counts the revision of every organization that has the tier, so that all processes see it."""
    for organization in tier.organizations.order_by("pk"):
        Organization.objects.next_revision(organization.pk)
    for field, value in changes.items():
        setattr(tier, field, value)
    try:
        tier.full_clean()
    except ValidationError as error:
        raise Malformed(" ".join(error.messages), code="tier_invalid") from None
    tier.save()
    _record(Event.TIER_CHANGE, by, tier.name, **changes)
    return tier


@transaction.atomic
def create_agent(
    *,
    organization: Organization,
    slug: str,
    by: Actor,
    groups: list[str] | None = None,
    tools: list[str] | None = None,
    permissions: list[str] | None = None,
    description: str = "",
    strict: bool = False,
) -> Agent:
    """An agent with its service account. Without more it is granted the group `default`.

    `tools` names the only tools it may execute among those of its groups; None and `["*"]` are all.
    """
    if not names.SLUG.fullmatch(slug):
        raise Malformed(f"{slug[:63]!r} is no slug: lower-case letters, digits and hyphens.")
    if Agent.objects.filter(organization=organization, slug=slug).exists():
        raise Conflict(f"There is an agent {slug} already.", code="agent_exists")
    account = User.objects.create(
        username=f"agent:{organization.slug}:{slug}",
        password="!",  # noqa: S106 - Django's mark of a password that never matches
        organization=organization,
        is_service_account=True,
    )
    agent = Agent.objects.create(
        organization=organization,
        slug=slug,
        description=description,
        service_account=account,
        strict=strict,
    )
    _record(Event.AGENT_CREATE, by, slug)
    grant(
        agent=agent,
        by=by,
        groups=groups,
        tools=[names.WILDCARD] if tools is None else tools,
        permissions=permissions,
    )
    return agent


@transaction.atomic
def grant(
    *,
    agent: Agent,
    by: Actor,
    groups: list[str] | None = None,
    tools: list[str] | None = None,
    permissions: list[str] | None = None,
) -> None:
    """Set what is given of an agent's grants; None leaves a kind as it is."""
    Organization.objects.next_revision(agent.organization_id)
    account = agent.service_account
    if groups is not None:
        account.granted_groups = _distinct(groups, "groups")
        account.save(update_fields=["granted_groups"])
    if permissions is not None:
        account.granted_permissions = _distinct(permissions, "permissions")
        account.save(update_fields=["granted_permissions"])
    if tools is not None:
        _grant_tools(agent, tools)
    _record(Event.GRANT_CHANGE, by, agent.slug, groups=groups, tools=tools, permissions=permissions)


def granted_tools(agent: Agent) -> list[str]:
    """The names of the tools an agent may execute; `["*"]` for all."""
    if _every_tool(agent).exists():
        return [names.WILDCARD]
    held = get_objects_for_user(
        agent.service_account, f"tools.{EXECUTE}", Tool.objects.present(), use_groups=False
    )
    return sorted(held.values_list("name", flat=True))


@transaction.atomic
def change_agent(*, agent: Agent, by: Actor, **changes: Any) -> Agent:
    """Set `description`, `strict` or `active`. A suspended agent is refused at once."""
    Organization.objects.next_revision(agent.organization_id)
    for field, value in changes.items():
        setattr(agent, field, value)
    agent.save(update_fields=list(changes))
    suspended = changes.get("active") is False
    _record(Event.AGENT_SUSPEND if suspended else Event.AGENT_CHANGE, by, agent.slug, **changes)
    return agent


@transaction.atomic
def create_token(
    *,
    user: User,
    by: Actor,
    scopes: Iterable[str] = AGENT_SCOPES,
    label: str = "",
    days: int | None = None,
) -> tuple[Token, str]:
    """A token's row and the token itself, which is not kept anywhere: show it once."""
    text, presented = new_token()
    token = Token.objects.create(
        user=user,
        label=label,
        public_id=presented.public_id,
        secret_hash=hashed(presented.secret),
        scopes=[str(scope) for scope in scopes],
        created_by=f"{by.kind}:{by.name}",
        expires_at=timezone.now() + timedelta(days=days or settings.TOKEN_DAYS),
    )
    _record(Event.TOKEN_CREATE, by, user.username, token_id=str(token.pk), scopes=token.scopes)
    return token, text


@transaction.atomic
def revoke_token(*, token: Token, by: Actor) -> None:
    """Refused from the next request on. Safe to repeat."""
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        _record(Event.TOKEN_REVOKE, by, token.user.username, token_id=str(token.pk))


def _grant_tools(agent: Agent, wanted: list[str]) -> None:
    account = agent.service_account
    for row in _every_tool(agent):
        account.user_permissions.remove(row)
    held = get_objects_for_user(account, f"tools.{EXECUTE}", Tool, use_groups=False)
    for tool in held:
        remove_perm(EXECUTE, account, tool)
    if names.WILDCARD in wanted:
        account.user_permissions.add(_execute_permission())
        return
    present = Tool.objects.present().filter(organization=agent.organization, name__in=wanted)
    missing = set(wanted) - set(present.values_list("name", flat=True))
    if missing:
        raise NotFound(
            f"There is no tool {', '.join(sorted(missing))} to grant.", code="tool_not_found"
        )
    for tool in present:
        assign_perm(EXECUTE, account, tool)


def _every_tool(agent: Agent) -> Any:
    return agent.service_account.user_permissions.filter(
        codename=EXECUTE, content_type__app_label="tools"
    )


def _execute_permission() -> Permission:
    return Permission.objects.get(codename=EXECUTE, content_type__app_label="tools")


def _distinct(given: list[str], kind: str) -> list[str]:
    for name in given:
        if flaw := names.flaw_in_group(name):
            raise Malformed(f"An entry of {kind} {flaw}.", field=kind)
    return list(dict.fromkeys(given))


def _record(event: Event, by: Actor, subject: str, **details: Any) -> None:
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
