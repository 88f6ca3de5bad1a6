"""Reads the stream on which services announce themselves: a few at a time, then deleted."""

from collections.abc import Iterable
from typing import Any

import redis

from toolcrib_service.queue_protocol import announcements_key
from toolcrib_service.scripts import LOADED
from toolcrib_service.service import MOST_CHARACTERS

# KEYS announcements; ARGV how many, how many bytes of one. A longer one comes without its fields.
_LISTEN = """
local found = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[1])
for _, entry in ipairs(found) do
  local size = 0
  for _, text in ipairs(entry[2]) do size = size + #text + 64 end
  if size > tonumber(ARGV[2]) then entry[2] = {} end
end
return found
"""
AT_ONCE = 20
MOST_BYTES = 2 * MOST_CHARACTERS  # of an entry; a longer one is read as an empty one


class StreamedAnnouncement:
    """`entry` is what `delete_entries` takes."""

    __slots__ = ("document", "entry", "key", "signature")

    def __init__(self, entry: str, fields: dict[str, str]) -> None:
        self.entry = entry
        self.document, self.key, self.signature = (
            fields.get(name, "") for name in ("document", "key", "signature")
        )


class AnnouncementReader:
    def __init__(self, url: str) -> None:
        self._redis: Any = redis.Redis.from_url(
            url, protocol=2, decode_responses=True, encoding_errors="replace",
            socket_timeout=10, socket_connect_timeout=2,
        )  # fmt: skip

    def read_announcements(
        self, organizations: Iterable[str]
    ) -> dict[str, list[StreamedAnnouncement]]:
        """The oldest few of each organization that has some. Raises `redis.RedisError`."""
        slugs = list(organizations)
        pipe = self._redis.pipeline(transaction=False)
        for slug in slugs:
            pipe.eval(_LISTEN, 1, announcements_key(slug), AT_ONCE, MOST_BYTES)
        found = pipe.execute(raise_on_error=False)  # a key of a wrong type blocks no other
        return {
            slug: [StreamedAnnouncement(entry, _fields(flat)) for entry, flat in entries]
            for slug, entries in zip(slugs, found, strict=True)
            if isinstance(entries, list) and entries
        }

    def load_scripts(self) -> None:
        """Loads the scripts that services may run on the broker; a restarted broker has lost
        them."""
        for script in LOADED:
            self._redis.script_load(script)

    def delete_entries(self, organization: str, entries: Iterable[str]) -> None:
        self._redis.xdel(announcements_key(organization), *entries)

    def close(self) -> None:
        self._redis.close()


def _fields(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
