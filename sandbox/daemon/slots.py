"""All templates of this daemon: which exist, which are worn, idle, or one too many."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox.daemon.logs import log
from sandbox.daemon.slot import Slot
from sandbox.daemon.template import Disk, Template
from sandbox.spec import Limits, Profile

_IDLE_S = 600
_WORN_AFTER_FORKS = 20_000
_MOST_TEMPLATES = 32
_SLOT_TIMEOUT_S = 15
_GOODBYE_S = 2

type Key = tuple[str, str]  # organization, digest of the profile


class Slots:
    """One template per organization and profile; organizations never share one."""

    def __init__(self, make: Callable[[Profile], Template]) -> None:
        self._make = make
        self._templates: dict[Key, Template] = {}
        self._leaving: list[Template] = []
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, organization: str, profile: Profile, limits: Limits) -> Iterator[Slot]:
        """A slot for one run. Raises Refused with LAUNCH_FAILED."""
        template = self._template((organization, profile.digest), profile)
        try:
            yield template.take(Disk.of(limits), _SLOT_TIMEOUT_S)
        finally:
            template.give_back()

    def counts(self) -> dict[str, int]:
        with self._lock:
            templates = list(self._templates.values())
        return {
            "templates": len(templates),
            "slots": sum(one.ready_count() for one in templates),
        }

    def keep_house(self) -> None:
        """Called about once a second: retire what is idle, worn, dead or one too many."""
        now = time.monotonic()
        with self._lock:
            for key, template in list(self._templates.items()):
                idle = now - template.used_at > _IDLE_S and not template.busy
                if idle or not template.alive or template.forks > _WORN_AFTER_FORKS:
                    self._dismiss(key)
            ready_to_go = [one for one in self._leaving if not one.busy]
            self._leaving = [one for one in self._leaving if one.busy]
        for template in ready_to_go:
            template.retire()

    def close(self) -> None:
        """End everything, runs included."""
        with self._lock:
            templates = [*self._templates.values(), *self._leaving]
        for template in templates:
            template.retire()
        for template in templates:
            template.join(_GOODBYE_S)

    def _template(self, key: Key, profile: Profile) -> Template:
        with self._lock:
            template = self._templates.get(key)
            if template is None or not template.alive:
                template = self._replace(key, profile)
            template.reserve()
            return template

    def _replace(self, key: Key, profile: Profile) -> Template:
        if key in self._templates:
            self._dismiss(key)
        self._make_room()
        log("template_started", organization=key[0], profile=key[1][:12])
        made = self._templates[key] = self._make(profile)
        return made

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
