"""One organization holds all that it can; another goes on as if it were alone.

Each flood is held until the other organization has been served, so that no test has a clock.
"""

import re
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import pytest
from django.conf import settings

from tests import crib as running_crib
from tests import factories
from tests.conditions import until
from tests.journeys.client import Answer, Http
from tests.stubs.web import Held, Reply, Web
from tools.definitions.results import Status
from tools.models import Agent, Execution, Organization
from tools.models.queue import Shares

SLEEPS = "import time\ndef main(parameters):\n    time.sleep(200)\n"
TEXT = [{"name": "text", "type": "String", "description": "Anything.", "required": True}]


@pytest.fixture
def others_are_served(crib: Any, committed: None) -> Callable[[], None]:
    """A probe, a listing, a call and a login of another organization."""
    place = factories.organization(f"quiet-{uuid4().hex[:8]}")
    factories.tool(place)
    person = factories.superuser(place)
    http = Http(crib.url, factories.token(factories.agent(place).service_account))

    def check() -> None:
        assert Http(crib.url)("GET", "/healthz").status_code == 200
        assert http("GET", "/api/v1/tools").status_code == 200
        called = http.execute("echo", {"text": "x"}, options={"wait_s": 60})
        assert (called.status_code, called.json()["status"]) == (200, "Success")
        assert logged_in(Http(crib.url), person.username, "correct horse").status_code == 302

    return check


def logged_in(visitor: Http, name: str, password: str) -> Answer:
    page = visitor("GET", "/login/")
    hidden = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.content)
    assert hidden
    form = {"csrfmiddlewaretoken": hidden[1].decode(), "username": name, "password": password}
    head = {
        "Cookie": page.headers["Set-Cookie"].partition(";")[0],
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return visitor("POST", "/login/", urlencode(form).encode(), **head)


@contextmanager
def held_calls(
    organization: Organization,
    web: Web,
    http: Http,
    count: int,
    wait_s: int,
    timeout: str = "PT240S",
) -> Iterator[list[Answer]]:
    """So many calls of a tool whose upstream answers at the end."""
    host = {"host": "127.0.0.1", "ports": [web.port]}
    Organization.objects.filter(pk=organization.pk).update(
        allowed_hosts=[host], max_queue_depth=count + 10
    )
    factories.tool(
        organization, "held", type="http", parameters=TEXT,
        implementation={"method": "GET", "url": web.url("/{text}")},
        constraints={"max_execution_time": timeout},
    )  # fmt: skip
    held, answers = Held(Reply()), []
    web.replies["/x"] = held
    with ThreadPoolExecutor(count) as clients:
        begun = [
            clients.submit(http.execute, "held", {"text": "x"}, options={"wait_s": wait_s})
            for _ in range(count)
        ]
        until(
            lambda: (
                Execution.objects.filter(organization=organization).count()
                + sum(one.done() for one in begun)
                >= count
            )
        )
        web.received()
        try:
            yield answers
        finally:
            held.let_go()
            answers += [one.result() for one in begun]


def test_seventy_waits_of_one_agent(
    organization: Organization, web: Web, http: Http, others_are_served: Callable[[], None]
) -> None:
    with held_calls(organization, web, http, 70, 25) as answers:
        others_are_served()
    assert {one.status_code for one in answers} <= {200, 202, 429}


def test_a_hundred_calls_that_the_web_process_performs(
    organization: Organization, web: Web, http: Http, others_are_served: Callable[[], None]
) -> None:
    """It has places for a share of them; workers perform the others, after one another."""
    with held_calls(organization, web, http, 100, 60, "PT60S") as answers:
        running = organization.executions.filter(status=Status.RUNNING)
        workers = running.values_list("worker", flat=True)
        assert 0 < sum(map(running_crib.is_web, workers)) <= Shares.of(settings.WORKER_THREADS).most
        others_are_served()
    assert {one.status_code for one in answers} <= {200, 202, 429}


def test_waits_of_clients_that_disconnect_give_their_places_back(
    crib: Any, committed: None, organization: Organization, agent: Agent
) -> None:
    """The first wait of all stays open and would be the first to end: until it does, no place has
    become free in another way."""
    factories.tool(organization)
    factories.tool(
        organization, "sleep", implementation={"source": SLEEPS},
        constraints={"max_execution_time": "PT240S"},
    )  # fmt: skip
    agents = agent, factories.agent(organization)
    tokens = [factories.token(one.service_account) for one in agents]
    begun = [
        Http(crib.url, token).execute("sleep", {"text": "x"}, options={"wait_s": 0}).json()
        for token in tokens
    ]
    until(lambda: organization.executions.filter(status=Status.RUNNING).count() == len(begun))
    share = (settings.WAITING_PLACES + 3) // 4  # of an agent; two of them fill the organization's
    waits = [
        [
            opened(crib.url, token, f"/api/v1/executions/{one['execution_id']}?wait_s=60")
            for _ in range(share + 1)
        ]
        for token, one in zip(tokens, begun, strict=True)
    ]
    for of_agent in waits:
        until(partial(answered, of_agent))  # one for which there was no place

    http = Http(crib.url, tokens[0])
    wait = partial(http.execute, "echo", {"text": "x"}, options={"wait_s": 60})
    assert wait().status_code == 202
    first, *others = chain(*waits)
    for one in others:
        one.close()
    until(lambda: wait().status_code == 200)
    assert not answered([first])
    assert {one.status for one in organization.executions.filter(tool_name="sleep")} == {
        Status.RUNNING
    }
    first.close()
    for token, one in zip(tokens, begun, strict=True):
        Http(crib.url, token)("POST", f"/api/v1/executions/{one['execution_id']}/cancel")


def answered(connections: list[socket.socket]) -> list[socket.socket]:
    """Those on which an answer has come."""
    return select.select(connections, [], [], 0)[0]


def test_calls_that_take_every_worker(
    organization: Organization, web: Web, http: Http, others_are_served: Callable[[], None]
) -> None:
    with held_calls(organization, web, http, 16, 0):
        others_are_served()


def test_one_agent_opens_every_stream(
    organization: Organization,
    web: Web,
    http: Http,
    crib: Any,
    agent: Agent,
    others_are_served: Callable[[], None],
) -> None:
    with held_calls(organization, web, http, 1, 0) as answers:
        execution = Execution.objects.get(organization=organization).pk
        token = factories.token(agent.service_account)
        streams = [
            opened(crib.url, token, f"/api/v1/executions/{execution}/events") for _ in range(70)
        ]
        statuses = [int(one.makefile("rb").readline().split()[1]) for one in streams]
        assert set(statuses) == {200, 503}
        others_are_served()
        for one in streams:
            one.close()
    assert answers[0].status_code == 202


def opened(url: str, token: str, path: str) -> socket.socket:
    """A connection with a request that is not answered yet."""
    place = urlsplit(url)
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    return connection


def test_a_hundred_wrong_passwords(crib: Any, others_are_served: Callable[[], None]) -> None:
    guesser = Http(crib.url, source="127.0.0.9")
    with ThreadPoolExecutor(100) as guesses:
        begun = [guesses.submit(logged_in, guesser, "admin", "wrong") for _ in range(100)]
        others_are_served()
    assert {one.result().status_code for one in begun} <= {401, 429, 503}
