"""The search index of a graph's entities, which follows the graph store.

Every write to a graph is made within `index_write`. A row records that a write has begun before the
store gets it, and is deleted when the entities have been read again: an interrupted write is known,
and a search reports the index as stale. Entries are always made of what the store returns, never of
what was sent.

Reading the store and writing the rows is one step for each graph at a time, so that what is read
last is what stays.
"""

import json
import logging
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import batched
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from urllib.parse import unquote
from uuid import UUID

import pyoxigraph as ox
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from tools.httpclient.upstream_pool import RequestBounds, RequestStopped, TimeUp
from tools.knowledge import rdf_terms, sparql_endpoint
from tools.models import GraphScope, KnowledgeEntry, KnowledgeIndex, KnowledgePending
from tools.models.advisory_locks import take_lock

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_RDFS, _SKOS = "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2004/02/skos/core#"
_TERMS, _DC = "http://purl.org/dc/terms/", "http://purl.org/dc/elements/1.1/"
_SCHEMA, _FOAF = ("http://schema.org/", "https://schema.org/"), "http://xmlns.com/foaf/0.1/"
LABELS = frozenset(
    {
        f"{_RDFS}label", f"{_SKOS}prefLabel", f"{_SKOS}altLabel", f"{_FOAF}name",
        f"{_TERMS}title", f"{_DC}title", *(f"{one}name" for one in _SCHEMA),
    }
)  # fmt: skip
DESCRIPTIONS = frozenset(
    {
        f"{_RDFS}comment", f"{_SKOS}definition", f"{_TERMS}description", f"{_DC}description",
        *(f"{one}description" for one in _SCHEMA),
    }
)  # fmt: skip
LONGEST_IRI = 2_000  # bytes
LONGEST_NAME = 200
_MOST_TEXT = 100_000  # characters of one entity that are indexed
_MOST_SHOWN, _LONGEST_SHOWN = 50, 500
_MOST_TYPES = 50
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ACCENTS = re.compile("[\u0300-\u036f]")
log = logging.getLogger(__name__)
TOUCH_S, REBUILD_S = 10.0, 4 * 3600.0
# Longer than any write takes: a row of this age was abandoned by its process.
ABANDONED = timedelta(minutes=15)
_BATCH = 250
_MOST_BYTES = 64 * 1024 * 1024
_MOST_OF_ENTITY = 500  # statements, of an entity whose batch is too large
_IN_MEMORY = 8 * 1024 * 1024
_SUBJECTS = "SELECT DISTINCT ?s WHERE { ?s ?p ?o FILTER(isIRI(?s)) }"
_ANY_STATEMENT = "ASK { ?s ?p ?o }"
_UPSERT = """
INSERT INTO tools_knowledgeentry (organization_id, collection, iri, shown, types, kinds, names,
    label_text, label_words, words, indexed_at)
VALUES (%(organization)s, %(collection)s, %(iri)s, %(shown)s::jsonb, %(types)s::text[],
    %(kinds)s::text[], %(names)s::text[], %(labels)s, to_tsvector('simple', %(labels)s),
    setweight(to_tsvector('simple', %(labels)s), 'A')
    || setweight(to_tsvector('simple', %(descriptions)s), 'B')
    || setweight(to_tsvector('simple', %(others)s), 'C')
    || setweight(to_tsvector('simple', %(local)s), 'D'), clock_timestamp())
ON CONFLICT (organization_id, collection, iri) DO UPDATE SET shown = excluded.shown,
    types = excluded.types, kinds = excluded.kinds, names = excluded.names,
    label_text = excluded.label_text, label_words = excluded.label_words,
    words = excluded.words, indexed_at = excluded.indexed_at
"""
_TEXT_SEPARATOR = "\n"
INDEX_FAILURES = (
    sparql_endpoint.EndpointFailure,
    TimeUp,
    RequestStopped,
    DatabaseError,
    SyntaxError,
    ValueError,
)


@dataclass
class EntityIndexEntry:
    """The search entry of one entity. `texts` are its labels, descriptions, and other literals."""

    iri: str
    types: list[str] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)
    descriptions: list[tuple[str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    room: int = _MOST_TEXT

    @property
    def excerpt(self) -> dict[str, list[tuple[str, str]]]:
        return {
            "labels": [(text[:_LONGEST_SHOWN], tag) for text, tag in self.labels[:_MOST_SHOWN]],
            "descriptions": [
                (text[:_LONGEST_SHOWN], tag) for text, tag in self.descriptions[:_MOST_SHOWN]
            ],
        }

    @property
    def names(self) -> list[str]:
        return sorted({normalized_name(text) for text, _ in self.labels})

    @property
    def kinds(self) -> list[str]:
        """Each type by its IRI and by its local name."""
        return sorted({*self.types, *(normalized_name(local_name(one)) for one in self.types)})

    def add(self, predicate: str, thing: ox.NamedNode | ox.Literal) -> None:
        if isinstance(thing, ox.NamedNode):
            if predicate == TYPE and is_indexable(thing.value) and len(self.types) < _MOST_TYPES:
                self.types.append(thing.value)
            return
        text = remove_controls(thing.value)[: self.room]
        self.room -= len(text)
        if not text:
            return
        if predicate in LABELS:
            self.labels.append((text, thing.language or ""))
        elif predicate in DESCRIPTIONS:
            self.descriptions.append((text, thing.language or ""))
        else:
            self.others.append(text)


def parse_entries(n_triples: bytes) -> list[EntityIndexEntry]:
    """One for each IRI that is a subject. Raises `SyntaxError`, `ValueError`."""
    found: dict[str, EntityIndexEntry] = {}
    for one in ox.parse(n_triples, format=ox.RdfFormat.N_TRIPLES):
        if isinstance(one.subject, ox.NamedNode) and isinstance(
            one.object, ox.NamedNode | ox.Literal
        ):
            entry = found.setdefault(one.subject.value, EntityIndexEntry(one.subject.value))
            entry.add(one.predicate.value, one.object)
    return list(found.values())


def valid_subjects(iris: Iterable[str]) -> list[str]:
    """Valid subjects, each once; others are no IRIs, or too long for an index."""
    return sorted({iri for iri in iris if is_indexable(iri)})


def is_indexable(iri: str) -> bool:
    try:
        ox.NamedNode(iri)
        return len(iri.encode()) <= LONGEST_IRI and not _CONTROL.search(iri)
    except ValueError:  # UnicodeEncodeError is one too
        return False


def remove_controls(text: str) -> str:
    return _CONTROL.sub(" ", text)


def fold_text(text: str) -> str:
    """Without differences of case, accents and forms of one letter."""
    apart = unicodedata.normalize("NFKD", remove_controls(text)).casefold()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def normalized_name(text: str) -> str:
    """A text in the form in which whole names are compared."""
    return " ".join(fold_text(text[: 4 * LONGEST_NAME]).split())[:LONGEST_NAME]


def local_name(iri: str) -> str:
    return remove_controls(unquote(re.split(r"[/#:]", iri.rstrip("/#:"))[-1])) or iri


def local_words(iri: str) -> str:
    """`atomicNumber_2` is found by atomic, and by number."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", local_name(iri))


@contextmanager
def index_write(
    organization_id: UUID, iris: Iterable[str], collection: str | None = None
) -> Iterator[None]:
    """Wraps a write to a graph: afterwards the statements about these subjects can be found.

    They are read again also where the write raised, since it may have been applied. A failure of
    the store meanwhile raises nothing; the row that stays marks the entries as stale.
    """
    scope = GraphScope.of(organization_id, collection)
    pending = _begin_write(scope)
    try:
        yield
    finally:
        _end_write(scope, pending, valid_subjects(iris))


@contextmanager
def entity_lock(organization_id: UUID, iri: str, collection: str | None = None) -> Iterator[None]:
    """Serializes writes that check whether an entity exists before they insert it. The SPARQL store
    does not: two concurrent updates can both find no entity and both insert one."""
    place = graph_of(GraphScope.of(organization_id, collection)).iri
    with transaction.atomic():
        take_lock(f"{place} {iri}")
        yield


def index_subjects(
    organization_id: UUID, iris: Iterable[str], collection: str | None = None
) -> None:
    """Updates the entries after a write that was not made within `index_write`."""
    with index_write(organization_id, iris, collection):
        pass


def rebuild_index(
    scope: GraphScope, tell: Callable[[int], object], stop: threading.Event | None = None
) -> int:
    """Read the whole graph again, while others search and write; returns how many entities it has.

    `tell` is called with the number of subjects read so far. Raises what `INDEX_FAILURES` names.
    """
    bounds = RequestBounds(stop or threading.Event(), time.monotonic() + REBUILD_S)
    began = _database_time()
    with SpooledTemporaryFile(_IN_MEMORY) as listed:
        _spool_subjects(scope, listed, bounds)
        read = kept = 0
        for some in batched(_spooled_subjects(listed), _BATCH, strict=False):
            kept += _refresh_rows(scope, list(some), bounds)
            tell(read := read + len(some))
    _finish_rebuild(scope, began)
    return kept


def graph_of(scope: GraphScope) -> sparql_endpoint.EndpointGraph:
    place = sparql_endpoint.SparqlEndpoint(settings.SPARQL_URL, settings.SPARQL_UPDATE_URL)
    return sparql_endpoint.EndpointGraph(
        place, rdf_terms.graph_iri(scope.organization_id, scope.collection)
    )


def _begin_write(scope: GraphScope) -> KnowledgePending:
    if not KnowledgeIndex.objects.within(scope).exists():
        fields = {"organization_id": scope.organization_id, "collection": scope.collection}
        KnowledgeIndex.objects.get_or_create(**fields, defaults={"complete": _is_empty(scope)})
    return KnowledgePending.objects.create(
        organization_id=scope.organization_id, collection=scope.collection
    )


def _is_empty(scope: GraphScope) -> bool:
    """False also where the store does not answer."""
    try:
        return not sparql_endpoint.ask(
            graph_of(scope),
            _ANY_STATEMENT,
            _touch_bounds(),
            most_bytes=10_000,
        )
    except (sparql_endpoint.EndpointFailure, TimeUp):
        return False


def _end_write(scope: GraphScope, pending: KnowledgePending, iris: list[str]) -> None:
    try:
        for some in batched(iris, _BATCH, strict=False):
            _refresh_rows(scope, list(some), _touch_bounds())
        KnowledgeIndex.objects.within(scope).update(indexed_at=Now())
        pending.delete()
    except INDEX_FAILURES as error:
        log.error("entities of %s are not indexed: %s", graph_of(scope).iri, error)


def _touch_bounds() -> RequestBounds:
    return RequestBounds(threading.Event(), time.monotonic() + TOUCH_S)


@transaction.atomic
def _refresh_rows(scope: GraphScope, iris: list[str], bounds: RequestBounds) -> int:
    """Rebuild the rows of these entities, and delete those without statements."""
    take_lock(graph_of(scope).iri)
    found = _read_entries(scope, iris, bounds)
    gone = set(iris) - {entry.iri for entry in found}
    KnowledgeEntry.objects.within(scope).filter(iri__in=gone).delete()
    with connection.cursor() as cursor:
        cursor.executemany(_UPSERT, [_row(scope, entry) for entry in found])
    return len(found)


def _read_entries(
    scope: GraphScope, iris: list[str], bounds: RequestBounds, limit: int = 0
) -> list[EntityIndexEntry]:
    """The store's current statements about them; a very long batch in parts."""
    try:
        said = sparql_endpoint.construct(
            graph_of(scope),
            _statements_query(iris, limit),
            bounds,
            most_bytes=_MOST_BYTES,
        )
    except sparql_endpoint.EndpointFailure as failure:
        if failure.code != "OUTPUT_LIMIT" or limit:
            raise
        half = len(iris) // 2
        parts = (iris[:half], iris[half:]) if half else ()
        found = [entry for part in parts for entry in _read_entries(scope, part, bounds)]
        return found or _read_entries(scope, iris, bounds, _MOST_OF_ENTITY)
    return parse_entries(said)


def _statements_query(iris: list[str], limit: int) -> str:
    """Each as a pattern of its own, which endpoints look up without a join."""
    named = rdf_terms.sparql_nodes(iris)
    parts = " UNION ".join(f"{{ {one} ?p ?o BIND({one} AS ?s) }}" for one in named)
    wanted = f"FILTER(isLiteral(?o) || ?p = {rdf_terms.sparql_nodes([TYPE])[0]})"
    cut = f" LIMIT {limit}" if limit else ""
    return f"CONSTRUCT {{ ?s ?p ?o }} WHERE {{ {parts} {wanted} }}{cut}"


def _row(scope: GraphScope, entry: EntityIndexEntry) -> dict[str, Any]:
    return {
        "organization": scope.organization_id,
        "collection": scope.collection,
        "iri": entry.iri,
        "shown": json.dumps(entry.excerpt),
        "types": entry.types,
        "kinds": entry.kinds,
        "names": entry.names,
        "labels": _fold_all(text for text, _ in entry.labels),
        "descriptions": _fold_all(text for text, _ in entry.descriptions),
        "others": _fold_all(entry.others),
        "local": fold_text(local_words(entry.iri)),
    }


def _fold_all(texts: Iterable[str]) -> str:
    return _TEXT_SEPARATOR.join(fold_text(text) for text in texts)


def _spool_subjects(scope: GraphScope, file: IO[bytes], bounds: RequestBounds) -> None:
    """All subjects, spooled as they arrive, so that the store does not wait for the rows."""
    for line in sparql_endpoint.stream_rows(graph_of(scope), _SUBJECTS, bounds):
        file.write(line + b"\n")
    file.seek(0)


def _spooled_subjects(file: IO[bytes]) -> Iterator[str]:
    for line in file:
        iri = line.strip().decode("utf-8", "replace").removeprefix("<").removesuffix(">")
        if is_indexable(iri):
            yield iri


@transaction.atomic
def _finish_rebuild(scope: GraphScope, began: datetime) -> None:
    """Deletes entries older than `began`; those written meanwhile are newer."""
    take_lock(graph_of(scope).iri)
    KnowledgeEntry.objects.within(scope).filter(indexed_at__lt=began).delete()
    overdue = began - ABANDONED
    KnowledgePending.objects.within(scope).filter(begun_at__lt=overdue).delete()
    KnowledgeIndex.objects.update_or_create(
        organization_id=scope.organization_id,
        collection=scope.collection,
        defaults={"complete": True, "indexed_at": Now(), "rebuilt_at": Now()},
    )


def _database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now
