"""An organization's knowledge graph as administrators see it: searched, browsed, imported and
exported as a document. Every import is audited, an export is complete.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from audit.actions import Actor, record
from audit.events import Event, Outcome
from tools.errors import Malformed, NotFound, ToolcribError, Unavailable
from tools.httpclient.upstream_pool import RequestBounds, TimeUp
from tools.knowledge import (
    entity_index,
    entity_search,
    entity_statements,
    graph_documents,
    sparql_endpoint,
)
from tools.knowledge.entity_search import EntityLabel
from tools.knowledge.entity_statements import (
    EntityStatements,
    load_statements,
    neighbor_count_query,
)
from tools.knowledge.graph_documents import BadGraphDocument, Contents, Syntax
from tools.knowledge.sparql_endpoint import QueryRows
from tools.models import GraphScope, KnowledgeEntry, Organization

GRAPH_FAILURES = (sparql_endpoint.EndpointFailure, TimeUp)
_ROWS_BYTES = 64 * 1024 * 1024
_COUNT = "SELECT (COUNT(*) AS ?count) WHERE { ?s ?p ?o }"
TIMEOUT_S = 60.0
MOST_EXPORTED = 256 * 1024 * 1024
_IN_MEMORY = 8 * 1024 * 1024
_EVERYTHING = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"
BROWSING_TIMEOUT_S = 20.0
DEEPEST = 2
_OF_EACH = 60
_MOST_KINDS = 30


def bounds_of_seconds(seconds: float) -> RequestBounds:
    return RequestBounds(threading.Event(), time.monotonic() + seconds)


def select_rows(
    scope: GraphScope, text: str, bounds: RequestBounds, limit: int
) -> sparql_endpoint.QueryRows:
    """Raises what `GRAPH_FAILURES` names."""
    graph = entity_index.graph_of(scope)
    return sparql_endpoint.select(graph, text, bounds, limit=limit, most_bytes=_ROWS_BYTES)


def count_statements(scope: GraphScope, bounds: RequestBounds) -> int:
    """How many statements the graph holds. Raises what `GRAPH_FAILURES` names."""
    return count_of(select_rows(scope, _COUNT, bounds, 1))


def count_of(found: sparql_endpoint.QueryRows) -> int:
    """The result of a query for one count. Raises `Failure`."""
    try:
        return int(found.rows[0]["count"]["value"])
    except (LookupError, ValueError):
        message = "The knowledge store's answer is no count."
        raise sparql_endpoint.EndpointFailure("KNOWLEDGE_UNREADABLE", message) from None


def as_api_error(failure: sparql_endpoint.EndpointFailure | TimeUp) -> ToolcribError:
    if isinstance(failure, TimeUp):
        return Unavailable("The knowledge store did not answer in time.", code="knowledge_timeout")
    if failure.code == "OUTPUT_LIMIT":
        return Malformed("The graph is too large to be read at once.", code="graph_too_large")
    return Unavailable(failure.message, code=failure.code.lower())


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
        found = graph_documents.document_contents(data, syntax)
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
    graph, bounds = entity_index.graph_of(scope), bounds_of_seconds(TIMEOUT_S)
    with _malformed_on_flaws():
        wanted = graph_documents.document_insertion(graph.iri, data, syntax)
    try:
        before = count_statements(scope, bounds)
    except GRAPH_FAILURES as failure:
        raise as_api_error(failure) from None
    try:
        with entity_index.index_write(organization.pk, wanted.subjects, collection):
            sparql_endpoint.update(graph.endpoint, wanted.text, bounds)
    except GRAPH_FAILURES as failure:
        # A store that did not answer may have applied the update: the audit record says so.
        if isinstance(failure, TimeUp) or failure.lost:
            _record(by, graph, GraphImportResult(wanted.count, before, None), lost=True)
        raise as_api_error(failure) from None
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
        except GRAPH_FAILURES as failure:
            raise as_api_error(failure) from None
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
        return entity_index.rebuild_index(GraphScope.of(organization.pk, collection), tell)
    except GRAPH_FAILURES as failure:
        raise as_api_error(failure) from None


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
        graph_documents.write_document(said, syntax, into)
    into.seek(0)


def _fetch(graph: sparql_endpoint.EndpointGraph, into: IO[bytes]) -> None:
    size, bounds = 0, bounds_of_seconds(TIMEOUT_S)
    for piece in sparql_endpoint.stream_statements(graph, _EVERYTHING, bounds):
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
        return count_statements(scope, bounds_of_seconds(TIMEOUT_S))
    except GRAPH_FAILURES:
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


@dataclass(frozen=True)
class EntityView:
    """`edges` are statements around it; `neighbours` how many entities are one step away; `more`
    that the graph has more edges than these. `named` has the label of every IRI."""

    portrait: EntityStatements
    edges: list[dict[str, Any]]
    neighbours: int
    more: bool
    named: dict[str, EntityLabel]


def search_entities(
    organization: Organization, wanted: entity_search.EntitySearchQuery
) -> entity_search.EntitySearchResult:
    """Entities by words, or all where no word is given."""
    scope = GraphScope.of(organization.pk, None)
    found = entity_search.find_entities if wanted.query.strip() else entity_search.list_entities
    return found(scope, wanted)


def entity_kinds(organization: Organization) -> list[tuple[str, int]]:
    return entity_search.common_types(GraphScope.of(organization.pk, None), _MOST_KINDS)


def count_entities(organization: Organization) -> int:
    """How many entities can be found."""
    return KnowledgeEntry.objects.within(GraphScope.of(organization.pk, None)).count()


def index_status(organization: Organization) -> entity_search.EntityIndexStatus:
    return entity_search.index_status(GraphScope.of(organization.pk, None))


def view_entity(organization: Organization, iri: str, depth: int = 1) -> EntityView:
    """Raises `Malformed`, `NotFound` where it has no statement, `Unavailable`."""
    if not entity_index.is_indexable(iri):
        raise Malformed("That is no IRI of an entity.", code="invalid")
    scope = GraphScope.of(organization.pk, None)
    bounds = bounds_of_seconds(BROWSING_TIMEOUT_S)

    def select(text: str, limit: int) -> QueryRows:
        return select_rows(scope, text, bounds, limit)

    try:
        drawn = load_statements(iri, select)
        if drawn.empty:
            raise NotFound("The graph says nothing of this entity.", code="entity_not_found")
        edges, more = entity_statements.find_neighbors([iri], depth, select, of_each=_OF_EACH)
        count = count_of(select(neighbor_count_query(iri), 1))
    except GRAPH_FAILURES as failure:
        raise as_api_error(failure) from None
    return EntityView(
        drawn,
        edges,
        count,
        more,
        entity_search.load_entity_labels(scope, _named_iris(drawn, edges)),
    )


def _named_iris(drawn: EntityStatements, edges: list[dict[str, Any]]) -> list[str]:
    """Every entity and type that a page of it names."""
    related = [one.iri for one in (*drawn.outgoing, *drawn.incoming) if one.iri]
    ends = [end for one in edges for end in (one["subject"], one["object"])]
    return list(dict.fromkeys([drawn.iri, *drawn.types, *related, *ends]))
