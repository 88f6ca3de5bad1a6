"""The graph of an organization as a document: what goes in is on record, what comes out is all."""

import threading
import time
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings

from audit.actions import Actor, record
from audit.events import Event, Outcome
from config.upstreams import Bounds, TimeUp, Upstream
from tools.errors import Malformed, Unavailable
from tools.knowledge import documents, endpoint, index, terms
from tools.knowledge.documents import BadDocument, Syntax
from tools.models import GraphScope, Organization

TIMEOUT_S = 60.0
_MOST_EXPORTED = 64 * 1024 * 1024
_EVERYTHING = "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }"


def import_graph(
    *, organization: Organization, data: bytes, syntax: Syntax, collection: str | None, by: Actor
) -> int:
    """How many statements the document holds: all are in the graph, or none is.

    What is there already stays as it is. Raises `Malformed` with the line, `Unavailable`.
    """
    graph = _graph(organization, collection)
    try:
        wanted = documents.insertion(graph.iri, data, syntax)
    except BadDocument as flaw:
        errors = [{"message": str(flaw), "line": flaw.line}]
        raise Malformed("The document cannot be imported.", errors=errors) from None
    try:
        with index.in_step(organization.pk, wanted.subjects, collection):
            endpoint.update(_upstream(), graph.endpoint, wanted.text, _bounds())
    except (endpoint.Failure, TimeUp) as failure:
        # A store that fell silent may have done it all the same: evidence says so.
        if isinstance(failure, TimeUp) or failure.lost:
            _record(by, graph, wanted.count, lost=True)
        raise _unavailable(failure) from None
    _record(by, graph, wanted.count, lost=False)
    return wanted.count


def export_graph(*, organization: Organization, syntax: Syntax, collection: str | None) -> bytes:
    """Every statement of the graph. Raises `Unavailable`, `Malformed` where it is too large."""
    graph = _graph(organization, collection)
    try:
        found = endpoint.construct(
            _upstream(), graph, _EVERYTHING, _bounds(), most_bytes=_MOST_EXPORTED
        )
        return documents.written(found, syntax)
    except (endpoint.Failure, TimeUp) as failure:
        raise _unavailable(failure) from None
    except BadDocument as flaw:
        raise Unavailable(str(flaw), code="knowledge_unreadable") from None


def index_graph(
    *, organization: Organization, collection: str | None, tell: Callable[[int], object]
) -> int:
    """How many entities can be found now; `tell` hears how far it is. Raises `Unavailable`."""
    try:
        return index.rebuild(GraphScope.of(organization.pk, collection), tell)
    except (endpoint.Failure, TimeUp) as failure:
        raise _unavailable(failure) from None


@lru_cache(maxsize=1)
def _upstream() -> Upstream:
    """Connections to the SPARQL endpoint; kept, never made in a call."""
    return Upstream()


def _graph(organization: Organization, collection: str | None) -> endpoint.Graph:
    place = endpoint.Endpoint(settings.SPARQL_URL, settings.SPARQL_UPDATE_URL)
    return endpoint.Graph(place, terms.graph_of(organization.pk, collection))


def _bounds() -> Bounds:
    return Bounds(threading.Event(), time.monotonic() + TIMEOUT_S)


def _record(by: Actor, graph: endpoint.Graph, count: int, *, lost: bool) -> None:
    details = {"statements": count, "answer_lost": lost}
    record(
        Event.KNOWLEDGE_IMPORT, by=by, outcome=Outcome.CHANGED, subject=graph.iri, details=details
    )


def _unavailable(failure: endpoint.Failure | TimeUp) -> Malformed | Unavailable:
    if isinstance(failure, TimeUp):
        return Unavailable("The knowledge store did not answer in time.", code="knowledge_timeout")
    if failure.code == "OUTPUT_LIMIT":
        return Malformed("The graph is too large to be exported at once.", code="graph_too_large")
    return Unavailable(failure.message, code=failure.code.lower())
