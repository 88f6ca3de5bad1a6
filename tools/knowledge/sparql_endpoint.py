"""A client of a SPARQL 1.1 endpoint over HTTP. Responses are untrusted and bounded."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from tools.definitions.values import strict_json
from tools.httpclient.upstream_pool import (
    Broken,
    RequestBounds,
    Unreachable,
    UpstreamPool,
    UpstreamResponse,
)

log = logging.getLogger(__name__)
_QUERY_TYPE, _UPDATE_TYPE = "application/sparql-query", "application/sparql-update"
_RESULTS_TYPE = "application/sparql-results+json"
_N_TRIPLES = "application/n-triples"
_TAB_SEPARATED = "text/tab-separated-values"
_LONGEST_LINE = 100_000
_LONGEST_COMPLAINT = 2_000
_LONGEST_EXCERPT = 300
_TERM_TYPES = frozenset({"uri", "literal", "bnode", "typed-literal"})
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class SparqlEndpoint:
    query_url: str
    update_url: str


@dataclass(frozen=True)
class EndpointGraph:
    """The one graph of an endpoint that a query reads."""

    endpoint: SparqlEndpoint
    iri: str


@dataclass(frozen=True)
class QueryRows:
    """`truncated` says that there are more."""

    variables: list[str]
    rows: list[dict[str, Any]]
    truncated: bool


class EndpointFailure(Exception):
    """No answer. `lost` says that an update may have been applied nevertheless."""

    def __init__(self, code: str, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.lost = code, message, lost


@lru_cache(maxsize=1)
def _connection_pool() -> UpstreamPool:
    """The connections of this process to the installation's endpoint, which calls share."""
    return UpstreamPool()


def select(
    graph: EndpointGraph, text: str, bounds: RequestBounds, *,
    limit: int, most_bytes: int,
) -> QueryRows:  # fmt: skip
    """Raises `EndpointFailure`, and what ends a run."""
    document = _query_results(graph, text, bounds, most_bytes)
    results, head = _member(document, "results"), _member(document, "head")
    bindings, names = results.get("bindings"), head.get("vars")
    if not isinstance(bindings, list) or not isinstance(names, list):
        raise _unreadable("results without rows")
    rows = [_row(one) for one in bindings[:limit]]
    return QueryRows(
        [_remove_controls(str(name)) for name in names[:1000]], rows, len(bindings) > limit
    )


def ask(
    graph: EndpointGraph, text: str, bounds: RequestBounds, *,
    most_bytes: int,
) -> bool:  # fmt: skip
    """Raises `EndpointFailure`, and what ends a run."""
    answer = _query_results(graph, text, bounds, most_bytes).get("boolean")
    if not isinstance(answer, bool):
        raise _unreadable("an answer that is neither true nor false")
    return answer


def construct(
    graph: EndpointGraph, text: str, bounds: RequestBounds, *,
    most_bytes: int,
) -> bytes:  # fmt: skip
    """Statements, as N-Triples. Raises `EndpointFailure`, and what ends a run."""
    return _fetch_body(graph, text, bounds, most_bytes, accept=_N_TRIPLES)


def stream_rows(graph: EndpointGraph, text: str, bounds: RequestBounds) -> Iterator[bytes]:
    """The rows of a SELECT as tab-separated values, as they come, without the head.

    They are streamed, regardless of their number. Raises `EndpointFailure`, and what ends a run.
    """
    return islice(_split_lines(_stream_body(graph, text, bounds, _TAB_SEPARATED)), 1, None)


def stream_statements(graph: EndpointGraph, text: str, bounds: RequestBounds) -> Iterator[bytes]:
    """The statements of `construct`, streamed in pieces. Raises as `lines` does."""
    return _stream_body(graph, text, bounds, _N_TRIPLES)


def _stream_body(
    graph: EndpointGraph, text: str, bounds: RequestBounds, accept: str
) -> Iterator[bytes]:
    try:
        with _post_query(graph, text, bounds, accept=accept) as answer:
            yield from answer.pieces
    except Unreachable as error:
        raise _unreachable(error) from None
    except Broken as error:
        raise _cut_answer(error) from None


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST_LINE:
            raise _unreadable("a line without end")
    if rest:
        yield rest


def update(endpoint: SparqlEndpoint, text: str, bounds: RequestBounds) -> None:
    """Raises `EndpointFailure`, and what ends a run."""
    headers = {"Content-Type": _UPDATE_TYPE}
    try:
        with _connection_pool().post(endpoint.update_url, headers, text.encode(), bounds) as answer:
            if answer.status not in {200, 202, 204}:
                raise _refusal(answer)
            answer.body(_LONGEST_COMPLAINT)
    except Unreachable as error:
        raise _unreachable(error) from None
    except Broken as error:
        log.error("the answer of the SPARQL endpoint to an update was lost: %s", error)
        raise EndpointFailure("LOST", "The knowledge store's answer was lost.", lost=True) from None


def _query_results(
    graph: EndpointGraph, text: str, bounds: RequestBounds, most_bytes: int
) -> dict[str, Any]:
    body = _fetch_body(graph, text, bounds, most_bytes, accept=_RESULTS_TYPE)
    try:
        document = strict_json.parse(body)
    except strict_json.BadJson as error:
        raise _unreadable(str(error)) from None
    if not isinstance(document, dict):
        raise _unreadable("no object")
    return document


def _fetch_body(
    graph: EndpointGraph, text: str,
    bounds: RequestBounds, most_bytes: int, *,
    accept: str,
) -> bytes:  # fmt: skip
    try:
        with _post_query(graph, text, bounds, accept=accept) as answer:
            return _read_body(answer, most_bytes)
    except Unreachable as error:
        raise _unreachable(error) from None
    except Broken as error:
        raise _cut_answer(error) from None


@contextmanager
def _post_query(
    graph: EndpointGraph, text: str, bounds: RequestBounds, *, accept: str
) -> Iterator[UpstreamResponse]:
    """The graph is the query's default graph, and no other can be named in it."""
    url = add_query(graph.endpoint.query_url, {"default-graph-uri": graph.iri})
    headers = {"Content-Type": _QUERY_TYPE, "Accept": accept}
    with _connection_pool().post(url, headers, text.encode(), bounds) as answer:
        if answer.status != 200:
            raise _refusal(answer)
        yield answer


def _cut_answer(error: Exception) -> EndpointFailure:
    log.error("the answer of the SPARQL endpoint was cut: %s", error)
    return EndpointFailure("KNOWLEDGE_CUT", "The answer did not come to its end. Try again.")


def add_query(url: str, more: dict[str, str]) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in (parts.query, urlencode(more)) if part)
    return urlunsplit(parts._replace(query=query))


def _read_body(answer: UpstreamResponse, most: int) -> bytes:
    body = answer.body(most + 1)
    if len(body) > most:
        message = "The answer is longer than the tool may return. Ask for less, with LIMIT."
        raise EndpointFailure("OUTPUT_LIMIT", message)
    return body


def _row(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _unreadable("a row that is no object")
    return {_remove_controls(name): _term(term) for name, term in given.items()}


def _term(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or given.get("type") not in _TERM_TYPES:
        raise _unreadable("a term of no known kind")
    read = {"type": given["type"], "value": _text(given.get("value"))}
    for ours, theirs in (("language", "xml:lang"), ("datatype", "datatype")):
        if theirs in given:
            read[ours] = _text(given[theirs])
    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unreadable("a value that is no text")
    return _remove_controls(value)


def _remove_controls(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)


def _member(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _refusal(answer: UpstreamResponse) -> EndpointFailure:
    """Errors in a query are shown to its author; all others are for operators."""
    complaint = answer.body(_LONGEST_COMPLAINT).decode("utf-8", "replace")
    said = _UNPRINTABLE.sub(" ", complaint)[:_LONGEST_EXCERPT].strip()
    if answer.status == 400:
        return EndpointFailure("QUERY_INVALID", f"The query cannot be run: {said}")
    log.error("the SPARQL endpoint answered %d: %s", answer.status, said)
    return EndpointFailure(
        "KNOWLEDGE_UNAVAILABLE", "The knowledge store failed to answer. Try again later.",
        lost=answer.status >= 500,
    )  # fmt: skip


def _unreachable(error: Exception) -> EndpointFailure:
    log.error("the SPARQL endpoint cannot be reached: %s", error)
    return EndpointFailure(
        "KNOWLEDGE_UNAVAILABLE", "The knowledge store cannot be reached. Try again."
    )


def _unreadable(why: str) -> EndpointFailure:
    log.error("the SPARQL endpoint's answer cannot be read: %s", why)
    return EndpointFailure("KNOWLEDGE_UNREADABLE", "The knowledge store's answer cannot be read.")
