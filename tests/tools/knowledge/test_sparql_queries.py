"""SPARQL queries: which may be sent to the store, and how they are rewritten."""

import subprocess
from bisect import bisect_left
from functools import cache
from types import SimpleNamespace

import httpx2
import pyoxigraph as ox
import pytest

from config.local import oxigraph
from tests.conditions import until
from tests.crib import free_port
from tools.knowledge import query_complexity, rdf_terms, sparql_queries
from tools.knowledge.sparql_queries import BadGraphQuery

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
    with pytest.raises(BadGraphQuery):
        sparql_queries.read_query(query)


CHANGES = [
    "DELETE WHERE { ?s ?p ?o }", "insert data { <a:b> <a:c> 1 }", "CLEAR ALL",
    "SELECT * {} ; DROP ALL",
]  # fmt: skip


@pytest.mark.parametrize("query", CHANGES)
def test_the_refusal_of_a_change_names_what_is_allowed(query):
    with pytest.raises(BadGraphQuery, match="may only ASK, CONSTRUCT, DESCRIBE or SELECT; it says"):
        sparql_queries.read_query(query, statements=True)
    with pytest.raises(BadGraphQuery, match="may only ASK or SELECT; it says"):
        sparql_queries.read_query(query)


def test_a_query_of_another_form_gets_the_same_error():
    with pytest.raises(BadGraphQuery, match="must be one of ASK, CONSTRUCT, DESCRIBE or SELECT"):
        sparql_queries.read_query("SHOW TABLES", statements=True)


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
    assert sparql_queries.read_query(query).text == (written or query)


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
    assert sparql_queries.read_query(query).with_limit(5).endswith("LIMIT 5") is not limited


@pytest.mark.parametrize("hostile", ['"' * 9_999, "'''" + "a" * 9_000, "<" * 9_999, "a." * 4_999])
def test_no_text_takes_long_to_refuse(hostile):
    with pytest.raises(BadGraphQuery):
        sparql_queries.read_query(hostile)


# --- parameters -----------------------------------------------------------------------------------

EX = "http://example.org/"
HOSTILE = (
    '"} INSERT DATA { <urn:x> <urn:x> <urn:x> } #', "a\\", 'a\\"', "line\nline\r", "' . ?s ?p ?o",
    "\\u0022", "}}}", "# no comment",
)  # fmt: skip


@pytest.fixture(scope="module")
def store():
    store = ox.Store()
    names = ("Xe", "Kr", *HOSTILE)
    for at, name in enumerate(names):
        subject = ox.NamedNode(f"{EX}{at}")
        store.add(ox.Quad(subject, ox.NamedNode(f"{EX}name"), ox.Literal(name)))
        store.add(ox.Quad(subject, ox.NamedNode(f"{EX}number"), ox.Literal(at)))
    return store


def run_query(store, query, **parameters):
    found = store.query(
        sparql_queries.read_query(query, statements=True, parameters=parameters).text
    )
    if isinstance(found, ox.QueryBoolean):
        return bool(found)
    if isinstance(found, ox.QueryTriples):
        return sorted(f"{one.subject.value} {one.object.value}" for one in found)
    return sorted(tuple(term.value for term in row if term is not None) for row in found)


def test_a_parameter_is_a_value_of_its_variable(store):
    query = "SELECT ?s WHERE { ?s ?p ?v }"
    assert run_query(store, query, v="Xe") == [(f"{EX}0",)]
    assert run_query(store, query, v=1) == [(f"{EX}1",)]
    assert run_query(store, query, **{"?v": "Kr"}) == [(f"{EX}1",)]
    assert run_query(store, "SELECT $o { $s ?p $o }", s=f"<{EX}0>") == [("0",), ("Xe",)]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_parameter_stays_one_value_whatever_it_holds(store, value):
    assert run_query(store, "SELECT ?v { ?s ?p ?v }", v=value) == [(value,)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT ?s ?v { ?s ?p ?v }", [(f"{EX}0", "Xe")]),
        ("SELECT (COUNT(?s) AS ?n) { ?s ?p ?v }", [("1",)]),
        ("SELECT ?s { ?s ?p ?o FILTER(?o = ?v) }", [(f"{EX}0",)]),
        ("SELECT ?s { { ?s ?p ?o FILTER(?o = ?v) } }", [(f"{EX}0",)]),
        ("SELECT ?s { { SELECT ?s { ?s ?p ?o FILTER(?o = ?v) } } }", [(f"{EX}0",)]),
        ("SELECT ?s { { SELECT ?s ?v { ?s ?p ?o } } FILTER EXISTS { ?s ?q ?v } }",
         [(f"{EX}0",), (f"{EX}0",)]),
        ("SELECT ?s { ?s ?p 0 OPTIONAL { ?s ?q ?o FILTER(?o != ?v) } }", [(f"{EX}0",)]),
        ("SELECT ?s { ?s ?p 1 MINUS { ?s ?q ?v } }", [(f"{EX}1",)]),
        ("SELECT ?s { { ?s ?p ?v } UNION { ?s ?p ?v } }", [(f"{EX}0",), (f"{EX}0",)]),
        ("SELECT ?s { VALUES ?s { <http://example.org/0> } ?s ?p ?v }", [(f"{EX}0",)]),
        ("SELECT ?s { ?s ?p ?o } GROUP BY ?s HAVING(MAX(?o) = ?v)", []),
        ("ASK { ?s ?p ?v }", True),
        ("ASK { ?s <urn:none> ?v }", False),
        ("CONSTRUCT { ?s <urn:is> ?v } WHERE { ?s ?p ?v }", [f"{EX}0 Xe"]),
        ("CONSTRUCT { ?s <urn:is> ?v } WHERE { ?s ?p 1 }", [f"{EX}1 Xe"]),
    ],
)  # fmt: skip
def test_a_parameter_is_bound_wherever_its_variable_stands(store, query, found):
    assert run_query(store, query, v="Xe") == found


def test_what_a_parameter_names_is_described(store):
    assert run_query(store, "DESCRIBE ?it", it=f"<{EX}1>") == [f"{EX}1 1", f"{EX}1 Kr"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("DESCRIBE ?it LIMIT 5", 1),
        ("DESCRIBE ?it LIMIT 0", None),
        ("DESCRIBE ?it ?other ORDER BY DESC(?it) LIMIT 1 OFFSET 0", 1),
        ("PREFIX limit: <http://example.org/> DESCRIBE limit:0 $it LIMIT 5", (0, 1)),
        ("DESCRIBE ?it HAVING(EXISTS { ?it ?p 1 })", 1),
        ("DESCRIBE ?it VALUES ?it { <http://example.org/0> <http://example.org/1> }", 1),
        ("DESCRIBE ?it VALUES ?it { <http://example.org/0> }", None),
        ("DESCRIBE ?it { ?it ?p 0 } LIMIT 5", None),
        ("DESCRIBE ?it WHERE { ?it ?p 1 } ORDER BY ?it LIMIT 5", 1),
    ],
)
def test_what_comes_behind_a_description_stays_behind_its_parameters(store, query, found):
    names = {None: (), 1: (1,)}.get(found, found)
    described = {line.split()[0] for line in run_query(store, query, it=f"<{EX}1>")}
    assert described == {f"{EX}{name}" for name in names}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("CONSTRUCT { ?s <urn:is> ?v } WHERE { ?s ?p ?v } ORDER BY ?s LIMIT 1", [f"{EX}0 Xe"]),
        ("CONSTRUCT { ?s <urn:is> ?v } { ?s ?p ?v } LIMIT 0", []),
        ("ASK { ?s ?p ?v } LIMIT 1", True),
        ("ASK WHERE { ?s ?p ?v } OFFSET 1", False),
    ],
)
def test_what_comes_behind_other_forms_stays_behind_their_parameters(store, query, found):
    assert run_query(store, query, v="Xe") == found


@pytest.mark.parametrize("query", ["DESCRIBE ?it LIMIT 3", "DESCRIBE ?it ORDER BY ?it LIMIT 3"])
def test_a_description_with_a_limit_gets_no_other(query):
    read = sparql_queries.read_query(query, statements=True, parameters={"it": f"<{EX}1>"})
    assert read.with_limit(9) == read.text and read.text.endswith("LIMIT 3")


def test_a_value_cannot_end_a_description(store):
    value = f"<{EX}1> }} LIMIT 0 #"
    assert run_query(store, "DESCRIBE ?it ?s { ?s ?p ?it } LIMIT 5", it=value) == []
    with pytest.raises(rdf_terms.BadTerm):
        run_query(store, "DESCRIBE ?it LIMIT 5", it=f"<{EX}1 }} LIMIT 0>")


@pytest.mark.parametrize(
    ("query", "parameters", "message"),
    [
        ("SELECT ?s { ?s ?p ?value }", {"valeu": 1}, "is [?]value meant"),
        ("SELECT ?s { ?s ?p ?o }", {"v } UNION {": 1}, "is no name of a variable"),
        ("SELECT ?s { ?s ?p ?o BIND(1 AS ?v) }", {"v": 1}, "assigns [?]v"),
        ("CONSTRUCT WHERE { ?s ?p ?v }", {"v": 1}, "write out its template"),
        ("SELECT ?s { ?s ?p ?v }", {"v": "x" * 10_001}, "longer than"),
        ("SELECT ?s { ?s ?p ?v }", {"v": f"<{EX}(x)>"}, "quotes or parentheses"),
    ],
)
def test_a_parameter_that_cannot_be_bound_is_refused(query, parameters, message):
    with pytest.raises(BadGraphQuery, match=message):
        sparql_queries.read_query(query, statements=True, parameters=parameters)


@pytest.mark.parametrize("value", ["<a b>", "<no-iri>", None, ["x"], {"value": 1}, {}])
def test_what_is_no_term_is_refused(value):
    with pytest.raises(rdf_terms.BadTerm, match=r"parameters\.v is no RDF term"):
        sparql_queries.read_query("SELECT ?s { ?s ?p ?v }", parameters={"v": value})


USUAL_STACK = 2 * 1024**2
WITHIN_S = 25.0  # for planning and execution; the store's own limit is longer
BRANCH = "{ ?s a <a:T> ; <a:p> ?o . ?o <a:q> ?x }"


def numbered(part, count):
    return "".join(part.replace("#", str(at)) for at in range(count))


WRITTEN_BY_PEOPLE = [
    "SELECT * { VALUES ?x { " + "<a:b> " * 800 + "} ?x ?p ?o }",
    "SELECT * { ?s ?x ?y } VALUES (?x ?y) { " + "(<a:b> 1) " * 500 + "}",
    "SELECT * { " + " UNION ".join([BRANCH] * 20) + " }",
    "SELECT * { " + numbered("?s <a:p#> ?o# . OPTIONAL { ?o# <a:q> ?q# } ", 30) + "}",
    "SELECT * { ?s ?p ?o FILTER(?o NOT IN (" + "1, " * 1_500 + "1)) }",
    "SELECT * { ?s ?p ?o FILTER(" + "?o = 'x' || " * 100 + "?o = 'y') }",
    "SELECT * { ?s (<a:b>|^<a:c>)+/<a:d>*/(<a:e>/<a:f>)? ?o ; !(a|<a:g>) [ a <a:T>, <a:U> ] }",
    "SELECT ?s (COUNT(DISTINCT ?o) AS ?n) (MAX(?o) AS ?most) { ?s ?p ?o FILTER(?o < <a:z>) } "
    "GROUP BY ?s HAVING (COUNT(?o) > 3) ORDER BY DESC(?n) LIMIT 5",
    "CONSTRUCT { " + numbered("?s <a:p#> ?o . ", 150) + "} WHERE { ?s <a:list> (1 2 ?o) }",
    "SELECT * { " + numbered("BIND(IF(?a > #, STRLEN(?b) * 2, 0) AS ?x#) ", 30) + "}",
]


@pytest.mark.parametrize("query", WRITTEN_BY_PEOPLE, ids=range(len(WRITTEN_BY_PEOPLE)))
def test_what_people_write_is_let_through(query):
    assert sparql_queries.read_query(query, statements=True)


# Planning each of these takes the store seconds.
JOINS = [
    "SELECT * { $?s ?p# ?o# . $}",
    "SELECT * { ?s ?p ?o$,?o#$ }",
    "SELECT * { ?s ?p ?o$;?p# ?o$ }",
    "SELECT * { ?s a ($?o $) }",
    "SELECT * { ?s ?p (?o)$,(?o)$ }",
    "SELECT * { $true?p?o.$}",
    "SELECT * { ${ ?s ?p# ?o }$ }",
]
GROWING = [
    *JOINS,
    "SELECT * { $?x# ?p ?x#1 . $}",
    "SELECT * { (?o) ?p ?x$ . (?o) ?p ?x$ }",
    "SELECT * { $[ ?p ?o ] . $}",
    "SELECT * { ?s ?p []$,[]$ }",
    "SELECT * { $?s ?p trueFILTER(1) $}",
    "SELECT * { $VALUES ?x { 1 } $}",
    "SELECT * { ${ VALUES ?x { 1 } }$ }",
    "SELECT * { ${{ ?s ?p ?o } UNION { ?s ?q ?o }}$ }",
    "SELECT * { $OPTIONAL { ?s ?p ?o } $}",
    "SELECT * { ?s ?p ?o $MINUS {} $}",
    "SELECT * { ?s ?p ?o $FILTER(?o) $}",
    "SELECT * { ?s ?p ?o $FILTER EXISTS { ?s ?q ?o } $}",
    "SELECT * { ${} UNION $ {} }",
    "SELECT * { $BIND(1 AS ?x#) $}",
    "SELECT $(1 AS ?x#) $ {}",
    "SELECT * { ${ SELECT (1 AS ?x) {} }$ }",
    "SELECT ?s { ?s ?p ?o } GROUP BY ?s $STR(?o) $",
    "SELECT ?s { ?s ?p ?o } GROUP BY ?s HAVING $(?s) $",
    "SELECT * { FILTER($!$true) }",
    "SELECT * { FILTER(?o$+?o$ = 1) }",
    "SELECT * { FILTER(?o$-?o$ = 1) }",
    "SELECT * { FILTER(?o$||?o$) }",
    "SELECT * { FILTER(?o$&&?o$) }",
    "SELECT * { ?s $<a:b>/$<a:b> ?o }",
    "SELECT * { ?s $a?/$a ?o }",
    "SELECT * { ?s $a|$a ?o }",
    "SELECT * { ?s $(a|a)/$a ?o }",
]


def grown(form, count):
    before, part, after = form.split("$")
    return before + numbered(part, count) + after


@cache
def largest(form):
    """The largest size that is accepted."""
    return bisect_left(range(1_000), True, key=lambda count: is_refused(grown(form, count + 1)))


def is_refused(query):
    try:
        sparql_queries.read_query(query)
    except BadGraphQuery:
        return True
    return False


@pytest.fixture(scope="module")
def frail(tmp_path_factory):
    """A store with an empty graph and a fifth of the usual stack."""
    port = free_port()
    place = tmp_path_factory.mktemp("frail")
    serve = [str(oxigraph.BINARY), "serve", "--location", str(place)]
    serve += ["--bind", f"127.0.0.1:{port}"]
    stack = {"RUST_MIN_STACK": str(USUAL_STACK // 5)}
    with subprocess.Popen(serve, stderr=subprocess.DEVNULL, env=stack) as server:
        until(lambda: oxigraph.is_listening(("127.0.0.1", port)))
        yield SimpleNamespace(server=server, url=f"http://127.0.0.1:{port}/query")
        server.kill()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(one, marks=pytest.mark.part("generated") if one in JOINS else ())
        for one in GROWING
    ],
)
def test_the_largest_query_that_passes_is_planned_in_time_and_in_a_fifth_of_the_stack(frail, form):
    query = sparql_queries.read_query(grown(form, largest(form))).with_limit(101)
    answer = httpx2.post(frail.url, data={"query": query}, timeout=WITHIN_S)
    assert answer.status_code == 200, answer.text
    assert frail.server.poll() is None


@pytest.mark.parametrize("form", GROWING)
def test_one_more_is_refused_and_the_error_names_the_bound(form):
    with pytest.raises(BadGraphQuery, match=r"has more than \d+ (patterns|clauses|operators)"):
        sparql_queries.read_query(grown(form, largest(form) + 1))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { << ?s ?p ?o >> ?q ?r }",
        "SELECT * { <<?s?p?o>> ?q ?r }",
        "SELECT * { ?s ?p <<( ?s ?p ?o )>> }",
        "SELECT * { ?s ?p ?o {| ?q ?r |} }",
    ],
)
def test_statements_about_statements_are_refused(query):
    with pytest.raises(BadGraphQuery, match="statements about statements"):
        sparql_queries.read_query(query)


def test_the_bounds_are_those_the_manual_tells(settings):
    manual = (settings.BASE_DIR / "docs" / "agents.md").read_text("utf-8")
    bounds = (
        query_complexity.MOST_PATTERNS,
        query_complexity.MOST_CLAUSES,
        query_complexity.MOST_OPERATIONS,
    )
    sentence = (
        "{} patterns (a triple, a step of a path, a block of `VALUES`), {} clauses, {} operators"
    )
    assert sentence.format(*bounds) in " ".join(manual.split())
