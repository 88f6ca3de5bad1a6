"""Choose the backend that makes the slots of a profile, and report unavailable levels."""

from collections.abc import Callable, Iterable

from sandbox.backends import deno
from sandbox.backends.backend import SandboxBackend, SlotSource
from sandbox.levels import at_least
from sandbox.spec import Backend, Language, Network, Profile

type Flaw = Callable[[], str | None]


class BackendRegistry:
    """The backends of one sandboxd. Each is tried once, on first use."""

    def __init__(
        self, backends: Iterable[SandboxBackend], javascript_flaw: Flaw = deno.flaw
    ) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._tried: dict[Backend | Language, str | None] = {}
        self._javascript_flaw = javascript_flaw

    def flaws(self) -> dict[Backend, str | None]:
        """Of all backends: why each cannot be had here, or None."""
        return {name: self.flaw(name) for name in self._backends}

    def flaw(self, name: Backend) -> str | None:
        if name not in self._backends:
            return f"there is no backend {name} here"
        return self._once(name, self._backends[name].flaw)

    def refusal(self, profile: Profile) -> str | None:
        """Why no slot of this profile can be had here, as a sentence; None: it can."""
        name = profile.backend
        flaw = self.flaw(name)
        if flaw is not None:
            return flaw
        backend = self._backends[name]
        if not at_least(backend.ceiling, profile.level):
            return f"the backend {name} ends at isolation level {backend.ceiling}"
        if profile.network != Network.NONE and not backend.network:
            return f"the backend {name} has no network"
        return self._refusal_of_language(profile)

    def template(self, profile: Profile) -> SlotSource:
        """Only for profiles that are not refused."""
        return self._backends[profile.backend].template(profile)

    def _refusal_of_language(self, profile: Profile) -> str | None:
        if profile.language == Language.PYTHON:
            return None
        if profile.backend in (Backend.CONTAINER, Backend.MONTY):
            return f"the backend {profile.backend} runs Python only"
        if profile.network != Network.NONE:
            return "tools in JavaScript have no network"
        return self._once(profile.language, self._javascript_flaw)

    def _once(self, name: Backend | Language, find: Flaw) -> str | None:
        if name not in self._tried:
            self._tried[name] = find()
        return self._tried[name]
