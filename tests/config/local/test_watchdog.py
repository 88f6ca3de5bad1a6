"""The keeper of a query server: who works without end, or grows without end, is ended."""

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from config.local import oxigraph, watchdog
from config.local.oxigraph import BINARY
from tests.conditions import until
from tests.crib import free_port

SPINS = "while True: pass"
GROWS = "import time\nkept = bytearray(200_000_000)\ntime.sleep(600)"
WAITS = "import time; time.sleep(600)"


def start_watched(
    program: str, busy_s: float = 1_000, memory: int = 10**12
) -> "subprocess.Popen[str]":
    words = [sys.executable, "-I", "-S", watchdog.__file__, "--busy-s", str(busy_s)]
    words += ["--memory-bytes", str(memory), "--", sys.executable, "-c", program]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("program", "limits", "message"),
    [
        pytest.param(
            SPINS, {"busy_s": 2}, "a query has worked for more than 2 s",
            marks=pytest.mark.part("calls"),
        ),
        (GROWS, {"memory": 100_000_000}, "bytes of memory"),
    ],
)  # fmt: skip
def test_a_server_that_works_without_end_or_grows_too_large_is_ended(
    program: str, limits: dict[str, int], message: str
) -> None:
    with start_watched(program, **limits) as process:
        assert process.wait(60) == 1
        assert process.stderr and message in process.stderr.read()


def test_the_watchdog_stops_with_its_server_and_the_server_with_it() -> None:
    with start_watched(WAITS) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        server = until(children.read_text).strip()
        process.terminate()
        assert process.wait(30) == 0
        assert not Path(f"/proc/{server}").exists()


def test_a_server_that_ends_by_itself_hands_on_its_code() -> None:
    with start_watched("import sys; sys.exit(7)") as process:
        assert process.wait(30) == 7


def test_updates_of_oxigraph_survive_its_kill(tmp_path: Path) -> None:
    port = free_port()
    serve = [str(BINARY), "serve", "--location", str(tmp_path), "--bind", f"127.0.0.1:{port}"]
    insert = {"update": "INSERT DATA { <urn:s> <urn:p> <urn:o> }"}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL) as server:
        until(lambda: oxigraph.is_listening(("127.0.0.1", port)))
        assert httpx2.post(f"{url}/update", data=insert).status_code == 204
        server.kill()
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL) as server:
        until(lambda: oxigraph.is_listening(("127.0.0.1", port)))
        answer = httpx2.post(f"{url}/query", data={"query": "ASK { ?s ?p ?o }"})
        assert "true" in answer.text
        server.terminate()


def test_each_data_directory_has_an_address_of_its_own_that_is_not_the_usual_one() -> None:
    hosts = {oxigraph.host(Path(f"/srv/{number}")) for number in range(50)}
    assert len(hosts) == 50
    assert all(host.startswith("127.") and not host.startswith("127.0.") for host in hosts)
