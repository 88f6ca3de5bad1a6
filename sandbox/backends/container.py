"""Containers of any OCI runtime on PATH: one for each run, made for it and gone after it."""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from sandbox.backends import oci_bundle
from sandbox.backends.container_launch import ContainerLaunch, ContainerSlot
from sandbox.backends.oci_bundle import Bundle, orphaned_bundles
from sandbox.backends.runtimes import OciRuntime, RuntimeFailed, installed
from sandbox.daemon.limits.cgroups import Driver
from sandbox.daemon.runs.janitor import remove_patiently, wait_for_end
from sandbox.daemon.runs.profile_paths import open_mounts
from sandbox.daemon.runs.slot import SlotDisk
from sandbox.daemon.runs.template_process import close_all
from sandbox.errors import ErrorCode, RunRefused
from sandbox.levels import at_least, strongest
from sandbox.spec import Backend, IsolationLevel, Limits, Profile

_FIX = (
    "Install an OCI runtime that works without root (runc, crun or runsc), "
    "and let the user of sandboxd make user namespaces."
)
_PATIENCE_S = 20
_TRIAL = Profile(IsolationLevel.STANDARD, backend=Backend.CONTAINER)


class ContainerBackend:
    """`root` is a directory of this user's own, for the bundles. `find` names the runtimes."""

    name = Backend.CONTAINER
    network = False

    def __init__(
        self, root: str, driver: Driver, find: Callable[[], Iterable[OciRuntime]] = installed
    ) -> None:
        self._root, self._driver, self._find = root, driver, find
        self._working: list[OciRuntime] = []
        Path(root).mkdir(mode=0o700, exist_ok=True)

    @property
    def ceiling(self) -> IsolationLevel:
        return strongest(IsolationLevel.NONE, *map(_ceiling_of, self._working))

    def flaw(self) -> str | None:
        """Really starts a container with each runtime; one that does as it should is enough."""
        self.remove_orphans()
        flaws = {runtime: self._try(runtime) for runtime in self._find()}
        self._working = [runtime for runtime, flaw in flaws.items() if flaw is None]
        if self._working:
            return None
        reasons = [f"{runtime.name}: {flaw}" for runtime, flaw in flaws.items()]
        return f"no container can be made here ({'; '.join(reasons) or 'no runtime'}). {_FIX}"

    def template(self, profile: Profile) -> "Containers":
        """By the first runtime that has the level. Only after `flaw` found none."""
        able = (one for one in self._working if at_least(_ceiling_of(one), profile.level))
        return Containers(next(able), profile, self._root, self._driver)

    def remove_orphans(self) -> int:
        """Containers of a sandboxd that was killed; returns how many there were."""
        found = orphaned_bundles(self._root, list(self._find()))
        for bundle in found:
            bundle.remove()
        return len(found)

    def _try(self, runtime: OciRuntime) -> str | None:
        source = Containers(runtime, _TRIAL, self._root, self._driver)
        try:
            slot = source.take(SlotDisk.from_limits(Limits()), _PATIENCE_S)
        except RunRefused as reason:
            return str(reason)
        slot.kill()
        wait_for_end(slot.pidfd)
        slot.close()
        remove_patiently(slot.leaf)
        return None


def _ceiling_of(runtime: OciRuntime) -> IsolationLevel:
    """A kernel of its own lacks the call that keeps memory from becoming executable."""
    return IsolationLevel.STRICT if runtime.own_kernel else IsolationLevel.RESTRICTED


class Containers:
    """The containers of one organization and profile. None is made before it is asked for."""

    def __init__(self, runtime: OciRuntime, profile: Profile, root: str, driver: Driver) -> None:
        self.used_at = time.monotonic()
        self.forks = 0
        self._runtime, self._profile, self._root, self._driver = runtime, profile, root, driver
        self._active = 0
        self._retired = False
        self._bundles: dict[Bundle, ContainerSlot | None] = {}
        self._changed = threading.Condition()

    @property
    def alive(self) -> bool:
        return not self._retired

    @property
    def busy(self) -> bool:
        return self._active > 0

    @property
    def current(self) -> bool:
        return True  # each container opens the paths for itself

    def ready_count(self) -> int:
        return 0

    def refill(self, disk: SlotDisk) -> None:
        """There is no stock."""

    def reserve(self) -> None:
        with self._changed:
            self._active += 1

    def give_back(self) -> None:
        with self._changed:
            self._active -= 1

    def take(self, disk: SlotDisk, timeout_s: float) -> ContainerSlot:
        """Raises Refused with LAUNCH_FAILED."""
        with self._changed:
            self.used_at = time.monotonic()
            self.forks += 1
        with ExitStack() as undo:
            bundle, slot = self._start(undo, disk, timeout_s)
            undo.pop_all()
        with self._changed:
            self._bundles[bundle] = slot
            if self._retired:
                slot.kill()
        return slot

    def retire(self) -> None:
        with self._changed:
            self._retired = True
            living = [slot for slot in self._bundles.values() if slot is not None]
        for slot in living:
            slot.kill()

    def join(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._bundles, timeout_s)

    def _start(
        self, undo: ExitStack, disk: SlotDisk, timeout_s: float
    ) -> tuple[Bundle, ContainerSlot]:
        opened = open_mounts(self._profile)
        try:
            bundle = self._new_bundle()
            undo.callback(self._forget, bundle)
            oci_bundle.write_bundle(bundle.path, self._profile, disk, self._runtime.own_kernel)
            launch = ContainerLaunch(bundle, undo, timeout_s)
            slot = launch.slot(self._profile, opened, self._driver)
            slot.take_away = partial(self._forget, bundle)
            return bundle, slot
        except (OSError, RuntimeFailed) as error:
            raise RunRefused(ErrorCode.LAUNCH_FAILED, f"no container: {error}") from None
        finally:
            close_all(opened)

    def _new_bundle(self) -> Bundle:
        bundle = Bundle.make(self._root, self._runtime)
        with self._changed:
            self._bundles[bundle] = None
        return bundle

    def _forget(self, bundle: Bundle) -> None:
        """Not by the thread that clears away after all runs: some runtimes take their time."""
        threading.Thread(target=self._remove, args=[bundle], name="container").start()

    def _remove(self, bundle: Bundle) -> None:
        bundle.remove()
        with self._changed:
            del self._bundles[bundle]
            self._changed.notify_all()
