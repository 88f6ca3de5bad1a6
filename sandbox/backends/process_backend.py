"""sandboxd's own sandbox: templates inside bubblewrap that fork a slot for each run."""

from functools import partial

from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.limits.operations import Counter
from sandbox.daemon.run_accounts import Accounts
from sandbox.daemon.runs import launch
from sandbox.daemon.runs.template_process import Template
from sandbox.spec import Backend, IsolationLevel, Profile


class ProcessBackend:
    """Level None is its own as well: the same slots, without bubblewrap."""

    name = Backend.PROCESS
    ceiling = IsolationLevel.RESTRICTED
    network = True

    def __init__(
        self, bwrap: str, scratch: str, accounts: Accounts, driver: Driver, counter: Counter,
        *, stock: int,
    ) -> None:  # fmt: skip
        self._bwrap, self._scratch, self._stock = bwrap, scratch, stock
        self._accounts = accounts
        self._driver, self._counter = driver, counter

    def flaw(self) -> str | None:
        """The doctor makes real runs to find out; nothing is known before."""
        return None

    def template(self, profile: Profile) -> Template:
        if profile.level == IsolationLevel.NONE:
            prepare = partial(launch.bare, profile, self._scratch)
        else:
            prepare = partial(launch.namespaced, self._bwrap, profile)
        return Template(prepare, self._accounts, self._driver, self._counter, self._stock)


class DegradedBackend:
    name = Backend.DEGRADED
    ceiling = IsolationLevel.STANDARD
    network = False

    def __init__(
        self, scratch: str, accounts: Accounts, driver: Driver, counter: Counter, stock: int,
        *, allowed: bool,
    ) -> None:  # fmt: skip
        self._accounts = accounts
        self._scratch, self._driver, self._counter, self._stock = scratch, driver, counter, stock
        self._allowed = allowed

    def flaw(self) -> str | None:
        return None if self._allowed else "the degraded backend is not allowed here"

    def template(self, profile: Profile) -> Template:
        prepare = partial(launch.bare, profile, self._scratch)
        return Template(prepare, self._accounts, self._driver, self._counter, self._stock)
