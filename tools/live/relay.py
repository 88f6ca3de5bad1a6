"""Relays notifications of changed calls from Redis pub/sub to the streams, in batches."""

import asyncio
import logging
from uuid import UUID

import redis.asyncio as redis
from django.conf import settings

from tools.execution.events import CHANNEL, PAGES_CHANNEL
from tools.live.live_streams import LiveStreams, load_changes
from tools.live.readers import DATABASE_ERRORS, LiveReader, load_readers, run_query

log = logging.getLogger(__name__)
CHECK_S = 20.0  # between two checks of who is still logged in
_BATCH_DELAY_S = 0.05
_MOST_CALLS = 1_000  # calls looked up at once; with more, every page is notified
_RETRY_DELAY_S = 1.0
_KEYS_PER_QUERY = 500


class Relay:
    def __init__(self, streams: LiveStreams) -> None:
        self.subscribed = (
            False  # without a subscription no stream is opened: it would get no events
        )
        self._streams = streams
        self._changed_ids: set[UUID] = set()
        self._pending = asyncio.Event()

    async def listen(self) -> None:
        """Subscribe again after each failure. A page without a stream polls until it has one."""
        while True:
            try:
                await self._follow()
            except (redis.RedisError, OSError) as error:
                log.warning("Notifications of changes are not received: %s", type(error).__name__)
            finally:
                self.subscribed = False
                self._streams.end_all()
            await asyncio.sleep(_RETRY_DELAY_S)

    async def _follow(self) -> None:
        async with (
            redis.Redis.from_url(settings.REDIS_URL, health_check_interval=10) as own,
            own.pubsub(ignore_subscribe_messages=True) as heard,
        ):
            await heard.subscribe(CHANNEL, PAGES_CHANNEL)
            self.subscribed = True
            while True:
                message = await heard.get_message(timeout=5)  # checks Redis in between
                if message is not None and self._streams:
                    self._add(message["data"])

    def _add(self, said: bytes) -> None:
        try:
            self._changed_ids.add(UUID(said.decode("ascii")))
        except ValueError:
            return
        self._pending.set()

    async def notify_streams(self) -> None:
        while True:
            await self._pending.wait()
            self._pending.clear()
            ids, self._changed_ids = self._changed_ids, set()
            try:
                if len(ids) > _MOST_CALLS:
                    self._streams.notify_all()
                else:
                    self._streams.notify(await run_query(load_changes, ids))
            except DATABASE_ERRORS as error:
                log.warning("The changed calls cannot be loaded: %s", type(error).__name__)
                self._streams.notify_all()
            await asyncio.sleep(_BATCH_DELAY_S)

    async def watch(self) -> None:
        """Every `CHECK_S`, end the streams of users who logged out, were disabled or ended that
        browser's session, and of all users that the database cannot be asked about."""
        while True:
            await asyncio.sleep(CHECK_S)
            keys = sorted(self._streams.keys)
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                some = keys[start : start + _KEYS_PER_QUERY]
                self._streams.update_readers(await self._load_readers(some), set(some))

    async def _load_readers(self, keys: list[str]) -> dict[str, LiveReader]:
        try:
            return await run_query(load_readers, keys)
        except DATABASE_ERRORS as error:
            log.warning("The logged-in users cannot be loaded: %s", type(error).__name__)
            return {}
