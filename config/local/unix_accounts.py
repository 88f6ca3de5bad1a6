"""The OS user of each process. Ordinary users run all as themselves; root assigns others.

A group is a right to access something: its members are the processes that need it.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

SANDBOX_UID = 64321  # without an entry in /etc/passwd: nothing else runs as these
BROKER_UID = 64322
EGRESS_UID = 64323
KNOWLEDGE_UID = 64324
WEB_UID, LIVE_UID, WORKER_UID, BEAT_UID, SEALER_UID = range(64325, 64330)

PRODUCT_GID = 64340  # the data directory and Valkey
DATABASE_GID = 64341  # PostgreSQL and `secret_key`
EVIDENCE_GID = 64342  # the key of audit records, what was published of their logs
CALLS_GID = 64343  # the keys of payloads and tools, archives and exports
_ALL_GROUPS = frozenset({PRODUCT_GID, DATABASE_GID, EVIDENCE_GID, CALLS_GID})


class NoAccount(Exception):
    """No user fits; the message says what to do."""


@dataclass(frozen=True)
class UnixAccount:
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()  # besides

    def make_directory(self, path: Path, mode: int) -> None:
        """Afterwards `path` is a directory of this account with exactly this mode."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid != self.uid or (not os.geteuid() and found.st_gid != self.gid):
            self._change_owner(path)
        path.chmod(mode)

    def _change_owner(self, path: Path) -> None:
        try:
            os.chown(path, self.uid, self.gid)
        except OSError as error:
            raise NoAccount(
                f"{path} cannot be given to user {self.uid} ({error.strerror}):"
                " start Toolcrib as an ordinary user, or set TOOLCRIB_DATA to a local disk."
            ) from error

    @property
    def is_ours(self) -> bool:
        return self.uid == os.geteuid()


def current_account() -> UnixAccount:
    return UnixAccount(os.geteuid(), os.getegid())


PRODUCT = {
    "web": UnixAccount(WEB_UID, WEB_UID, _ALL_GROUPS),
    "live": UnixAccount(LIVE_UID, LIVE_UID, frozenset({PRODUCT_GID, DATABASE_GID})),
    "worker": UnixAccount(WORKER_UID, WORKER_UID, _ALL_GROUPS),
    "beat": UnixAccount(BEAT_UID, BEAT_UID, frozenset({PRODUCT_GID})),
    "sealer": UnixAccount(SEALER_UID, SEALER_UID, _ALL_GROUPS - {CALLS_GID}),
}
SHARED_USER = (
    "Started as user {}, web, worker, sealer, the stores and the sandbox share one user: an"
    " attacker who breaks out of one of them can read secret_key and keys/, change the database"
    " and sign evidence, and runs of one organization can use up the pipes, descriptors and timers"
    " that the kernel gives that user. Started by root, each has an account of its own, the runs of"
    " each organization too."
)


def metrics_directory(root: Path) -> Path:
    """The metrics directory of this process. Each account has its own: a later process with the
    same id continues in the files of the earlier one."""
    names = {account.uid: name for name, account in PRODUCT.items()} | {0: "root"}
    directory = root / names.get(os.geteuid(), "")
    return directory if directory.is_dir() else root


def product_account(name: str) -> UnixAccount:
    return current_account() if os.geteuid() else PRODUCT[name]


def missing_separation() -> str | None:
    """What this process, one of the product's or its supervisor, lacks for want of root."""
    accounts = {0, *(account.uid for account in PRODUCT.values())}
    return None if os.geteuid() in accounts else SHARED_USER.format(os.geteuid())


def sandbox_account() -> UnixAccount:
    return current_account() if os.geteuid() else UnixAccount(SANDBOX_UID, SANDBOX_UID)


def egress_account() -> UnixAccount:
    return current_account() if os.geteuid() else UnixAccount(EGRESS_UID, EGRESS_UID)


def broker_account() -> UnixAccount:
    return current_account() if os.geteuid() else UnixAccount(BROKER_UID, BROKER_UID)


def knowledge_account() -> UnixAccount:
    return current_account() if os.geteuid() else UnixAccount(KNOWLEDGE_UID, KNOWLEDGE_UID)


def database_account(cluster: Path) -> UnixAccount:
    """PostgreSQL refuses root and wants a name for its user.

    A cluster that exists keeps its owner, even if accounts were added to this machine since.
    """
    if os.geteuid():
        return _account_of_uid(os.geteuid())
    if cluster.exists() and cluster.stat().st_uid:
        return _account_of_uid(cluster.stat().st_uid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return UnixAccount(entry.pw_uid, entry.pw_gid)
    raise NoAccount(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody."
    )


def _account_of_uid(uid: int) -> UnixAccount:
    try:
        return UnixAccount(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError as error:
        raise NoAccount(
            f"User {uid} has no entry in /etc/passwd, and PostgreSQL wants one:"
            " add it, or set DATABASE_URL."
        ) from error
