"""Query cost limits: ordinary queries pass, and every query that passes is cheap enough for the
store."""

import subprocess
from bisect import bisect_left
from functools import cache
from types import SimpleNamespace

import httpx2
import pytest

from config.local import oxigraph
from tests.crib import free_port
from tests.waiting import until
from tools.knowledge import query_complexity, sparql_queries
from tools.knowledge.sparql_queries import BadGraphQuery

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
    assert sparql_queries.read(query, statements=True)


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
        sparql_queries.read(query)
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
    query = sparql_queries.read(grown(form, largest(form))).within(101)
    answer = httpx2.post(frail.url, data={"query": query}, timeout=WITHIN_S)
    assert answer.status_code == 200, answer.text
    assert frail.server.poll() is None


@pytest.mark.parametrize("form", GROWING)
def test_one_more_is_refused_and_the_bound_is_told(form):
    with pytest.raises(BadGraphQuery, match=r"has more than \d+ (patterns|clauses|operators)"):
        sparql_queries.read(grown(form, largest(form) + 1))


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
        sparql_queries.read(query)


def test_the_bounds_are_those_the_manual_tells(settings):
    manual = (settings.BASE_DIR / "docs" / "agents.md").read_text("utf-8")
    bounds = (
        query_complexity.MOST_PATTERNS,
        query_complexity.MOST_CLAUSES,
        query_complexity.MOST_OPERATIONS,
    )
    told = "{} patterns (a triple, a step of a path, a block of `VALUES`), {} clauses, {} operators"
    assert told.format(*bounds) in " ".join(manual.split())
