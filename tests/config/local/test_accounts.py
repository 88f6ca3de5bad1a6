"""Which process runs as whom, and what each of them may read."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from audit import shared_files
from audit.log import key_files
from audit.records import payloads
from config import env
from config.local import datadir, deployment, process_specs, unix_accounts
from config.local.address import Address, CannotListen
from config.local.embedded import socket_directory
from config.local.unix_accounts import PRODUCT, UnixAccount
from sandbox.daemon.account_helper import UIDS
from tests.conditions import until
from tests.config.test_up import CHECKOUT, PROCESSES, Crib, crib, stores_of_its_own

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root hands out accounts")
OTHERS = {
    "sandboxd": unix_accounts.SANDBOX_UID,
    "egress": unix_accounts.EGRESS_UID,
    "oxigraph": unix_accounts.KNOWLEDGE_UID,
    "valkey": unix_accounts.BROKER_UID,
}
EVERYBODY = PRODUCT | {name: UnixAccount(uid, uid) for name, uid in OTHERS.items()}
READERS = {
    "secret_key": {"web", "live", "worker", "sealer"},
    "keys/audit-checkpoint.pem": {"sealer"},
    "keys/audit-checkpoint.public": {"web", "worker", "sealer"},
    "keys/audit-records.key": {"web", "worker", "sealer"},
    "keys/audit-manifest.pem": {"worker"},
    "keys/signing.pem": {"web", "worker"},
    "keys/payloads/before.key": {"web", "worker"},
    "beat/schedule": {"beat"},
    "audit-archive/before/1.gz": {"web", "worker"},
}
FORMER = {
    "keys/payload-before.key": "keys/payloads/before.key",
    "beat-schedule": "beat/schedule",
    "audit-archive/before/1.gz": "audit-archive/before/1.gz",
    "anchors/before/00000001.jsonl": "anchors/before/00000001.jsonl",
}


@pytest.fixture
def data() -> Iterator[Path]:
    """Where every account may pass, unlike a directory of pytest's."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        yield Path(directory) / "var"


@pytest.fixture
def former(data: Path) -> Path:
    """As it was when all was root's."""
    for name in FORMER:
        path = data / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(b"before")
        path.chmod(0o600)
    return data


def reads(who: UnixAccount, *paths: Path) -> set[str]:
    """Which of them an account reads, as the kernel sees it."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'for one; do head -c1 "$one" >&2 && echo "$one"; done', "-", *paths],
        user=who.uid, group=who.gid, extra_groups=sorted(who.groups),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", check=False, text=True,
    )  # fmt: skip
    return set(done.stdout.splitlines())


def readers(data: Path, names: Iterable[str]) -> dict[str, set[str]]:
    found = {one: reads(who, *(data / name for name in names)) for one, who in EVERYBODY.items()}
    return {
        name: {one for one, read in found.items() if str(data / name) in read} for name in names
    }


@as_root
def test_each_file_is_read_by_those_alone_who_need_it(former: Path) -> None:
    for name in ("secret_key", *(name for name in READERS if name.startswith("keys/audit"))):
        (former / name).write_bytes(b"before")
    (former / "keys/signing.pem").write_bytes(b"before")
    datadir.take_over(former, former / "anchors", former / "metrics")
    assert readers(former, READERS) == READERS
    assert all((former / now).read_bytes() == b"before" for now in FORMER.values())
    assert not list(former.glob("beat-schedule*")) and not list((former / "keys").glob("payload-*"))


@as_root
def test_what_root_makes_later_is_for_the_same_accounts(former: Path) -> None:
    datadir.take_over(former, former / "anchors", former / "metrics")
    places = {"anchors/new/1.jsonl", "keys/payloads/new.key", "audit-archive/new/1.gz"}
    for name in places:
        shared_files.make_directory((former / name).parent)
        with os.fdopen(shared_files.open_to_write(former / name, os.O_WRONLY), "wb") as out:
            out.write(b"later")
    assert readers(former, places) == {
        "anchors/new/1.jsonl": {"web", "worker", "sealer"},
        "keys/payloads/new.key": {"web", "worker"},
        "audit-archive/new/1.gz": {"web", "worker"},
    }
    assert (former / "anchors/new").stat().st_uid == unix_accounts.SEALER_UID


@as_root
def test_taking_over_a_directory_follows_no_links(former: Path, tmp_path: Path) -> None:
    mine = tmp_path / "roots"
    mine.write_bytes(b"root's")
    before = mine.stat()
    newest = former / "keys" / "newest"
    newest.mkdir(parents=True)
    (newest / "soft").symlink_to(mine)
    os.link(mine, newest / "hard") if mine.stat().st_dev == newest.stat().st_dev else None
    datadir.take_over(former, former / "anchors", former / "metrics")
    assert (mine.stat().st_uid, mine.stat().st_mode) == (before.st_uid, before.st_mode)
    with pytest.raises(OSError, match="symbolic"):
        shared_files.open_to_write(newest / "soft", os.O_WRONLY | os.O_APPEND)


@as_root
def test_files_that_settings_name_are_copied_for_those_alone_who_need_the_value(
    former: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be root's, and two of one name may lie in two directories."""
    monkeypatch.setattr(env, "_files", {})
    for directory, name, value in (
        ("a", "METRICS_TOKEN", "swordfish"),
        ("b", "LOG_LEVEL", "DEBUG"),
    ):
        file = former / directory / "value"
        file.parent.mkdir()
        file.write_text(f"{value}\n", "utf-8")
        file.chmod(0o600)
        monkeypatch.setenv(f"{name}_FILE", str(file))
        assert env.env_text(name) == value
    datadir.take_over(former, former / "anchors", former / "metrics")
    web, beat = process_specs.web(former, Address("127.0.0.1", 8000)), process_specs.beat(former)
    secret, level = (Path(web.environment[f"{one}_FILE"]) for one in ("METRICS_TOKEN", "LOG_LEVEL"))
    assert secret.read_text("utf-8") == "swordfish\n" and level.read_text("utf-8") == "DEBUG\n"
    assert beat.environment["LOG_LEVEL_FILE"] == str(level)
    assert "METRICS_TOKEN_FILE" not in beat.environment
    copies = [str(copy.relative_to(former)) for copy in (secret, level)]
    assert readers(former, copies) == {
        copies[0]: {"web", "live", "worker", "sealer"},
        copies[1]: {*PRODUCT},
    }


@as_root
def test_a_port_that_root_alone_may_listen_at_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: "1024\n")  # of the kernel's setting
    deployment.check_port(Address("127.0.0.1", 1024))
    with pytest.raises(CannotListen, match=r"Port 1023 is root's alone.+from 1024 on"):
        deployment.check_port(Address("127.0.0.1", 1023))


def test_a_port_that_a_user_may_not_listen_at_is_refused_by_the_kernel_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Started by a user, the web process may listen where `up` may."""
    monkeypatch.setattr(Path, "read_text", lambda *_: "1024\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    deployment.check_port(Address("127.0.0.1", 1023))


def test_what_a_user_makes_is_that_users_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    shared_files.make_directory(tmp_path / "a" / "b")
    os.close(shared_files.open_to_write(tmp_path / "a" / "b" / "c", os.O_WRONLY))
    modes = [stat.S_IMODE((tmp_path / one).stat().st_mode) for one in ("a", "a/b", "a/b/c")]
    assert modes == [0o700, 0o700, 0o600]


def test_each_process_has_an_account_and_no_two_share_one() -> None:
    uids = [who.uid for who in EVERYBODY.values()]
    assert len({*uids}) == len(uids) and 0 not in uids
    assert set(PRODUCT) == {"web", "live", "worker", "beat", "sealer"}


def test_what_is_missing_is_said_to_a_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for uid, missing in ((0, False), (unix_accounts.WEB_UID, False), (1000, True)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        assert (unix_accounts.missing_separation() is not None) == missing


def manage(one: Crib, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=CHECKOUT, env={**stores_of_its_own(), "TOOLCRIB_DATA": str(one.data)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uids_of(process: int) -> set[int]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {int(word) for line in lines if line.startswith("Uid:") for word in line.split()[1:]}


def uids(process: int) -> set[int]:
    """Of a process and all that it started."""
    own = uids_of(process)
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return own.union(*(uids(child) for child in children))


@as_root
@pytest.mark.part("faults")
def test_each_process_runs_as_its_account_and_reads_its_keys_alone(former: Path) -> None:
    """On a directory made before; and what root's commands write stays good for all of them."""
    with crib(former) as one:
        assert one.address.readiness_flaw() is None
        expected = {name: who.uid for name, who in EVERYBODY.items()}
        for name in PROCESSES:
            found = uids(one.leader(name))
            if name == "sandboxd":  # beside it the runs, and the process that starts them
                assert uids_of(one.leader(name)) == {unix_accounts.SANDBOX_UID}
                assert unix_accounts.SANDBOX_UID in found and 0 in found
                assert found - {0, unix_accounts.SANDBOX_UID} <= {*UIDS}
                continue
            assert 0 not in found, name
            assert found == {expected.get(name, *found)}, name
        until((former / "beat/schedule").exists)
        assert readers(former, READERS) == READERS
        sockets = socket_directory(former)
        for who in (unix_accounts.BEAT_UID, unix_accounts.SANDBOX_UID, unix_accounts.EGRESS_UID):
            assert not connects(who, sockets / "database" / ".s.PGSQL.5432")
        grants = ("--permission", "tool.filesystem.read", "tool.filesystem.write")
        manage(one, "create_agent", "helper", "--tier", "Enterprise", "--group", "*", *grants)
        written = json.dumps({"path": "a.txt", "content": "from the worker"})
        manage(
            one,
            "invoke_tool",
            "write_file",
            "--agent",
            "helper",
            "--group",
            "*",
            "--parameters",
            written,
        )
        anchors = former / "anchors" / "default"
        manage(one, "audit_rotate_key")
        until(lambda: not signing_in(former, key_files.PREVIOUS))  # the sealer has signed with it
        assert signing_in(former, payloads.DIRECTORY)
        assert {path.stat().st_uid for path in anchors.iterdir()} == {unix_accounts.SEALER_UID}
        manage(one, "audit_verify")
        assert one.address.readiness_flaw() is None
        assert "Permission denied" not in "".join(
            log.read_text("utf-8", "replace") for log in (former / "log").glob("*.log")
        )


def signing_in(data: Path, name: str) -> bool:
    return (data / "keys" / name).exists()


def connects(uid: int, socket: Path) -> bool:
    who = next(who for who in EVERYBODY.values() if who.uid == uid)
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    done = subprocess.run(
        ["/usr/bin/python3", "-c", script, str(socket)], cwd="/", check=False,
        user=who.uid, group=who.gid, extra_groups=sorted(who.groups), capture_output=True,
    )  # fmt: skip
    return done.returncode == 0
