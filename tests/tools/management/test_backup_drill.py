"""Restore drills: a backup that was taken while calls ran is restored, also where the log has
published checkpoints since."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import crib as cribs
from tests.conditions import LIMIT_S
from tests.config.test_up import stores_of_its_own
from tests.journeys.client import Answer, Http

pytestmark = pytest.mark.part("walks")
GRAPH = cribs.CHECKOUT / "examples" / "elements.ttl"


def manage(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=cribs.CHECKOUT,
        env=stores_of_its_own() | {"TOOLCRIB_DATA": str(data)},
        capture_output=True,
        text=True,
        check=False,
    )


def done(data: Path, *words: str) -> str:
    ran = manage(data, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write(http: Http, name: str, content: str = "kept") -> Answer:
    return http.execute("write_file", {"path": name, "content": content}, group=["write"])


def read(http: Http, name: str) -> Any:
    answer = http.execute("read_file", {"path": name}, group=["read-only"])
    return (answer.json().get("output") or {}).get("content")


@dataclass
class Caller:
    """Writes a file repeatedly, each time with more text, and keeps the answers."""

    http: Http
    answers: list[Answer] = field(default_factory=list)
    some: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def calling(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            assert self.some.wait(LIMIT_S)
            yield
        finally:
            self.stopping.set()
            thread.join()

    def _run(self) -> None:
        while not self.stopping.is_set():
            self.answers.append(write(self.http, "busy.txt", "x" * (len(self.answers) + 1)))
            self.some.set()


@dataclass(frozen=True)
class Drill:
    """The data left of an installation whose backup is older than its published checkpoints."""

    data: Path
    backup: Path
    token: str
    said: str


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    place = tmp_path_factory.mktemp("drill")
    data, backup = place / "var", place / "backup"
    with cribs.running(data) as crib:
        made = done(data, "create_agent", "drill", "--group", "read-only", "write", "--json")
        token = json.loads(made)["token"]
        http = Http(crib.url, token)
        done(data, "import_knowledge", str(GRAPH))
        assert write(http, "notes/drill.txt").json()["status"] == "Success"
        caller = Caller(http)
        with caller.calling():
            before = len(caller.answers)
            said = done(data, "backup", str(backup))
            during = len(caller.answers) - before
        assert during > 0 and {one.status_code for one in caller.answers} == {200}
        done(data, "audit_rotate_key")
        for number in range(5):
            assert write(http, f"later/{number}.txt").status_code == 200
        done(data, "audit_verify")
    print(f"\n{said}\n{during} calls succeeded meanwhile.")
    return Drill(data, backup, token, said)


def test_only_the_owner_reads_any_of_it(drill: Drill) -> None:
    modes = {path.is_dir(): set[int]() for path in (drill.backup, drill.backup / "manifest.json")}
    for path in (drill.backup, *drill.backup.rglob("*")):
        modes[path.is_dir()].add(path.stat().st_mode & 0o777)
    assert modes == {True: {0o700}, False: {0o600}}
    ran = subprocess.run(["sha256sum", "-c", "manifest.json.sha256"], cwd=drill.backup, check=False)
    assert ran.returncode == 0


def test_restored_to_its_moment_all_verifies_and_calls_run(drill: Drill, tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    said = done(restored, "restore", str(drill.backup))
    print(said)
    assert "missing" not in said and "audit_accept" not in said
    with cribs.running(restored) as crib:
        http = Http(crib.url, drill.token)
        assert read(http, "notes/drill.txt") == "kept"
        assert read(http, "later/0.txt") is None
        assert set(read(http, "busy.txt")) == {"x"}
        assert write(http, "new.txt").json()["status"] == "Success"
        assert "iron" in done(restored, "export_knowledge")
        verified = done(restored, "audit_verify")
        assert "clean" in verified and "accepted" not in verified
        done(restored, "verify_tools")
    again = manage(restored, "restore", str(drill.backup))
    assert again.returncode == 1 and "holds an installation already" in again.stderr


def test_what_an_older_backup_lacks_is_said_and_accepted_by_one_command(
    drill: Drill, tmp_path: Path
) -> None:
    restored = tmp_path / "older"
    restored.mkdir()
    shutil.copytree(drill.data / "anchors", restored / "anchors")
    (restored / "keys").mkdir()
    for key in (drill.data / "keys").glob("audit-checkpoint*"):
        shutil.copy2(key, restored / "keys")
    said = done(restored, "restore", str(drill.backup))
    print(said)
    (lacks,) = re.findall(r"default: (\d+) of (\d+) published records are missing", said)
    held = {log["name"]: log["size"] for log in manifest(drill.backup)["logs"]}["default"]
    assert int(lacks[0]) == int(lacks[1]) - held > 0
    with cribs.running(restored) as crib:
        http = Http(crib.url, drill.token)
        refused = write(http, "new.txt")
        assert (refused.status_code, refused.json()["code"]) == (503, "audit_halted")
        assert manage(restored, "audit_verify").returncode == 1
        accepted = done(restored, "audit_accept", "--all", "--reason", "the drill")
        assert f"{lacks[0]} of {lacks[1]} published records are missing" in accepted
        assert write(http, "new.txt").json()["status"] == "Success"
        assert "(accepted)" in done(restored, "audit_verify")
        done(restored, "verify_tools")


def test_a_stopped_installation_is_backed_up_too(drill: Drill, tmp_path: Path) -> None:
    done(drill.data, "backup", str(tmp_path / "cold"))
    hot, cold = manifest(drill.backup), manifest(tmp_path / "cold")
    assert {log["name"] for log in hot["logs"]} == {log["name"] for log in cold["logs"]}
    assert cold["logs"][0]["size"] >= hot["logs"][0]["size"]
    assert not (drill.data / "run").exists() and os.listdir(drill.data / "postgres")


def manifest(backup: Path) -> Any:
    return json.loads((backup / "manifest.json").read_text("utf-8"))
