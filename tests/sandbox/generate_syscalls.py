"""`python -m tests.sandbox.generate_syscalls`: write the table of numbers with libseccomp."""

import textwrap
from pathlib import Path

from sandbox.inside.filter.bpf import ARCHITECTURES
from tests.sandbox.libseccomp import Library

TARGET = Path(__file__).resolve().parents[2] / "sandbox" / "inside" / "filter" / "syscalls.py"
TEXT = '''\
"""The numbers of all system calls: name → (on x86_64, on aarch64); None: no such call there.

Written by `python -m tests.sandbox.generate_syscalls` from what libseccomp knows; not by hand.
"""

type Numbers = tuple[int | None, int | None]

MACHINES = ({machines})

# fmt: off
NUMBERS: dict[str, Numbers] = {{
{entries}
}}
# fmt: on


def table(machine: str) -> dict[str, int]:
    """Raises ValueError for a machine without a table: there is no run without a filter."""
    if machine not in MACHINES:
        raise ValueError(f"no table of system calls for {{machine}}")
    column = MACHINES.index(machine)
    found = ((name, numbers[column]) for name, numbers in NUMBERS.items())
    return {{name: number for name, number in found if number is not None}}


def number(name: str, machine: str) -> int:
    """Raises ValueError for a machine without a table, KeyError for a call it does not have."""
    return table(machine)[name]
'''


def generate() -> str:
    tables = [Library().table(machine) for machine in ARCHITECTURES]
    names = sorted(set().union(*tables))
    entries = ", ".join(
        f'"{name}":·({tables[0].get(name)},·{tables[1].get(name)})' for name in names
    )
    lines = textwrap.wrap(entries + ",", 95, break_on_hyphens=False, break_long_words=False)
    body = "\n".join(f"    {line}" for line in lines).replace("·", " ")
    machines = ", ".join(f'"{machine}"' for machine in ARCHITECTURES)
    return TEXT.format(machines=machines, entries=body)


if __name__ == "__main__":
    TARGET.write_text(generate())
