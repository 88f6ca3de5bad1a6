"""What cannot work is said in one sentence."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.local import datadir
from config.local.address import Address, CannotListen

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = ("sh", "sed", "awk", "df", "cmp", "ls", "sort", "paste", "tr", "cp", "dirname")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("mounts are not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def only(tmp_path: Path) -> Path:
    """A PATH with the usual programs and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def make_environment(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(CHECKOUT / "config" / "environment.sh"), "requirements.txt"],
        cwd=folder.parent,
        env={"PATH": str(folder), "HOME": str(folder.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen) as refusal:
            Address("127.0.0.1", port).check_free()
    assert str(refusal.value) == (
        f"Port {port} is in use: stop what listens there,"
        f" or choose another with make run PORT={port + 1}."
    )


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(CannotListen, match=r"^Cannot listen on 192\.0\.2\.1 port 8000: .+\.$"):
        Address("192.0.2.1", 8000).check_free()


def test_a_disk_almost_full(small_disk: Path) -> None:
    expected = r"^Only \d MB are free in .+ needs 200 MB: .+\.$"
    with (
        pytest.raises(datadir.DataDirectoryUnusable, match=expected),
        datadir.locked_directory(small_disk),
    ):
        pass


def test_a_second_start_on_the_same_data(tmp_path: Path) -> None:
    with datadir.locked_directory(tmp_path):
        expected = rf"^Toolcrib already runs on {tmp_path} \(process {os.getpid()}\): stop it"
        with (
            pytest.raises(datadir.DataDirectoryUnusable, match=expected),
            datadir.locked_directory(tmp_path),
        ):
            pass


def test_no_python(only: Path) -> None:
    done = make_environment(only)
    assert done.returncode == 1
    assert done.stderr == (
        "Toolcrib needs Python 3.12 or newer with venv; found no Python at all.\n"
    )


def test_an_old_python(only: Path) -> None:
    old = only / "python3"
    old.write_text('#!/bin/sh\n[ "$3" ] || exit 1\necho "3.9.2: $3"\n', encoding="utf-8")
    old.chmod(0o755)
    done = make_environment(only)
    assert done.returncode == 1
    assert done.stderr == (f"Toolcrib needs Python 3.12 or newer with venv; found 3.9.2: {old}.\n")
