"""Provisions accounts of people from an identity provider: created, linked, and kept in step with
its groups.

At each login the provider's groups decide about the roles that `OIDC_ROLES` names. Other roles and
groups are not changed.
"""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.django_client import OAuth
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from joserfc.errors import JoseError

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.logs import request_id
from tools.accounts.login import login
from tools.accounts.roles import PREFIX, role_of
from tools.accounts.user_permissions import increment_revisions
from tools.definitions.callers import CallerKind
from tools.errors import Conflict, Forbidden, NotFound, Unavailable
from tools.models import Organization, SingleSignOn, UsedName, User

_TIMEOUT_S = 10
_METADATA_S = 3600  # metadata of the provider is fetched again after so long
_MAX_PENDING = 5
_PENDING_S = 600  # lifetime of the session in a browser that is not logged in
_LEEWAY_S = 60
_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_STATE = "_state_oidc_"
# Errors that Authlib raises, also for malformed responses of a provider.
_AUTHLIB_ERRORS = (
    OAuthError,
    JoseError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,
)


@dataclass(frozen=True)
class ProviderIdentity:
    """The identity that the provider asserts. Only issuer and subject identify it."""

    issuer: str
    subject: str
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    groups: frozenset[str] = frozenset()
    strong: bool = False
    at: float = 0.0


def is_configured() -> bool:
    return bool(settings.OIDC_ISSUER and settings.OIDC_CLIENT_ID)


def begin_login(
    request: HttpRequest, redirect_uri: str, *, purpose: str, onwards: str, again: bool = False
) -> str:
    """The provider's address to send the browser to. Raises `Unavailable`."""
    more = {"prompt": "login", "max_age": "0"} if again else {}
    try:
        client = _client()
        made = client.create_authorization_url(redirect_uri, **more)
    except (requests.RequestException, *_AUTHLIB_ERRORS):
        raise _unavailable() from None
    _forget_oldest(request)
    if not request.user.is_authenticated:  # open to every client, so the session is short
        request.session.set_expiry(_PENDING_S)
    client.save_authorize_data(
        request, redirect_uri=redirect_uri, purpose=purpose, onwards=onwards, **made
    )
    return str(made["url"])


def finish_login(request: HttpRequest) -> tuple[ProviderIdentity, str, str]:
    """The identity, the purpose of the login, and the page to continue at. Valid once.

    Raises `Forbidden` for a response to no login of this session, and `Unavailable`.
    """
    try:
        client = _client()
        state = client.framework.get_state_data(request.session, request.GET.get("state")) or {}
        wants = {"essential": True}
        token = client.authorize_access_token(
            request,
            claims_options={
                "iss": wants | {"value": settings.OIDC_ISSUER},
                "aud": wants | {"value": settings.OIDC_CLIENT_ID},
                "sub": wants,
            },
            leeway=_LEEWAY_S,
        )
        claims = dict(token["userinfo"])
        said = claims | _userinfo_groups(client, token, claims)
        return _identity(said), str(state["purpose"]), str(state["onwards"])
    except requests.RequestException:
        raise _unavailable() from None
    except _AUTHLIB_ERRORS:
        raise Forbidden(
            "The identity provider's answer is not good, or not for this browser. Begin again.",
            code="single_sign_on_failed",
        ) from None


def _client() -> Any:
    """Raises `ValueError` where the provider's metadata has another issuer."""
    registration = (settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)
    client = _register_client(*registration, settings.OIDC_SCOPES, int(time.time()) // _METADATA_S)
    metadata = client.load_server_metadata()
    if metadata.get("issuer") != settings.OIDC_ISSUER:
        raise ValueError("another issuer")
    offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
    good = sorted(_ALGORITHMS.intersection(offered))
    if not good:
        raise ValueError("no algorithm that will do")
    metadata["id_token_signing_alg_values_supported"] = good
    return client


@lru_cache(maxsize=2)
def _register_client(issuer: str, client_id: str, secret: str, scopes: str, _: int) -> Any:
    options = {"scope": scopes, "code_challenge_method": "S256", "default_timeout": _TIMEOUT_S}
    if not secret:
        options["token_endpoint_auth_method"] = "none"  # noqa: S105
    return OAuth().register(
        "oidc",
        server_metadata_url=f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        client_id=client_id,
        client_secret=secret or None,
        client_kwargs=options,
    )


def _userinfo_groups(client: Any, token: Any, claims: Mapping[str, Any]) -> dict[str, Any]:
    """The groups, from where some providers keep them."""
    wanted = settings.OIDC_GROUPS_CLAIM
    if wanted in claims or not client.server_metadata.get("userinfo_endpoint"):
        return {}
    given = {"access_token": token["access_token"], "token_type": "Bearer"}
    found = client.userinfo(token=given)
    if found.get("sub") != claims["sub"]:
        raise ValueError("somebody else")
    return {wanted: found.get(wanted)}


def _identity(claims: Mapping[str, Any]) -> ProviderIdentity:
    def text(name: str, longest: int = 150) -> str:
        value = claims.get(name)
        return value.replace("\x00", "").strip()[:longest] if isinstance(value, str) else ""

    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= 255 or "\x00" in subject:
        raise ValueError("no subject")
    return ProviderIdentity(
        issuer=settings.OIDC_ISSUER,
        subject=subject,
        username=text("preferred_username"),
        first_name=text("given_name"),
        last_name=text("family_name"),
        email=text("email", 254) if claims.get("email_verified") is True else "",
        groups=frozenset(_strings(claims.get(settings.OIDC_GROUPS_CLAIM))),
        strong=_is_strong(claims),
        at=float(claims.get("auth_time") or 0),
    )


def _is_strong(claims: Mapping[str, Any]) -> bool:
    """Whether the provider says that it asked for a second factor, as the settings have it."""
    good = set(settings.OIDC_MFA)
    said = {*_strings(claims.get("amr")), *_strings([claims.get("acr")])}
    return "*" in good or bool(good & said)


def _strings(value: Any) -> Iterable[str]:
    return (one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _forget_oldest(request: HttpRequest) -> None:
    """Bounds the size of the session when a client starts many logins."""
    names = request.session.keys()
    begun = [name for name in names if name.startswith(_STATE)]
    begun.sort(key=lambda name: request.session[name].get("exp", 0))
    for name in begun[: 1 - _MAX_PENDING]:
        del request.session[name]


def _unavailable() -> Unavailable:
    return Unavailable(
        "The identity provider does not answer as it should. Try again in a moment, or ask an "
        "administrator."
    )


_NOT_IN_NAMES = re.compile(r"[^\w.@+-]")
NO_ROLE = "Your groups give you no role here. Ask who looks after them at your identity provider."


def provision_user(identity: ProviderIdentity, *, source_ip: str = "") -> User:
    """Raises `Forbidden` for an identity that may not log in; that is audited."""
    user, refusal = _find_or_create(identity, source_ip)
    if user is not None and not refusal:
        return user
    place = user.organization if user else _home_organization()
    by = _actor(place, source_ip, user.username if user else "An unknown person")
    details = {"by": "single sign-on"}
    reason = "no_role" if refusal == NO_ROLE else "account_inactive"
    record(Event.LOGIN_FAILED, by=by, outcome=Outcome.DENIED, reason=reason, details=details)
    raise Forbidden(refusal, code=reason)


@transaction.atomic
def _find_or_create(identity: ProviderIdentity, source_ip: str) -> tuple[User | None, str]:
    """The account, and why it may not log in: roles are removed in any case."""
    _lock_home_organization()  # two first logins at once make one account
    known = _linked_account(identity)
    wanted = mapped_roles(identity.groups)
    if known is None:
        if not wanted:
            return None, NO_ROLE
        known = _create_account(identity, source_ip)
    user = known.user
    if not user.is_active or user.is_service_account:
        return user, "This account is closed. Ask an administrator."
    _update_roles(user, wanted, source_ip)
    if known.made_account and not wanted:
        login.end_sessions(user=user, by=_actor(user.organization, source_ip))
        return user, NO_ROLE
    known.last_used_at = timezone.now()
    known.save(update_fields=["last_used_at"])
    return user, ""


def mapped_roles(groups: Iterable[str]) -> set[str]:
    """Names of roles."""
    return {role for group in groups for role in settings.OIDC_ROLES.get(group, ())}


@transaction.atomic
def link_identity(*, user: User, identity: ProviderIdentity, by: Actor) -> None:
    """The person may log in by the provider from now on, too. Raises `Conflict`."""
    _lock_home_organization()
    known = _linked_account(identity)
    if known is not None and known.user_id != user.pk:
        raise Conflict("That identity belongs to another account here.", code="identity_taken")
    if known is None:
        SingleSignOn.objects.create(user=user, issuer=identity.issuer, subject=identity.subject)
        _record_link(Event.SINGLE_SIGN_ON_LINK, user, by, identity.issuer)


@transaction.atomic
def unlink_identity(*, user: User, by: Actor) -> None:
    """Raises `NotFound`, and `Conflict` where no password would be left to log in with."""
    rows = SingleSignOn.objects.filter(user=user)
    if not rows.exists():
        raise NotFound("You are not connected.", code="not_linked")
    if not user.has_usable_password():
        raise Conflict(
            "You have no password here, so you could not come in any more.", code="no_password"
        )
    rows.delete()
    _record_link(Event.SINGLE_SIGN_ON_UNLINK, user, by, settings.OIDC_ISSUER)


def is_linked(user: User, identity: ProviderIdentity) -> bool:
    known = _linked_account(identity)
    return known is not None and known.user_id == user.pk


def _linked_account(identity: ProviderIdentity) -> SingleSignOn | None:
    rows = SingleSignOn.objects.select_related("user__organization")
    return rows.filter(issuer=identity.issuer, subject=identity.subject).first()


def _create_account(identity: ProviderIdentity, source_ip: str) -> SingleSignOn:
    place = _home_organization()
    user = User(
        username=_available_name(identity),
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
    _record_link(Event.SINGLE_SIGN_ON_LINK, user, by, identity.issuer, made_account=True)
    return made


def _available_name(identity: ProviderIdentity) -> str:
    """The provider's user name, unless an account here has or had it."""
    wished = _NOT_IN_NAMES.sub("", identity.username)[:130]
    mark = hashlib.sha256(f"{identity.issuer}\n{identity.subject}".encode()).hexdigest()[:12]
    if wished and not UsedName.objects.filter(name__iexact=wished).exists():
        return wished
    return f"{wished or 'person'}-{mark}"


def _update_roles(user: User, wanted: set[str], source_ip: str) -> None:
    """Sets the roles of the provider's groups, and removes other roles that these groups could
    give."""
    given = {PREFIX + role for roles in settings.OIDC_ROLES.values() for role in roles}
    names = {PREFIX + role for role in wanted}
    held = {*user.groups.filter(name__in=given).values_list("name", flat=True)}
    if held == names:
        return
    increment_revisions(User.objects.filter(pk=user.pk))
    user.groups.remove(*Group.objects.filter(name__in=held - names))
    user.groups.add(*Group.objects.filter(name__in=names - held))
    opened = user.is_staff
    _update_staff_access(user, held)
    said = {
        "added": {"roles": sorted(names - held)},
        "removed": {"roles": sorted(held - names)},
        "before": {"roles": sorted(held), "is_staff": opened},
        "after": {"roles": sorted(names), "is_staff": user.is_staff},
    }
    by, subject = _actor(user.organization, source_ip), f"user:{user.username}"
    record(Event.GRANT_CHANGE, by=by, outcome=Outcome.CHANGED, subject=subject, details=said)


def _update_staff_access(user: User, held: set[str]) -> None:
    """`/admin/` is open with a role that says so, and closed again with the last one."""
    opens = (
        _any_opens_administration(user.groups.values_list("name", flat=True)) or user.is_superuser
    )
    by_hand = user.is_staff and not _any_opens_administration(held)
    if user.is_staff != (opens or by_hand):
        user.is_staff = opens or by_hand
        user.save(update_fields=["is_staff"])


def _any_opens_administration(groups: Iterable[str]) -> bool:
    return any(role.opens_administration for role in map(role_of, groups) if role)


def _home_organization() -> Organization:
    """Where accounts are made. Raises `NotFound`."""
    if not settings.OIDC_ORGANIZATION:
        return Organization.objects.earliest("created_at")
    found = Organization.objects.filter(slug=settings.OIDC_ORGANIZATION).first()
    if found is None:
        raise NotFound("OIDC_ORGANIZATION names no organization.", code="organization_not_found")
    return found


def _lock_home_organization() -> None:
    Organization.objects.select_for_update(no_key=True).get(pk=_home_organization().pk)


def _actor(place: Organization, source_ip: str, name: str = "single sign-on") -> Actor:
    kind = CallerKind.SYSTEM if name == "single sign-on" else CallerKind.PERSON
    return Actor(kind, name, place.slug, source_ip=source_ip, request_id=request_id.get())


def _record_link(event: Event, user: User, by: Actor, issuer: str, **more: bool) -> None:
    subject, details = f"user:{user.username}", {"issuer": issuer, **more}
    record(event, by=by, outcome=Outcome.CHANGED, subject=subject, details=details)
