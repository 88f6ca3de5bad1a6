import json
import signal
import socket
import urllib.error
import urllib.request

import pytest

from tests.conditions import until
from tests.faults import ledger
from tests.faults.service import serving

BODY = json.dumps({"key": "k", "run": "r", "what": ledger.EFFECT}).encode()


@pytest.fixture
def service(book):
    with serving(book.url) as one:
        yield one


def post(url, body=BODY, **headers):
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status


def test_what_a_tool_does_through_the_service_is_in_the_ledger(service, book):
    assert post(service.url) == 204
    assert [effect.key for effect in book.effects()] == ["k"]


def test_the_work_of_a_tool_without_code_is_in_the_ledger_twice(service, book):
    wanted = {"key": "k", "before_s": 0, "after_s": 0}
    assert post(f"{service.url}work", json.dumps(wanted).encode()) == 200
    assert [effect.what for effect in book.effects()] == [ledger.BEGIN, ledger.EFFECT]


def test_a_service_that_was_killed_is_back_under_its_address(service):
    service.kill()
    with pytest.raises(urllib.error.URLError):
        post(service.url)
    service.start()
    assert post(service.url) == 204


def test_an_abandoned_request_has_no_effect(service, book):
    service.signal(signal.SIGSTOP)
    with socket.create_connection(("127.0.0.1", service.port)) as caller:
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
        caller.sendall(head.encode() + BODY)
    service.signal(signal.SIGCONT)
    assert post(service.url) == 204
    until(lambda: len(book.effects()) == 1)


def test_what_was_asked_for_too_long_ago_the_ledger_does_not_take(book):
    with pytest.raises(urllib.error.HTTPError, match="410"):
        post(book.url, **{ledger.ASKED_AT: "0.0"})
    assert book.effects() == []
