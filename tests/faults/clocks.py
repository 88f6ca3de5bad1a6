"""A wall clock that can be turned, for the processes of one crib."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


@dataclass(frozen=True)
class Clock:
    library: Path
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        """For `up`; web, worker, beat and sealer inherit it. The stores, sandboxd and the egress
        broker are started with an environment of their own, and keep the true time."""
        return {"LD_PRELOAD": str(self.library), "FAULTS_CLOCK": str(self.file)}

    def set_offset(self, seconds: int) -> None:
        """So far from the true time it is, at once and for all of them; zero is true."""
        with self.file.open("r+b") as out:
            out.write(struct.pack("=q", seconds))


def make_clock(place: Path) -> Clock | None:
    """None where there is no C compiler."""
    clock = Clock(place / "clock.so", place / "clock")
    clock.file.write_bytes(struct.pack("=q", 0))
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(clock.library)]
    try:
        subprocess.run([*command, str(SOURCE)], check=True)
    except FileNotFoundError:
        return None
    return clock
