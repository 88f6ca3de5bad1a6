"""Import and export of an organization's graph as a document: every import is audited, an export is
complete."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.catalog.knowledge import graph_store
from tools.errors import Malformed, Unavailable
from tools.httpclient.upstream_pool import TimeUp
from tools.knowledge import entity_index, graph_documents, sparql_endpoint
from tools.knowledge.graph_documents import BadGraphDocument, Contents, Syntax
from tools.models import GraphScope, KnowledgeEntry, Organization

TIMEOUT_S = 60.0
MOST_EXPORTED = 256 * 1024 * 1024
_IN_MEMORY = 8 * 1024 * 1024
_EVERYTHING = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"


@dataclass(frozen=True)
class GraphImportPreview:
    """What an import would do. `known`: entities that have statements already."""

    contents: Contents
    known: frozenset[str]


@dataclass(frozen=True)
class GraphImportResult:
    """`count` statements are in the graph, which held so many `before` and `after`: others may
    have written meanwhile, and what it holds after may be unknown."""

    count: int
    before: int
    after: int | None


def preview_import(
    *, organization: Organization, data: bytes, syntax: Syntax, collection: str | None
) -> GraphImportPreview:
    """Nothing is written. Raises `Malformed` with every flaw."""
    with _malformed_on_flaws():
        found = graph_documents.contents(data, syntax)
    rows = KnowledgeEntry.objects.within(GraphScope.of(organization.pk, collection))
    known = rows.filter(iri__in=found.entities).values_list("iri", flat=True)
    return GraphImportPreview(found, frozenset(known))


def import_graph(
    *, organization: Organization, data: bytes, syntax: Syntax, collection: str | None, by: Actor
) -> GraphImportResult:
    """All statements of the document are in the graph, or none is.

    Existing statements are unchanged. Raises `Malformed` with every flaw, `Unavailable`.
    """
    scope = GraphScope.of(organization.pk, collection)
    graph, bounds = entity_index.graph_of(scope), graph_store.bounds_of_seconds(TIMEOUT_S)
    with _malformed_on_flaws():
        wanted = graph_documents.insertion(graph.iri, data, syntax)
    try:
        before = graph_store.count_statements(scope, bounds)
    except graph_store.GRAPH_FAILURES as failure:
        raise graph_store.as_api_error(failure) from None
    try:
        with entity_index.in_step(organization.pk, wanted.subjects, collection):
            sparql_endpoint.update(graph.endpoint, wanted.text, bounds)
    except graph_store.GRAPH_FAILURES as failure:
        # A store that did not answer may have applied the update: the audit record says so.
        if isinstance(failure, TimeUp) or failure.lost:
            _record(by, graph, GraphImportResult(wanted.count, before, None), lost=True)
        raise graph_store.as_api_error(failure) from None
    done = GraphImportResult(wanted.count, before, _size_after(scope))
    _record(by, graph, done, lost=False)
    return done


def export_graph(
    *, organization: Organization, syntax: Syntax, collection: str | None
) -> IO[bytes]:
    """Every statement of the graph, in a file that the caller closes; memory use is bounded. Raises
    `Unavailable`, `Malformed` where it is too large."""
    graph = entity_index.graph_of(GraphScope.of(organization.pk, collection))
    with ExitStack() as opened:
        written = opened.enter_context(SpooledTemporaryFile(_IN_MEMORY))
        try:
            _write_all(graph, syntax, written)
        except graph_store.GRAPH_FAILURES as failure:
            raise graph_store.as_api_error(failure) from None
        except BadGraphDocument as flaw:
            raise Unavailable(str(flaw), code="knowledge_unreadable") from None
        opened.pop_all()
    return written


def index_graph(
    *, organization: Organization, collection: str | None, tell: Callable[[int], object]
) -> int:
    """The number of searchable entities; `tell` is called with the progress. Raises
    `Unavailable`."""
    try:
        return entity_index.rebuild(GraphScope.of(organization.pk, collection), tell)
    except graph_store.GRAPH_FAILURES as failure:
        raise graph_store.as_api_error(failure) from None


@contextmanager
def _malformed_on_flaws() -> Iterator[None]:
    try:
        yield
    except BadGraphDocument as bad:
        errors = [{"message": one.message, "line": one.line} for one in bad.flaws]
        raise Malformed("The document cannot be imported.", errors=errors) from None


def _write_all(graph: sparql_endpoint.EndpointGraph, syntax: Syntax, into: IO[bytes]) -> None:
    with SpooledTemporaryFile(_IN_MEMORY) as said:
        _fetch(graph, said)
        graph_documents.write(said, syntax, into)
    into.seek(0)


def _fetch(graph: sparql_endpoint.EndpointGraph, into: IO[bytes]) -> None:
    size, bounds = 0, graph_store.bounds_of_seconds(TIMEOUT_S)
    for piece in sparql_endpoint.stated(graph, _EVERYTHING, bounds):
        size += len(piece)
        if size > MOST_EXPORTED:
            raise sparql_endpoint.EndpointFailure(
                "OUTPUT_LIMIT", "The graph is too large to be exported."
            )
        into.write(piece)
    into.seek(0)


def _size_after(scope: GraphScope) -> int | None:
    """None where the store does not answer: the import goes on."""
    try:
        return graph_store.count_statements(scope, graph_store.bounds_of_seconds(TIMEOUT_S))
    except graph_store.GRAPH_FAILURES:
        return None


def _record(
    by: Actor, graph: sparql_endpoint.EndpointGraph, done: GraphImportResult, *, lost: bool
) -> None:
    details = {
        "statements": done.count,
        "answer_lost": lost,
        "before": {"statements": done.before},
        "after": {"statements": done.after},
    }
    record(
        Event.KNOWLEDGE_IMPORT, by=by, outcome=Outcome.CHANGED, subject=graph.iri, details=details
    )
