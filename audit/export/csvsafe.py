"""CSV (RFC 4180) that is safe against formula injection in spreadsheets. Pure."""

from collections.abc import Iterable

_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_PASSED_OVER = " \u00a0\"'"


def line(cells: Iterable[str]) -> bytes:
    return (",".join(_quoted(safe(cell)) for cell in cells) + "\r\n").encode()


def safe(cell: str) -> str:
    """With an apostrophe in front where a spreadsheet could compute it, also behind spaces and
    quotes: those some programs strip first."""
    if cell.startswith(_BEGINS_A_FORMULA) or cell.lstrip(_PASSED_OVER).startswith(
        _BEGINS_A_FORMULA
    ):
        return f"'{cell}"
    return cell


def _quoted(cell: str) -> str:
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
