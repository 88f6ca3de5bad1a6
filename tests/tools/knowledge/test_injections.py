"""Queries meant to reach what is another's, to change, to call out or to exhaust: each one, down
the whole road, against the Oxigraph the product started, with the data of two organizations.

A query may be refused; if it is answered, then from the organization's own graph.
"""

from dataclasses import dataclass
from uuid import uuid4

import pytest

from tests import factories
from tests.stubs import web
from tools.execution.pipeline import admit, perform
from tools.knowledge import terms
from tools.models import Agent, Execution

pytestmark = pytest.mark.usefixtures("committed")
GROUPS = ["knowledge/read", "knowledge/write", "knowledge"]
OURS, SECRET = "ours-to-read", "never-to-be-seen"
GIVEN_UP = {"QUERY_INVALID", "KNOWLEDGE_UNAVAILABLE", "OUTPUT_LIMIT", "TIMEOUT"}


@dataclass(frozen=True)
class Two:
    """Who asks, and the graph and an entity of an organization that is not theirs."""

    agent: Agent
    other: Agent
    graph: str
    own: str
    entity: str

    def ask(self, query, **more):
        places = {"$OTHER": self.graph, "$OWN": self.own, "$ENTITY": self.entity}
        for name, iri in places.items():
            query = query.replace(name, iri)
        return called(self.agent, "execute_ckvs_query", query=query, **more)

    def counts(self):
        return [_count(agent) for agent in (self.agent, self.other)]


@pytest.fixture
def two(organization):
    place = factories.organization(f"other-{uuid4().hex[:8]}")
    agents = []
    for one in (organization, place):
        factories.install(one)
        agents.append(factories.agent(one, groups=GROUPS))
    called(agents[0], "create_entity", type="Thing", name=OURS)
    entity = called(agents[1], "create_entity", type="Thing", name=SECRET).output["iri"]
    graphs = [terms.graph_of(one.pk, None) for one in (place, organization)]
    return Two(*agents, *graphs, entity)


def called(agent, tool, /, **parameters):
    call = factories.call(tool, parameters, group=GROUPS)
    execution = admit(factories.caller(agent), call)
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def _count(agent):
    counted = called(agent, "execute_ckvs_query", query="SELECT (COUNT(*) AS ?n) { ?s ?p ?o }")
    assert counted.status == "Success", counted.error_message
    return int(counted.output["rows"][0]["n"]["value"])


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
    assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")
    assert done.error_message
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


@pytest.mark.parametrize("query", CALLS_OUT, ids=range(len(CALLS_OUT)))
def test_no_query_calls_anybody(two, query):
    with web.serving() as server:
        done = two.ask(query.replace("$URL", server.url("/sparql")))
        assert not server.seen
    assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")


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
    if done.status != "Success":
        assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")
        assert done.error_message


def test_what_is_refused_is_refused_for_the_other_graph_and_not_for_its_own_words(two):
    assert OURS in str(two.ask("SELECT * { ?s ?p ?o }").output)
    assert OURS in str(two.ask("SELECT * { ?s ?p ?o FILTER(?o != 'GRAPH <x> FROM') }").output)
