"""Tool services through the whole road: the example, processes that die, and one that announces
itself. Each service runs in a process of its own, as its author would start it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings

from tests.conditions import until
from tests.crib import CHECKOUT
from tests.tools.shapes import check_error, check_execution
from tests.tools.toolservices.conftest import process
from tests.tools.toolservices.services import QUEUE

ITEMS = json.loads(Path(CHECKOUT, "examples/joke-service.json").read_text())
SERVICE = {"id": "echo", "request_queue": QUEUE, "response_queue": "r"}


def tool(name="slow", delivery="idempotent", service="echo", **fields):
    pure = {"constraints": {"allow_side_effects": False}} if delivery == "pure" else {}
    return {
        "name": name, "type": "tool-service", "description": "Asks a service.",
        "delivery": delivery, "implementation": {"service": service}, **pure, **fields,
    }  # fmt: skip


@pytest.fixture
def registered(admin):
    assert admin("POST", "/api/v1/tool-services", SERVICE).status_code == 201

    def add(**fields):
        made = admin("POST", "/api/v1/tools", tool(**fields))
        assert made.status_code == 201, made.json()

    return add


@pytest.fixture
def log(tmp_path):
    """What `services.Slow` notes, and what lets it go."""

    class Log:
        path = tmp_path / "log"

        def started_calls(self):
            return self.path.read_text().split() if self.path.exists() else []

        def go(self):
            self.path.with_suffix(".go").touch()

    return Log()


@pytest.fixture
def slow(organization, log):
    return lambda *words: process(
        "Slow", organization.slug, settings.REDIS_URL, *words, SERVICE_LOG=str(log.path)
    )


def alive(admin, name="echo", processes=1):
    place = f"/api/v1/tool-services/{name}/state"
    return until(lambda: admin("GET", place).json()["processes"] >= processes)


class Calling(threading.Thread):
    def __init__(self, http, name="slow"):
        super().__init__()
        self.http, self.name_, self.answer = http, name, None
        self.start()

    def run(self):
        self.answer = self.http.execute(self.name_, options={"wait_s": 60})

    def end(self):
        self.join(90)
        return self.answer.json()


def test_the_joke_service_greets_the_user(http, admin, agent, organization):
    items = [{"key": key, "value": value} for key, value in ITEMS.items()]
    body = {"source": "items", "items": items}
    imported = admin("POST", "/api/v1/tools/import", body).json()["items"]
    assert [item["result"] for item in imported] == ["created", "created"], imported
    command = ["run_tool_service", "examples.joke_service.JokeService", "--id", "joke-service"]
    running = subprocess.Popen(
        [sys.executable, "manage.py", *command, "--organization", organization.slug],
        cwd=CHECKOUT, env=os.environ, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert alive(admin, "joke-service")
        execution = http.execute("tell-joke", {"topic": "cats"}, options={"wait_s": 60}).json()
        check_execution(execution, "Success")
        assert execution["output"].startswith(f"Hey {agent.slug}! Here's a pun for you:\n\n")
        assert execution["observation"] == execution["output"]
        assert "cats" in execution["output"]
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


@pytest.mark.part("walks")
def test_without_a_process_a_call_fails_at_once(http, admin, registered):
    registered()
    failed = http.execute("slow").json()
    assert (failed["status"], failed["error_code"]) == ("Failed", "SERVICE_UNAVAILABLE")
    assert failed["error_details"] == {}
    state = admin("GET", "/api/v1/tool-services/echo/state").json()
    assert state == {"alive": False, "processes": 0, "lease_s": 0.0, "waiting": 0}


@pytest.mark.part("walks")
@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
def test_a_call_that_may_be_repeated_is_run_by_another_process(
    http, admin, registered, slow, log, delivery
):
    registered(delivery=delivery)
    with slow() as first:
        alive(admin)
        call = Calling(http)
        until(log.started_calls)
        with slow() as second:
            alive(admin, processes=2)
            first.kill()
            until(lambda: len(log.started_calls()) == 2)
            log.go()
            done = call.end()
    assert (done["status"], done["output"]) == ("Success", f"done by {second.pid}")
    assert log.started_calls() == [str(first.pid), str(second.pid)]


@pytest.mark.part("walks")
def test_an_external_effect_that_was_lost_is_never_repeated(http, admin, registered, slow, log):
    registered(delivery="external")
    with slow() as first, slow():
        alive(admin, processes=2)
        call = Calling(http)
        [pid] = until(log.started_calls)
        os.kill(int(pid), signal.SIGKILL)
        lost = call.end()
        log.go()
    assert (lost["status"], lost["error_code"]) == ("Failed", "OUTCOME_UNKNOWN")
    assert lost["error_details"] == {"effect_possible": True}
    assert log.started_calls() == [pid]
    assert first.pid


@pytest.mark.part("walks")
def test_two_processes_share_a_queue_and_a_graceful_stop_loses_nothing(
    http, admin, registered, slow, log
):
    registered(delivery="external")
    with slow("--concurrency", "1") as first, slow("--concurrency", "1") as second:
        alive(admin, processes=2)
        calls = [Calling(http) for _ in range(6)]
        until(lambda: len(set(log.started_calls())) == 2)
        first.send_signal(signal.SIGTERM)
        place = "/api/v1/tool-services/echo/state"
        until(lambda: admin("GET", place).json()["processes"] == 1)
        log.go()
        ended = [call.end() for call in calls]
        assert first.wait(60) == 0
    assert [one["status"] for one in ended] == ["Success"] * 6
    by = [one["output"].removeprefix("done by ") for one in ended]
    assert by.count(str(first.pid)) == 1  # what it had; the rest it left to the other
    assert by.count(str(second.pid)) == 5


@pytest.mark.part("walks")
def test_a_restarted_service_gets_the_waiting_calls(http, admin, registered, slow, log):
    registered(delivery="external")
    log.go()
    with slow() as first:
        alive(admin)
        assert Calling(http).end()["status"] == "Success"
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    with slow():
        alive(admin)
        assert Calling(http).end()["status"] == "Success"


@pytest.mark.part("walks")
def test_a_followers_events_are_the_chunks_of_the_stream(http, admin, registered, organization):
    registered()
    with process("Streamed", organization.slug, settings.REDIS_URL):
        alive(admin)
        done = Calling(http).end()
        assert done["output"] == 'one two {"three": 3}'
        with http.events(f"/api/v1/executions/{done['execution_id']}/events") as events:
            output = "".join(
                event["data"]["message"] for event in events if event["event"] == "InProgress"
            )
    assert output == done["output"]


@pytest.mark.part("walks")
def test_a_service_announces_itself_is_approved_serves_and_falls_silent(
    http, admin, organization, tmp_path
):
    author = process(
        "Announced", organization.slug, settings.REDIS_URL, "--announce",
        "--key", str(tmp_path / "key"),
    )  # fmt: skip
    place = "/api/v1/tool-services/announced"
    with author as running:
        waiting = until(lambda: (found := admin("GET", place)).status_code == 200 and found.json())
        assert (waiting["status"], waiting["digest"]) == ("pending", None)
        assert waiting["announced"]["tools"][0]["name"] == "greet"
        check_error(http.execute("greet"), 404, "tool_not_found")
        stale = {"digest": "sha256:" + "0" * 64}
        check_error(admin("POST", f"{place}/approve", stale), 409, "digest_differs")
        read = {"digest": waiting["announced_digest"]}
        assert admin("POST", f"{place}/approve", read).json()["status"] == "approved"
        until(lambda: admin("GET", place).json()["closed_because"] is None)
        assert http.execute("greet").json()["output"] == "hello there"
        running.kill()
        until(lambda: admin("GET", place).json()["closed_because"])
        check_error(http.execute("greet"), 403, "service_unavailable")
        assert admin("GET", "/api/v1/tools/greet").status_code == 200
