"""Verified capabilities of this machine: which levels, by which backend, and the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from sandbox.levels import at_least
from sandbox.spec import Backend, IsolationLevel, Network, Profile
from sandbox.strict_fields import Fields


@dataclass(frozen=True)
class AttackResult:
    """One attack on a sandbox. `contained`: it got nothing, or was ended by the limit it tried."""

    name: str
    level: IsolationLevel
    backend: Backend
    contained: bool
    seen: str

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                name=fields.text("name"),
                level=fields.member("level", IsolationLevel),
                backend=fields.member("backend", Backend),
                contained=fields.flag("contained"),
                seen=fields.text("seen"),
            )
        )


@dataclass(frozen=True)
class LevelCapability:
    """Of one level. `backend` is who serves it where a profile asks for nothing special."""

    available: bool
    reasons: tuple[str, ...] = ()
    network: bool = False
    backend: Backend = Backend.PROCESS

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        fields = Fields(wire)
        return fields.done(
            cls(
                available=fields.flag("available"),
                reasons=tuple(fields.texts("reasons")),
                network=fields.flag("network"),
                backend=fields.member("backend", Backend),
            )
        )


@dataclass(frozen=True)
class Capability:
    """`ceiling` is the highest level that can be had; None: not one.

    `reasons` and `fix` are sentences for people: what is missing here, and what to do about it.
    `backends` says of each why it cannot be had, or None. `checked_at` is Unix time. Runs give way
    to other processes by the weight of their control group where that is `weighted`, else by nice.
    `accounts_flaw` says why runs of several organizations run as one user, or is None.
    """

    ceiling: IsolationLevel | None
    cgroup_mode: str
    reasons: Sequence[str] = ()
    fix: Sequence[str] = ()
    levels: Mapping[IsolationLevel, LevelCapability] = field(default_factory=dict)
    backends: Mapping[Backend, str | None] = field(default_factory=dict)
    attacks: tuple[AttackResult, ...] = ()
    checked_at: float = 0
    checked_ms: float = 0
    weighted: bool = False
    accounts_flaw: str | None = None

    @property
    def gives_way(self) -> str:
        return "cgroup weight" if self.weighted else "nice"

    @property
    def accounts(self) -> str:
        """Which users runs run as."""
        return "one per template" if self.accounts_flaw is None else "shared"

    @property
    def counted(self) -> bool:
        """A control group counts what a run uses."""
        return self.cgroup_mode != "none"

    def serves(self, level: IsolationLevel) -> bool:
        """This level can be had, or a stronger one."""
        return self.ceiling is not None and at_least(self.ceiling, level)

    def refusal(self, level: IsolationLevel, profile: Profile) -> str | None:
        """Why a run of this level cannot be had here, or None. Never a weaker run instead."""
        flaw = self._flaw(level, self.placed(profile))
        return flaw and f"isolation level {level} is not available here: {flaw}"

    def placed(self, profile: Profile) -> Profile:
        """With the backend that serves its level here, where it asks for nothing special."""
        verdict = self.levels.get(profile.level)
        if profile.backend != Backend.PROCESS or verdict is None:
            return profile
        return replace(profile, backend=verdict.backend)

    def _flaw(self, level: IsolationLevel, profile: Profile) -> str | None:
        """A container and the degraded backend are listed beside the levels of sandboxd's own
        sandbox."""
        match profile.backend:
            case Backend.CONTAINER:
                return self._flaw_of_backend(profile.backend)
            case Backend.DEGRADED if at_least(level, IsolationLevel.STRICT):
                return "the degraded backend ends at Standard"
            case Backend.DEGRADED if profile.network != Network.NONE:
                return "the degraded backend has no network"
            case Backend.DEGRADED:
                return self._flaw_of_backend(profile.backend)
            case Backend.PROCESS:
                return self._flaw_of_level(level)
        return self._flaw_of_level(level) or self._flaw_of_backend(profile.backend)

    def _flaw_of_level(self, level: IsolationLevel) -> str | None:
        verdict = self.levels.get(level)
        if verdict is not None and verdict.available and verdict.backend == Backend.PROCESS:
            return None
        reasons = self.reasons if verdict is None else verdict.reasons
        return next(iter(reasons), "it was not tried")

    def _flaw_of_backend(self, backend: Backend) -> str | None:
        return self.backends.get(backend, "this backend was not tried")

    def summary(self) -> dict[str, Any]:
        """For a line of a log and for records: everything but the single attacks."""
        return {
            "level_ceiling": self.ceiling,
            "cgroup_mode": self.cgroup_mode,
            "weighted": self.weighted,
            "accounts_flaw": self.accounts_flaw,
            "reasons": list(self.reasons),
            "fix": list(self.fix),
            "levels": {str(level): asdict(verdict) for level, verdict in self.levels.items()},
            "backends": {str(backend): flaw for backend, flaw in self.backends.items()},
        }

    def to_wire(self) -> dict[str, Any]:
        return self.summary() | {
            "attacks": [asdict(attack) for attack in self.attacks],
            "checked_at": self.checked_at,
            "checked_ms": self.checked_ms,
        }

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Raises ValueError."""
        fields = Fields(wire)
        ceiling = fields.optional_text("level_ceiling")
        levels, backends = fields.mapping("levels"), Fields(fields.mapping("backends"))
        return fields.done(
            cls(
                ceiling=None if ceiling is None else IsolationLevel(ceiling),
                cgroup_mode=fields.text("cgroup_mode"),
                weighted=fields.flag("weighted"),
                accounts_flaw=fields.optional_text("accounts_flaw"),
                reasons=tuple(fields.texts("reasons")),
                fix=tuple(fields.texts("fix")),
                levels={IsolationLevel(k): LevelCapability.from_wire(v) for k, v in levels.items()},
                backends={one: backends.optional_text(one) for one in Backend if backends.has(one)},
                attacks=tuple(AttackResult.from_wire(one) for one in fields.items("attacks")),
                checked_at=fields.number("checked_at"),
                checked_ms=fields.number("checked_ms"),
            )
        )
