"""What an author installs: it needs nothing of the product, and runs from a command."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import until
from tests.crib import CHECKOUT
from tests.tools.toolservices.conftest import process

LOOK = """
import pathlib, pkgutil, sys, importlib, toolcrib_service
for one in pkgutil.iter_modules(toolcrib_service.__path__):
    if one.name not in {"__main__", "kombu_worker"}:  # the latter is for who installs kombu
        importlib.import_module(f"toolcrib_service.{one.name}")
ours = {"django", "celery", "kombu", "psycopg", "tools", "config", "audit", "sandbox"}
print(sorted(ours & {name.partition(".")[0] for name in sys.modules}))
"""


def test_the_package_alone_imports_nothing_of_the_product(tmp_path):
    shutil.copytree(Path(CHECKOUT, "toolcrib_service"), tmp_path / "toolcrib_service")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOK],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
    assert (tmp_path / "toolcrib_service/py.typed").exists()


@pytest.mark.part("calls")
def test_the_example_is_a_file_of_about_twenty_lines_that_type_checks():
    place = Path(CHECKOUT, "examples/joke_service.py")
    lines = [line for line in place.read_text().splitlines() if line.strip()]
    assert len(lines) <= 30
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull,
         "--cache-dir", os.devnull, "--follow-imports", "silent", str(place)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nodots", "no dotted path"),
        ("no.such.module", "cannot be imported"),
        ("os.path", "no DynamicToolService"),
        ("os.path.join", "no DynamicToolService"),
    ],
)
def test_what_is_no_service_is_said_in_one_sentence(path, words):
    ran = subprocess.run(
        [sys.executable, "-m", "toolcrib_service", path, "--url", "redis://127.0.0.1:1/0"],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.part("walks")
def test_several_processes_share_a_queue_and_a_dead_one_is_replaced(url, slug, broker, queue):
    def accepting_workers():
        return set(broker.zrange(queue.accepting, 0, -1))

    with process("Echo", slug, url, "--processes", "2") as parent:
        both = until(lambda: len(accepting_workers()) == 2 and accepting_workers())
        pid = next(iter(both)).rsplit("-", 2)[1]
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: len(accepting_workers() - both) == 1)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
    assert not any(pid in name for name in accepting_workers() - both)
