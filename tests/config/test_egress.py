"""The egress broker as root starts it: another user, with what it needs and no more."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from config import env
from config.local import embedded, process_specs
from config.local.child_processes import launch_command
from config.local.unix_accounts import EGRESS_UID, sandbox_account
from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.egress.ticket_client import EgressClient
from tests.conditions import until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def data(tmp_path: Path, settings: LazySettings) -> Iterator[Path]:
    settings.EGRESS_SOCKET = str(embedded.egress_socket(tmp_path))
    tmp_path.chmod(0o711)
    sandbox_account().make_directory(tmp_path / "workspaces", 0o700)
    yield tmp_path
    embedded.remove_socket_directory(tmp_path)


@as_root
def test_it_runs_as_a_user_of_its_own_and_serves_its_worker(data: Path) -> None:
    spec = process_specs.egress(data)
    broker = subprocess.Popen(launch_command(spec), env={}, stderr=subprocess.DEVNULL)
    try:
        until(spec.ready)
        status = Path(f"/proc/{broker.pid}/status").read_text(encoding="utf-8")
        client = EgressClient(str(embedded.egress_socket(data)))
        client.open(EgressPolicy(), "acme").close()
        client.close()
    finally:
        broker.terminate()
        assert broker.wait(10) == 0
    assert f"Uid:\t{EGRESS_UID}\t{EGRESS_UID}\t{EGRESS_UID}" in status
    assert "CapEff:\t0000000000000000" in status


@as_root
def test_the_user_of_sandboxd_finds_the_way_to_the_socket(data: Path) -> None:
    process_specs.egress(data)
    spec = process_specs.sandboxd(data)
    assert Path(embedded.egress_socket(data)).parent in spec.reach
    words = launch_command(spec)
    probe = [*words[: words.index("--")], "--", "/bin/ls", str(embedded.egress_socket(data).parent)]
    done = subprocess.run(probe, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(sandbox_account().uid) in words


def test_authorities_of_the_operator_are_copied_to_where_it_can_read(
    data: Path, settings: LazySettings
) -> None:
    private = data / "private.pem"
    private.write_text("certificate", encoding="utf-8")
    private.chmod(0o600)
    settings.EGRESS_CA_FILE = str(private)
    command = process_specs.egress(data).command
    copy = Path(command[command.index("--ca") + 1])
    assert copy.read_text(encoding="utf-8") == "certificate"
    assert copy.stat().st_mode & 0o777 == 0o644


def test_networks_go_to_the_broker_as_arguments(data: Path, settings: LazySettings) -> None:
    settings.EGRESS_ALLOW_PRIVATE = ["10.1.0.0/16", "fd00:1::/32"]
    command = " ".join(process_specs.egress(data).command)
    assert "--allow-private 10.1.0.0/16 --allow-private fd00:1::/32" in command


@pytest.mark.parametrize("written", ["10.0.0.1/8", "0.0.0.0/0", "intranet", "10.0.0.0/8,x"])
def test_a_network_that_cannot_be_meant_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("EGRESS_ALLOW_PRIVATE", written)
    with pytest.raises(env.BadSetting, match=r"^EGRESS_ALLOW_PRIVATE: "):
        env.env_networks("EGRESS_ALLOW_PRIVATE")


def test_networks_are_read_with_commas_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGRESS_ALLOW_PRIVATE", "10.1.0.0/16, ::1/128,192.168.1.5")
    networks = ["10.1.0.0/16", "::1/128", "192.168.1.5/32"]
    assert env.env_networks("EGRESS_ALLOW_PRIVATE") == networks
