"""The whole product as people start it, on a data directory and a port of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.local import orphans, process_specs
from config.local.address import Address
from tests.conditions import LIMIT_S, until
from tests.config.local.processes import alive, using
from tests.crib import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
PROCESSES = (
    "postgres",
    "valkey",
    "oxigraph",
    "egress",
    "sandboxd",
    "worker",
    "housekeeper",
    "beat",
    "sealer",
    "live",
    "web",
)


class Crib:
    """One `manage.py up`, with what it has said so far."""

    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self.address = Address("127.0.0.1", port)
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--no-browser", "--port", str(port)],
            cwd=CHECKOUT,
            env={**stores_of_its_own(), "TOOLCRIB_DATA": str(data)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, words: str) -> str:
        """The line with these words; fails with all that was said when there is none."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError("".join(self.said))

    def leader(self, name: str) -> int:
        """The process id, as written down for the next supervisor, in the order of starting."""
        noted = json.loads((self.data / "processes.json").read_text(encoding="utf-8"))
        return [int(pid) for pid in noted["leaders"]][PROCESSES.index(name)]

    def refused(self) -> str:
        """What it says of why it does not start."""
        output, _ = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 1, output
        return output

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def stores_of_its_own() -> dict[str, str]:
    """This environment without the servers and sockets of the test run."""
    ours = {"DATABASE_URL", "REDIS_URL", "SANDBOX_SOCKET", "EGRESS_SOCKET"}
    ours |= {"PROMETHEUS_MULTIPROC_DIR"}
    return {name: value for name, value in os.environ.items() if name not in ours}


@contextmanager
def crib(data: Path) -> Iterator[Crib]:
    one = Crib(data, free_port())
    try:
        one.read_until("Ctrl-C stops everything")
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        if one.process.stdout:
            one.process.stdout.close()
        orphans.end_survivors(data / "processes.json")
        process_specs.remove_cgroups(data)


@dataclass(frozen=True)
class FirstStart:
    """What was seen when the product was started on an empty directory, and stopped."""

    data: Path
    said: str
    unready: str | None
    status: int
    survivors: list[int]
    left: list[str]
    twice: str  # what a start in the same directory said meanwhile
    port_in_use: str  # and one elsewhere, at the same port


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> FirstStart:
    data = tmp_path_factory.mktemp("private clone") / "var"
    with crib(data) as one:
        unready, running = one.address.readiness_flaw(), [one.leader(name) for name in PROCESSES]
        others = Crib(data, free_port()), Crib(data.with_name("elsewhere"), one.address.port)
        twice, port_in_use = (other.refused() for other in others)
        status = one.stop()
        survivors = [*filter(alive, running), *using(data)]
        left = os.listdir(data)
    return FirstStart(
        data, "".join(one.said), unready, status, survivors, left, twice, port_in_use
    )  # fmt: skip


@pytest.fixture
def data(first_start: FirstStart) -> Path:
    return first_start.data


@pytest.mark.part("faults")
def test_everything_starts_stops_and_leaves_nothing(first_start: FirstStart) -> None:
    assert re.search(r"Password: +\S{12}", first_start.said)
    assert first_start.unready is None
    assert first_start.status == 0
    assert first_start.survivors == []
    assert {"run", "processes.json"}.isdisjoint(first_start.left)


@pytest.mark.part("faults")
def test_the_password_is_shown_once_and_every_killed_process_is_back(data: Path) -> None:
    with crib(data) as one:
        assert "Password" not in "".join(one.said)
        for name in PROCESSES:
            former = one.leader(name)
            os.kill(former, signal.SIGKILL)
            one.read_until(f"{name} was killed by SIGKILL; starting it again")
            until(lambda name=name, former=former: one.leader(name) != former)
            until(lambda: one.address.readiness_flaw() is None)
        assert one.stop() == 0
    assert using(data) == []


@pytest.mark.part("faults")
def test_after_the_kill_of_the_supervisor_all_end_and_the_next_start_works(data: Path) -> None:
    with crib(data) as one:
        running = [one.leader(name) for name in PROCESSES]
        one.process.kill()
        until(lambda: not any(alive(pid) for pid in running))
    with crib(data) as next_one:
        assert "Password" not in "".join(next_one.said)
        assert next_one.address.readiness_flaw() is None


@pytest.mark.part("faults")
def test_a_second_start_and_a_port_in_use_are_one_sentence_each(first_start: FirstStart) -> None:
    for said, words in (
        (first_start.twice, "already runs on"), (first_start.port_in_use, "is in use"),
    ):  # fmt: skip
        assert words in said and said.count("\n") == 1


def test_a_port_that_is_none_is_bad_usage(tmp_path: Path) -> None:
    one = Crib(tmp_path, 99999)
    assert one.process.wait(timeout=30) == 2
    assert one.read_until("is not a port")
    assert one.process.stdout
    one.process.stdout.close()
