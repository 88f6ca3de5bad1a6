"""The SPARQL endpoint for administrators' work on a graph, with its failures as API errors."""

import threading
import time

from tools.errors import Malformed, ToolcribError, Unavailable
from tools.httpclient.upstream_pool import RequestBounds, TimeUp
from tools.knowledge import entity_index, sparql_endpoint
from tools.models import GraphScope

GRAPH_FAILURES = (sparql_endpoint.EndpointFailure, TimeUp)
_ROWS_BYTES = 64 * 1024 * 1024
_COUNT = "SELECT (COUNT(*) AS ?count) WHERE { ?s ?p ?o }"


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
