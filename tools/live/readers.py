"""Readers of streams: logged-in users, and which calls they may be notified of. Database queries of
the event loop run in threads, without keeping connections in between."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session as BrowserSession
from django.db import Error, connections
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from psycopg_pool import PoolTimeout

from tools.accounts.user_permissions import holders
from tools.models import User

DATABASE_ERRORS = (Error, PoolTimeout)
_BATCH_DELAY_S = 0.02
_MOST_KEYS = 500  # session keys per query
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="live")


@dataclass(frozen=True, slots=True)
class LiveReader:
    organization_id: UUID
    user_id: UUID
    everyone: bool  # may see the calls of others
    decides: bool  # may see calls that await approval


class ReaderLookup:
    """Authenticates clients in batches, since a thousand pages reconnect at the same moment after
    this process was down."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[LiveReader | None]] = {}
        self._pending = asyncio.Event()

    async def reader(self, key: str) -> LiveReader | None:
        """None where no user is logged in. Raises what the database raises."""
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
            self._pending.set()
        return await asyncio.shield(self._waiting[key])

    async def run(self) -> None:
        while True:
            await self._pending.wait()
            await asyncio.sleep(_BATCH_DELAY_S)
            await self._answer()

    async def _answer(self) -> None:
        keys = list(self._waiting)[:_MOST_KEYS]
        futures = {key: self._waiting.pop(key) for key in keys}
        if not self._waiting:
            self._pending.clear()
        try:
            readers = await run_query(load_readers, keys)
        except DATABASE_ERRORS as problem:  # passed to the waiting requests; the loop continues
            for one in futures.values():
                one.set_exception(problem)
                one.exception()  # marks it as retrieved: the client may have disconnected
        else:
            for key, one in futures.items():
                one.set_result(readers.get(key))


def load_readers(keys: Iterable[str]) -> dict[str, LiveReader]:
    """The logged-in user of each session key, in six queries; other keys are left out."""
    sessions = BrowserSession.objects.filter(
        session_key__in=list(keys), expire_date__gt=timezone.now()
    )
    found = {row.session_key: row.get_decoded() for row in sessions}
    ids = {pk for data in found.values() if (pk := _user_id(data)) is not None}
    people = {user.pk: user for user in User.objects.filter(pk__in=ids, is_active=True)}
    return dict(_authenticate(found, people))


async def run_query[T](question: Callable[[Iterable[Any]], T], of: Iterable[Any]) -> T:
    """Raises what the database raises."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _run_in_thread, question, of)


def _authenticate(
    found: Mapping[str, Mapping[str, Any]], people: Mapping[UUID, User]
) -> Iterable[tuple[str, LiveReader]]:
    everyone = holders(people, "view_execution")
    decide = holders(people, "view_confirmation") | holders(people, "decide_confirmation")
    for key, data in found.items():
        user = people.get(_user_id(data))  # type: ignore[arg-type]
        if user is not None and _is_session_valid(user, data):
            pk = user.pk
            yield key, LiveReader(user.organization_id, pk, pk in everyone, pk in decide)


def _user_id(data: Mapping[str, Any]) -> UUID | None:
    try:
        return UUID(str(data.get(SESSION_KEY)))
    except ValueError:
        return None


def _is_session_valid(user: User, data: Mapping[str, Any]) -> bool:
    """As Django's own `get_user` asks it; a password that was changed ends a session as well."""
    known = data.get(BACKEND_SESSION_KEY) in settings.AUTHENTICATION_BACKENDS
    given = str(data.get(HASH_SESSION_KEY, ""))
    right = constant_time_compare(given, user.get_session_auth_hash())
    return known and right and not user.is_service_account


def _run_in_thread[T](question: Callable[[Iterable[Any]], T], of: Iterable[Any]) -> T:
    try:
        return question(of)
    finally:
        connections.close_all()
