"""`/sandbox/`: the sandbox layers that work on this machine, the trials that verify them, and a
notice where some do not work.

For users who manage tools: the page is about the machine, which belongs to no tenant.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import SimpleLazyObject

from sandbox.daemon.trials.capability import AttackResult, Capability, LevelCapability
from sandbox.spec import Backend, IsolationLevel
from sandbox.state import SandboxdState
from tools.errors import Forbidden
from tools.models import User
from tools.runners.isolation import watch
from tools.web.pages import PageRequest, page

_NO_ANSWER = "sandboxd does not answer: no tool can run."
_CHIP_STATUSES = {"bad": "denied", "warn": "pending", "": "success"}  # colors of a chip
_CEILING_TEXTS = {
    None: "nothing runs",
    IsolationLevel.NONE: "no isolation",
    IsolationLevel.RESTRICTED: "every level",
}


@dataclass(frozen=True)
class Notice:
    tone: str
    text: str
    name: str = ""  # the name of its note on the page


@dataclass(frozen=True)
class LayerAttacks:
    """The trial attacks on one layer of the sandbox."""

    name: str
    failed: list[AttackResult]
    contained: list[AttackResult]

    @property
    def attack_count(self) -> int:
        return len(self.failed) + len(self.contained)


def notice(request: HttpRequest) -> dict[str, Any]:
    """A context processor: the sandbox notice, computed when the page of a user who manages tools
    shows it."""
    return {
        "sandbox_notice": SimpleLazyObject(lambda: _user_notice(getattr(request, "user", None)))
    }


def manages_tools(user: User | AnonymousUser | None) -> bool:
    return user is not None and (user.is_staff or user.has_perm("tools.change_tool"))


@page()
def sandbox_page(request: PageRequest) -> HttpResponse:
    if not manages_tools(request.user):
        raise Forbidden("The sandbox is shown to those who manage tools.", code="not_permitted")
    state = watch().state()
    return render(
        request, "settings/sandbox.html", _state_context(state) if state else {"state": None}
    )


def _user_notice(user: User | AnonymousUser | None) -> Notice | None:
    if not manages_tools(user):
        return None
    state = watch().state()
    return capability_notice(state.capability) if state else Notice("bad", _NO_ANSWER)


def capability_notice(capability: Capability) -> Notice | None:
    """None where every isolation level is available."""
    if capability.ceiling == IsolationLevel.RESTRICTED and capability.counted:
        return None
    grave = not capability.serves(IsolationLevel.STANDARD) or _is_degraded(capability)
    reason = next(iter(capability.reasons), "")
    return Notice("bad" if grave else "warn", f"{_headline(capability)} {reason}".strip())


def sandbox_summary() -> Notice:
    """One line about the sandbox, for users who manage tools."""
    state = watch().state()
    if state is None:
        return Notice("bad", _NO_ANSWER)
    attacks = state.capability.attacks
    contained = sum(attack.contained for attack in attacks)
    said = f"{contained} of {len(attacks)} attacks contained."
    found = capability_notice(state.capability)
    return Notice(found.tone, f"{found.text} {said}") if found else Notice("good", said)


def _headline(capability: Capability) -> str:
    if _is_degraded(capability):
        return "DEGRADED: tools run without namespaces on this machine."
    if capability.ceiling is None:
        return "No tool can run on this machine."
    if capability.ceiling == IsolationLevel.NONE:
        return "Only tools without isolation can run on this machine."
    if capability.ceiling != IsolationLevel.RESTRICTED:
        return f"Isolation ends at {capability.ceiling} on this machine."
    return ""


def _is_degraded(capability: Capability) -> bool:
    return any(verdict.backend == Backend.DEGRADED for verdict in capability.levels.values())


def _state_context(state: SandboxdState) -> dict[str, Any]:
    capability = state.capability
    tried = [_layer_attacks(attacks) for attacks in _group_attacks(capability.attacks)]
    return {
        "state": state,
        "capability": capability,
        "ceiling": _CEILING_TEXTS.get(capability.ceiling, f"up to {capability.ceiling}"),
        "status": _CHIP_STATUSES[said.tone if (said := capability_notice(capability)) else ""],
        "checked_at": datetime.fromtimestamp(capability.checked_at, UTC),
        "levels": [_level_row(level, verdict) for level, verdict in capability.levels.items()],
        "backends": capability.backends.items(),
        "layers": tried,
        "contained": sum(len(one.contained) for one in tried),
        "attacks": len(capability.attacks),
    }


def _level_row(level: IsolationLevel, verdict: LevelCapability) -> dict[str, Any]:
    return {"name": level, "verdict": verdict, "reason": " ".join(verdict.reasons)}


def _group_attacks(attacks: Iterable[AttackResult]) -> list[list[AttackResult]]:
    ordered = groupby(attacks, key=lambda attack: (attack.level, attack.backend))
    return [list(group) for _, group in ordered]


def _layer_attacks(attacks: list[AttackResult]) -> LayerAttacks:
    first = attacks[0]
    degraded = f" ({first.backend})" if first.backend != Backend.PROCESS else ""
    failed = [attack for attack in attacks if not attack.contained]
    contained = [attack for attack in attacks if attack.contained]
    return LayerAttacks(f"{first.level}{degraded}", failed, contained)
