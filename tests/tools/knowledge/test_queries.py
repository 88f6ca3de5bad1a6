"""Which SPARQL queries may be sent on, and how they are written anew."""

import pytest

from tools.knowledge import queries
from tools.knowledge.queries import BadQuery

REFUSED = [
    "INSERT DATA { <a:b> <a:c> 1 }",
    "DELETE WHERE { ?s ?p ?o }",
    "LOAD <http://example.org/>",
    "CLEAR ALL",
    "DROP GRAPH <urn:a>",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "DESCRIBE <urn:a>",
    "SELECT * { ?s ?p ?o } ; DROP ALL",
    "SELECT * FROM <urn:other> { ?s ?p ?o }",
    "SELECT * FROM NAMED <urn:other> { ?s ?p ?o }",
    "SELECT * { GRAPH <urn:other> { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
    "SELECT * { sErViCe sIlEnT <http://127.0.0.1/> { ?s ?p ?o } }",
    "SELECT * { ?s ?p ?o \\u0053ERVICE <http://127.0.0.1/> {} }",
    "SELECT * { ?s ?p ?o { SELECT * { SERVICE ?x {} } } }",
    "SELECT * { FILTER EXISTS { SERVICE ?x {} } }",
    "PREFIX : <http://127.0.0.1/> SELECT * { SERVICE:x {} }",
    "PREFIX : <http://127.0.0.1/> SELECT * { ?s ?p trueSERVICE:x {} }",
    "SELECT * { ?s ?p 1SERVICE ?x {} }",
    "SELECT * { ?s ?p _:a.SERVICE ?x {} }",
    "SELECT * { ?s ?p ex:a.SERVICE ?x {} }",
    "SELECT * { FILTER(?a<x:b)SERVICE#>\n ?x {} }",
    "SELECT * { FILTER(?a<'x>y')SERVICE ?x {} #'\n }",
    "SELECT * { ?s ?p '''never closed }",
    "SELECT * { ?s ?p 'a\n' }",
    "SELECT * { ?s ?p 'a\\q' }",
    "SELECT * { ?s ?p ?o",
    "SELECT * ) { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o \x00 }",
    "SELECT * " + "{" * 65 + "}" * 65,
    "SELECT " + "?a " * 3_000 + "{}",
    "x" * 10_001,
    "SELECT * { ?s ?p '\ud800' }",
    "SELECT * { ?s " + "a/" * 201 + "a ?o }",
    "",
]


@pytest.mark.parametrize("query", REFUSED, ids=range(len(REFUSED)))
def test_what_changes_calls_out_or_reaches_other_graphs_is_refused(query):
    with pytest.raises(BadQuery):
        queries.read(query)


CHANGES = [
    "DELETE WHERE { ?s ?p ?o }", "insert data { <a:b> <a:c> 1 }", "CLEAR ALL",
    "SELECT * {} ; DROP ALL",
]  # fmt: skip


@pytest.mark.parametrize("query", CHANGES)
def test_the_refusal_of_a_change_names_what_is_allowed(query):
    with pytest.raises(BadQuery, match="may only ASK, CONSTRUCT, DESCRIBE or SELECT; it says"):
        queries.read(query, statements=True)
    with pytest.raises(BadQuery, match="may only ASK or SELECT; it says"):
        queries.read(query)


def test_a_query_that_is_none_of_them_is_told_the_same():
    with pytest.raises(BadQuery, match="must be one of ASK, CONSTRUCT, DESCRIBE or SELECT"):
        queries.read("SHOW TABLES", statements=True)


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("SELECT * { ?s ?p ?o } # all\n", "SELECT * { ?s ?p ?o }"),
        ('SELECT * { ?s ?p """a\n"b"\\n""" }', 'SELECT * { ?s ?p "a\\n\\"b\\"\\n" }'),
        ("ASK { ?s <http://e.org/x#y> 'GRAPH'@en-GB }", None),
        ("SELECT ?service { ?service ?from 'SERVICE <x> {}' }", None),
        ("prefix e: <http://e.org/service#> select * { ?s e:graph/e:from* ?o }", None),
        ("SELECT (COUNT(*) AS ?n) { ?s ?p ?o FILTER(?o < 5 && ?o>=3) } GROUP BY ?s", None),
    ],
)
def test_what_reads_is_written_on_one_line_and_says_the_same(query, written):
    assert queries.read(query).text == (written or query)


@pytest.mark.parametrize(
    ("query", "limited"),
    [
        ("SELECT * { ?s ?p ?o }", False),
        ("SELECT * { ?s ?p ?o } LIMIT 3", True),
        ("SELECT * { { SELECT * { ?s ?p ?o } LIMIT 3 } }", False),
        ("SELECT * { VALUES ?s { 1 } } ORDER BY ?s", False),
        ("SELECT * { ?s ?p ?o } VALUES ?s { 1 }", True),
        ("ASK { ?s ?p ?o }", True),
    ],
)
def test_a_query_without_a_limit_gets_one(query, limited):
    assert queries.read(query).within(5).endswith("LIMIT 5") is not limited


@pytest.mark.parametrize("hostile", ['"' * 9_999, "'''" + "a" * 9_000, "<" * 9_999, "a." * 4_999])
def test_no_text_takes_long_to_refuse(hostile):
    with pytest.raises(BadQuery):
        queries.read(hostile)
