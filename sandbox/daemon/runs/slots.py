"""All templates of this daemon: which exist, are worn, idle, or surplus."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from sandbox.backends.backend import SlotSource
from sandbox.daemon.daemon_log import log
from sandbox.daemon.runs.slot import SandboxSlot, SlotDisk
from sandbox.spec import Limits, Profile

_IDLE_S = 600
_WORN_AFTER_FORKS = 20_000
_MOST_TEMPLATES = 32
_SLOT_TIMEOUT_S = 15
_GOODBYE_S = 2
_SHORTEST_REST_S = 1
_MOST_SPARES = 4

type Key = tuple[str, str]  # organization, digest of the profile


class Slots:
    """One template per organization and profile; organizations never share one."""

    def __init__(self, make: Callable[[Profile], SlotSource]) -> None:
        self._make = make
        self._templates: dict[Key, SlotSource] = {}
        self._spares: dict[Profile, SlotSource | None] = {}
        self._leaving: list[SlotSource] = []
        self._lock = threading.Condition()

    @contextmanager
    def take_slot(
        self, organization: str, profile: Profile, limits: Limits
    ) -> Iterator[SandboxSlot]:
        """A slot for one run. Raises Refused with LAUNCH_FAILED."""
        template = self._current((organization, profile.digest), profile)
        self.keep_spare(profile)
        try:
            yield template.take(SlotDisk.from_limits(limits), _SLOT_TIMEOUT_S)
        finally:
            template.give_back()
            if self._leaving:
                self._wake()

    def keep_spare(self, profile: Profile) -> None:
        """Keep an unused template ready for the next organization with this profile."""
        if not profile.plain or profile in self._spares:
            return
        with self._lock:
            if len(self._spares) < _MOST_SPARES:
                self._spares.setdefault(profile, None)
                self._lock.notify()

    def dismiss(self, organization: str) -> None:
        """Its templates are removed once they are unused."""
        with self._lock:
            for key in [key for key in self._templates if key[0] == organization]:
                self._dismiss(key)

    def counts(self) -> dict[str, int]:
        with self._lock:
            templates = list(self._templates.values())
        return {
            "templates": len(templates),
            "slots": sum(one.ready_count() for one in templates),
        }

    def keep_house(self) -> NoReturn:
        """Retire what is idle or was dismissed. Sleeps until there is something to do."""
        while True:
            with self._lock:
                if not self._lock.wait(self._quiet_s()):  # the processors are idle just now
                    self._make_spares()
                ready_to_go = self._tidy()
            for template in ready_to_go:
                template.retire()

    def _wake(self) -> None:
        with self._lock:
            self._lock.notify()

    def _quiet_s(self) -> float | None:
        """Until there is something to do; None when there is nothing. The lock is held."""
        if None in self._spares.values():
            return _SHORTEST_REST_S
        if not self._templates:
            return None
        oldest = min(template.used_at for template in self._templates.values())
        return max(oldest + _IDLE_S - time.monotonic(), _SHORTEST_REST_S)

    def _make_spares(self) -> None:
        for profile, spare in self._spares.items():
            if spare is None or not spare.alive:
                self._spares[profile] = self._make(profile)

    def _tidy(self) -> list[SlotSource]:
        """Dismisses who is idle; returns who can go now. The lock is held."""
        now = time.monotonic()
        for key, template in list(self._templates.items()):
            if now - template.used_at > _IDLE_S and not template.busy:
                self._dismiss(key)
        ready = [one for one in self._leaving if not one.busy]
        self._leaving = [one for one in self._leaving if one.busy]
        return ready

    def close(self) -> None:
        """End everything, runs included."""
        with self._lock:
            spares = [spare for spare in self._spares.values() if spare is not None]
            templates = [*self._templates.values(), *self._leaving, *spares]
        for template in templates:
            template.retire()
        for template in templates:
            template.join(_GOODBYE_S)

    def _current(self, key: Key, profile: Profile) -> SlotSource:
        """Without the lock while the paths are looked at: one may lie on a slow file system."""
        template = self._template(key, profile)
        while not template.current:
            template.give_back()
            with self._lock:
                if self._templates.get(key) is template:
                    self._dismiss(key)
            template = self._template(key, profile)
        return template

    def _template(self, key: Key, profile: Profile) -> SlotSource:
        """Reserved for one run."""
        with self._lock:
            template = self._templates.get(key)
            if template is None or not template.alive or template.forks > _WORN_AFTER_FORKS:
                template = self._replace(key, profile)
            template.reserve()
            return template

    def _replace(self, key: Key, profile: Profile) -> SlotSource:
        if key in self._templates:
            self._dismiss(key)
        self._make_room()
        log("template_started", organization=key[0], profile=key[1][:12])
        made = self._templates[key] = self._spare(profile) or self._make(profile)
        self._lock.notify()
        return made

    def _spare(self, profile: Profile) -> SlotSource | None:
        spare = self._spares.get(profile)
        if spare is None or not spare.alive:
            return None
        self._spares[profile] = None
        return spare

    def _make_room(self) -> None:
        if len(self._templates) >= _MOST_TEMPLATES:
            self._dismiss(min(self._templates, key=lambda key: self._templates[key].used_at))

    def _dismiss(self, key: Key) -> None:
        """No new runs; it goes when its last run is over. The lock is held."""
        template = self._templates.pop(key)
        log(
            "template_dismissed",
            organization=key[0],
            profile=key[1][:12],
            forks=template.forks,
        )
        self._leaving.append(template)
        self._lock.notify()
