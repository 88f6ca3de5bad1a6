"""Which user each process runs as. Ordinary users run all as themselves; root hands out others."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

SANDBOX_UID = 64321  # without an entry in /etc/passwd: nothing else runs as these
BROKER_UID = 64322
EGRESS_UID = 64323
KNOWLEDGE_UID = 64324


class NoAccount(Exception):
    """No user fits; the message says what to do."""


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    def own(self, path: Path, mode: int) -> None:
        """`path` is a directory of this account with exactly this mode."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_uid != self.uid:
            self._take(path)
        path.chmod(mode)

    def _take(self, path: Path) -> None:
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


def ourselves() -> Account:
    return Account(os.geteuid(), os.getegid())


def sandbox_account() -> Account:
    return ourselves() if os.geteuid() else Account(SANDBOX_UID, SANDBOX_UID)


def egress_account() -> Account:
    return ourselves() if os.geteuid() else Account(EGRESS_UID, EGRESS_UID)


def broker_account() -> Account:
    return ourselves() if os.geteuid() else Account(BROKER_UID, BROKER_UID)


def knowledge_account() -> Account:
    return ourselves() if os.geteuid() else Account(KNOWLEDGE_UID, KNOWLEDGE_UID)


def database_account(cluster: Path) -> Account:
    """PostgreSQL refuses root and wants a name for its user.

    A cluster that exists keeps its owner, whoever has been added to this machine since.
    """
    if os.geteuid():
        return _named(os.geteuid())
    if cluster.exists() and cluster.stat().st_uid:
        return _named(cluster.stat().st_uid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise NoAccount(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody."
    )


def _named(uid: int) -> Account:
    try:
        return Account(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError as error:
        raise NoAccount(
            f"User {uid} has no entry in /etc/passwd, and PostgreSQL wants one:"
            " add it, or set DATABASE_URL."
        ) from error
