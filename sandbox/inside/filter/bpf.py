"""A very small assembler for the classic BPF programs that seccomp takes."""

import struct
from collections.abc import Sequence

type Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
type Block = list[Instruction]

LOAD, AND, RETURN, JUMP = 0x20, 0x54, 0x06, 0x05
JUMP_EQUAL, JUMP_AT_LEAST = 0x15, 0x35

ALLOW, NOTIFY, KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBER_OFFSET, ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_WORD = 0xFFFFFFFF
_FARTHEST = 255


def error(number: int) -> int:
    """The action that answers with this errno."""
    return _ERRNO | number


def answer(action: int) -> Block:
    return [(RETURN, 0, 0, action)]


def load(offset: int) -> Block:
    return [(LOAD, 0, 0, offset)]


def branch(code: int, operand: int, true: Block, false: Block) -> Block:
    """Both sides must end by themselves, so nothing has to jump over the second."""
    if len(true) <= _FARTHEST:
        return [(code, 0, len(true), operand), *true, *false]
    return [(code, 1, 0, operand), (JUMP, 0, 0, len(true)), *true, *false]


def one_of(values: Sequence[int], true: Block, false: Block) -> Block:
    """Compare what was loaded. Raises ValueError when `true` is too long to be jumped over."""
    if max(len(true), len(values)) > _FARTHEST:
        raise ValueError("the jump is too far")
    *others, last = values
    hits = [(JUMP_EQUAL, len(values) - 1 - at, 0, value) for at, value in enumerate(others)]
    return [*hits, (JUMP_EQUAL, 0, len(true), last), *true, *false]


def argument_is(
    argument: int, mask: int, values: Sequence[int], true: Block, false: Block
) -> Block:
    """Of the bits of `mask`. One with upper bits looks at both halves of the argument.

    Raises ValueError for several values of an argument whose both halves count.
    """
    lower = _ARGUMENTS_OFFSET + 8 * argument  # both machines we know are little-endian
    if mask > _WORD:
        (value,) = values
        values = [value & _WORD]
        true = _word_is(lower + 4, mask >> 32, [value >> 32], true, false)
    return _word_is(lower, mask & _WORD, values, true, false)


def _word_is(at: int, mask: int, values: Sequence[int], true: Block, false: Block) -> Block:
    masked = [] if mask == _WORD else [(AND, 0, 0, mask)]
    return [*load(at), *masked, *one_of(values, true, false)]


def search(ranges: Sequence[tuple[int, Block]]) -> Block:
    """Binary search over (first number, block); each range ends where the next begins.

    A tree, not a list: the kernel runs the program once for every number when it is loaded.
    """
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = search(ranges[:middle]), search(ranges[middle:])
    return branch(JUMP_AT_LEAST, ranges[middle][0], above, below)


def for_machine(machine: str, native: Block, foreign: Block) -> Block:
    """`native` for calls of this very architecture, with the call's number loaded."""
    checked = branch(JUMP_EQUAL, ARCHITECTURES[machine], [*load(NUMBER_OFFSET), *native], foreign)
    return [*load(ARCHITECTURE_OFFSET), *checked]


def pack(program: Block) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
