"""Searches over 100,000 entities of one graph, beside as many of another organization.

    python -m tests.benchmarks.knowledge_search [ENTITIES]

Starts a Toolcrib of its own in a new directory and removes it again. The graph is written to the
store as another program would, so that the index is made by `index_knowledge`'s own way, which is
measured too. Prints milliseconds: of the search alone, and of a whole call of the tool.
"""

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

for _name in ("DATABASE_URL", "REDIS_URL", "SPARQL_URL"):
    os.environ.pop(_name, None)
os.environ["TOOLCRIB_DATA"] = tempfile.mkdtemp(prefix="tc-bench-")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from tests import crib, factories  # noqa: E402
from tools.execution.perform import perform  # noqa: E402
from tools.httpclient.upstream_pool import RequestBounds  # noqa: E402
from tools.knowledge import entity_index, entity_search, sparql_endpoint  # noqa: E402
from tools.knowledge.entity_search import EntitySearchQuery  # noqa: E402
from tools.models import Agent, Execution, GraphScope, KnowledgeEntry, Organization  # noqa: E402

ENTITIES, ROUNDS, CALLS = 100_000, 200, 40
TARGET_MS = 100.0
_BATCH = 2_000
_RDFS, _TYPE = "http://www.w3.org/2000/01/rdf-schema#", "urn:bench:type-{}"
_A = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_SYLLABLES = ("ba", "cor", "den", "fi", "gal", "hu", "jor", "kel", "lim", "mo", "nar", "pi", "que",
              "ros", "su", "tal", "ur", "vex", "wo", "zin")  # fmt: skip
_random = random.Random(7)
WORDS = sorted({"".join(_random.choices(_SYLLABLES, k=3)) for _ in range(9_000)})
_WEIGHTS = [1 / (rank + 5) for rank in range(len(WORDS))]  # as words of a language are


def main(entities: int) -> None:
    data = Path(os.environ["TOOLCRIB_DATA"])
    with crib.running(data):
        organization, other = factories.organization("bench"), factories.organization("other")
        _stored(organization, entities)
        _indexed(organization)
        _copied(organization, other)
        scope = GraphScope.of(organization.pk, None)
        print(f"{'':<44}{'p50 ms':>10}{'p95 ms':>10}{'worst':>10}   target p95 {TARGET_MS:g}")
        for what, ask in _QUESTIONS.items():
            _show(what, lambda at, ask=ask: entity_search.find_entities(scope, ask(at)), ROUNDS)
        asks = list(_QUESTIONS.values())
        _show(
            "all of these, in turn",
            lambda at: entity_search.find_entities(scope, asks[at % len(asks)](at)),
            600,
        )
        _calls(organization)
    crib.remove(data)


def _stored(organization: Organization, entities: int) -> None:
    graph = entity_index.graph_of(GraphScope.of(organization.pk, None))
    began = time.monotonic()
    for start in range(0, entities, _BATCH):
        triples = " ".join(_entity_text(at) for at in range(start, min(entities, start + _BATCH)))
        text = f"INSERT DATA {{ GRAPH <{graph.iri}> {{ {triples} }} }}"
        bounds = RequestBounds(threading.Event(), time.monotonic() + 120)
        sparql_endpoint.update(graph.endpoint, text, bounds)
    print(f"{entities} entities, {time.monotonic() - began:.0f} s to store them")


def _entity_text(at: int) -> str:
    """A label of two to four words, in a fifth a second one, a description and a note."""
    label, text, note = (" ".join(_random_words(count)) for count in (_random.randint(2, 4), 12, 6))
    german = f'; <{_RDFS}label> "{" ".join(_random_words(2))}"@de' if at % 5 == 0 else ""
    return (
        f'<urn:bench:{at}> {_A} <{_TYPE.format(at % 20)}> ; <{_RDFS}label> "{label}"@en {german} ;'
        f' <{_RDFS}comment> "{text}" ; <urn:bench:note> "{note}" ;'
        f" <urn:bench:near> <urn:bench:{_random.randrange(ENTITIES)}> ."
    )


def _random_words(count: int) -> list[str]:
    return _random.choices(WORDS, _WEIGHTS, k=count)


def _indexed(organization: Organization) -> None:
    began = time.monotonic()
    found = entity_index.rebuild_index(GraphScope.of(organization.pk, None), lambda _: None)
    took = time.monotonic() - began
    print(f"{found} entities indexed in {took:.0f} s, {found / took:.0f} a second")
    began = time.monotonic()
    entity_index.index_subjects(organization.pk, [f"urn:bench:{at}" for at in range(10)])
    print(f"10 entities touched in {(time.monotonic() - began) * 1000:.0f} ms")


def _copied(organization: Organization, other: Organization) -> None:
    """Entities of another organization are in the same table and must not slow searches."""
    columns = "collection, iri, shown, types, kinds, names, label_text, label_words, words"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO tools_knowledgeentry (organization_id, {columns}, indexed_at)"
            f" SELECT %s, {columns}, indexed_at FROM tools_knowledgeentry"
            " WHERE organization_id = %s",
            [other.pk, organization.pk],
        )
        cursor.execute("VACUUM ANALYZE tools_knowledgeentry")
        cursor.execute("SELECT pg_size_pretty(pg_total_relation_size('tools_knowledgeentry'))")
        (size,) = cursor.fetchone()
    print(f"{KnowledgeEntry.objects.count()} rows of two organizations hold {size} with indexes")


def _word(at: int) -> str:
    """Each tenth is among the commonest."""
    return WORDS[at % 10] if at % 10 == 0 else WORDS[(at * 37) % len(WORDS)]


def _label(at: int) -> str:
    entries = KnowledgeEntry.objects.values_list("label_text", flat=True)
    return str(entries.get(organization__slug="bench", iri=f"urn:bench:{at * 31}")).split("\n")[0]


_LABELS: dict[int, str] = {}


def _cached_label(at: int) -> str:
    return _LABELS.setdefault(at, _label(at))


_QUESTIONS: dict[str, Callable[[int], EntitySearchQuery]] = {
    "one word": lambda at: EntitySearchQuery(_word(at)),
    "the commonest words": lambda at: EntitySearchQuery(WORDS[at % 5]),
    "two words": lambda at: EntitySearchQuery(f"{_word(at)} {_word(at + 1)}"),
    "two of the commonest words": lambda at: EntitySearchQuery(f"{WORDS[at % 7]} {WORDS[at % 11]}"),
    "a whole label": lambda at: EntitySearchQuery(_cached_label(at % 100)),
    "a phrase": lambda at: EntitySearchQuery(f'"{" ".join(_cached_label(at % 100).split()[:2])}"'),
    "a word and a type": lambda at: EntitySearchQuery(_word(at), type=f"type-{at % 20}"),
    "a common word and a type": lambda at: EntitySearchQuery(WORDS[at % 5], type=f"type-{at % 20}"),
    "the beginning of a word": lambda at: EntitySearchQuery(_word(at)[:5]),
    "a question of six words, not all there": lambda at: EntitySearchQuery(
        f"where would {_word(at)} {_word(at + 3)} {_word(at + 7)} nowhere"
    ),
    "a misspelt label": lambda at: EntitySearchQuery(
        _cached_label(at % 100).replace("a", "e", 1) + "x"
    ),
    "no match at all": lambda at: EntitySearchQuery(f"xyz{at}qqq"),
    "the hundredth page": lambda at: EntitySearchQuery(WORDS[at % 5], offset=990),
}


def _calls(organization: Organization) -> None:
    agent = factories.agent(organization, groups=["knowledge"], permissions=["tool.knowledge.read"])
    for depth in (0, 1, 2):
        done: list[Execution] = []
        _show(
            f"a whole call, depth {depth}",
            lambda at, depth=depth, done=done: done.append(_called(agent, at, depth)),
            CALLS,
        )
        failed = [one.error_message for one in done if one.status != "Success"]
        assert not failed, failed[:3]


def _called(agent: Agent, at: int, depth: int) -> Execution:
    execution = factories.execution(
        agent, "search_knowledge", group=["knowledge"], query=_word(at), depth=depth
    )
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def _show(what: str, work: Callable[[int], object], rounds: int) -> None:
    work(0)
    times = []
    for at in range(rounds):
        began = time.perf_counter()
        work(at)
        times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    print(f"{what:<44}{cuts[49]:>10.1f}{cuts[94]:>10.1f}{max(times):>10.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ENTITIES)
