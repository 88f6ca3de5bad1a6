"""RDF terms: whatever a caller sends stays inside one term of one graph."""

from uuid import UUID

import pyoxigraph as ox
import pytest

from tools.knowledge import rdf_terms
from tools.knowledge.rdf_terms import BadTerm

GRAPH = rdf_terms.graph_of(UUID(int=7), None)


def stored(triples):
    """The statements in a store after the update: (graph, subject, predicate, object) of each."""
    store = ox.Store()
    store.update(rdf_terms.insertion(GRAPH, triples))
    return {(str(q.graph_name), str(q.subject), str(q.predicate), str(q.object)) for q in store}


def statement(said):
    return {"subject": "urn:s", "predicate": "urn:p", "object": said}


def test_a_graph_is_named_after_organization_and_collection():
    assert GRAPH == "urn:toolcrib:00000000-0000-0000-0000-000000000007:default"
    assert rdf_terms.graph_of(UUID(int=7), "people").endswith(":people")


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("plain", '"plain"'),
        ("<urn:o>", "<urn:o>"),
        (5, '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        (True, '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>'),
        ({"value": "hallo", "language": "de"}, '"hallo"@de'),
        ({"value": "1", "datatype": "urn:d"}, '"1"^^<urn:d>'),
    ],
)
def test_an_object_is_an_iri_or_a_literal(given, written):
    assert stored([statement(given)]) == {(f"<{GRAPH}>", "<urn:s>", "<urn:p>", written)}


@pytest.mark.parametrize(
    "text",
    ['" } } ; DROP ALL ; #', "\\", '\\"', "a\nb\r", "'''", "} GRAPH <urn:x> {", "\\u0022 ."],
)
def test_a_literal_never_leaves_its_quotes(text):
    ((graph, _, _, written),) = stored([statement(text)])
    assert (graph, written) == (f"<{GRAPH}>", str(ox.Literal(text)))


@pytest.mark.parametrize(
    "triples",
    [
        None,
        [],
        ["text"],
        [{"subject": "urn:s"}],
        [statement("x") | {"graph": "urn:other"}],
        [{"subject": "urn:s> <urn:p> 1 } } ; DROP ALL #", "predicate": "urn:p", "object": "x"}],
        [{"subject": "no iri", "predicate": "urn:p", "object": "x"}],
        [{"subject": 5, "predicate": "urn:p", "object": "x"}],
        [statement("<urn:a b>")],
        [statement(None)],
        [statement(["x"])],
        [statement({"value": 5})],
        [statement({"value": "x", "language": "de", "datatype": "urn:d"})],
        [statement({"value": "x", "language": "no language!"})],
        [statement({"value": "x", "more": 1})],
        [statement("x" * 100_001)],
        [statement("x")] * 1_001,
    ],
    ids=range(17),
)
def test_what_is_no_statement_is_refused(triples):
    with pytest.raises(BadTerm):
        rdf_terms.insertion(GRAPH, triples)
