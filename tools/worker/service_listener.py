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
_BATCH = 500  # organizations in one request to the broker
_REFUSAL_INTERVAL_S, _MAX_REFUSALS = 3600, 1_000
_refused_at: dict[tuple[str, str, str], float] = {}  # a service that repeats itself fills no log


@lru_cache(maxsize=1)
def listener() -> AnnouncementReader:
    return AnnouncementReader(settings.REDIS_URL)


def poll() -> None:
    """Without a broker nothing is received, and no service is considered silent."""
    try:
        listener().load_scripts()
        read_announcements()
        note_leases()
    except redis.RedisError as error:
        log.warning("the broker of tool services did not answer: %s", type(error).__name__)


def read_announcements(organizations: Iterable[Organization] | None = None) -> None:
    """Of these organizations, or of all."""
    organizations = Organization.objects.all() if organizations is None else organizations
    for batch in batched(organizations, _BATCH):
        by_slug = {organization.slug: organization for organization in batch}
        for slug, messages in listener().read_announcements(by_slug).items():
            for message in messages:
                outcome = _apply_announcement(by_slug[slug], message)
                metrics.service_announcements.labels(outcome).inc()
            with _contain_key_damage(slug):
                listener().delete_entries(slug, [message.entry for message in messages])


def _apply_announcement(organization: Organization, message: StreamedAnnouncement) -> str:
    """The outcome, as the metric names it."""
    try:
        announcements.hear(
            organization=organization, document=message.document, key=message.key,
            signature=message.signature,
        )  # fmt: skip
    except CONNECTION_ERRORS:
        raise
    except Forbidden as refusal:
        log.warning("an announcement in %s was refused: %s", organization.slug, refusal)
        _record_refusal(organization, str(refusal.details["service"]), refusal.code)
        return "refused"
    except InvalidDefinition as flaw:
        log.warning("an announcement in %s cannot be read: %s", organization.slug, flaw)
        return "unreadable"
    except Exception:  # the outermost edge of one untrusted message
        log.exception("an announcement in %s failed unexpectedly", organization.slug)
        return "fault"
    return "heard"


def _record_refusal(organization: Organization, name: str, why: str) -> None:
    """Audit a refusal once in `_REFUSAL_INTERVAL_S`."""
    key, now = (organization.slug, name, why), time.monotonic()
    if now - _refused_at.get(key, -_REFUSAL_INTERVAL_S) < _REFUSAL_INTERVAL_S:
        return
    if len(_refused_at) >= _MAX_REFUSALS:
        _refused_at.clear()
    _refused_at[key] = now
    announcements.refuse(organization=organization, name=name, why=why)


def note_leases() -> None:
    rows = ToolService.objects.exclude(digest="").select_related("organization")
    for row in rows:
        with _contain_key_damage(row.organization.slug):
            left_s = _lease_left_s(row)
            until = timezone.now() + timedelta(seconds=left_s) if left_s > 0 else None
            announcements.note_lease(row=row, until=until)


def _lease_left_s(row: ToolService) -> float:
    """0 for a service that overwrote the keys of its lease with another type."""
    queue = Queue(row.organization.slug, row.request_queue)
    try:
        return default_client().queue_status(queue, row.digest).served_s
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            return 0.0
        raise


@contextmanager
def _contain_key_damage(slug: str) -> Iterator[None]:
    """Damage that an organization did to its keys at the broker ends only its own part of a
    pass."""
    try:
        yield
    except redis.ResponseError as error:
        log.warning("the broker refused the keys of %s: %s", slug, type(error).__name__)
