"""The definition of an upstream tool as text, for review before an import."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tools.ui.display import pretty
from tools.ui.visible import VisiblePiece, mixed_words, pieces


@dataclass(frozen=True)
class DefinitionText:
    """`hidden` is the number of invisible characters; each is a piece of `whole`."""

    whole: list[VisiblePiece]
    hidden: int
    mixed: list[str]
    signs: list[list[VisiblePiece]]  # of a poisoned definition


def definition_text(raw: dict[str, Any], suspicions: Iterable[str]) -> DefinitionText:
    text = pretty(raw)
    whole = pieces(text)
    hidden = sum(bool(piece.name) for piece in whole)
    return DefinitionText(whole, hidden, mixed_words(text), [pieces(one) for one in suspicions])
