"""Which backend makes the slots of a profile."""

from collections.abc import Iterable

from sandbox.backends.base import SandboxBackend, SlotSource
from sandbox.levels import at_least
from sandbox.spec import Backend, Language, Network, Profile


class Registry:
    """The backends of one sandboxd. Each is tried once, when somebody first asks about it."""

    def __init__(self, backends: Iterable[SandboxBackend]) -> None:
        self._backends = {backend.name: backend for backend in backends}
        self._flaws: dict[Backend, str | None] = {}

    def flaws(self) -> dict[Backend, str | None]:
        """Of all backends: why each cannot be had here, or None."""
        return {name: self.flaw(name) for name in self._backends}

    def flaw(self, name: Backend) -> str | None:
        if name not in self._backends:
            return f"there is no backend {name} here"
        if name not in self._flaws:
            self._flaws[name] = self._backends[name].flaw()
        return self._flaws[name]

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
        if profile.language != Language.PYTHON and name != Backend.PROCESS:
            return f"the backend {name} runs Python only"
        return None

    def template(self, profile: Profile) -> SlotSource:
        """Only for profiles that are not refused."""
        return self._backends[profile.backend].template(profile)
