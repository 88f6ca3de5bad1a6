"""Runs tools over the organization's own graphs: search of entities and statements, queries, and
added entities and statements."""

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.conf import settings

from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome
from tools.httpclient.upstream_pool import RequestBounds, RequestStopped, TimeUp
from tools.knowledge import (
    entities,
    entity_index,
    entity_search,
    graph_documents,
    rdf_terms,
    sparql_endpoint,
    sparql_queries,
)
from tools.knowledge.entity_index import local_name
from tools.knowledge.entity_statements import Select, find_neighbors
from tools.models import GraphScope
from tools.runners.tool_runs import (
    ToolRun,
    UpstreamResult,
    failed_result,
    stopped_result,
    timeout_result,
)

DEFAULT_ROWS = 100


def search_entities(scope: GraphScope, arguments: dict[str, Any], select: Select) -> dict[str, Any]:
    """`select` asks the graph. Raises what it raises."""
    wanted = _search_query(arguments)
    standing = entity_search.index_status(scope)
    found = entity_search.find_entities(scope, wanted)
    near, cut = find_neighbors([hit.iri for hit in found.hits], int(arguments["depth"]), select)
    iris = sorted({end for one in near for end in (one["subject"], one["object"])})
    labels = entity_search.load_labels(scope, iris, wanted.language)
    after = wanted.offset + len(found.hits)
    return {
        "results": [_hit_fields(hit) for hit in found.hits],
        "matched": found.mode.value,
        "total": found.total,
        "total_is_exact": not found.capped,
        "next_offset": after if found.hits and after < found.total else None,
        "neighbours": near,
        "neighbours_truncated": cut,
        "labels": labels,
        "indexed_at": standing.indexed_at.isoformat() if standing.indexed_at else None,
        "stale": standing.stale,
        "text": _hits_text(found.hits, near, labels),
    }


def run_search(job: ToolRun) -> UpstreamResult:
    """Rows of statements about entities that match the question's words, and a text of them."""
    return _run_bounded(job, _search_statements)


def run_query(job: ToolRun) -> UpstreamResult:
    """Rows of a SELECT, or the result of an ASK."""
    return _run_bounded(job, _run_query)


def run_ckvs_query(job: ToolRun) -> UpstreamResult:
    """The built-in tool: rows, the result of an ASK, or statements of CONSTRUCT and DESCRIBE."""
    return _run_bounded(job, _run_ckvs_query)


def run_search_knowledge(job: ToolRun) -> UpstreamResult:
    """The built-in tool: entities by words, best first, and their neighbors."""
    return _run_bounded(job, _search_graph)


def run_create_entity(job: ToolRun) -> UpstreamResult:
    """The built-in tool: an entity that is created, or added to."""
    return _run_bounded(job, _store_entity)


def run_update(job: ToolRun) -> UpstreamResult:
    """Adding a statement that is there already changes nothing."""
    return _run_bounded(job, _add_statements)


def _search_query(arguments: dict[str, Any]) -> entity_search.EntitySearchQuery:
    return entity_search.EntitySearchQuery(
        query=str(arguments["query"])[: entity_search.LONGEST_QUERY],
        type=arguments.get("type"),
        language=arguments.get("language"),
        limit=int(arguments["limit"]),
        offset=int(arguments["offset"]),
    )


def _hit_fields(hit: entity_search.EntityHit) -> dict[str, Any]:
    return {
        "iri": hit.iri,
        "label": hit.label,
        "language": hit.language,
        "description": hit.description,
        "types": hit.types,
        "match": hit.match,
    }


def _hits_text(
    hits: list[entity_search.EntityHit], edges: list[dict[str, Any]], labels: dict[str, str]
) -> str:
    """One entity or statement a line: for a model to read."""
    found = [f"{hit.label} <{hit.iri}> {hit.description}".rstrip() for hit in hits]
    near = [
        f"{labels[one['subject']]} {local_name(one['predicate'])} {labels[one['object']]}"
        for one in edges
    ]
    return "\n".join([*found, *near])


def _run_bounded(job: ToolRun, work: Callable[[ToolRun, RequestBounds], Any]) -> UpstreamResult:
    """What `work` returns, or how it ended without."""
    bounds = RequestBounds(job.stop, time.monotonic() + job.timeout_s, job.until)
    try:
        return UpstreamResult(RunOutcome.SUCCESS, output=work(job, bounds))
    except (
        sparql_queries.BadGraphQuery,
        rdf_terms.BadTerm,
        entity_search.NoSearchWords,
    ) as flaw:
        return failed_result("QUERY_INVALID", str(flaw), cost=Decimal(0))
    except entities.EntityExists as refusal:
        return failed_result("ENTITY_EXISTS", str(refusal))
    except graph_documents.BadGraphDocument as flaw:
        return failed_result("KNOWLEDGE_UNREADABLE", str(flaw))
    except sparql_endpoint.EndpointFailure as failure:
        code = ErrorCode.LOST if failure.lost and work in _WRITES else failure.code
        return failed_result(code, failure.message)
    except RequestStopped:
        return stopped_result()
    except TimeUp:
        return timeout_result(f"The knowledge store did not answer within {job.timeout_s:g} s.")


def _search_statements(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    limit = _limit(job)
    text = entity_search.statement_query(entity_search.search_words(_question(job)), limit=limit)
    found = _select(job, text, bounds, limit)
    return {
        "rows": found.rows,
        "text": entity_search.statements_text(found.rows),
        "truncated": found.truncated,
    }


def _run_query(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    query, limit = sparql_queries.read_query(_question(job)), _limit(job)
    if query.asks:
        most = job.definition.max_output_bytes
        boolean = sparql_endpoint.ask(_graph(job), query.text, bounds, most_bytes=most)
        return {"boolean": boolean, "text": "true" if boolean else "false"}
    found = _select(job, query.with_limit(limit + 1), bounds, limit)
    return {
        "variables": found.variables,
        "rows": found.rows,
        "text": entity_search.rows_text(found.rows),
        "truncated": found.truncated,
    }


def _run_ckvs_query(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    question, values = str(job.arguments["query"]), job.arguments.get("parameters")
    query = sparql_queries.read_query(question, statements=True, parameters=values)
    limit = _limit(job)
    most = job.definition.max_output_bytes
    if query.asks:
        boolean = sparql_endpoint.ask(_graph(job), query.text, bounds, most_bytes=most)
        return {"form": "boolean", "boolean": boolean, "truncated": False}
    text = query.with_limit(limit + 1)
    if query.states:
        body = sparql_endpoint.construct(_graph(job), text, bounds, most_bytes=most)
        found, more = graph_documents.first_statements(body, limit)
        return {"form": "statements", "statements": found, "truncated": more}
    rows = _select(job, text, bounds, limit)
    result = {"variables": rows.variables, "rows": rows.rows, "truncated": rows.truncated}
    return {"form": "rows", **result}


def _search_graph(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    scope = GraphScope.of(job.snapshot.organization_id, _collection(job))
    most = job.definition.max_output_bytes

    def select(text: str, limit: int) -> sparql_endpoint.QueryRows:
        return sparql_endpoint.select(
            _graph(job),
            text,
            bounds,
            limit=limit,
            most_bytes=most,
        )

    return search_entities(scope, job.arguments, select)


def _add_statements(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    triples, graph = job.arguments.get("triples"), _graph(job)
    text = rdf_terms.triples_insertion(graph.iri, triples)
    subjects = [rdf_terms.subject_iri(one) for one in triples or ()]
    with entity_index.index_write(job.snapshot.organization_id, subjects, _collection(job)):
        sparql_endpoint.update(graph.endpoint, text, bounds)
    return {"added": len(triples or ())}


def _store_entity(job: ToolRun, bounds: RequestBounds) -> dict[str, Any]:
    graph, merge = _graph(job), job.arguments.get("on_existing") != "refuse"
    entity = entities.read_entity(job.snapshot.organization_id, job.arguments)
    # A retry of the call after a lost answer finds that it created the entity.
    call = str(job.execution_id)
    text = entities.creation_update(graph.iri, entity, call=call, merge=merge)
    whose, collection = job.snapshot.organization_id, _collection(job)
    with (
        entity_index.index_write(whose, [entity.iri], collection),
        entity_index.entity_lock(whose, entity.iri, collection),
    ):
        sparql_endpoint.update(graph.endpoint, text, bounds)
    query, most = entities.creation_query(entity, call=call), job.definition.max_output_bytes
    created = sparql_endpoint.ask(graph, query, bounds, most_bytes=most)
    if not created and not merge:
        raise entities.EntityExists(f"There is an entity with this key already: {entity.iri}")
    return {
        "iri": entity.iri,
        "created": created,
        "merged": not created,
        "statements": len(entity.statements),
    }


def _select(
    job: ToolRun, text: str, bounds: RequestBounds, limit: int
) -> sparql_endpoint.QueryRows:
    return sparql_endpoint.select(
        _graph(job), text, bounds,
        limit=limit, most_bytes=job.definition.max_output_bytes,
    )  # fmt: skip


def _question(job: ToolRun) -> str:
    question = job.arguments.get("question")
    if not isinstance(question, str):
        raise sparql_queries.BadGraphQuery("The question must be a text.")
    return question


def _graph(job: ToolRun) -> sparql_endpoint.EndpointGraph:
    """Always a graph of the run's organization."""
    place = sparql_endpoint.SparqlEndpoint(settings.SPARQL_URL, settings.SPARQL_UPDATE_URL)
    return sparql_endpoint.EndpointGraph(
        place, rdf_terms.graph_iri(job.snapshot.organization_id, _collection(job))
    )


def _collection(job: ToolRun) -> str | None:
    named: str | None = job.definition.raw["implementation"].get("collection")
    return named


def _limit(job: ToolRun) -> int:
    """The definition's limit; a caller may request less."""
    most = int(job.definition.raw["implementation"].get("limit") or DEFAULT_ROWS)
    requested = job.arguments.get("limit")
    if not isinstance(requested, int) or isinstance(requested, bool):
        return most
    return max(1, min(most, requested))


_WRITES = (_add_statements, _store_entity)
