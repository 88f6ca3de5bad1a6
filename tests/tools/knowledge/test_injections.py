"""SPARQL injections that try to read another organization's data, write, call out or exhaust the
crib's Oxigraph, where two organizations have data.

A query is refused, or answered from the organization's own graph.
"""

import threading
import time
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from sandbox.spec import IsolationLevel, RunOutcome
from tests.stubs import web
from tools.builtin.manifest import DEFINITIONS
from tools.catalog.snapshot import Snapshot
from tools.definitions.tool import ToolDefinition, read_definition
from tools.httpclient.upstream_pool import RequestBounds
from tools.knowledge import entities, rdf_terms, sparql_endpoint
from tools.models import LicenseTier
from tools.runners import knowledge
from tools.runners.tool_runs import ToolRun

pytestmark = pytest.mark.django_db

RAW = next(one for one in DEFINITIONS if one["name"] == "execute_ckvs_query")
OURS, SECRET = "ours-to-read", "never-to-be-seen"
STATEMENTS = 100


@dataclass(frozen=True)
class Two:
    """The asking organization, and the graph and an entity of another one."""

    ours: UUID
    others: UUID
    entity: str

    def ask(self, query, organization=None, *, output_bytes=None, timeout_s=30.0, **more):
        places = {"$OTHER": rdf_terms.graph_iri(self.others, None)}
        places |= {"$OWN": rdf_terms.graph_iri(self.ours, None), "$ENTITY": self.entity}
        for name, iri in places.items():
            query = query.replace(name, iri)
        constraints = RAW["constraints"] | (
            {"max_output_size": output_bytes} if output_bytes else {}
        )
        definition = ToolDefinition(read_definition(RAW | {"constraints": constraints}))
        empty = MappingProxyType({})
        asker = organization or self.ours
        snapshot = Snapshot(asker, "acme", 1, LicenseTier(), empty, empty)
        parameters, stop = {"query": query} | more, threading.Event()
        level = IsolationLevel.STANDARD
        return knowledge.run_ckvs_query(
            ToolRun("acme", definition, parameters, timeout_s, stop, level, snapshot)
        )

    def counts(self):
        counted = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"
        asked = [self.ask(counted, one) for one in (self.ours, self.others)]
        return [int(one.output["rows"][0]["n"]["value"]) for one in asked]


@pytest.fixture(scope="module")
def two(servers_in):
    ours, others = uuid4(), uuid4()
    place = sparql_endpoint.SparqlEndpoint(settings.SPARQL_URL, settings.SPARQL_UPDATE_URL)
    for organization, name in ((ours, OURS), (others, SECRET)):
        properties = {f"p{at}": [f"{name} {at}", at] for at in range(STATEMENTS // 2)}
        given = {"type": "Thing", "name": name, "key": "x", "properties": properties}
        entity = entities.read_entity(organization, given)
        graph = rdf_terms.graph_iri(organization, None)
        text = entities.creation_update(graph, entity, call="c", merge=True)
        bounds = RequestBounds(threading.Event(), time.monotonic() + 30)
        sparql_endpoint.update(place, text, bounds)
    return Two(ours, others, entity.iri)


def refused(done):
    assert (done.outcome, done.error_code) == (RunOutcome.FAILED, "QUERY_INVALID")
    assert done.error_message
    return True


CHANGES = [
    "INSERT DATA { <urn:a> <urn:b> 1 }",
    "# SELECT * { ?s ?p ?o }\nDELETE WHERE { ?s ?p ?o }",
    "#\rDROP ALL",
    "\n\t # ASK {}\r\nClEaR aLl",
    "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "\\u0044ROP ALL",
    "\\U00000044ROP ALL",
    "SELECT * { ?s ?p ?o } ; DROP ALL",
    "SELECT * { ?s ?p ?o };DROP SILENT ALL",
    "ASK {}\n;\nCOPY <$OTHER> TO <$OWN>",
    "MOVE <$OTHER> TO DEFAULT",
    "ADD <$OTHER> TO <$OWN>",
    "CREATE GRAPH <urn:new>",
    "LOAD SILENT <http://127.0.0.1/> INTO GRAPH <$OWN>",
    "PREFIX DROP: <urn:x> DROP:ALL",
    "PREFIX a: <urn:x> a:b DROP ALL",
    "BASE <urn:x> CLEAR ALL",
    "BASE <urn:x> WITH <$OTHER> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "DELETE { ?s ?p ?o } USING <$OTHER> WHERE { ?s ?p ?o }",
    "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o } INSERT DATA { <urn:a> <urn:b> 1 }",
    "ASK { ?s ?p ?o } DELETE WHERE { ?s ?p ?o }",
    "ASK { FILTER(true) } # { \n DROP ALL # }",
    "query=SELECT&update=DROP+ALL",
    "SELECT * { INSERT { ?s ?p ?o } }",
    "SELECT * { { DELETE WHERE { ?s ?p ?o } } }",
    "\ufeffDROP ALL",
    "DR\u200dOP ALL",
    "\uff24\uff32\uff2f\uff30 ALL",
    "D/**/ROP ALL",
]


@pytest.mark.parametrize("query", CHANGES, ids=range(len(CHANGES)))
def test_no_query_changes_anything(two, query):
    before = two.counts()
    done = two.ask(query)
    assert refused(done)
    assert two.counts() == before


CALLS_OUT = [
    "SELECT * { SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { SERVICE SILENT <$URL> { ?s ?p ?o } }",
    "SELECT * { service\tsilent\n<$URL> { { ?s ?p ?o } } }",
    "SELECT * { { { SERVICE SILENT <$URL> { { ?s ?p ?o } } } } }",
    "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE <$URL> { ?s ?p ?o } } }",
    "SELECT * { ?s ?p ?o FILTER NOT EXISTS { SERVICE <$URL> { ?s ?p ?o } } }",
    "SELECT * { ?s ?p ?o MINUS { SERVICE SILENT <$URL> { ?s ?p ?o } } }",
    "SELECT * { ?s ?p ?o OPTIONAL { SERVICE SILENT <$URL> { ?s ?p ?o } } }",
    "SELECT * { { ?s ?p ?o } UNION { SERVICE SILENT <$URL> { ?s ?p ?o } } }",
    "SELECT * { { SELECT * { SERVICE <$URL> { ?s ?p ?o } } } }",
    "SELECT (EXISTS { SERVICE <$URL> { ?s ?p ?o } } AS ?x) { }",
    "SELECT * { BIND(EXISTS { SERVICE <$URL> { ?s ?p ?o } } AS ?x) }",
    "SELECT * { ?s ?p ?o } ORDER BY EXISTS { SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT ?s { ?s ?p ?o } GROUP BY ?s HAVING(EXISTS { SERVICE <$URL> { ?s ?p ?o } })",
    "SELECT * { VALUES ?g { <$URL> } SERVICE ?g { ?s ?p ?o } }",
    "SELECT * { BIND(IRI('$URL') AS ?g) SERVICE ?g { ?s ?p ?o } }",
    "BASE <$URL> SELECT * { SERVICE <x> { ?s ?p ?o } }",
    "PREFIX u: <$URL> SELECT * { SERVICE u: { ?s ?p ?o } }",
    "PREFIX : <$URL> SELECT * { ?s ?p trueSERVICE:x { ?s ?p ?o } }",
    "SELECT * { ?s a/SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s (a|SERVICE)* ?o . SERVICE <$URL> {} }",
    "SELECT * { ?s ?p 1SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s ?p ''SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s ?p 'x'@enSERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s ?p 'x'^^<urn:x>SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { \\u0053ERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { \\U00000053\\u0045RVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { \u017fERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { # }\nSERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s ?p <urn:x#> # \n SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { ?s ?p '#' SERVICE <$URL> { ?s ?p ?o } }",
    "SELECT * { FILTER(?a<x:b)SERVICE#>\n<$URL> { ?s ?p ?o } }",
    "CONSTRUCT { ?s ?p ?o } { SERVICE <$URL> { ?s ?p ?o } }",
    "DESCRIBE ?s { SERVICE <$URL> { ?s ?p ?o } }",
    "LOAD <$URL>",
    "SELECT * FROM <$URL> { ?s ?p ?o }",
]


@pytest.mark.part("generated", but_each=3)
@pytest.mark.parametrize("query", CALLS_OUT, ids=range(len(CALLS_OUT)))
def test_no_query_calls_anybody(two, query):
    with web.serving() as server:
        done = two.ask(query.replace("$URL", server.url("/sparql")))
        assert not server.seen
    assert refused(done)


REACHES = [
    "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH <$OTHER> { ?s ?p ?o } }",
    "SELECT * { gRaPh<$OTHER>{?s ?p ?o} }",
    "SELECT * { ?a ?b trueGRAPH ?g { ?s ?p ?o } }",
    "SELECT * { ?a ?b ?c OPTIONAL { ?a ?b trueGRAPH <$OTHER> { ?s ?p ?o } } }",
    "SELECT * FROM <$OTHER> { ?s ?p ?o }",
    "SELECT * FROM NAMED <$OTHER> { GRAPH ?g { ?s ?p ?o } }",
    "SELECT *FROM<$OTHER>{ ?s ?p ?o }",
    "ASKFROM <$OTHER> { ?s ?p ?o }",
    "SELECT * WHEREFROM <$OTHER> { ?s ?p ?o }",
    "PREFIX : <$OTHER> SELECT * FROM : { ?s ?p ?o }",
    "BASE <$OTHER> SELECT * FROM <> { ?s ?p ?o }",
    "BASE <$OTHER> SELECT * { GRAPH <> { ?s ?p ?o } }",
    "BASE <$OTHER> SELECT * { ?s ?p ?o }",
    "PREFIX o: <$OTHER> SELECT * { o: ?p ?o }",
    "SELECT * { BIND(IRI('$OTHER') AS ?g) GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { VALUES ?g { <$OTHER> } GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o } } VALUES ?g { <$OTHER> }",
    "SELECT * { VALUES ?g { <$OTHER> } ?s ?p ?o }",
    "SELECT * { FILTER EXISTS { GRAPH <$OTHER> { ?s ?p ?o } } }",
    "SELECT (EXISTS { GRAPH <$OTHER> { ?s ?p ?o } } AS ?x) {}",
    "SELECT * { ?s ?p ?o MINUS { GRAPH ?g { ?s ?p ?o } } }",
    "SELECT * { { SELECT * { GRAPH ?g { ?s ?p ?o } } } }",
    "SELECT ?g { { SELECT DISTINCT ?g { GRAPH ?g {} } } }",
    "SELECT * { <$ENTITY> ?p ?o }",
    "SELECT * { <$ENTITY> (!<urn:x>|!^<urn:x>)* ?o . ?o ?p ?t }",
    "SELECT * { ?s (<urn:x>|!<urn:x>)* ?o }",
    "SELECT * { ?o ^(!<urn:x>)* <$ENTITY> . <$ENTITY> ?p ?t }",
    "DESCRIBE <$ENTITY>",
    "DESCRIBE <$OTHER>",
    "DESCRIBE *  { ?s ?p ?o }",
    "DESCRIBE <$ENTITY> FROM <$OTHER>",
    "DESCRIBE ?s { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT { GRAPH <$OTHER> { ?s ?p ?o } } WHERE { ?s ?p ?o }",
    "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }",
    "CONSTRUCT { ?s ?p ?o } FROM <$OTHER> WHERE { ?s ?p ?o }",
    "CONSTRUCT FROM <$OTHER> WHERE { ?s ?p ?o }",
    "CONSTRUCT WHERE { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o } #\n FROM <$OTHER>",
    "SELECT * { ?s ?p ?o . # { GRAPH <$OTHER> \r { ?s ?p ?o } }",
    "SELECT * { << ?s ?p ?o >> ?q ?r }",
    "ASK { GRAPH <$OTHER> { ?s ?p ?o } }",
]


@pytest.mark.parametrize("query", REACHES, ids=range(len(REACHES)))
def test_no_query_reads_what_is_anothers(two, query):
    done = two.ask(query)
    assert SECRET not in f"{done.output} {done.error_message}"
    assert done.outcome is RunOutcome.SUCCESS or refused(done)


def test_what_is_refused_is_refused_for_the_other_graph_and_not_for_its_own_words(two):
    assert OURS in str(two.ask("SELECT * { ?s ?p ?o }").output)
    assert OURS in str(two.ask("SELECT * { ?s ?p ?o FILTER(?o != 'GRAPH <x> FROM') }").output)


ODD = [
    "SELECT * { ?s ?p '\ud800' }",
    "SELECT * { ?s ?p <urn:\udfff> }",
    "SELECT * { ?s ?p ?\ud800 }",
    "SELECT * { ?s ?p ?o } # \udc00",
    "SELECT * { ?s ?p '\x00' }",
    "SELECT * { ?s ?p ?o } # \x00",
    "SELECT * { ?s ?p <urn:\x00> }",
    "SELECT * { ?s ?p '\x1b[31m' }",
    "SELECT * { ?s ?p '\ufffe\uffff' }",
    "SELECT * { ?s ?p 'a'^^<nonsense> }",
    "SELECT * { ?s ?p 'a'@" + "x" * 200 + " }",
    "SELECT * { ?s ?p 1e99999999 }",
    "SELECT * { ?s ?p " + "9" * 5_000 + " }",
    "SELECT * { ?s ?p '" + "x" * 9_900 + "' }",
    "SELECT * { ?s ?p ?o } LIMIT 99999999999999999999999999",
    "SELECT * { ?s ?p ?o } LIMIT -1",
    "SELECT * { ?s ?p ?o } OFFSET 99999999999999999999999999",
    "SELECT * { ?s ?p ?o } LIMIT 1 LIMIT 2",
    "SELECT * { ?s ?p ?o } LIMIT",
    "SELECT * " + "{" * 64 + "}" * 64,
    "SELECT * { FILTER(" + "(" * 61 + "1" + ")" * 61 + ") }",
    "SELECT * { FILTER(" + "!" * 4_000 + "true) }",
    "SELECT * { FILTER(" + "-" * 4_000 + "1 = 1) }",
    "SELECT * { FILTER(" + "1+" * 2_400 + "1 = 1) }",
    "SELECT * { FILTER(" + "true||" * 1_600 + "true) }",
    "SELECT * { ?s " + "^" * 4_000 + "<a:b> ?o }",
    "SELECT * { ?s " + "<a:b>/" * 200 + "<a:b> ?o }",
    "SELECT * { ?s " + "<a:b>/" * 1_600 + "<a:b> ?o }",
    "SELECT * { ?s " + "<a:b>|" * 1_600 + "<a:b> ?o }",
    "SELECT * { ?s <a:b>" + "*" * 4_000 + " ?o }",
    "SELECT * { ?s ?p ?o " + ". " * 4_000 + " }",
    "SELECT * { ?s ?p " + "[ ?p " * 60 + "?o" + "]" * 60 + " }",
    "SELECT * { " + "{} UNION " * 1_000 + "{} }",
    "SELECT * { " + "OPTIONAL { ?s ?p ?o " * 60 + "}" * 60 + " }",
    "SELECT * { " + "BIND(1 AS ?x) " * 900 + " }",
    "SELECT " + "?x " * 1_500 + "{}",
    "SELECT * { { SELECT * " * 30 + "{}" + "} }" * 30,
    "SELECT * { FILTER(" + "IF(true, " * 60 + "1" + ", 0)" * 60 + ") }",
    "PREFIX a: <urn:a> " * 400 + "SELECT * {}",
    "BASE <../../x> SELECT * { <y> ?p ?o }",
    "PREFIX xsd: <nonsense SELECT * {}",
    "<html></html>",
    '{"query": "SELECT * {}"}',
    "\ud83d\ude00",
]  # fmt: skip


@pytest.mark.part("generated")
@pytest.mark.parametrize("query", ODD, ids=range(len(ODD)))
def test_an_odd_query_is_answered_or_refused_and_the_store_goes_on(two, query):
    done = two.ask(query)
    assert done.outcome is RunOutcome.SUCCESS or refused(done)
    assert SECRET not in f"{done.output}"
    assert str(done.error_message).isprintable()
    assert OURS in str(two.ask("SELECT * { ?s ?p ?o }").output)


BY_NAME = "".join(f" ?s ?p{at} ?o{at} ." for at in range(3))
HEAVY = [
    "SELECT * { ?s (<a:a>|<a:b>*)* ?o }",
    "SELECT * { ?s ((!<a:a>)*/(!<a:b>)*)* ?o . ?o (^!<a:a>|!<a:a>)+ ?x }",
    f"SELECT (COUNT(*) AS ?n) {{ {BY_NAME} }}",
    f"SELECT * {{ {BY_NAME} }} ORDER BY ?o2 ?o1",
    f"SELECT DISTINCT * {{ {BY_NAME} }} ORDER BY RAND()",
    f"SELECT (COUNT(DISTINCT *) AS ?n) {{ {BY_NAME} }} GROUP BY ?o0 ?o1 ?o2",
    f"ASK {{ {BY_NAME} FILTER(?o1 = 'x' && ?o2 = 'y' && CONCAT(?o1, ?o2) = 'z') }}",
    f"CONSTRUCT {{ ?s ?p0 ?o1 }} WHERE {{ {BY_NAME} FILTER(?o1 = RAND()) }}",
    f"DESCRIBE ?o {{ {BY_NAME} FILTER(?o1 = RAND()) BIND(<a:a> AS ?o) }}",
    f"SELECT * {{ {BY_NAME} FILTER(REGEX(STR(?o2), '(x+x+)+y')) }}",
    f"SELECT * {{ {BY_NAME} FILTER NOT EXISTS {{ ?o0 ?p1 ?o2 MINUS {{ ?o1 ?p2 ?o0 }} }} }}",
]


@pytest.mark.part("generated")
@pytest.mark.parametrize("query", HEAVY, ids=range(len(HEAVY)))
def test_a_query_of_a_million_rows_is_ended_in_its_time(two, query):
    done = two.ask(query, timeout_s=1.0)
    assert done.outcome in {RunOutcome.SUCCESS, RunOutcome.TIMEOUT}, done.error_message
    assert SECRET not in f"{done.output}"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(.*a){20}",
        "((((a{50}){50}){50}){50})",
        "a{1000000}",
        "(?<=a)b",
        "[",
        "\\\\1",
    ],
)
def test_no_pattern_of_a_filter_holds_the_store(two, pattern):
    text = "a" * 5_000 + "!"
    done = two.ask(f"SELECT * {{ BIND('{text}' AS ?t) FILTER(REGEX(?t, '{pattern}')) }}")
    assert done.outcome is RunOutcome.SUCCESS, done.error_message


LONG = [
    "SELECT (GROUP_CONCAT(CONCAT(STR(?s), STR(?p), STR(?o))) AS ?all) { ?s ?p ?o }",
    "SELECT * { ?s ?p ?o . ?a ?b ?c }",
    "CONSTRUCT { ?a ?b ?c } WHERE { ?a ?b ?c }",
    "DESCRIBE ?s { ?s ?p ?o }",
    "SELECT (REPLACE(CONCAT('" + "a" * 4_000 + "'), 'a', 'bbbbbbbbbb') AS ?long) {}",
    "SELECT * { ?s ?p ?o } LIMIT 1000000",
]


@pytest.mark.parametrize("query", LONG, ids=range(len(LONG)))
def test_an_answer_over_the_cap_of_bytes_is_no_answer(two, query):
    done = two.ask(query, output_bytes=5_000)
    assert (done.outcome, done.error_code) == (RunOutcome.FAILED, "OUTPUT_LIMIT")
    assert "LIMIT" in done.error_message


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT * { ?s ?p ?o . ?a ?b ?c }", "rows"),
        ("SELECT * { ?s ?p ?o } LIMIT 1000000", "rows"),
        ("SELECT * { ?s ?p ?o } ORDER BY ?o # LIMIT 1", "rows"),
        ("SELECT * { ?s ?p ?o . { SELECT * { ?a ?b ?c } LIMIT 1 } }", "rows"),
        ("CONSTRUCT WHERE { ?s ?p ?o }", "statements"),
        ("CONSTRUCT { ?s ?p ?o . ?o0 ?p ?s . ?s <a:b> ?o } WHERE { ?s ?p ?o }", "statements"),
        ("DESCRIBE ?s { ?s ?p ?o }", "statements"),
        ("DESCRIBE * { ?s ?p ?o } LIMIT 1000000", "statements"),
    ],
)
def test_an_answer_over_the_cap_of_rows_is_cut_and_says_so(two, query, part):
    done = two.ask(query, limit=7)
    assert done.outcome is RunOutcome.SUCCESS, done.error_message
    assert (len(done.output[part]), done.output["truncated"]) == (7, True)


@pytest.mark.parametrize("name", ["a\x00", "\ud800", "en> . } } ; DROP ALL #", "\x1b[31m", '"@en'])
@pytest.mark.parametrize("field", ["labels", "properties", "relations"])
def test_a_name_that_is_none_is_refused_in_words_that_can_be_kept(name, field):
    for value in (7, "text", {"value": "x", "datatype": name}, {"type": name, "key": name}):
        given = {"type": "T", "name": "n", field: {name: value}}
        with pytest.raises(rdf_terms.BadTerm) as refusal:
            entities.read_entity(uuid4(), given)
        assert str(refusal.value).isprintable()
