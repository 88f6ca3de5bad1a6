"""What a test process needs of others without the product: `python -m tests.stores DATA` starts
PostgreSQL, migrated, Valkey and Oxigraph, and a sandboxd and an egress broker for calls that tests
perform themselves. The product shares the first three; it starts its own of the last two.

Says `ready` on standard output and stops when its standard input ends, so that it does not outlive
the tests. Migrating takes 13 s, so a migrated cluster is kept in `.venv`, under a digest of the
migrations; a run begins with a copy. `python -m tests.stores template` makes it during set-up.
"""

import fcntl
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import django

from tests.stubs import stdio

CHECKOUT = Path(__file__).resolve().parent.parent
LOOK_S = 0.5
BESIDE = "beside"  # the product's own sandboxd and broker have the data directory itself
# What an operator has allowed, where tests need it.
ALLOWED = {
    "EGRESS_ALLOW_PRIVATE": "127.0.0.1/32",
    "MCP_STDIO_ALLOWED": json.dumps(stdio.ALLOWED),
}
KEPT = CHECKOUT / ".venv" / "test-databases"
# A test cannot pull the plug, so nothing waits for the disk; tests/faults has a database that does.
WITHOUT_DISK = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
MADE_OF = (
    "*/migrations/*.py",
    "audit/partitions.py",
    "config/local/postgres.py",
    "requirements.txt",
)


@contextmanager
def running(data: Path) -> Iterator[None]:
    """Raises `RuntimeError` where they do not start; standard error says why."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores", str(data)],
        cwd=CHECKOUT,
        env=os.environ | ALLOWED | {"TOOLCRIB_DATA": str(data)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        for line in process.stdout:
            if line == b"ready\n":
                break
        else:
            raise RuntimeError("what the tests need did not start")
        yield
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def urls(data: Path) -> dict[str, str]:
    """Environment variables that make the product use these stores."""
    from config.local import embedded, oxigraph  # noqa: PLC0415 - after django.setup()

    return {
        "DATABASE_URL": embedded.database_url(data),
        "REDIS_URL": embedded.redis_url(data),
        "SPARQL_URL": oxigraph.query_url(data),
    }


def sockets(data: Path) -> dict[str, str]:
    """Settings of a test process that performs calls itself."""
    from config.local import embedded  # noqa: PLC0415 - after django.setup()

    place = data / BESIDE
    return {
        "SANDBOX_SOCKET": str(embedded.sandbox_socket(place)),
        "EGRESS_SOCKET": str(embedded.egress_socket(place)),
    }


def main(data: Path) -> None:
    from django.conf import settings  # noqa: PLC0415 - after django.setup()
    from django.test import override_settings  # noqa: PLC0415

    from config.local import embedded, process_specs, supervisor, unix_accounts  # noqa: PLC0415  # noqa: PLC0415
    from tools.bootstrap import first_administrator  # noqa: PLC0415

    copy_template(data)
    place = data / BESIDE
    place.mkdir(mode=0o711, exist_ok=True)
    servers = supervisor.Supervisor(data)
    others = supervisor.Supervisor(place, report=lambda text: print(text, file=sys.stderr))
    servers.record = data / "stores.json"  # the product's own supervisor has one beside it
    with servers, others, override_settings(**sockets(data)):
        database = embedded.database_server(data)
        database = replace(database, command=(*database.command, *WITHOUT_DISK))
        unix_accounts.sandbox_account().make_directory(settings.WORKSPACES_DIR, 0o700)
        (place / "workspaces").symlink_to(settings.WORKSPACES_DIR)
        sandboxd = process_specs.sandboxd(place)
        for spec in (database, embedded.broker_server(data), process_specs.knowledge(data)):
            servers.start_soon(spec)
        others.start(process_specs.egress(place), sandboxd)
        servers.wait_until(servers.all_ready, by="PostgreSQL, Valkey or Oxigraph")
        first_administrator()
        _forget_connections()
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], LOOK_S)[0]:
            others.run_pass()  # a test may have killed one
    process_specs.remove_cgroups(place)
    embedded.remove_socket_directory(place)
    embedded.remove_socket_directory(data)


def copy_template(data: Path) -> None:
    """Let this data directory have a migrated database. One process makes it; others wait."""
    if (data / "postgres").exists():
        return
    place = template()
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o711)
    subprocess.run(["cp", "-a", str(place), str(data / "postgres")], check=True)


def template() -> Path:
    """A migrated database that is kept in the environment until a migration changes."""
    KEPT.mkdir(parents=True, exist_ok=True)
    place = KEPT / _digest()
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            for other in KEPT.glob("sha256-*"):
                shutil.rmtree(other)
            _make_template(place)
    return place


def _digest() -> str:
    made_of = hashlib.sha256(f"{os.geteuid()} {sys.version}".encode())
    for pattern in MADE_OF:
        for file in sorted(CHECKOUT.glob(pattern)):
            made_of.update(file.read_bytes())
    return f"sha256-{made_of.hexdigest()[:16]}"


def _make_template(place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tc-") as made:
        subprocess.run(
            [sys.executable, "-c", "from tests import stores; stores.migrate_only()"],
            cwd=CHECKOUT,
            env=os.environ | {"TOOLCRIB_DATA": made},
            check=True,
        )
        draft = place.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        subprocess.run(["cp", "-a", f"{made}/postgres", str(draft)], check=True)
        draft.rename(place)


def migrate_only() -> None:
    _set_up()
    from config.local import deployment, embedded  # noqa: PLC0415 - after django.setup()

    with embedded.running_servers(Path(os.environ["TOOLCRIB_DATA"])):
        deployment.migrate()
        _forget_connections()


def _forget_connections() -> None:
    from config import database  # noqa: PLC0415 - after django.setup()

    database.close_connections()


def _set_up() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()


if __name__ == "__main__":
    if sys.argv[1:] == ["template"]:
        template()
    else:
        _set_up()
        main(Path(sys.argv[1]))
