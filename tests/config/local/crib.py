"""A supervisor over stand-in processes, as a process of its own: python crib.py DATA.

Each stand-in has a helper in its session and one in a session of its own, writes the three
process ids to DATA/<name>.pids, and waits.
"""

import sys
from pathlib import Path

from config.local.child_processes import ProcessSpec
from config.local.supervisor import Supervisor

STAND_IN = """
import os, subprocess, sys, signal
helper = subprocess.Popen(["sleep", "600"])
runaway = subprocess.Popen(["sleep", "601"], start_new_session=True)
with open(sys.argv[1] + ".new", "w") as out:
    out.write(f"{os.getpid()} {helper.pid} {runaway.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
signal.pause()
"""


def stand_in(data: Path, name: str) -> ProcessSpec:
    pids = data / f"{name}.pids"
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-c", STAND_IN, str(pids)),
        directory=data,
        ready=pids.exists,
        before_start=lambda: pids.unlink(missing_ok=True),
        grace_s=5,
    )


def main(data: Path) -> None:
    crib = Supervisor(data, report=lambda text: print(text, flush=True))
    with crib.signals(), crib:
        crib.start(stand_in(data, "first"), stand_in(data, "second"))
        crib.report("ready")
        crib.watch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
