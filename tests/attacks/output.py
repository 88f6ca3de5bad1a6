"""More output than anybody wants to keep, and output that is more than text."""

import os
import sys

from tests.attacks.attack import ALL, attack
from tests.attacks.evidence import had_control_of_the_terminal, was_believed, wrote_too_much
from tests.attacks.kit import Parameters, forever, in_child

_FLOOD = ("OUTPUT_LIMIT",)


@attack(levels=ALL, ends=_FLOOD)
def floods_standard_output(p: Parameters) -> object:
    for _ in range(4 * p["limits"]["output_bytes"] >> 10):
        print("x" * 1023)
    return ["four times as much"]


@attack(levels=ALL, ends=_FLOOD)
def floods_standard_error(p: Parameters) -> object:
    for _ in range(4 * p["limits"]["output_bytes"] >> 10):
        print("x" * 1023, file=sys.stderr)
    return ["four times as much"]


@attack(levels=ALL, ends=_FLOOD)
def floods_with_one_endless_line(p: Parameters) -> object:
    for _ in range(4 * p["limits"]["output_bytes"] >> 16):
        os.write(1, b"x" * 65536)
    return ["a line of four megabytes"]


@attack(levels=ALL, ends=(*_FLOOD, "TOOL_ERROR"))
def floods_from_many_processes(p: Parameters) -> object:
    part = p["limits"]["output_bytes"] >> 17
    children = [
        in_child(lambda: [os.write(1, b"x" * 65536) for _ in range(part)]) for _ in range(4)
    ]
    for child in children:
        os.waitpid(child, 0)
    return ["twice as much"]


@attack(levels=ALL, ends=_FLOOD)
def returns_more_than_it_may(p: Parameters) -> object:
    return "x" * (p["limits"]["output_bytes"] + 1)


@attack(levels=ALL, ends=(*_FLOOD, "MEMORY_LIMIT"))
def returns_a_list_without_end(p: Parameters) -> object:
    return [0] * (p["limits"]["output_bytes"] // 2 + 1)


@attack(levels=ALL, ends=_FLOOD, seen=(was_believed,))
def announces_more_than_it_may(p: Parameters) -> object:
    os.write(3, (1 << 31).to_bytes(4, "big") + b"R" + b"1" * 1000)
    forever()


@attack(levels=ALL, seen=(had_control_of_the_terminal,))
def writes_what_a_terminal_obeys(p: Parameters) -> object:
    """NUL and bytes that are no text; a database and a page must be able to keep them."""
    os.write(1, b"\0\x1b]0;owned\x07\xff\xfe\xed\xa0\x80 end")
    return []


@attack(levels=ALL, seen=(wrote_too_much,), ends=("TOOL_ERROR",))
def fails_with_an_enormous_message(p: Parameters) -> object:
    raise OSError("x" * 10_000_000)


@attack(levels=ALL, toothless="a closed stream harms only its owner")
def closes_what_it_should_write_to(p: Parameters) -> object:
    os.close(1)
    os.close(2)
    sys.stdout = sys.stderr = None
    return []
