"""A crib of its own for the faults: what runs in it, where its stores are, and its weather."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis

from config.local import orphans
from config.local.embedded import database_url, redis_url
from tests import stores
from tests.crib import CHECKOUT, free_port
from tests.faults import clocks, disks
from tests.faults.clocks import Clock

DISK_BYTES = 1 << 30  # of this machine's memory, when it is full
STARTS_WITHIN_S = 180  # on a machine that has much else to do
# What the surroundings say of stores that are not this crib's is never followed.
ELSEWHERE = frozenset(
    f"{name}{form}"
    for name in ("DATABASE_URL", "REDIS_URL", "SANDBOX_SOCKET", "EGRESS_SOCKET", "EMAIL_URL")
    for form in ("", "_FILE")
)
# Words of a command line that only this process of the crib has.
ROLES = {
    "web": "config.asgi",
    "worker": "--queues executions",
    "housekeeper": "--queues housekeeping",
    "beat": " beat ",
    "sealer": "seal_audit",
    "sandboxd": "sandbox.daemon",
    "egress": "sandbox.egress",
    "valkey": "valkey-server",
    "postgres": "bin/postgres",
}


@dataclass
class House:
    data: Path
    url: str
    supervisor: subprocess.Popen[bytes]
    disk: bool  # whether the data lie on a small disk of their own
    clock: Clock | None  # None where it cannot be turned
    environment: dict[str, str] = field(repr=False)

    def leaders(self, role: str) -> list[orphans.Process]:
        """The process of this role; none while it is being started again."""
        heads = [members[0] for members in self._sessions().values()]
        return [one for one in heads if one.pid == one.session and ROLES[role] in _command(one.pid)]

    def members(self, role: str) -> list[orphans.Process]:
        """The process of this role and those it has made."""
        leaders = self.leaders(role)
        return self._sessions().get(leaders[0].pid, []) if leaders else []

    def descendants(self, role: str) -> list[orphans.Process]:
        """What the process of this role has made, and what that has, in whatever session."""
        leaders = {process.pid for process in self.leaders(role)}
        found = orphans.list_processes()
        below = set(leaders)
        while more := {p.pid for p in found if p.parent in below} - below:
            below |= more
        return [p for p in found if p.pid in below - leaders and not p.zombie]

    def runs(self) -> list[orphans.Process]:
        """Processes inside the sandbox, or about to be."""
        return self.descendants("sandboxd")

    def _sessions(self) -> dict[int, list[orphans.Process]]:
        sessions: dict[int, list[orphans.Process]] = {}
        for process in orphans.survivors(self.data / "processes.json"):
            sessions.setdefault(process.session, []).append(process)
        for members in sessions.values():
            members.sort(key=lambda one: one.pid != one.session)
        return sessions

    def database(self) -> psycopg.Connection:
        return psycopg.connect(database_url(self.data), connect_timeout=5, autocommit=True)

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(redis_url(self.data), socket_timeout=5)

    def manage(self, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


@contextmanager
def running_house(
    place: Path, disk_bytes: int = DISK_BYTES, *, migrated: bool = False
) -> Iterator[House]:
    """`manage.py up` on `place/data`, which is empty or `migrated`, and as much weather as this
    machine allows."""
    data = place / "data"
    data.mkdir(parents=True)
    with disks.mounted(data, disk_bytes) as disk:
        if migrated:
            stores.copy_template(data)
        clock = clocks.make_clock(place)
        port = free_port()
        environment = {name: text for name, text in os.environ.items() if name not in ELSEWHERE}
        environment |= {"TOOLCRIB_DATA": str(data), "EGRESS_ALLOW_PRIVATE": "127.0.0.1/32"}
        with (place / "up.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(port), "--no-browser"],
                cwd=CHECKOUT,
                env=environment | (clock.environment if clock else {}),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        url = f"http://127.0.0.1:{port}"
        house = House(data, url, process, disk, clock, environment)
        try:
            wait_ready(house)
            yield house
        finally:
            _stop(process)


def wait_ready(house: House) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while not is_ready(house):
        if house.supervisor.poll() is not None:
            raise RuntimeError(f"the crib ended with status {house.supervisor.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the crib was not ready within {STARTS_WITHIN_S} s")
        time.sleep(0.2)


def is_ready(house: House) -> bool:
    try:
        with urllib.request.urlopen(f"{house.url}/readyz", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
