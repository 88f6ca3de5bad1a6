"""Stores the response of a mutating request under the caller's idempotency key.

A repeated request gets the stored response while the caller may still get it: the permissions that
the action relied on are checked again, and none that was held then may be lost since.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from psycopg.errors import LockNotAvailable

from audit.actions import record
from audit.events import Event, Outcome
from config.http.errors import encode_json
from tools.accounts import user_permissions
from tools.accounts.callers import actor_of
from tools.catalog.signatures import sealed_texts
from tools.definitions.callers import Caller
from tools.definitions.texts.names import WILDCARD
from tools.errors import Conflict, Forbidden, Mismatch
from tools.models import IdempotencyKey, Token
from tools.models.idempotency_key import Attempt, KeyedBy

PURPOSE = b"toolcrib kept answer"
SECRETS_FOR = timedelta(minutes=10)
FORM_DONE = 303  # status of the answer to a form of a page; no answer of the API has it
WAIT_S = 5  # for the first request of one key; below the patience of every other lock
# Longer than any request to other servers takes: after that its process has died.
ABANDONED_AFTER = timedelta(minutes=5)
_WAIT = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)"


class InProgress(Conflict):
    """The first request with the key is still running."""

    code, retry_after_s = "idempotency_in_progress", 1


@dataclass(frozen=True, slots=True)
class IdempotentResponse:
    """The stored response, with those of its secrets that may still be given; `withheld` says that
    others were left out."""

    status: int
    answer: str
    headers: Mapping[str, str]
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A mutating request with its caller and key."""

    caller: Caller
    key: str
    address: tuple[str, ...] = field(repr=False)  # method and path, and what else names it
    fingerprint: str = field(repr=False)  # of everything else in it

    @property
    def keyed_by(self) -> KeyedBy:
        caller = self.caller
        return KeyedBy(
            caller.organization_id,
            caller.user_id,
            _narrowing(caller),
            KeyedBy.digest(*self.address),
            self.key,
        )


def fingerprint(*parts: str) -> str:
    """Keyed, since a body may hold a password that is easily guessed."""
    return salted_hmac(PURPOSE, json.dumps(parts), algorithm="sha256").hexdigest()


def claim_key(
    request: IdempotentRequest, check_replay: Callable[[], None] = lambda: None
) -> Attempt | IdempotentResponse:
    """The attempt of the request that is to act, or the stored response of the first one. Call it
    in a transaction.

    While the first one is running, waits for up to `WAIT_S`. Raises `InProgress`; `Mismatch` for
    another request, and `Forbidden` where the caller may no longer get the response; `check_replay`
    raises further reasons.
    """
    keyed_by, held = request.keyed_by, _authority_of(request.caller)
    hours = timedelta(hours=settings.IDEMPOTENCY_HOURS)
    with _bounded_wait():
        attempt = IdempotencyKey.objects.claim(
            keyed_by,
            fingerprint=request.fingerprint,
            authority=held,
            kept=hours,
            abandoned=ABANDONED_AFTER,
        )
    return attempt or _stored_response(
        request, IdempotencyKey.objects.of(keyed_by).get(), check_replay
    )


@transaction.atomic
def store_response(
    attempt: Attempt,
    *,
    status: int,
    answer: Any,
    headers: Mapping[str, str],
    secret: Collection[str],
    relied_on: Collection[str],
) -> None:
    """Store the response of the attempt, unless another has taken over meanwhile. Members of an
    object named in `secret` are encrypted, and null in the stored body."""
    row = IdempotencyKey.objects.select_for_update().under(attempt).first()
    if row is None:
        return
    hidden = {name: answer[name] for name in secret if answer.get(name)} if secret else {}
    shown = answer | dict.fromkeys(hidden) if hidden else answer
    row.status = status
    row.answer = "" if shown is None else _text(shown)
    row.headers = dict(headers)
    row.authority |= {"relied_on": sorted(relied_on)}
    row.had_secrets = bool(hidden)
    if hidden:
        row.secrets = sealed_texts.seal(
            _text(hidden), organization=row.organization_id, row=row.attempt, purpose=PURPOSE
        )
    row.save(update_fields=["status", "answer", "headers", "authority", "had_secrets", "secrets"])


@transaction.atomic
def take_secrets(caller: Caller, key: str) -> dict[str, str]:
    """The secrets of the answer to a form of the caller's session, which are erased: the next
    request finds none."""
    row = (
        IdempotencyKey.objects.select_for_update()
        .filter(
            organization_id=caller.organization_id,
            user_id=caller.user_id,
            narrowing=_narrowing(caller),
            key=key,
            status=FORM_DONE,
            secrets__isnull=False,
        )
        .order_by("-pk")
        .first()
    )
    if row is None:
        return {}
    found = _unseal_secrets(row)
    row.secrets = None
    row.save(update_fields=["secrets"])
    return found or {}


def release_key(attempt: Attempt) -> None:
    """Make the key usable again: no response was stored."""
    IdempotencyKey.objects.under(attempt).delete()


def delete_expired_keys() -> None:
    """Delete expired keys, and secrets that are no longer given."""
    IdempotencyKey.objects.erase_secrets(SECRETS_FOR)
    IdempotencyKey.objects.forget(timedelta(hours=settings.IDEMPOTENCY_HOURS))


def _stored_response(
    request: IdempotentRequest, row: IdempotencyKey, check_replay: Callable[[], None]
) -> IdempotentResponse:
    _check_still_permitted(request.caller, row.authority)
    check_replay()
    if row.fingerprint != request.fingerprint:
        raise Mismatch(
            "This idempotency key was used for another request. Use a new key for a new request."
        )
    if row.status is None:
        raise _request_in_progress()
    if not row.had_secrets:
        return IdempotentResponse(row.status, row.answer, row.headers)
    if (hidden := _unseal_secrets(row)) is None:
        return IdempotentResponse(row.status, row.answer, row.headers, withheld=True)
    record(
        Event.SECRET_REPEAT,
        by=actor_of(request.caller),
        outcome=Outcome.SUCCESS,
        subject=request.address[1],
        details={"members": sorted(hidden), "began_at": row.began_at.isoformat()},
    )
    return IdempotentResponse(row.status, _text(json.loads(row.answer) | hidden), row.headers)


def _unseal_secrets(row: IdempotencyKey) -> dict[str, Any] | None:
    """The secrets, while they may be given."""
    if row.secrets is None or row.began_at < timezone.now() - SECRETS_FOR:
        return None
    try:
        text = sealed_texts.unseal(
            bytes(row.secrets), organization=row.organization_id, row=row.attempt, purpose=PURPOSE
        )
    except sealed_texts.UnreadableSealedText:
        return None
    hidden: dict[str, Any] = json.loads(text)
    return hidden


def _check_still_permitted(caller: Caller, authority: Mapping[str, Any]) -> None:
    for permission in authority.get("relied_on", ()):
        user_permissions.require_held(caller, permission)
    now = _authority_of(caller)
    lost = authority["superuser"] and not now["superuser"]
    for kind in ("groups", "permissions"):
        lost = lost or (WILDCARD not in now[kind] and not set(authority[kind]) <= set(now[kind]))
    if lost:
        raise Forbidden(
            "You hold less than when this request was first sent, so its answer is not given "
            "again. Ask for what you need with a new key.",
            code="not_permitted",
        )


def _authority_of(caller: Caller) -> dict[str, Any]:
    return {
        "superuser": caller.is_superuser,
        "groups": sorted(caller.granted_groups),
        "permissions": sorted(caller.granted_permissions),
    }


def _narrowing(caller: Caller) -> str:
    """The narrowing of the caller's token; a session has none."""
    if caller.token_id is None:
        return KeyedBy.digest("session")
    limits = Token.objects.filter(pk=caller.token_id).values_list("groups", "tools")
    groups, tools = limits.get()
    return KeyedBy.digest(
        "token",
        sorted(caller.scopes),
        None if groups is None else sorted(groups),
        None if tools is None else sorted(tools),
    )


@contextmanager
def _bounded_wait() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(_WAIT, [f"{WAIT_S}s"])
        usual = cursor.fetchone()[0]
        try:
            yield
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                raise _request_in_progress() from None
            raise
        cursor.execute(_WAIT, [usual])


def _request_in_progress() -> InProgress:
    return InProgress(
        "The first request with this idempotency key is not over. Send it again in a moment."
    )


def _text(answer: Any) -> str:
    return encode_json(answer).decode()
