"""The background loop that reads service announcements: a hostile service affects only itself."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from audit.models import AuditRecord
from tests import factories
from tests.tools.toolservices.conftest import broker, url
from toolcrib_service.queue_protocol import Queue, announcements_key
from toolcrib_service.service import signed_bytes
from tools.catalog.services.announcements import approve_service
from tools.models import ToolService
from tools.worker import service_listener

__all__ = ["broker", "url"]
pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
PRIVATE = Ed25519PrivateKey.generate()
HOSTILE = ["", "{", "[" * 100_000, '{"n": 1e999}', '{"n": 9007199254740993}', "\x00", "x" * 300_000]


def document(organization, name):
    descriptor = {"id": name, "request-queue": f"q-{name}", "response-queue": "r"}
    said = {"organization": organization.slug, "service": descriptor, "groups": None, "tools": []}
    return json.dumps(said)


def signed(text, private=PRIVATE):
    key = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    signature = base64.b64encode(private.sign(signed_bytes(text))).decode()
    return {"document": text, "key": key, "signature": signature}


def test_a_good_announcement_among_hostile_ones_is_read(organization, broker):
    place = announcements_key(organization.slug)
    for text in HOSTILE:
        broker.xadd(place, signed(text))
    broker.xadd(place, {"nonsense": "1"})
    broker.xadd(place, {b"document": b"\xff\xfe", b"key": b"\xff"})
    broker.xadd(place, signed(document(organization, "good")))
    service_listener.read_announcements([organization])
    assert [row.name for row in ToolService.objects.filter(organization=organization)] == ["good"]
    assert broker.xlen(place) == 0


def test_an_unreadable_stream_of_one_organization_affects_no_other(organization, broker):
    other = factories.organization("other-" + organization.slug[:20])
    broker.set(announcements_key(other.slug), "no stream")
    broker.xadd(announcements_key(organization.slug), signed(document(organization, "good")))
    service_listener.read_announcements([other, organization])
    assert ToolService.objects.filter(organization=organization).exists()
    broker.delete(announcements_key(other.slug))


def test_a_pass_reads_a_few_and_the_next_one_continues(organization, broker):
    for at in range(30):
        broker.xadd(announcements_key(organization.slug), signed(document(organization, f"s{at}")))
    service_listener.read_announcements([organization])
    heard = ToolService.objects.filter(organization=organization)
    assert heard.count() == 20
    service_listener.read_announcements([organization])
    assert heard.count() == 30


def test_a_service_with_another_key_is_refused_and_audited_once(organization, broker):
    place, text = announcements_key(organization.slug), document(organization, "good")
    broker.xadd(place, signed(text))
    for _ in range(3):
        broker.xadd(place, signed(text, Ed25519PrivateKey.generate()))
    service_listener.read_announcements([organization])
    refused = AuditRecord.objects.filter(organization=organization.slug, code="SERVICE.REFUSE")
    assert [(one.subject, one.reason) for one in refused] == [("good", "service_key_differs")]


def test_an_announcement_for_another_organization_is_not_accepted(organization, broker):
    other = factories.organization("other-" + organization.slug[:20])
    broker.xadd(announcements_key(organization.slug), signed(document(other, "good")))
    service_listener.read_announcements([organization, other])
    assert not ToolService.objects.filter(organization__in=[organization, other]).exists()


def test_only_the_lease_of_what_was_approved_opens_it(organization, broker):
    text, by = document(organization, "good"), factories.actor(organization)
    broker.xadd(announcements_key(organization.slug), signed(text))
    service_listener.read_announcements([organization])
    row = ToolService.objects.get(organization=organization)
    row = approve_service(row=row, digest=row.announced_digest, by=by)
    served = Queue(organization.slug, row.request_queue).served
    broker.zadd(served, {"sha256:another": 10**14, "": 10**14})
    service_listener.note_leases()
    row.refresh_from_db()
    assert not row.serving
    broker.zadd(served, {row.digest: 10**14})
    service_listener.note_leases()
    row.refresh_from_db()
    assert row.serving
    broker.zadd(served, {row.digest: 1})
    service_listener.note_leases()
    row.refresh_from_db()
    assert not row.serving


def test_without_a_broker_no_service_is_considered_silent(organization, monkeypatch):
    row = ToolService.objects.create(
        organization=organization, name="s", key="k", digest="d", serving=True, request_queue="q"
    )
    monkeypatch.setattr(settings, "REDIS_URL", "redis://127.0.0.1:1/0")
    service_listener.listener.cache_clear()
    service_listener.poll()
    service_listener.listener.cache_clear()
    row.refresh_from_db()
    assert row.serving


def served(organization, broker, name):
    """The key of the leases of an approved service, and its row."""
    broker.xadd(announcements_key(organization.slug), signed(document(organization, name)))
    service_listener.read_announcements([organization])
    row = ToolService.objects.get(organization=organization, name=name)
    approve_service(row=row, digest=row.announced_digest, by=factories.actor(organization))
    return Queue(organization.slug, f"q-{name}").served, row


@pytest.mark.parametrize("wrong", ["a text", "inf", 1e300, 10**17])
def test_a_service_that_breaks_its_lease_affects_no_other_lease(organization, broker, wrong):
    hostile = factories.organization("a-" + organization.slug[:20])
    place, row = served(hostile, broker, "bad")
    if wrong == "a text":
        broker.set(place, wrong)
    else:
        broker.execute_command("ZADD", place, wrong, row.announced_digest)
    place, row = served(organization, broker, "good")
    broker.zadd(place, {row.announced_digest: 10**14})
    service_listener.note_leases()
    row.refresh_from_db()
    assert row.serving


def test_an_announcement_longer_than_any_is_not_fetched_from_the_broker(organization, broker):
    place = announcements_key(organization.slug)
    broker.xadd(place, {"document": "x" * 2_000_000, "key": "k"})
    (heard,) = service_listener.listener().read_announcements([organization.slug])[
        organization.slug
    ]
    assert (heard.document, heard.key) == ("", "")
    service_listener.read_announcements([organization])
    assert broker.xlen(place) == 0
