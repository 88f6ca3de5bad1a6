"""Security keys and passkeys (WebAuthn), verified by Yubico's library.

A key is bound to the host of the page, and must have verified its person by finger, face or PIN. A
challenge is stored in the session, is valid once, and expires soon.
"""

import ipaddress
import json
import struct
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone
from fido2.cose import CoseKey
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from audit.actions import Actor
from tools.accounts.login import second_factors
from tools.errors import Conflict, Malformed
from tools.models import SecurityKey, User

MOST_KEYS = 10
_CHALLENGE_S = 300
_MAX_RESPONSE = 32 * 1024  # bytes of a browser's response
_STATE = "webauthn"
# Errors that the library raises for a malformed or invalid response.
_LIBRARY_ERRORS = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError, struct.error,
    RecursionError, OverflowError, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True)
class RelyingParty:
    """The origin of the request: what the browser signs must name exactly this."""

    host: str
    origin: str

    @property
    def has_keys(self) -> bool:
        """Browsers know security keys under a name, never under an address."""
        try:
            ipaddress.ip_address(self.host.strip("[]"))
        except ValueError:
            return True
        return False


def relying_party(request: HttpRequest) -> RelyingParty:
    host = request.get_host()
    scheme = "https" if settings.HTTPS else request.scheme
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return RelyingParty(name.lower(), f"{scheme}://{host}".lower())


def has_usable_key(user: User, place: RelyingParty) -> bool:
    return place.has_keys and SecurityKey.objects.filter(user=user, host=place.host).exists()


def begin_registration(user: User, place: RelyingParty, session: SessionBase) -> str:
    """The options for the browser, as JSON."""
    who = PublicKeyCredentialUserEntity(
        id=user.pk.bytes, name=user.username, display_name=user.get_full_name() or user.username
    )
    options, state = _server(place).register_begin(
        who,
        [_credential(row) for row in SecurityKey.objects.filter(user=user, host=place.host)],
        resident_key_requirement=ResidentKeyRequirement.DISCOURAGED,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return _store_challenge(options, state, "add", session)


@transaction.atomic
def add_security_key(
    *, user: User, name: str, answer: str, place: RelyingParty, session: SessionBase, by: Actor
) -> list[str]:
    """The recovery codes, where this is the first factor. Raises `Malformed` and `Conflict`."""
    state = _take_challenge("add", session)
    try:
        made = _server(place).register_complete(state, _parse_response(answer))
    except _LIBRARY_ERRORS:
        raise _refusal() from None
    credential = made.credential_data
    if credential is None or credential.public_key.get(3) not in CoseKey.supported_algorithms():
        raise _refusal()
    locked = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if SecurityKey.objects.filter(user=locked).count() >= MOST_KEYS:
        raise Conflict(f"You have {MOST_KEYS} keys. Remove one first.", code="too_many_keys")
    _store_key(locked, name, place, credential, made.counter)
    return second_factors.record_added_factor(locked, second_factors.KEY, by=by, name=name)


def begin_authentication(user: User, place: RelyingParty, session: SessionBase) -> str:
    """The options for the browser, as JSON."""
    options, state = _server(place).authenticate_begin(
        [_credential(row) for row in SecurityKey.objects.filter(user=user, host=place.host)],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return _store_challenge(options, state, "prove", session)


@transaction.atomic
def verify_assertion(*, user: User, answer: str, place: RelyingParty, session: SessionBase) -> bool:
    """Whether one of the person's keys has signed the challenge, here and now."""
    rows = [*SecurityKey.objects.select_for_update().filter(user=user, host=place.host)]
    try:
        state = _take_challenge("prove", session)
        given = AuthenticationResponse.from_dict(_parse_response(answer))
        used = _server(place).authenticate_complete(state, [_credential(r) for r in rows], given)
        count = given.response.authenticator_data.counter
    except (*_LIBRARY_ERRORS, Malformed):
        return False
    row = next(one for one in rows if bytes(one.credential_id) == used.credential_id)
    if (count or row.sign_count) and count <= row.sign_count:
        return False  # the key may have been cloned
    row.sign_count, row.last_used_at = count, timezone.now()
    row.save(update_fields=["sign_count", "last_used_at"])
    return True


def _store_key(
    user: User, name: str, place: RelyingParty, credential: AttestedCredentialData, count: int
) -> None:
    try:
        with transaction.atomic():
            SecurityKey.objects.create(
                user=user,
                name=name,
                host=place.host,
                credential_id=credential.credential_id,
                credential=bytes(credential),
                sign_count=count,
            )
    except IntegrityError:
        raise Conflict("That key is set up already.", code="key_exists") from None


def _server(place: RelyingParty) -> Fido2Server:
    party = PublicKeyCredentialRpEntity(name="Toolcrib", id=place.host)
    return Fido2Server(party, verify_origin=lambda origin: origin == place.origin)


def _credential(row: SecurityKey) -> AttestedCredentialData:
    return AttestedCredentialData(bytes(row.credential))


def _store_challenge(options: Any, state: dict[str, Any], what: str, session: SessionBase) -> str:
    known = {"challenge": state["challenge"], "user_verification": "required"}
    session[_STATE] = known | {"what": what, "until": int(time.time()) + _CHALLENGE_S}
    return json.dumps(dict(options.public_key))


def _take_challenge(what: str, session: SessionBase) -> dict[str, Any]:
    """The challenge, which is gone with this. Raises `Malformed`."""
    state: dict[str, Any] = session.pop(_STATE, {})
    if state.get("what") != what or state.get("until", 0) < time.time():
        raise Malformed("That took too long. Try again.", code="challenge_gone")
    return state


def _parse_response(answer: str) -> dict[str, Any]:
    if len(answer) > _MAX_RESPONSE:
        raise ValueError
    found: dict[str, Any] = json.loads(answer)
    return found


def _refusal() -> Malformed:
    return Malformed(
        "The key was not accepted. Try again, with its PIN, finger or face.", code="wrong_key"
    )
