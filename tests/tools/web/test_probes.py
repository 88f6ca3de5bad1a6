"""`/readyz` and `/metrics` report the capabilities of the sandbox."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from sandbox import wire
from sandbox.daemon.trials.capability import Capability, LevelCapability
from sandbox.spec import IsolationLevel
from tools.runners.isolation import watch
from tools.web import probes

FULL = Capability(
    IsolationLevel.RESTRICTED,
    "v2",
    levels={level: LevelCapability(True) for level in IsolationLevel},
)
NOTHING = replace(FULL, ceiling=None, reasons=["bwrap is missing."], fix=["Install it."])
BARE = replace(NOTHING, ceiling=IsolationLevel.NONE, cgroup_mode="none")


@contextmanager
def sandboxd_that_says(path: str, capability: Capability) -> Iterator[None]:
    """A socket that answers one ping for each connection, as sandboxd would."""
    said = wire.encode(capability.to_wire() | {"templates": 2, "slots": 8, "servers": 3, "pid": 1})

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                wire.FrameReader(peer, 1000).read()
                wire.send(peer, said)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def ask(db: None, settings: Any, tmp_path: Path, client: Client) -> Iterator[Any]:
    """Requests a probe while sandboxd reports this capability."""
    settings.SANDBOX_SOCKET = str(tmp_path / "s")
    watch.cache_clear()

    def get_readiness(address: str, capability: Capability) -> Any:
        probes._readiness.forget()
        with sandboxd_that_says(settings.SANDBOX_SOCKET, capability):
            return client.get(address)

    yield get_readiness
    watch.cache_clear()
    probes._readiness.forget()


def test_a_full_wall_is_ready_and_described(ask: Any) -> None:
    body = ask("/readyz", FULL).json()
    assert body["checks"]["sandbox"] == "ok"
    expected = {"level_ceiling": "Restricted", "cgroup_mode": "v2", "reasons": [], "fix": []}
    assert body["sandbox"] == expected


@pytest.mark.parametrize("capability", [NOTHING, BARE])
def test_less_than_standard_is_not_ready_and_says_why(ask: Any, capability: Capability) -> None:
    response = ask("/readyz", capability)
    assert response.status_code == 503
    assert "bwrap is missing." in response.json()["checks"]["sandbox"]
    assert response.json()["sandbox"]["fix"] == ["Install it."]


def test_standard_alone_is_ready(ask: Any) -> None:
    body = ask("/readyz", replace(FULL, ceiling=IsolationLevel.STANDARD)).json()
    assert (body["checks"]["sandbox"], body["sandbox"]["level_ceiling"]) == ("ok", "Standard")


def test_a_silent_sandboxd_is_not_ready(
    db: None, settings: Any, tmp_path: Path, client: Client
) -> None:
    settings.SANDBOX_SOCKET = str(tmp_path / "none")
    probes._readiness.forget()
    body = client.get("/readyz").json()
    assert body["checks"]["sandbox"] == "sandboxd does not answer" and "sandbox" not in body


def test_a_process_that_died_as_it_made_its_file_keeps_no_metrics_away(ask: Any) -> None:
    empty = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]) / f"counter_{2**22}.db"
    empty.touch()
    try:
        response = ask("/metrics", FULL)
    finally:
        empty.unlink()
    assert response.status_code == 200
    assert b"toolcrib_sandbox_level_ceiling 3.0" in response.content


@pytest.mark.parametrize(
    ("capability", "level", "mode"),
    [(FULL, "3.0", "v2"), (BARE, "0.0", "none"), (NOTHING, "-1.0", "v2")],
)
def test_metrics_say_how_high_the_wall_is(
    ask: Any, capability: Capability, level: str, mode: str
) -> None:
    lines = ask("/metrics", capability).content.decode().splitlines()
    assert f"toolcrib_sandbox_level_ceiling {level}" in lines
    modes = [line for line in lines if line.startswith("toolcrib_sandbox_mode{")]
    assert [line for line in modes if line.endswith(" 1.0")] == [
        f'toolcrib_sandbox_mode{{mode="{mode}"}} 1.0'
    ]
    assert {
        *("toolcrib_sandbox_slots 8.0", "toolcrib_sandbox_templates 2.0"),
        "toolcrib_sandbox_servers 3.0",
    } <= set(lines)


def test_strangers_read_states_alone(ask: Any, client: Client) -> None:
    client.defaults["REMOTE_ADDR"] = "203.0.113.5"
    response = ask("/readyz", NOTHING)
    assert (response.status_code, set(response.json())) == (503, {"status", "checks"})
    assert response.json()["checks"]["sandbox"] == "unavailable"


def test_the_parts_are_asked_once_a_second(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("/readyz", FULL)
    asked: list[str] = []
    monkeypatch.setitem(probes.CHECKS, "database", lambda: asked.append("") or "ok")
    monkeypatch.setattr(probes, "CHECK_INTERVAL_S", 3600)
    probes._readiness.forget()
    for _ in range(3):
        Client().get("/readyz")
    assert len(asked) == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_orchestrators_ask_by_address_and_without_tls(path: str, db: None, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["tools.example.org"]
    assert Client().get(path, headers={"Host": "10.1.2.3:8000"}).status_code in {200, 503}


def test_a_proxy_that_is_not_trusted_opens_no_metrics(db: None) -> None:
    answer = Client().get("/metrics", **{"toolcrib.forwarded": True})
    assert answer.status_code == 401
