"""`manage.py sandbox_doctor`: attack every sandbox this machine can make, and report what held.

Exit codes: 0 every level can be had, 1 one of them is refused or nothing could be tried, 2 usage.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from sandbox.daemon.limits import cgroups
from sandbox.daemon.trials.capability import Capability
from sandbox.spec import IsolationLevel

_PROJECT = Path(__file__).resolve().parents[3]
_PATIENCE_S = 120
REFUSED = 1


class Command(BaseCommand):
    help = "Attacks the sandbox as sandboxd does when it starts, and says which levels hold."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            capability = examined()
        except DoctorFailed as failure:
            message = str(failure)
            shape = {"code": "doctor_failed", "message": message}
            raise CommandError(json.dumps(shape) if options["json"] else message) from None
        self.stdout.write(_as_json(capability) if options["json"] else "\n".join(lines(capability)))
        if refuses_something(capability):
            sys.exit(REFUSED)


class DoctorFailed(Exception):
    """Nothing could be tried; the text says why."""


def examined() -> Capability:
    """By a sandboxd of its own, which has no clients and shares nothing with a working one.

    Raises DoctorFailed.
    """
    groups = f"toolcrib-doctor-{os.getpid()}"
    command = [sys.executable, "-P", "-m", "sandbox.daemon", "--probe", "--cgroup-root", groups]
    command += ["--egress", settings.EGRESS_SOCKET]
    command += ["--allow-degraded"] if settings.SANDBOX_ALLOW_DEGRADED else []
    try:
        ended = subprocess.run(
            command,
            cwd=_PROJECT,
            env={"PYTHONPATH": str(_PROJECT)},
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        return Capability.from_wire(json.loads(ended.stdout))
    except subprocess.TimeoutExpired:
        raise DoctorFailed(f"The examination took more than {_PATIENCE_S} s.") from None
    except ValueError:
        words = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise DoctorFailed(f"The examination ended with {ended.returncode}: {words}") from None
    finally:
        _remove(groups)


def refuses_something(capability: Capability) -> bool:
    return not all(verdict.available for verdict in capability.levels.values())


def lines(capability: Capability) -> list[str]:
    """For people: levels, what is missing and what to do, and only the attacks that matter."""
    through = [one for one in capability.attacks if not one.contained]
    return [
        f"{'ceiling':<12}{capability.ceiling or 'nothing'}",
        f"{'cgroups':<12}{capability.cgroup_mode}, runs give way by {capability.gives_way}",
        f"{'accounts':<12}{capability.accounts}{_because(capability.accounts_flaw)}",
        f"{'attacks':<12}{len(capability.attacks) - len(through)} of {len(capability.attacks)}"
        f" contained in {capability.checked_ms:.0f} ms",
        "",
        *(_level(capability, level) for level in IsolationLevel),
        *_listed("got through", [f"{one.level}: {one.name} ({one.seen})" for one in through]),
        *_listed("why", capability.reasons),
        *_listed("what to do", capability.fix),
    ]


def _because(flaw: str | None) -> str:
    return f": {flaw}" if flaw else ""


def _level(capability: Capability, level: IsolationLevel) -> str:
    verdict = capability.levels[level]
    if not verdict.available:
        return f"{level:<12}refused: {' '.join(verdict.reasons)}"
    network = "with network through the broker" if verdict.network else "without network"
    return f"{level:<12}available, by {verdict.backend}, {network}"


def _listed(title: str, sentences: Any) -> list[str]:
    return ["", f"{title}:", *(f"  {sentence}" for sentence in sentences)] if sentences else []


def _as_json(capability: Capability) -> str:
    return json.dumps(capability.to_wire(), ensure_ascii=False, indent=2)


def _remove(groups: str) -> None:
    """The trees that a sandboxd started by root was given."""
    for tree in cgroups.hierarchies(groups).values():
        for directory in (*tree.glob("*/"), tree):
            with suppress(OSError):
                directory.rmdir()
