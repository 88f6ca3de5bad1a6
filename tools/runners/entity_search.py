"""Runs the built-in `search_knowledge`: entities, and on demand their neighborhood."""

from typing import Any

from tools.knowledge import finding
from tools.knowledge.entries import local_name
from tools.knowledge.neighbours import Select, around
from tools.models import GraphScope


def answer(scope: GraphScope, given: dict[str, Any], select: Select) -> dict[str, Any]:
    """`select` asks the graph. Raises what it raises."""
    wanted = _wanted(given)
    standing = finding.standing(scope)
    found = finding.find(scope, wanted)
    near, cut = around([hit.iri for hit in found.hits], int(given["depth"]), select)
    iris = sorted({end for one in near for end in (one["subject"], one["object"])})
    labels = finding.labels_of(scope, iris, wanted.language)
    after = wanted.offset + len(found.hits)
    return {
        "results": [_shown(hit) for hit in found.hits],
        "matched": found.way.value,
        "total": found.total,
        "total_is_exact": not found.capped,
        "next_offset": after if found.hits and after < found.total else None,
        "neighbours": near,
        "neighbours_truncated": cut,
        "labels": labels,
        "indexed_at": standing.indexed_at.isoformat() if standing.indexed_at else None,
        "stale": standing.stale,
        "text": _text(found.hits, near, labels),
    }


def _wanted(given: dict[str, Any]) -> finding.EntitySearchQuery:
    return finding.EntitySearchQuery(
        query=str(given["query"])[: finding.LONGEST_QUERY],
        type=given.get("type"),
        language=given.get("language"),
        limit=int(given["limit"]),
        offset=int(given["offset"]),
    )


def _shown(hit: finding.EntityHit) -> dict[str, Any]:
    return {
        "iri": hit.iri,
        "label": hit.label,
        "language": hit.language,
        "description": hit.description,
        "types": hit.types,
        "match": hit.match,
    }


def _text(
    hits: list[finding.EntityHit], edges: list[dict[str, Any]], labels: dict[str, str]
) -> str:
    """One entity or statement a line: for a model to read."""
    found = [f"{hit.label} <{hit.iri}> {hit.description}".rstrip() for hit in hits]
    near = [
        f"{labels[one['subject']]} {local_name(one['predicate'])} {labels[one['object']]}"
        for one in edges
    ]
    return "\n".join([*found, *near])
