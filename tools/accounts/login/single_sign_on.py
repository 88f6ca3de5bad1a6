"""Provisions accounts of people from an identity provider: created, linked, and kept in step with
its groups.

At each login the provider's groups decide about the roles that `OIDC_ROLES` names. Other roles and
groups are not changed.
"""

import hashlib
import re
from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.logs import request_id
from tools.accounts.login import person_sessions
from tools.accounts.login.identity_provider import ProviderIdentity
from tools.accounts.roles import PREFIX, role_of
from tools.accounts.user_permissions import count_up
from tools.definitions.callers import CallerKind
from tools.errors import Conflict, Forbidden, NotFound
from tools.models import Organization, SingleSignOn, UsedName, User

_NOT_IN_NAMES = re.compile(r"[^\w.@+-]")
NO_ROLE = "Your groups give you no role here. Ask who looks after them at your identity provider."


def person_of(identity: ProviderIdentity, *, source_ip: str = "") -> User:
    """Raises `Forbidden` for an identity that may not log in; that is audited."""
    user, refusal = _matched(identity, source_ip)
    if user is not None and not refusal:
        return user
    place = user.organization if user else _home()
    by = _actor(place, source_ip, user.username if user else "An unknown person")
    details = {"by": "single sign-on"}
    reason = "no_role" if refusal == NO_ROLE else "account_inactive"
    record(Event.LOGIN_FAILED, by=by, outcome=Outcome.DENIED, reason=reason, details=details)
    raise Forbidden(refusal, code=reason)


@transaction.atomic
def _matched(identity: ProviderIdentity, source_ip: str) -> tuple[User | None, str]:
    """The account, and why it may not log in: roles are removed in any case."""
    _locked_home()  # two first logins at once make one account
    known = _known(identity)
    wanted = mapped(identity.groups)
    if known is None:
        if not wanted:
            return None, NO_ROLE
        known = _make(identity, source_ip)
    user = known.user
    if not user.is_active or user.is_service_account:
        return user, "This account is closed. Ask an administrator."
    _keep_roles(user, wanted, source_ip)
    if known.made_account and not wanted:
        person_sessions.end(user=user, by=_actor(user.organization, source_ip))
        return user, NO_ROLE
    known.last_used_at = timezone.now()
    known.save(update_fields=["last_used_at"])
    return user, ""


def mapped(groups: Iterable[str]) -> set[str]:
    """Names of roles."""
    return {role for group in groups for role in settings.OIDC_ROLES.get(group, ())}


@transaction.atomic
def link(*, user: User, identity: ProviderIdentity, by: Actor) -> None:
    """The person may log in by the provider from now on, too. Raises `Conflict`."""
    _locked_home()
    known = _known(identity)
    if known is not None and known.user_id != user.pk:
        raise Conflict("That identity belongs to another account here.", code="identity_taken")
    if known is None:
        SingleSignOn.objects.create(user=user, issuer=identity.issuer, subject=identity.subject)
        _note(Event.SINGLE_SIGN_ON_LINK, user, by, identity.issuer)


@transaction.atomic
def unlink(*, user: User, by: Actor) -> None:
    """Raises `NotFound`, and `Conflict` where no password would be left to log in with."""
    rows = SingleSignOn.objects.filter(user=user)
    if not rows.exists():
        raise NotFound("You are not connected.", code="not_linked")
    if not user.has_usable_password():
        raise Conflict(
            "You have no password here, so you could not come in any more.", code="no_password"
        )
    rows.delete()
    _note(Event.SINGLE_SIGN_ON_UNLINK, user, by, settings.OIDC_ISSUER)


def is_theirs(user: User, identity: ProviderIdentity) -> bool:
    known = _known(identity)
    return known is not None and known.user_id == user.pk


def _known(identity: ProviderIdentity) -> SingleSignOn | None:
    rows = SingleSignOn.objects.select_related("user__organization")
    return rows.filter(issuer=identity.issuer, subject=identity.subject).first()


def _make(identity: ProviderIdentity, source_ip: str) -> SingleSignOn:
    place = _home()
    user = User(
        username=_free_name(identity),
        first_name=identity.first_name,
        last_name=identity.last_name,
        email=identity.email,
        organization=place,
    )
    user.set_unusable_password()
    user.save()
    made = SingleSignOn.objects.create(
        user=user, issuer=identity.issuer, subject=identity.subject, made_account=True
    )
    by = _actor(place, source_ip)
    _note(Event.SINGLE_SIGN_ON_LINK, user, by, identity.issuer, made_account=True)
    return made


def _free_name(identity: ProviderIdentity) -> str:
    """The provider's user name, unless an account here has or had it."""
    wished = _NOT_IN_NAMES.sub("", identity.username)[:130]
    mark = hashlib.sha256(f"{identity.issuer}\n{identity.subject}".encode()).hexdigest()[:12]
    if wished and not UsedName.objects.filter(name__iexact=wished).exists():
        return wished
    return f"{wished or 'person'}-{mark}"


def _keep_roles(user: User, wanted: set[str], source_ip: str) -> None:
    """Sets the roles of the provider's groups, and removes other roles that these groups could
    give."""
    given = {PREFIX + role for roles in settings.OIDC_ROLES.values() for role in roles}
    names = {PREFIX + role for role in wanted}
    held = {*user.groups.filter(name__in=given).values_list("name", flat=True)}
    if held == names:
        return
    count_up(User.objects.filter(pk=user.pk))
    user.groups.remove(*Group.objects.filter(name__in=held - names))
    user.groups.add(*Group.objects.filter(name__in=names - held))
    opened = user.is_staff
    _open_administration(user, held)
    said = {
        "added": {"roles": sorted(names - held)},
        "removed": {"roles": sorted(held - names)},
        "before": {"roles": sorted(held), "is_staff": opened},
        "after": {"roles": sorted(names), "is_staff": user.is_staff},
    }
    by, subject = _actor(user.organization, source_ip), f"user:{user.username}"
    record(Event.GRANT_CHANGE, by=by, outcome=Outcome.CHANGED, subject=subject, details=said)


def _open_administration(user: User, held: set[str]) -> None:
    """`/admin/` is open with a role that says so, and closed again with the last one."""
    opens = _opens(user.groups.values_list("name", flat=True)) or user.is_superuser
    by_hand = user.is_staff and not _opens(held)
    if user.is_staff != (opens or by_hand):
        user.is_staff = opens or by_hand
        user.save(update_fields=["is_staff"])


def _opens(groups: Iterable[str]) -> bool:
    return any(role.opens_administration for role in map(role_of, groups) if role)


def _home() -> Organization:
    """Where accounts are made. Raises `NotFound`."""
    if not settings.OIDC_ORGANIZATION:
        return Organization.objects.earliest("created_at")
    found = Organization.objects.filter(slug=settings.OIDC_ORGANIZATION).first()
    if found is None:
        raise NotFound("OIDC_ORGANIZATION names no organization.", code="organization_not_found")
    return found


def _locked_home() -> None:
    Organization.objects.select_for_update(no_key=True).get(pk=_home().pk)


def _actor(place: Organization, source_ip: str, name: str = "single sign-on") -> Actor:
    kind = CallerKind.SYSTEM if name == "single sign-on" else CallerKind.PERSON
    return Actor(kind, name, place.slug, source_ip=source_ip, request_id=request_id.get())


def _note(event: Event, user: User, by: Actor, issuer: str, **more: bool) -> None:
    subject, details = f"user:{user.username}", {"issuer": issuer, **more}
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
