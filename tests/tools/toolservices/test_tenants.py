"""Twenty organizations share a broker, each service with its own broker user: no user can read,
delete or answer requests of another organization."""

import hashlib
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

from tests.tools.toolservices.services import QUEUE, Echo
from toolcrib_service import scripts, serve
from toolcrib_service.queue_protocol import Queue, announcements
from toolcrib_service.scripts import COMMANDS
from tools.toolservices.announcement_stream import Ear
from tools.toolservices.redis_client import ToolServiceRequest

TENANTS = 20
TAKE, GIVE_BACK = (
    hashlib.sha1(one.encode(), usedforsecurity=False).hexdigest()
    for one in (scripts.TAKE, scripts.GIVE_BACK)
)


class Named(Echo):
    def __init__(self, name):
        self.name = name

    def invoke(self, user, config, arguments):
        return f"{self.name} for {user}"


@pytest.fixture
def tenants(url, broker):
    """The broker URL of each organization."""
    slugs = [f"t{at}-{uuid4().hex[:8]}" for at in range(TENANTS)]
    secret = secrets.token_hex(8)
    for slug in slugs:
        broker.execute_command(
            "ACL", "SETUSER", slug, "on", f">{secret}", "resetkeys", "resetchannels",
            f"~toolcrib:{slug}:svc:*", "-@all", *(f"+{word}" for word in COMMANDS),
        )  # fmt: skip
    ear = Ear(url)
    ear.teach()
    ear.close()
    place = urlsplit(url)
    yield {
        slug: f"{place.scheme}://{slug}:{secret}@{place.netloc}{place.path}?{place.query}"
        for slug in slugs
    }
    broker.acl_deluser(*slugs)


@pytest.mark.part("calls")
def test_twenty_organizations_with_one_queue_name_get_their_own_answers(tenants, client):
    def ask(slug):
        asked = ToolServiceRequest(Queue(slug, QUEUE), f"u-{slug}", {}, {}, 60, 1000)
        return client.call(asked, stop=threading.Event(), until=None, tell=lambda _: None)

    with ExitStack() as running:
        for slug, own in tenants.items():
            running.enter_context(serve(Named(slug), own, organization=slug, concurrency=1))
        with ThreadPoolExecutor(8) as crowd:
            wanted = [*tenants] * 5
            assert list(crowd.map(ask, wanted)) == [f"{slug} for u-{slug}" for slug in wanted]


def test_what_is_one_organizations_no_other_ones_user_can_touch(tenants, broker):
    (mine, own), (other, _) = list(tenants.items())[:2]
    queue, call = Queue(other, QUEUE), uuid4().hex
    broker.xadd(queue.replies(call), {"secret": "1"})
    attempts = [
        ("XADD", queue.replies(call), "*", "id", call),
        ("XADD", announcements(other), "*", "document", "x"),
        ("XDEL", queue.replies(call), "0-1"),
        ("XREADGROUP", "GROUP", "service", "me", "STREAMS", queue.requests, ">"),
        ("SET", queue.claim(call), "me"),
        ("MGET", queue.cancel(call)),
        ("ZADD", queue.alive, 10**14, "me"),
        ("EVAL", "while true do end", 0),
        ("EVAL_RO", "while true do end", 0),
        ("SCRIPT", "LOAD", "while true do end"),
        ("SCRIPT", "FLUSH"),
        ("EVALSHA", GIVE_BACK, 1, queue.requests, "service", "0-1", "a", "b"),
        ("EVALSHA", TAKE, 2, Queue(mine, QUEUE).requests, queue.claim(call), *"abcde"),
        ("XRANGE", queue.replies(call), "-", "+"),
        ("FUNCTION", "LOAD", "#!lua name=x\nwhile true do end"),
        ("DEL", queue.replies(call)),
        ("KEYS", "*"),
        ("SCAN", 0),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
    ]  # fmt: skip
    with redis.Redis.from_url(own, protocol=2, decode_responses=True) as intruder:
        for words in attempts:
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|acl"):
                intruder.execute_command(*words)
    assert broker.xlen(queue.replies(call)) == 1
