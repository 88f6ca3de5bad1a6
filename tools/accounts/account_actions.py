"""Manages organizations, agents, their grants and tokens. Every change of a grant increments the
organization's revision, so that a revocation applies from the next request on, in every process.

Changes of an organization are in its own audit log, also where a superuser of another one made
them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record_change
from audit.events import Event
from sandbox.spec import IsolationLevel
from tools.accounts.bearer_tokens import hash_secret, new_token
from tools.accounts.grants.grant_actions import check_narrowing, set_grants
from tools.accounts.grants.impersonation import check_may_issue
from tools.catalog.bounds import read_bound, read_days, read_quota
from tools.catalog.list_fields import ListedFields
from tools.catalog.sandbox.credentials import check_named
from tools.catalog.sandbox.hosts import read_hosts
from tools.catalog.tiers import require_level
from tools.catalog.uniqueness import unique
from tools.definitions.callers import Caller, CallerKind, Scope
from tools.definitions.texts import names
from tools.errors import Conflict, Malformed
from tools.models import Agent, LicenseTier, Organization, Token, User
from tools.models.user import default_groups

MOST_TOKEN_DAYS, LONGEST_TOKEN_LABEL = 365, 100
AGENT_SCOPES = (Scope.READ, Scope.EXECUTE)


@transaction.atomic
def create_organization(*, slug: str, name: str, tier: LicenseTier, by: Actor) -> Organization:
    if not names.SLUG.fullmatch(slug):
        raise Malformed(f"{slug[:63]!r} is no slug: lower-case letters, digits and hyphens.")
    with unique(f"There is an organization {slug} already.", code="organization_exists"):
        organization = Organization.objects.create(slug=slug, name=name, tier=tier)
    by, said = replace(by, organization=slug), {"name": name, "tier": tier.name}
    record_change(Event.ORGANIZATION_CREATE, slug, by, None, said)
    return organization


@transaction.atomic
def rename_organization(*, organization: Organization, name: str, by: Actor) -> None:
    """The slug cannot change: the audit log and workspaces are named by it."""
    _set_columns(organization, by, name=name)


@transaction.atomic
def set_isolation(*, organization: Organization, minimum: IsolationLevel, by: Actor) -> None:
    """No tool of the organization runs at a lower level from its next call on."""
    Organization.objects.next_revision(organization.pk)
    require_level(organization.pk, minimum)
    _set_columns(organization, by, minimum_isolation=minimum)


@transaction.atomic
def set_allowed_hosts(*, organization: Organization, hosts: list[Any], by: Actor) -> None:
    """Hosts that the built-in web_fetch may reach; `["*"]` is every public host. Raises
    `Malformed`."""
    fields = ListedFields({"allowed_hosts": hosts}, [])
    items = read_hosts(fields, "allowed_hosts")
    if fields.flaws:
        raise Malformed(
            "The list of hosts was not accepted; see details.errors.",
            code="invalid_hosts",
            errors=fields.flaws,
        )
    Organization.objects.next_revision(organization.pk)
    check_named(organization, "allowed_hosts", items)
    _set_columns(organization, by, allowed_hosts=items)


@transaction.atomic
def set_time_zone(*, organization: Organization, name: str, by: Actor) -> None:
    """The time zone of group schedules and quota periods."""
    if name not in available_timezones():
        raise Malformed(
            f"{name[:64]!r} is no time zone; name one such as Europe/Berlin or UTC.",
            code="time_zone_unknown",
        )
    Organization.objects.next_revision(organization.pk)
    _set_columns(organization, by, time_zone=name)


@transaction.atomic
def set_limits(*, organization: Organization, by: Actor, **limits: int | None) -> None:
    """`max_concurrency` and `max_queue_depth`. Calls that run or wait already continue."""
    if limits.get("max_queue_depth", 0) is None:
        raise Malformed("max_queue_depth needs a number.", code="invalid_limit")
    _set_columns(organization, by, **{name: read_bound(name, limits[name]) for name in limits})


@transaction.atomic
def set_workspace_quota(*, organization: Organization, by: Actor, **quota: int) -> None:
    """`workspace_max_files` and `workspace_max_bytes`. Existing files stay."""
    columns = {name: read_quota(name, quota[name]) for name in quota}
    Organization.objects.next_revision(organization.pk)
    _set_columns(organization, by, **columns)


@transaction.atomic
def set_output_days(*, organization: Organization, days: int | None, by: Actor) -> None:
    """Days for which the organization keeps outputs; None keeps them forever. Older ones are
    deleted soon."""
    _set_columns(organization, by, output_days=read_days("output_days", days))


def _set_columns(organization: Organization, by: Actor, **columns: Any) -> None:
    """Audits the change with the previous values."""
    row = Organization.objects.select_for_update().filter(pk=organization.pk)
    before = row.values(*columns).get()
    if before == columns:
        return
    row.update(**columns)
    by = replace(by, organization=organization.slug)
    record_change(Event.ORGANIZATION_CHANGE, organization.slug, by, before, columns)


@transaction.atomic
def create_agent(
    *,
    organization: Organization,
    slug: str,
    by: Actor,
    giver: Caller | None = None,
    groups: list[str] | None = None,
    tools: list[str] | None = None,
    tool_groups: list[str] | None = None,
    permissions: list[str] | None = None,
    description: str = "",
    strict: bool = False,
) -> Agent:
    """An agent with its service account. Without more it is granted the group `default`.

    `tools` and `tool_groups` name the only tools it may execute among those of its groups; where
    neither is given, and for the tool `*`, that is all. Raises `Forbidden` for grants that the
    giver does not hold.
    """
    if not names.SLUG.fullmatch(slug):
        raise Malformed(f"{slug[:63]!r} is no slug: lower-case letters, digits and hyphens.")
    if names.is_reserved_address("agent", slug):
        raise Malformed(f"{slug!r} is reserved; choose another slug.")
    with unique(f"There is an agent {slug} already.", code="agent_exists"):
        account = User.objects.create(
            username=f"agent:{organization.slug}:{slug}",
            password="!",  # noqa: S106 - Django's mark of a password that never matches
            organization=organization,
            is_service_account=True,
            granted_groups=[],
        )
        agent = Agent.objects.create(
            organization=organization,
            slug=slug,
            description=description,
            service_account=account,
            strict=strict,
        )
    record_change(
        Event.AGENT_CREATE, slug, by, None, {"description": description, "strict": strict}
    )
    every = tools is None and tool_groups is None
    set_grants(
        agent=agent,
        by=by,
        giver=giver,
        groups=default_groups() if groups is None else groups,
        tools=[names.WILDCARD] if every else tools,
        tool_groups=tool_groups,
        permissions=permissions,
    )
    return agent


def only_weakens(changes: Mapping[str, Any]) -> bool:
    """Whether this change of an agent, as sent, only suspends or describes it."""
    return changes.keys() <= {"active", "description"} and changes.get("active", False) is False


@transaction.atomic
def change_agent(*, agent: Agent, by: Actor, reason: str = "", **changes: Any) -> bool:
    """Set `description`, `strict`, `max_in_flight` or `active`: whether something changed. A
    suspended agent is refused at once; the `reason` is in the audit record."""
    if "max_in_flight" in changes:
        read_bound("max_in_flight", changes["max_in_flight"])
    Organization.objects.next_revision(agent.organization_id)
    before = Agent.objects.values(*changes).get(pk=agent.pk)
    if before == changes:
        return False
    for field, value in changes.items():
        setattr(agent, field, value)
    agent.save(update_fields=list(changes))
    suspended = changes.get("active") is False
    event = Event.AGENT_SUSPEND if suspended else Event.AGENT_CHANGE
    record_change(event, agent.slug, by, before, changes, **({"reason": reason} if reason else {}))
    return True


@transaction.atomic
def create_token(
    *,
    user: User,
    by: Actor,
    scopes: Iterable[str] = AGENT_SCOPES,
    label: str = "",
    days: int | None = None,
    groups: list[str] | None = None,
    tools: list[str] | None = None,
    giver: Caller | None = None,
    replaces: Token | None = None,
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """A token's row and the token itself, which is not stored: show it once.

    `groups` and `tools` narrow it; None and "*" are all of its holder's. It ends after `days`, or
    at `expires_at`. Raises `Malformed` for what the holder does not have, `Forbidden` for what the
    giver does not. Without a giver only the system issues.
    """
    _check_token(label, days)
    check_narrowing(user, groups=groups, tools=tools)
    if giver is not None:
        check_may_issue(giver, user, groups=groups, tools=tools)
    elif by.kind != CallerKind.SYSTEM:
        raise LookupError("who issues must be known, for nobody issues more than they hold")
    text, presented = new_token()
    token = Token.objects.create(
        user=user,
        label=label,
        public_id=presented.public_id,
        secret_hash=hash_secret(presented.secret),
        scopes=[str(scope) for scope in scopes],
        groups=groups,
        tools=tools,
        created_by=f"{by.kind}:{by.name}",
        issuer_id=giver.user_id if giver else None,
        expires_at=expires_at or timezone.now() + timedelta(days=days or settings.TOKEN_DAYS),
    )
    given = {
        "label": label,
        "scopes": token.scopes,
        "groups": groups,
        "tools": tools,
        "expires_at": token.expires_at,
    }
    named = {"token_id": str(token.pk)} | ({"replaces": str(replaces.pk)} if replaces else {})
    record_change(Event.TOKEN_CREATE, user.username, by, None, given, **named)
    return token, text


def _check_token(label: str, days: int | None) -> None:
    errors = []
    if len(label) > LONGEST_TOKEN_LABEL:
        message = f"must be at most {LONGEST_TOKEN_LABEL} characters"
        errors.append({"field": "label", "message": message})
    if days is not None and not 1 <= days <= MOST_TOKEN_DAYS:
        message = f"must be a number of days from 1 to {MOST_TOKEN_DAYS}"
        errors.append({"field": "days", "message": message})
    if errors:
        raise Malformed(
            "The token was not accepted; see details.errors.", code="invalid_token", errors=errors
        )


@transaction.atomic
def rotate_token(
    *, token: Token, by: Actor, giver: Caller, overlap_s: float, renew: bool = True
) -> tuple[Token, str]:
    """A new token with the scopes and the narrowing of this one, which ends after the overlap.

    The new one lasts as long as this one did, or until its end where it is not renewed. Raises
    `Conflict` for a token that ended, and what `create_token` raises.
    """
    token = Token.objects.select_for_update().select_related("user").get(pk=token.pk)
    now = timezone.now()
    if token.revoked_at is not None or token.expires_at <= now:
        raise Conflict("The token has ended. Issue a new one.", code="token_ended")
    made, text = create_token(
        user=token.user,
        by=by,
        giver=giver,
        scopes=token.scopes,
        label=token.label,
        groups=token.groups,
        tools=token.tools,
        replaces=token,
        expires_at=now + (token.expires_at - token.created_at) if renew else token.expires_at,
    )
    if giver.token_id == token.pk:  # the issuer may hold the new one as well
        made.created_by, made.issuer_id = token.created_by, token.issuer_id
        made.save(update_fields=["created_by", "issuer"])
    if not overlap_s:
        revoke_token(token=token, by=by)
    elif (ends := now + timedelta(seconds=overlap_s)) < token.expires_at:
        before, after = {"expires_at": token.expires_at}, {"expires_at": ends}
        token.expires_at = ends
        token.save(update_fields=["expires_at"])
        named = {"token_id": str(token.pk), "replaced_by": str(made.pk)}
        record_change(Event.TOKEN_REVOKE, token.user.username, by, before, after, **named)
    return made, text


@transaction.atomic
def revoke_token(*, token: Token, by: Actor) -> bool:
    """Refused from the next request on. False where it was revoked already."""
    if token.revoked_at is not None:
        return False
    token.revoked_at = timezone.now()
    token.save(update_fields=["revoked_at"])
    before, after = {"revoked_at": None}, {"revoked_at": token.revoked_at}
    named = {"token_id": str(token.pk)}
    record_change(Event.TOKEN_REVOKE, token.user.username, by, before, after, **named)
    return True
