"""Results as a person reads them: aligned columns, no colours, no frames."""

from collections.abc import Iterable, Sequence

GAP = "  "
NOTHING = "-"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last one is as long as it likes."""
    lines = [tuple(header), *(tuple(cell or NOTHING for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(header))]
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """One `Name:  value` a line, the values below each other."""
    named = [(f"{name}:", value or NOTHING) for name, value in pairs]
    width = max(len(name) for name, _ in named)
    return "\n".join(f"{name.ljust(width)}{GAP}{value}" for name, value in named)


def names(given: Iterable[str]) -> str:
    return ", ".join(given)
