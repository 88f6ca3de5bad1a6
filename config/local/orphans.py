"""Orphans: processes that a killed supervisor left running, found by the next one.

The kernel signals every child when its supervisor dies. What ignores that, or lost its own parent
at the same moment, is still in a session whose number is in `<data>/processes.json`.
"""

import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 10.0


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    started: int  # clock ticks since the machine started; with the pid, unique until a restart
    zombie: bool


def list_processes() -> list[Process]:
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process]


def read_process(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] == "Z")


def machine_start() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def record_leaders(record: Path, leaders: Iterable[int]) -> None:
    """Written atomically. Raises OSError where the disk is full; the former record remains then."""
    started = {p.pid: p.started for pid in leaders if (p := read_process(pid))}
    draft = record.with_suffix(".new")
    draft.write_text(json.dumps({"machine": machine_start(), "leaders": started}), encoding="utf-8")
    draft.replace(record)


def survivors(record: Path) -> list[Process]:
    """Living members of the sessions in the record.

    A session's number is not given away while it has members; where the leader's own number was
    given away (another start time), none of its members is left.
    """
    try:
        noted = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    if noted["machine"] != machine_start():
        return []
    ours = {int(pid): started for pid, started in noted["leaders"].items()}
    alive = [process for process in list_processes() if not process.zombie]
    reused = {p.pid for p in alive if p.pid in ours and p.started != ours[p.pid]}
    return [p for p in alive if p.session in ours and p.session not in reused]


def end_survivors(record: Path) -> None:
    """Waits for those that are stopping; kills what has lost its leader or takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while left := survivors(record):
        leaders = {process.pid for process in left}
        for process in left:
            if process.session not in leaders or time.monotonic() > deadline:
                kill(process.pid)
        time.sleep(0.05)
    record.unlink(missing_ok=True)


def reap_adopted(known: frozenset[int], spared_sessions: frozenset[int]) -> None:
    """Ends orphans that fell to this process: their parent was one of ours and has died."""
    for process in list_processes():
        if process.parent != os.getpid() or process.pid in known:
            continue
        if process.zombie:
            os.waitpid(process.pid, os.WNOHANG)
        elif process.session not in spared_sessions:
            kill(process.pid)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
