"""Read the ELF loader of a program: it must be executable wherever the program is."""

import struct
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian: x86_64 and aarch64
_HEADER_BYTES = 64
_TABLE = struct.Struct("=32xQ14xHH")  # where the program headers begin, size and number
_PROGRAM = struct.Struct("=IIQQQQ")
_INTERPRETER = 3


def loader_of(program: str) -> str | None:
    """The path as the program says it; None for a static one. Raises ValueError, OSError."""
    with Path(program).open("rb") as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise ValueError(f"{program} is not a program of this machine")
        start, size, count = _TABLE.unpack_from(header)
        file.seek(start)
        table = file.read(size * count)
        for at in range(0, len(table), size):
            kind, _, offset, _, _, length = _PROGRAM.unpack_from(table, at)
            if kind == _INTERPRETER:
                file.seek(offset)
                return file.read(length).rstrip(b"\0").decode()
    return None
