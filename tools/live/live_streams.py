"""The open streams: their limits, and which of them a change is sent to.

Unauthenticated streams have a small limit, and a smaller one per address. Authenticated streams
count for the reader's organization, which never gets the last quarter. A change says which call
changed, and whose it is, without its content.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Exists, OuterRef

from tools.live.readers import LiveReader
from tools.models import Confirmation, Execution

EXECUTIONS, CONFIRMATIONS = "executions", "confirmations"
MOST_TOPICS = 8
MOST_PER_SESSION = 16  # streams of one browser's session
MOST_UNAUTHENTICATED_PER_ADDRESS = 32  # many browsers reconnect at once after the process was down
_IMMEDIATE_RELOADS = 50  # pages that may reload at the same moment; more are spread over time
_SPREAD_MS = 10


@dataclass(frozen=True, slots=True)
class ExecutionChange:
    execution_id: UUID
    parent_id: UUID | None
    organization_id: UUID
    people: frozenset[UUID | None]  # the caller, and the user who made the call
    held: bool  # it is or was awaiting approval


class StreamLimitReached(Exception):
    """A limit of streams is reached."""


@dataclass(frozen=True, slots=True)
class Topics:
    """What a page shows: lists by name, calls by id."""

    executions: bool = False
    confirmations: bool = False
    calls: frozenset[UUID] = frozenset()

    @classmethod
    def read(cls, names: Iterable[str]) -> "Topics":
        """Raises ValueError for unknown topics, or too many."""
        given = set(names)
        if not 1 <= len(given) <= MOST_TOPICS:
            raise ValueError
        calls = frozenset(UUID(name) for name in given - {EXECUTIONS, CONFIRMATIONS})
        return cls(EXECUTIONS in given, CONFIRMATIONS in given, calls)


@dataclass(eq=False, slots=True)
class LiveStream:
    key: str
    topics: Topics
    reader: LiveReader | None = None  # None until it is authenticated
    address: str = ""
    organization_id: UUID | None = None  # for which it counts
    over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, change: ExecutionChange) -> bool:
        reader, topics = self.reader, self.topics
        if reader is None or reader.organization_id != change.organization_id:
            return False
        held = change.held and reader.decides
        if topics.confirmations and held:
            return True
        seen = reader.everyone or reader.user_id in change.people
        if topics.executions and seen:
            return True
        return (seen or held) and not topics.calls.isdisjoint(
            {change.execution_id, change.parent_id}
        )

    def end(self) -> None:
        self.over = True
        self.changed.set()


class LiveStreams:
    def __init__(self, most: int) -> None:
        self._most = most
        self._most_unauthenticated = max(1, most // 4)
        self._most_of_organization = max(1, most * 3 // 4)
        self._open: set[LiveStream] = set()
        self._by_session: Counter[str] = Counter()
        self._unauthenticated: Counter[str] = Counter()  # by address
        self._organizations: Counter[UUID] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def open_stream(self, key: str, topics: Topics, address: str) -> Iterator[LiveStream]:
        """Open an unauthenticated stream during the context. Raises `StreamLimitReached`."""
        if (
            len(self._open) >= self._most
            or self._by_session.get(key, 0) >= MOST_PER_SESSION
            or self._unauthenticated.get(address, 0) >= MOST_UNAUTHENTICATED_PER_ADDRESS
            or self._unauthenticated.total() >= self._most_unauthenticated
        ):
            raise StreamLimitReached
        stream = LiveStream(key, topics, address=address)
        self._open.add(stream)
        self._by_session[key] += 1
        self._unauthenticated[address] += 1
        try:
            yield stream
        finally:
            self._open.discard(stream)
            _decrement(self._by_session, key)
            if stream.organization_id is None:
                _decrement(self._unauthenticated, address)
            else:
                _decrement(self._organizations, stream.organization_id)

    def admit(self, stream: LiveStream, reader: LiveReader) -> None:
        """Count the stream for its reader's organization. Raises `StreamLimitReached`."""
        organization = reader.organization_id
        if self._organizations.get(organization, 0) >= self._most_of_organization:
            raise StreamLimitReached
        stream.reader, stream.organization_id = reader, organization
        _decrement(self._unauthenticated, stream.address)
        self._organizations[organization] += 1

    @property
    def keys(self) -> set[str]:
        return {stream.key for stream in self._open if stream.reader is not None}

    @property
    def spread_ms(self) -> int:
        """The time over which pages spread their reloads after a change."""
        return max(0, len(self._open) - _IMMEDIATE_RELOADS) * _SPREAD_MS

    def notify(self, found: Iterable[ExecutionChange]) -> None:
        for change in found:
            for stream in self._open:
                if not stream.changed.is_set() and stream.wants(change):
                    stream.changed.set()

    def notify_all(self) -> None:
        for stream in self._open:
            stream.changed.set()

    def end_all(self) -> None:
        for stream in self._open:
            stream.end()

    def update_readers(self, readers: Mapping[str, LiveReader], checked: set[str]) -> None:
        """End the streams of users who are logged out; update the permissions of the others."""
        for stream in self._open:
            if stream.key not in checked or stream.reader is None:
                continue
            stream.reader = readers.get(stream.key)
            if stream.reader is None:
                stream.end()


def load_changes(ids: Iterable[UUID]) -> list[ExecutionChange]:
    """Uses one query for all of them. Calls that no longer exist are left out."""
    held = Exists(Confirmation.objects.filter(execution=OuterRef("pk")))
    rows = Execution.objects.filter(pk__in=list(ids)).annotate(was_held=held).values_list(
        "pk", "parent_id", "organization_id", "user_id", "made_by_id", "was_held"
    )  # fmt: skip
    return [
        ExecutionChange(pk, parent, organization, frozenset({user, maker}), was_held)
        for pk, parent, organization, user, maker, was_held in rows
    ]


def _decrement[K](counts: Counter[K], of: K) -> None:
    counts[of] -= 1
    if not counts[of]:
        del counts[of]
