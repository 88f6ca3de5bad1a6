"""A very small assembler for the classic BPF programs that seccomp takes."""

import struct
from collections.abc import Sequence

type Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
type Block = list[Instruction]

LOAD, RETURN, AND = 0x20, 0x06, 0x54
JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT = 0x15, 0x35, 0x45

ALLOW, KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

NUMBER_OFFSET, ARCHITECTURE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16


def refuse(error: int) -> Block:
    return [(RETURN, 0, 0, _ERRNO | error)]


def answer(action: int) -> Block:
    return [(RETURN, 0, 0, action)]


def load(offset: int) -> Block:
    return [(LOAD, 0, 0, offset)]


def load_argument(index: int) -> Block:
    """The low half only: the filtered arguments are ints, whose upper half the kernel ignores."""
    return load(_ARGUMENTS_OFFSET + 8 * index)


def branch(code: int, operand: int, true: Block, false: Block) -> Block:
    """Both sides must end by themselves, so nothing has to jump over the second."""
    if len(true) > 255:
        raise ValueError("the jump is too far")
    return [(code, 0, len(true), operand), *true, *false]


def search(ranges: Sequence[tuple[int, Block]]) -> Block:
    """Binary search over (first number, block); each range ends where the next begins.

    A tree, not a list: the kernel runs the program once for every number when it is loaded.
    """
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = search(ranges[:middle]), search(ranges[middle:])
    if len(below) > 255:
        raise ValueError("the jump is too far")
    return [(JUMP_AT_LEAST, len(below), 0, ranges[middle][0]), *below, *above]


def pack(program: Block) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
