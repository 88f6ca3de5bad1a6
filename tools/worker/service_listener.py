"""The background loop for tool services: read their announcements, and check approved ones.

A hostile announcement affects only itself: it is dropped, and the next one is read.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import batched

import redis
from django.conf import settings
from django.utils import timezone

from config.database import CONNECTION_ERRORS
from toolcrib_service.queue_protocol import Queue
from tools import metrics
from tools.catalog.services import announcements
from tools.errors import Forbidden, InvalidDefinition
from tools.models import Organization, ToolService
from tools.runners.service import default_client
from tools.toolservices.announcement_stream import AnnouncementReader, StreamedAnnouncement

log = logging.getLogger(__name__)
_AT_ONCE = 500
_TOLD_S, _MOST_TOLD = 3600, 1_000
_told: dict[tuple[str, str, str], float] = {}  # a service that insists fills no log


@lru_cache(maxsize=1)
def ear() -> AnnouncementReader:
    return AnnouncementReader(settings.REDIS_URL)


def look() -> None:
    """Without a broker nothing is received, and no service is considered silent."""
    try:
        ear().load_scripts()
        hear()
        note_leases()
    except redis.RedisError as error:
        log.warning("the broker of tool services did not answer: %s", type(error).__name__)


def hear(organizations: Iterable[Organization] | None = None) -> None:
    everybody = Organization.objects.all() if organizations is None else organizations
    for some in batched(everybody, _AT_ONCE):
        by_slug = {one.slug: one for one in some}
        for slug, heard in ear().read_announcements(by_slug).items():
            for one in heard:
                outcome = _heed(by_slug[slug], one)
                metrics.service_announcements.labels(outcome).inc()
            with _its_own(slug):
                ear().delete_entries(slug, [one.entry for one in heard])


def _heed(organization: Organization, heard: StreamedAnnouncement) -> str:
    try:
        announcements.hear(
            organization=organization, document=heard.document, key=heard.key,
            signature=heard.signature,
        )  # fmt: skip
    except CONNECTION_ERRORS:
        raise
    except Forbidden as refusal:
        log.warning("an announcement in %s was refused: %s", organization.slug, refusal)
        _put_on_record(organization, str(refusal.details["service"]), refusal.code)
        return "refused"
    except InvalidDefinition as flaw:
        log.warning("an announcement in %s cannot be read: %s", organization.slug, flaw)
        return "unreadable"
    except Exception:  # the outermost edge of what one stranger says
        log.exception("an announcement in %s met a fault of ours", organization.slug)
        return "fault"
    return "heard"


def _put_on_record(organization: Organization, name: str, why: str) -> None:
    which, now = (organization.slug, name, why), time.monotonic()
    if now - _told.get(which, -_TOLD_S) < _TOLD_S:
        return
    if len(_told) >= _MOST_TOLD:
        _told.clear()
    _told[which] = now
    announcements.refuse(organization=organization, name=name, why=why)


def note_leases() -> None:
    rows = ToolService.objects.exclude(digest="").select_related("organization")
    for row in rows:
        with _its_own(row.organization.slug):
            left_s = _served_s(row)
            until = timezone.now() + timedelta(seconds=left_s) if left_s > 0 else None
            announcements.note_lease(row=row, until=until)


def _served_s(row: ToolService) -> float:
    """Who made something else of the keys of its lease has none."""
    queue = Queue(row.organization.slug, row.request_queue)
    try:
        return default_client().queue_status(queue, row.digest).served_s
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            return 0.0
        raise


@contextmanager
def _its_own(slug: str) -> Iterator[None]:
    """Damage that an organization did to its keys at the broker ends only its own part of a
    pass."""
    try:
        yield
    except redis.ResponseError as error:
        log.warning("the broker refused what is of %s: %s", slug, type(error).__name__)
