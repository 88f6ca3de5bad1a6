"""CSV (RFC 4180) that is safe against formula injection in spreadsheets. Pure."""

from collections.abc import Iterable

_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_STRIPPED_PREFIXES = " \u00a0\"'"


def csv_row(cells: Iterable[str]) -> bytes:
    return (",".join(_quote_cell(escape_formula(cell)) for cell in cells) + "\r\n").encode()


def escape_formula(cell: str) -> str:
    """With an apostrophe in front where a spreadsheet could compute it, also behind spaces and
    quotes: those some programs strip first."""
    if cell.startswith(_FORMULA_PREFIXES) or cell.lstrip(_STRIPPED_PREFIXES).startswith(
        _FORMULA_PREFIXES
    ):
        return f"'{cell}"
    return cell


def _quote_cell(cell: str) -> str:
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell
