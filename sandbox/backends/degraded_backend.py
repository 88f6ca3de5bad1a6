"""The degraded backend: Standard without namespaces, where the kernel forbids them and an operator
allows it.

Landlock, the filter, limits and control groups stand; gone are the private mounts, processes and
network. Host name and process numbers are seen; there is no network at all.
"""

from functools import partial

from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.limits.operations import Counter
from sandbox.daemon.run_accounts import Accounts
from sandbox.daemon.runs import launch
from sandbox.daemon.runs.template_process import Template
from sandbox.spec import Backend, IsolationLevel, Profile


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
