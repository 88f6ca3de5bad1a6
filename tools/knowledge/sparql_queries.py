"""Validates SPARQL queries of callers: read-only, and only over the graphs that they are given.

The graphs are fixed by the protocol, whatever a query says (SPARQL 1.1 Protocol, 2.1.4). What the
protocol cannot forbid is `SERVICE`, which would make the endpoint call any server; `FROM` and
`GRAPH` are refused because a graph is not the caller's to choose.

Parsers of endpoints differ. One reads `trueSERVICE:x` as three words, and `?a<x:b)SERVICE#>` for a
comparison and a comment where the grammar sees an IRI. So a query is split into tokens of the
grammar, everything on which two parsers could disagree is refused, and the query that is sent is
generated from those tokens: on one line, where a comment would swallow the query and end it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tools.definitions.texts.names import similar_name
from tools.knowledge import query_complexity, rdf_terms

LONGEST_QUERY = 10_000  # characters
_DEEPEST_NESTING = 64
_MOST_TOKENS = 5_000
_LETTER = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff"
_LETTER += "\u200c-\u200d\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
_LETTER += "\U00010000-\U000effff"
_NAME = f"[{_LETTER}0-9_\u00b7\u0300-\u036f\u203f-\u2040-]"
_LOCAL = rf"(?:{_NAME}|[:.]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"
_ESCAPE = r"""\\[tbnrf\\"']"""
_LONG = "|".join(rf"{q * 3}(?:{q}{{0,2}}(?:[^{q}\\]|{_ESCAPE}))*+{q * 3}" for q in "\"'")
_SHORT = "|".join(rf"{q}(?:[^{q}\\\r\n]|{_ESCAPE})*+{q}" for q in "\"'")
# Tokens, in the order in which they are tried. There is no backtracking: each is read once.
_TOKENS = re.compile(
    rf"""
      (?P<space>(?:[\x20\t\r\n]++|\#[^\r\n]*+)++)
    | (?P<iri><[^<>"{{}}|^`\\\x00-\x20]*+>)
    | (?P<long>{_LONG})
    | (?P<short>{_SHORT})
    | (?P<variable>[?$][{_LETTER}0-9_](?:[{_LETTER}0-9_\u00b7\u0300-\u036f\u203f-\u2040])*+)
    | (?P<blank>_:[{_LETTER}0-9_](?:{_NAME}|\.)*+)
    | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+)
    | (?P<prefixed>(?:[{_LETTER}](?:{_NAME}|\.)*+)?:{_LOCAL}*+)
    | (?P<word>[A-Za-z_][A-Za-z0-9_-]*+)
    | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
    | (?P<mark>\^\^|&&|\|\||!=|<=|>=|[{{}}()\[\].,;=<>!+*/|^?-])
    """,
    re.VERBOSE | re.DOTALL,
)
_READ_FORMS = frozenset({"SELECT", "ASK"})
STATEMENT_FORMS = frozenset({"CONSTRUCT", "DESCRIBE"})
_PROLOGUE = frozenset({"PREFIX", "BASE"})
_AFTER_GROUP = frozenset({"GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "VALUES"})
_EMPTY_GROUP = (
    ("space", " "), ("word", "WHERE"), ("space", " "), ("mark", "{"), ("space", " "), ("mark", "}"),
    ("space", " "),
)  # fmt: skip
_REFUSED_KEYWORDS = {
    "SERVICE": "may not call other endpoints (SERVICE)",
    "FROM": "may not name its graphs (FROM): the tool's definition says which",
    "GRAPH": "may not name its graphs (GRAPH): the tool's definition says which",
}
_UPDATE_KEYWORDS = frozenset(
    {
        "INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "ADD", "MOVE", "COPY", "WITH",
        "USING",
    }
)  # fmt: skip
_OPENING, _CLOSING = frozenset("{(["), {"}": "{", ")": "(", "]": "["}


class BadGraphQuery(ValueError):
    """The query must not be sent; the message says why, for its author."""


@dataclass(frozen=True, slots=True)
class Query:
    """`text` is equivalent to the author's, on one line."""

    text: str
    asks: bool
    states: bool = False  # returns statements, not rows
    limited: bool = False  # by a LIMIT of its own, or a clause that has to come last

    def with_limit(self, limit: int) -> str:
        """The text, with a limit where it has none."""
        return self.text if self.asks or self.limited else f"{self.text} LIMIT {int(limit)}"


def read_query(
    text: str, *, statements: bool = False, parameters: Mapping[str, Any] | None = None
) -> Query:
    """`statements` allows CONSTRUCT and DESCRIBE as well. `parameters` are values for variables, by
    name. Raises `BadGraphQuery`, and `BadTerm` for a value that is no RDF term."""
    if len(text) > LONGEST_QUERY:
        raise BadGraphQuery(f"The query is longer than {LONGEST_QUERY} characters.")
    if re.search(r"\\[uU]", text):
        raise BadGraphQuery("The query may not hold \\u escapes; write the character itself.")
    if re.search("[\ud800-\udfff]", text):
        raise BadGraphQuery("The query holds half a character.")
    forms = _READ_FORMS | STATEMENT_FORMS if statements else _READ_FORMS
    words = _tokenize(text, forms)
    _check_brackets(words)
    if parameters:
        words = _bind_parameters(words, parameters)
    if too_much := query_complexity.exceeded_limit(words):
        raise BadGraphQuery(f"The query {too_much}.")
    kind = _query_form(words, forms)
    written = "".join(_render_token(*word) for word in words).strip()
    return Query(
        written, asks=kind == "ASK", states=kind in STATEMENT_FORMS, limited=_has_limit(words)
    )


@dataclass(eq=False)
class _Block:
    """A query (the outermost one or a subquery), a group of patterns, or data in braces."""

    start: int  # where VALUES may be inserted: behind the opening brace
    is_query: bool = False
    is_data: bool = False
    where: "_Block | None" = None  # of a query: its group
    parentheses: int = 0
    variables: set[str] = field(default_factory=set)


def _bind_parameters(
    words: list[tuple[str, str]], parameters: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """The query with a VALUES for each parameter in every group that mentions its variable.

    A group does not see variables of the groups around it, so one VALUES is not enough; and one
    after the query is joined only after rows were counted.
    """
    values = {_variable(name): _parameter_term(name, value) for name, value in parameters.items()}
    if sum(map(len, values.values())) > LONGEST_QUERY:
        raise BadGraphQuery(f"The parameters are longer than {LONGEST_QUERY} characters.")
    _check_parameters(words, values)
    root, groups = _find_blocks(words)
    if root.where is None:  # DESCRIBE ?x
        words = _add_empty_group(words)
        _, groups = _find_blocks(words)
    found = list(words)
    for group in sorted(groups, key=lambda one: -one.start):
        found[group.start : group.start] = [
            word
            for name in values
            if name in group.variables
            for word in _values_tokens(name, values)
        ]
    return found


def _add_empty_group(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """With an empty group of patterns, which comes before ORDER BY, LIMIT and the like."""
    behind = (at for at, (kind, text) in enumerate(words)
              if kind == "word" and text.upper() in _AFTER_GROUP)  # fmt: skip
    at = next(behind, len(words))
    return [*words[:at], *_EMPTY_GROUP, *words[at:]]


def _variable(name: str) -> str:
    bare = name[1:] if name[:1] in {"?", "$"} else name
    match = _TOKENS.fullmatch(f"?{bare}")
    if match is None or match.lastgroup != "variable":
        raise BadGraphQuery(f"parameters.{name[:60]} is no name of a variable.")
    return bare


def _parameter_term(name: str, value: Any) -> str:
    try:
        written = rdf_terms.sparql_term(value)
    except (ValueError, TypeError) as flaw:
        raise rdf_terms.BadTerm(
            f"parameters.{name[:60]} is no RDF term: {str(flaw)[:200]}"
        ) from None
    if written.startswith("<"):
        _check_token("iri", written, _READ_FORMS)
    return written


def _values_tokens(name: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    kind = "iri" if values[name].startswith("<") else "short"
    words = [("word", "VALUES"), ("variable", f"?{name}"), ("mark", "{"), (kind, values[name])]
    return [one for word in (*words, ("mark", "}")) for one in (("space", " "), word)] + [
        ("space", " ")
    ]


def _check_parameters(words: list[tuple[str, str]], values: Mapping[str, str]) -> None:
    """Raises `BadGraphQuery` for a parameter that the query does not use, or assigns itself."""
    used = {text[1:] for kind, text in words if kind == "variable"}
    plain = [word for word in words if word[0] != "space"]
    for name in values:
        if name not in used:
            near = similar_name(name, used)
            suggestion = f"; is ?{near} meant?" if near else ""
            raise BadGraphQuery(f"The query has no variable ?{name} for its parameter{suggestion}.")
        for before, (kind, text) in pairwise(plain):
            if before[1].upper() == "AS" and kind == "variable" and text[1:] == name:
                raise BadGraphQuery(f"The query assigns ?{name} (AS), which is a parameter.")


def _find_blocks(words: list[tuple[str, str]]) -> tuple[_Block, list[_Block]]:
    """The outermost query, and every group of patterns with the variables it mentions."""
    root = _Block(0, is_query=True)
    stack, groups, before, data = [root], list[_Block](), "", False
    for at, (kind, text) in enumerate(words):
        top = stack[-1]
        if kind == "space":
            continue
        if kind == "variable":
            _innermost_pattern(stack).variables.add(text[1:])
        elif kind == "word":
            data = data or text.upper() == "VALUES"
            if text.upper() == "WHERE" and before == "CONSTRUCT":
                raise BadGraphQuery("CONSTRUCT WHERE takes no parameters; write out its template.")
            if text.upper() == "SELECT" and top in groups and before == "{":
                groups.remove(top)
                top.is_query = True
        elif text == "{":
            template = top is root and before == "CONSTRUCT"
            _open_block(stack, groups, _Block(at + 1, is_data=data or template))
            data = False
        elif text == "}":
            done = stack.pop()
            if done.is_query and done.where:
                done.where.variables |= done.variables
        elif text in {"(", ")"} and kind == "mark":
            top.parentheses += 1 if text == "(" else -1
        before = text.upper()
    if root.where:
        root.where.variables |= root.variables
    return root, groups


def _open_block(stack: list[_Block], groups: list[_Block], block: _Block) -> None:
    within = stack[-1]
    stack.append(block)
    if block.is_data:
        return
    groups.append(block)
    if within.is_query and within.where is None and not within.parentheses:
        within.where = block


def _innermost_pattern(stack: list[_Block]) -> _Block:
    return next(block for block in reversed(stack) if not block.is_data)


def _has_limit(words: list[tuple[str, str]]) -> bool:
    """Whether LIMIT or VALUES follows the last brace."""
    closed = max((at for at, word in enumerate(words) if word == ("mark", "}")), default=0)
    tail = {text.upper() for kind, text in words[closed:] if kind == "word"}
    return "LIMIT" in tail or _ends_with_values(words)


def _ends_with_values(words: list[tuple[str, str]]) -> bool:
    """Whether the block that is closed last belongs to a VALUES of the whole query."""
    depth, at_top = 0, ""
    for kind, text in words:
        if kind == "mark" and text in {"{", "}"}:
            depth += 1 if text == "{" else -1
        elif kind == "word" and depth == 0:
            at_top = text.upper()
    return at_top == "VALUES"


def _tokenize(text: str, forms: frozenset[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or match.lastgroup is None:
            raise BadGraphQuery(f"The query cannot be read at character {at + 1}.")
        found.append((match.lastgroup, match.group()))
        _check_token(*found[-1], forms)
        at = match.end()
        if len(found) > _MOST_TOKENS:
            raise BadGraphQuery(f"The query has more than {_MOST_TOKENS} words.")
        if match.lastgroup == "short" and text[at : at + 1] == text[at - 1]:
            raise BadGraphQuery(f"A text that begins at character {match.start() + 1} has no end.")
    return found


def _check_token(kind: str, text: str, forms: frozenset[str]) -> None:
    if kind == "iri" and re.search(r"['()]", text):
        raise BadGraphQuery("An IRI in angle brackets may not hold quotes or parentheses.")
    if kind == "word":
        _check_keyword(text.upper(), forms)
    if kind in {"prefixed", "blank"}:
        prefix, _, local = text.partition(":")
        _check_keyword(prefix.upper(), forms)
        if re.search(r"\.[^:]*service", local, re.IGNORECASE):
            raise BadGraphQuery("A name may not hold the word service after a full stop.")


def _check_keyword(word: str, forms: frozenset[str]) -> None:
    """SERVICE also as a part: some endpoints read keywords without a gap between them."""
    for refused, why in _REFUSED_KEYWORDS.items():
        if word == refused or (refused == "SERVICE" and refused in word):
            raise BadGraphQuery(f"The query {why}.")
    if word in _UPDATE_KEYWORDS:
        raise BadGraphQuery(f"The query may only {_list_forms(forms)}; it says {word}.")


def _check_brackets(words: list[tuple[str, str]]) -> None:
    open_ones: list[str] = []
    for kind, text in words:
        if kind != "mark":
            continue
        if text in _OPENING:
            open_ones.append(text)
        elif text in _CLOSING and (not open_ones or open_ones.pop() != _CLOSING[text]):
            raise BadGraphQuery(f"The query closes {text} where none is open.")
        if len(open_ones) > _DEEPEST_NESTING:
            raise BadGraphQuery(f"The query nests deeper than {_DEEPEST_NESTING} brackets.")
    if open_ones:
        raise BadGraphQuery(f"The query does not close {open_ones[-1]}.")


def _query_form(words: list[tuple[str, str]], forms: frozenset[str]) -> str:
    """The first keyword after the prologue."""
    for kind, text in words:
        if kind == "word" and text.upper() not in _PROLOGUE:
            if text.upper() in forms:
                return text.upper()
            break
        if kind not in {"word", "space", "iri", "prefixed"}:
            break
    raise BadGraphQuery(f"The query must be one of {_list_forms(forms)}.")


def _list_forms(forms: frozenset[str]) -> str:
    *most, last = sorted(forms)
    return f"{', '.join(most)} or {last}"


def _render_token(kind: str, text: str) -> str:
    if kind == "space":
        return " "
    if kind == "long":
        return _quote_on_one_line(text[3:-3], text[0])
    return text


def _quote_on_one_line(inside: str, quote: str) -> str:
    """The same text between single quotes, on one line."""
    inside = inside.replace("\r", "\\r").replace("\n", "\\n")
    return quote + re.sub(rf"(\\.)|{quote}", lambda m: m.group(1) or "\\" + quote, inside) + quote
