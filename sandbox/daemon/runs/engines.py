"""What executes a tool's source inside: this Python itself, Deno, or Monty."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox.backends import deno, monty_backend
from sandbox.errors import ErrorCode, RunRefused
from sandbox.spec import Backend, Language, Profile


@dataclass(frozen=True)
class Engine:
    """`programs` may be executed where nothing else may; `mounts` are words for bwrap."""

    setup: dict[str, Any] = field(default_factory=lambda: {"name": "python"})
    programs: list[str] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)


def engine_of(profile: Profile, *, inside: bool = True) -> Engine:
    """With `inside`, paths are those behind bubblewrap. Raises Refused when there is none here."""
    try:
        if profile.language == Language.JAVASCRIPT:
            return _deno() if inside else _deno_of_host()
        if profile.backend == Backend.MONTY:
            return _monty()
    except FileNotFoundError as error:
        raise RunRefused(ErrorCode.ISOLATION_UNAVAILABLE, str(error)) from None
    return Engine()


def engine_of_server(programs: Iterable[str]) -> Engine:
    """Each is shown where it lies; links on the way are followed, for it is the operator's word."""
    shown = [path for path in programs if path.split("/")[1] != "usr"]
    return Engine(
        setup={"name": "server"},
        programs=shown,
        mounts=[word for path in shown for word in ("--ro-bind", path, path)],
    )


def _deno() -> Engine:
    program, script = deno.PROGRAM_INSIDE, deno.SCRIPT_INSIDE
    return Engine(
        setup={"name": "javascript", "program": program, "script": script},
        programs=deno.executables(program),
        mounts=["--ro-bind", deno.runtime(), program, "--ro-bind", deno.SCRIPT, script],
    )


def _deno_of_host() -> Engine:
    program = deno.runtime()
    return Engine(
        setup={"name": "javascript", "program": program, "script": deno.SCRIPT},
        programs=deno.executables(program),
    )


def _monty() -> Engine:
    """Its backend put the program among the profile's libraries."""
    program = "/libraries/monty"
    return Engine(
        setup={"name": "monty", "program": program}, programs=monty_backend.executables(program)
    )
