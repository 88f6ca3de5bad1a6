"""Bounds the cost of planning a query: endpoints plan joins for minutes, and parse long chains of
operators recursively, until their stack overflows and they crash.

What is counted is counted without the whole grammar, and where that leaves a doubt, as more. Rows
of VALUES and lists of IN are data: they cost next to nothing, and are bounded by the length alone.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

MOST_PATTERNS = 100  # Oxigraph plans a join of 100 in about 3 s, of 200 in more than 25 s
MOST_CLAUSES = 100  # 1,000 of MINUS have filled 2 MiB of stack, 500 have not
MOST_OPERATIONS = 200  # as have 2,000 of +
_CLAUSES = re.compile("FILTER|UNION|MINUS|OPTIONAL|VALUES|EXISTS|SELECT")
_OPERATORS = frozenset({"!", "+", "-", "*", "/", "|", "^", "&&", "||"})
_TERMS = frozenset({"iri", "long", "short", "variable", "blank", "prefixed", "number"})
_BOOLEANS = ("TRUE", "FALSE")
_TRIPLE_STARTS = frozenset({"[", "(", "+", "-"})
_BEFORE_A_START = frozenset({"{", "}", ".", ")"})
_BEFORE_A_PATH = frozenset({"/", "|", "^", "!", "=", "<", ">", "&&", "||", "!=", "<=", ">="})
_PATTERN, _DATA, _NODE, _LIST, _EXPRESSION = "{", "data", "[", "list", "("

type Word = tuple[str, str]


def exceeded_limit(words: Sequence[Word]) -> str:
    """The exceeded limit of a query whose brackets match, if any: the end of a sentence."""
    if any(
        before[0] == "mark" and _is_nested_statement(before[1], word[1])
        for before, word in pairwise(words)
    ):
        return "may not be about statements about statements"
    asked = _ComplexityCounter([word for word in words if word[0] != "space"])
    for count, most, what in (
        (asked.patterns, MOST_PATTERNS, "patterns, steps of paths and blocks of VALUES"),
        (asked.clauses, MOST_CLAUSES, "clauses such as FILTER, UNION, OPTIONAL and BIND"),
        (asked.operations, MOST_OPERATIONS, "operators and parentheses"),
    ):
        if count > most:
            return f"has more than {most} {what}"
    return ""


def _is_nested_statement(mark: str, behind: str) -> bool:
    """`<<` and `{|`, which are not SPARQL 1.1; also where `<<?s?p?o>>` looks like an IRI."""
    return (mark == "<" and behind.startswith("<")) or (mark, behind) == ("{", "|")


class _ComplexityCounter:
    """`patterns` counts what is joined: triples, steps of paths, blocks of VALUES."""

    def __init__(self, written: Sequence[Word]) -> None:
        self.patterns = self.clauses = self.operations = 0
        self._places: list[str] = []  # of the brackets that are open
        self._data_follows = False
        for before, word in pairwise([("mark", ""), *written]):
            if self._place != _DATA:
                self._count(before, word)
            self._move(before, word)

    @property
    def _place(self) -> str:
        return self._places[-1] if self._places else ""

    def _count(self, before: Word, word: Word) -> None:
        kind, text = word
        if kind == "word":
            clauses = _CLAUSES.findall(text.upper())
            self.clauses += len(clauses)
            self.patterns += "VALUES" in clauses
        if kind == "mark":
            self.operations += text in _OPERATORS or text == "("
            self.clauses += text == "(" and self._computes(before)
        self.patterns += sum(self._joined(before, word))

    def _computes(self, before: Word) -> bool:
        """BIND, a column of SELECT, a term of GROUP BY or HAVING: each is planned on the last."""
        return self._place in {"", _PATTERN} and not before[1].upper().endswith("FILTER")

    def _joined(self, before: Word, word: Word) -> Iterator[int]:
        """Counts the triples that begin here; a list in a pattern has two for each of its items."""
        text, starts = word[1], _is_term(word) or word[1] in _TRIPLE_STARTS
        yield text in {"/", "["}
        if self._place in {_PATTERN, _NODE}:
            yield text in {",", ";"}
        if self._place == _PATTERN:
            yield starts and before[1] in _BEFORE_A_START
        if self._place == _LIST and starts and before[1] not in _BEFORE_A_PATH:
            yield 2

    def _move(self, before: Word, word: Word) -> None:
        kind, text = word
        if kind == "word" and text.upper().endswith("VALUES"):
            self._data_follows = True
        elif kind != "mark":
            return
        elif text == "{":
            template = not self._places and before[1].upper() == "CONSTRUCT"
            self._places.append(_DATA if self._data_follows or template else _PATTERN)
            self._data_follows = False
        elif text in {"(", "["}:
            self._places.append(_NODE if text == "[" else self._parenthesis(before))
        elif text in {"}", ")", "]"}:
            self._places.pop()

    def _parenthesis(self, before: Word) -> str:
        """A list of a pattern is in the place of a term; a group of a path counts as one too."""
        if self._place == _DATA:
            return _DATA
        within = self._place in {_PATTERN, _NODE, _LIST}
        called = before[0] == "word" and not _is_term(before)
        return _LIST if within and not called and before[1] not in _BEFORE_A_PATH else _EXPRESSION


def _is_term(word: Word) -> bool:
    """Some endpoints read `truea` as two words."""
    kind, text = word
    return kind in _TERMS or (
        kind == "word" and (text == "a" or text.upper().startswith(_BOOLEANS))
    )
