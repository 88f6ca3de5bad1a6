"""Deeply nested RDF documents, parsed in a separate process, are refused before the stack
overflows."""

import subprocess
import sys
from uuid import UUID, uuid4

import pyoxigraph as ox
import pytest
from django.conf import settings

from tools.knowledge import entities, entity_index, graph_documents, rdf_terms
from tools.knowledge.graph_documents import BadGraphDocument, Syntax
from tools.knowledge.rdf_terms import BadTerm

READS = """
import sys
from tools.knowledge.graph_documents import BadGraphDocument, Syntax, document_contents
try:
    document_contents(sys.stdin.buffer.read(), Syntax(sys.argv[1]))
except BadGraphDocument as flaw:
    print(flaw)
"""
DEEP = [
    (Syntax.JSON_LD, '{"a:a":' * 4_000 + "1" + "}" * 4_000),
    (Syntax.JSON_LD, '{"a:\\"]}]}":' * 4_000 + "1" + "}" * 4_000),
    (Syntax.JSON_LD, '{"@graph":[' * 20_000 + "]}" * 20_000),
    (Syntax.JSON_LD, '{"@context":{"a":{"@id":"a:a",' * 20_000),
    (Syntax.JSON_LD, "[" * 100_000),
    (Syntax.JSON_LD, '{"\n":1,' + '"a:a":{"\n":"\n",' * 20_000),
    (Syntax.TURTLE, "<a:a> <a:b> " + "<<( <a:a> <a:b> " * 20_000),
    (Syntax.TURTLE, "<< " * 20_000 + "<a:a> <a:b> 1" + " >> <a:b> 1" * 20_000 + " ."),
]


@pytest.mark.part("generated", but_each=3)
@pytest.mark.parametrize(("syntax", "text"), DEEP, ids=range(len(DEEP)))
def test_a_document_that_nests_without_end_is_refused_and_ends_no_process(syntax, text):
    words = [sys.executable, "-c", READS, str(syntax)]
    given = {"input": text.encode(), "cwd": settings.BASE_DIR, "timeout": 20}
    done = subprocess.run(words, check=False, capture_output=True, **given)
    assert done.returncode == 0, done.stderr
    assert b"nested deeper than 64" in done.stdout or b"another statement" in done.stdout


def test_what_only_looks_deep_is_read():
    text = '{"@id": "a:a", "a:b": "' + "{[" * 500 + '\\"' + "[" * 500 + '"}'
    assert graph_documents.document_contents(text.encode(), Syntax.JSON_LD).statements == 1
    turtle = "\n".join(f'<a:a> <a:b> "{at} << [[[[ ((((" .' for at in range(200))
    assert graph_documents.document_contents(turtle.encode(), Syntax.TURTLE).statements == 200


def test_the_deepest_nesting_that_is_read_is_documented():
    def nested(count):
        return ('{"a:a":' * count + "1" + "}" * count).encode()

    assert graph_documents.document_contents(nested(64), Syntax.JSON_LD).statements == 64
    with pytest.raises(BadGraphDocument, match="deeper than 64"):
        graph_documents.document_contents(nested(65), Syntax.JSON_LD)


GRAPH = rdf_terms.graph_iri(UUID(int=7), None)


def stored(triples):
    """The statements in a store after the update: (graph, subject, predicate, object) of each."""
    store = ox.Store()
    store.update(rdf_terms.triples_insertion(GRAPH, triples))
    return {(str(q.graph_name), str(q.subject), str(q.predicate), str(q.object)) for q in store}


def statement(said):
    return {"subject": "urn:s", "predicate": "urn:p", "object": said}


def test_a_graph_is_named_after_organization_and_collection():
    assert GRAPH == "urn:toolcrib:00000000-0000-0000-0000-000000000007:default"
    assert rdf_terms.graph_iri(UUID(int=7), "people").endswith(":people")


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
        rdf_terms.triples_insertion(GRAPH, triples)


@pytest.mark.parametrize("field", ["properties", "relations"])
@pytest.mark.parametrize("name", ["createdBy", entities.CREATED_BY.value, str(entities.CREATED_BY)])
def test_no_caller_says_which_call_created_an_entity(field, name):
    given = {"type": "T", "name": "n", field: {name: ["urn:a:call"]}}
    with pytest.raises(BadTerm, match="createdBy"):
        entities.read_entity(uuid4(), given)


RDFS = "http://www.w3.org/2000/01/rdf-schema#"


def read(text):
    return entity_index.parse_entries(text.encode())


def test_texts_are_divided_by_their_predicates():
    (one,) = read(
        f'<urn:a> <{RDFS}label> "Iron"@en .\n<urn:a> <{RDFS}comment> "A metal" .\n'
        f'<urn:a> <urn:p> "26" .\n<urn:a> <{entity_index.TYPE}> <http://e.org/v#Element> .\n'
        "<urn:a> <urn:p> <urn:b> .\n"
    )
    assert (one.labels, one.descriptions) == ([("Iron", "en")], [("A metal", "")])
    assert (one.others, one.names) == (["26"], ["iron"])
    assert one.kinds == ["element", "http://e.org/v#Element"]


def test_blank_nodes_are_no_entities():
    assert read('_:b <urn:p> "x" .\n') == []


def test_control_characters_come_to_be_spaces():
    (one,) = read('<urn:a> <urn:p> "x\\u0000y\\u0007" .\n')
    assert one.others == ["x y "]


def test_of_a_long_text_only_so_much_is_indexed():
    (one,) = read(f'<urn:a> <urn:p> "{"x" * 90_000}" .\n<urn:a> <urn:p> "{"y" * 90_000}" .\n')
    assert sum(len(text) for text in one.others) == 100_000


@pytest.mark.parametrize(
    ("given", "folded"), [("ÉTÉ", "ete"), ("Straße", "strasse"), ("ﬁ", "fi"), ("İ", "i")]
)
def test_case_and_accents_are_folded(given, folded):
    assert entity_index.fold_text(given) == folded


@pytest.mark.parametrize(
    ("iri", "words"),
    [("urn:x:atomicNumber_2", "atomic Number 2"), ("http://e.org/a%20b/", "a b"), ("x:", "x")],
)
def test_the_end_of_an_iri_is_words(iri, words):
    assert entity_index.local_words(iri) == words


def test_what_is_no_iri_is_no_subject():
    given = ["urn:b", "urn:a", "urn:a", "no iri", "", "urn:\ud800", "urn:" + "x" * 2_000]
    assert entity_index.valid_subjects(given) == ["urn:a", "urn:b"]
