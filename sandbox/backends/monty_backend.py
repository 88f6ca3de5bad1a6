"""The language VM for expressions and glue code: Monty, inside a slot of sandboxd, never the only
isolation."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sandbox.backends.backend import SlotSource
from sandbox.backends.deno import loader_of
from sandbox.daemon.subprocesses import start_child, wait_child
from sandbox.spec import Backend, IsolationLevel, Profile

_PROGRAM = "monty"
_MODULES = ("pydantic_monty", "typing_extensions")
_FIX = "Install the wheel pydantic-monty for the interpreter of sandboxd."
_PATIENCE_S = 20
_TRIAL = """
import sys
import pydantic_monty
with pydantic_monty.Monty(binary_path=sys.argv[1], min_processes=1, max_processes=1) as pool:
    with pool.checkout() as session:
        print(session.feed_run("1 + n", inputs={"n": 1}))
"""


def program() -> str:
    """The VM itself. Raises FileNotFoundError."""
    wheel = os.path.join(sysconfig.get_path("scripts"), _PROGRAM)
    found = shutil.which(wheel) or shutil.which(_PROGRAM)
    if found is None:
        raise FileNotFoundError("the program monty is not in the environment")
    return os.path.realpath(found)


def libraries() -> tuple[str, ...]:
    """What a profile mounts beside its own: the client of the VM, and the VM as `monty`.

    Raises FileNotFoundError.
    """
    return (*(_place(name) for name in _MODULES), program())


def executables(inside: str) -> list[str]:
    """All that may be executed where nothing else may: the VM as `inside`, and its loader."""
    loader = loader_of(program())
    return [inside, *([] if loader is None else [loader])]


class MontyBackend:
    """Its slots are those of sandboxd's own sandbox, which `make` has made of a wider profile."""

    name = Backend.MONTY
    ceiling = IsolationLevel.RESTRICTED
    network = False

    def __init__(self, make: Callable[[Profile], SlotSource]) -> None:
        self._make = make

    def flaw(self) -> str | None:
        try:
            output = _try()
        except (OSError, subprocess.SubprocessError) as error:
            return f"Monty does not run here: {error}. {_FIX}"
        return None if output == "2" else f"Monty does not run here: {output[-200:]}. {_FIX}"

    def template(self, profile: Profile) -> SlotSource:
        return self._make(replace(profile, libraries=(*profile.libraries, *libraries())))


def _try() -> str:
    """A sum, worked out in a process of its own, for the client starts threads."""
    process = start_child(
        [sys.executable, "-I", "-c", _TRIAL, program()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
        cwd="/",
    )
    try:
        out, error = process.communicate(timeout=_PATIENCE_S)
    finally:
        process.kill()
        wait_child(process)
    return (out or error).decode("utf-8", "replace").strip()


def _place(module: str) -> str:
    """The directory of a package, or the file of a single module."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{module} is not in the environment")
    origin = Path(found.origin)
    return str(origin.parent if found.submodule_search_locations else origin)
