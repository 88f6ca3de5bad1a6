"""The processes of Toolcrib that one supervisor starts."""

import hashlib
import os
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from django.conf import settings

from config import env, timeouts
from config.local import oxigraph
from config.local.address import Address
from config.local.child_processes import ProcessSpec
from config.local.embedded import (
    egress_socket,
    make_socket_directory,
    sandbox_socket,
    socket_directory,
)
from config.local.unix_accounts import (
    DATABASE_GID,
    EVIDENCE_GID,
    PRODUCT_GID,
    WEB_UID,
    WORKER_UID,
    UnixAccount,
    current_account,
    egress_account,
    knowledge_account,
    product_account,
    sandbox_account,
)
from sandbox.daemon.limits import cgroups

CHECKOUT = Path(__file__).resolve().parents[2]
HOUSEKEEPING_THREADS = 32  # as many as all its tasks may use at once (config/celery.py), or more
BEAT_LACKS = frozenset({
    "AUDIT_ANCHOR_PUT_URL", "AUDIT_ANCHOR_TOKEN", "AUDIT_ANCHOR_URL", "DATABASE_URL", "EMAIL_URL",
    "LLM_API_KEY", "MCP_STDIO_ALLOWED", "METRICS_TOKEN", "OIDC_CLIENT_SECRET", "SECRET_KEY",
    "TOOL_SERVICE_BROKERS",
})  # fmt: skip


def interpreter() -> tuple[Path, ...]:
    """The directories Python runs from, for a user who may not pass all of the way to them."""
    base = Path(os.path.realpath(sys.executable)).parent.parent
    return tuple(sorted({Path(sys.prefix), Path(sys.base_prefix), base}))


def cgroup_name(data: Path) -> str:
    return "toolcrib-" + hashlib.sha256(os.fsencode(data)).hexdigest()[:12]


def sandboxd(data: Path) -> ProcessSpec:
    account = sandbox_account()
    address = sandbox_socket(data)
    make_socket_directory(data)
    account.make_directory(address.parent, 0o755)  # web and workers come by; the peer is checked
    scratch = data / "scratch"
    account.make_directory(scratch, 0o700)
    return ProcessSpec(
        name="sandboxd",
        command=(
            *(sys.executable, "-m", "sandbox.daemon"),
            *("--socket", str(address)),
            *_user_options("--allow-uid"),
            *(() if account.is_ours else ("--uid", str(account.uid))),
            *("--cgroup-root", cgroup_name(data)),
            *("--scratch", str(scratch)),
            *("--egress", settings.EGRESS_SOCKET),
            *(["--allow-degraded"] if settings.SANDBOX_ALLOW_DEGRADED else []),
        ),
        directory=CHECKOUT,
        account=account,
        keeps_root=not account.is_ours,
        reach=(
            *(*interpreter(), CHECKOUT / "sandbox", data / "workspaces"),
            *(address.parent, scratch, Path(settings.EGRESS_SOCKET).parent),
            *_stdio_server_directories(),
        ),
        ready=partial(_is_listening, address),
        before_start=partial(address.unlink, missing_ok=True),
    )


def _user_options(option: str) -> list[str]:
    """Those who call tools: workers, web where it looks at a server, and operators' commands."""
    others = () if os.geteuid() else (WEB_UID, WORKER_UID)
    return [word for uid in (current_account().uid, *others) for word in (option, str(uid))]


def _stdio_server_directories() -> list[Path]:
    """One that is missing is said so when a server wants it."""
    entries = settings.MCP_STDIO_ALLOWED.values()
    return [path for entry in entries for path in entry.paths if path.is_dir()]


def egress(data: Path) -> ProcessSpec:
    """The one process that reaches other machines for tools."""
    account = egress_account()
    address = egress_socket(data)
    make_socket_directory(data)
    account.make_directory(address.parent, 0o755)  # sandboxd connects here; every peer is checked
    networks = (("--allow-private", network) for network in settings.EGRESS_ALLOW_PRIVATE)
    return ProcessSpec(
        name="egress",
        command=(
            *(sys.executable, "-m", "sandbox.egress"),
            *("--socket", str(address)),
            *_user_options("--worker-uid"),
            *("--sandbox-uid", str(sandbox_account().uid)),
            *(word for pair in networks for word in pair),
            *_authorities(address.parent),
        ),
        directory=CHECKOUT,
        account=account,
        reach=(*interpreter(), CHECKOUT / "sandbox", address.parent),
        ready=partial(_is_listening, address),
        before_start=partial(address.unlink, missing_ok=True),
    )


def knowledge(data: Path) -> ProcessSpec:
    """The graphs, where SPARQL_URL names no other endpoint."""
    return oxigraph.server_spec(data, account=knowledge_account(), reach=interpreter())


def web(data: Path, address: Address) -> ProcessSpec:
    return _web_server(data, "web", "config.asgi:application", address)


def live(data: Path, address: Address) -> ProcessSpec:
    """Push updates to open pages (SSE); nothing else of the product needs it."""
    # Open streams end with it.
    return _web_server(data, "live", "tools.live.app:application", address, "--grace", "1")


def _web_server(
    data: Path, name: str, application: str, address: Address, *more: str
) -> ProcessSpec:
    place = ("--host", address.host, "--port", str(address.port))
    return _django(data, name, "config.server", application, *place, *more)


def worker(data: Path, *, threads: int) -> ProcessSpec:
    return _celery_worker(data, "worker", queue="executions", threads=threads)


def housekeeper(data: Path) -> ProcessSpec:
    """The periodic tasks. It has the files and the account of workers, which do them otherwise."""
    return _celery_worker(data, "housekeeper", queue="housekeeping", threads=HOUSEKEEPING_THREADS)


def _celery_worker(data: Path, name: str, *, queue: str, threads: int) -> ProcessSpec:
    options = {"queues": queue, "hostname": f"{name}@%h", "pool": "threads"}
    options |= {"concurrency": str(threads), "loglevel": "INFO"}
    spec = _django(
        data,
        name,
        *("celery", "-A", "config", "worker", *_options(options)),
        *("--without-gossip", "--without-mingle"),
        account=product_account("worker"),
    )
    return replace(spec, grace_s=timeouts.worker_grace_s())


def beat(data: Path) -> ProcessSpec:
    options = {"schedule": str(data / "beat" / "schedule"), "loglevel": "INFO"}
    spec = _django(data, "beat", "celery", "-A", "config", "beat", *_options(options))
    if os.geteuid():
        return spec
    without = {name: value for name, value in spec.environment.items() if not _is_secret(name)}
    return replace(spec, environment=without | {"SECRET_KEY": "beat signs nothing"})


def sealer(data: Path) -> ProcessSpec:
    return _django(data, "sealer", "django", "seal_audit")


def _options(options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _django(data: Path, name: str, *module: str, account: UnixAccount | None = None) -> ProcessSpec:
    account = account or product_account(name)
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-m", *module),
        directory=CHECKOUT,
        account=account,
        umask=0o077 if account.is_ours else 0o007,
        environment={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "TOOLCRIB_DATA": str(data),
            "PGAPPNAME": f"toolcrib-{name}",  # PostgreSQL says who holds a lock
            "PROMETHEUS_MULTIPROC_DIR": str(settings.METRICS_DIR),
            **({} if account.is_ours else {"HOME": "/nonexistent", **_copied_settings(data)}),
        },
        reach=() if account.is_ours else _reach(data, account),
    )


def _reach(data: Path, account: UnixAccount) -> tuple[Path, ...]:
    every = (*interpreter(), CHECKOUT, data, socket_directory(data), settings.METRICS_DIR)
    return (*every, *([settings.ANCHORS_DIR] if EVIDENCE_GID in account.groups else []))


def _copied_settings(data: Path) -> dict[str, str]:
    """Files that settings were read from, for processes that may not read what root may."""
    copies = {}
    for name, original in env.setting_files().items():
        copy = data / "settings" / f"{name}.{hashlib.sha256(os.fsencode(original)).hexdigest()[:8]}"
        copy.write_bytes(original.read_bytes())
        os.chown(copy, 0, DATABASE_GID if _is_secret(name) else PRODUCT_GID)
        copy.chmod(0o640)
        copies[name] = str(copy)
    return copies


def _is_secret(name: str) -> bool:
    return name.removesuffix("_FILE") in BEAT_LACKS


def _authorities(directory: Path) -> tuple[str, ...]:
    """A copy that the broker's user can read, regardless of the mode of the operator's file."""
    if not settings.EGRESS_CA_FILE:
        return ()
    copy = directory / "authorities.pem"
    copy.write_bytes(Path(settings.EGRESS_CA_FILE).read_bytes())
    copy.chmod(0o644)
    return "--ca", str(copy)


def remove_cgroups(data: Path) -> None:
    """Leaves none behind; what is busy or not ours stays, and the next start takes it over."""
    for root in cgroups.hierarchies(cgroup_name(data)).values():
        if root.is_dir() and os.access(root, os.W_OK):
            cgroups.remove_orphaned_groups(root)
            for group in (*(path for path in list(root.iterdir()) if path.is_dir()), root):
                with suppress(OSError):
                    group.rmdir()


def _is_listening(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(address))
        except OSError:
            return False
    return True
