"""Graph tools through the whole execution pipeline, against the crib's Oxigraph."""

import threading
from uuid import uuid4

import pytest

from tests import factories
from tests.stubs import web
from tests.stubs.web import Raw, Reply
from tests.tools.approval_requests import attempted_in_thread
from tools.execution import answer
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
ADA, BOB = "http://example.org/people/ada", "http://example.org/people/bob"
TRIPLES = [
    {"subject": ADA, "predicate": LABEL, "object": "Ada Lovelace"},
    {"subject": ADA, "predicate": "http://example.org/knows", "object": f"<{BOB}>"},
    {"subject": BOB, "predicate": LABEL, "object": {"value": "Bob", "language": "en"}},
]


@pytest.fixture(autouse=True)
def tools(organization):
    install(organization)


def install(organization, **implementation):
    for kind in ("knowledge-query", "structured-query", "graph-update"):
        register(organization, kind, **implementation)


def register(organization, kind, name=None, *, fields=None, **implementation):
    definition = {"name": name or kind, "type": kind, "description": "Of graphs."}
    definition |= {"implementation": implementation} if implementation else {}
    return factories.register(organization, definition | (fields or {}))


def called(agent, name, **parameters):
    execution = admit(factories.caller(agent), factories.call(name, parameters))
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def add_triples(agent, triples=TRIPLES):
    done = called(agent, "graph-update", triples=triples)
    assert done.status == "Success", done.error_message
    return done


def ask_graph(agent, question, name="structured-query"):
    done = called(agent, name, question=question)
    assert done.status == "Success", done.error_message
    return done.output


def everything(agent):
    rows = ask_graph(agent, "SELECT ?s ?p ?o { ?s ?p ?o }")["rows"]
    return sorted(row["o"]["value"] for row in rows)


def test_what_is_added_is_found_by_a_query(agent):
    assert add_triples(agent).output == {"added": 3}
    found = ask_graph(agent, f"SELECT ?name {{ <{ADA}> <{LABEL}> ?name }}")
    assert found == {
        "variables": ["name"],
        "rows": [{"name": {"type": "literal", "value": "Ada Lovelace"}}],
        "text": "Ada Lovelace",
        "truncated": False,
    }
    assert ask_graph(agent, f"ASK {{ <{ADA}> ?p 'Nobody' }}") == {"boolean": False, "text": "false"}


def test_saying_it_twice_changes_nothing(agent):
    add_triples(agent)
    add_triples(agent)
    assert len(everything(agent)) == 3


def test_a_question_in_words_finds_what_is_known_of_things(agent):
    add_triples(agent)
    found = ask_graph(agent, "Who was LOVELACE?", "knowledge-query")
    assert found["text"] == "ada knows bob\nada label Ada Lovelace"
    assert found["rows"][0]["object"] == {"type": "uri", "value": BOB}
    assert ask_graph(agent, "nothing-like-it", "knowledge-query")["rows"] == []


@pytest.mark.parametrize(
    "words", ['") } } DROP ALL #', "x\\", "'''", "} UNION { GRAPH ?g { ?s ?p ?o } }"]
)
def test_words_stay_words(agent, words):
    add_triples(agent)
    assert ask_graph(agent, f"{words} unheard", "knowledge-query")["rows"] == []
    assert len(everything(agent)) == 3


def test_another_organizations_graph_is_not_there(agent, organization):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    install(other)
    stranger = factories.agent(other)
    add_triples(agent)
    add_triples(stranger, [{"subject": ADA, "predicate": LABEL, "object": "another's"}])
    assert everything(stranger) == ["another's"]
    assert "another's" not in everything(agent)
    assert ask_graph(stranger, "Lovelace", "knowledge-query")["rows"] == []
    graph = f"urn:toolcrib:{organization.pk}:default"
    for query in (
        f"SELECT * FROM <{graph}> {{ ?s ?p ?o }}",
        f"SELECT * FROM NAMED <{graph}> {{ GRAPH ?g {{ ?s ?p ?o }} }}",
        f"SELECT * {{ GRAPH <{graph}> {{ ?s ?p ?o }} }}",
    ):
        done = called(stranger, "structured-query", question=query)
        assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")


def test_collections_of_one_organization_are_apart(agent, organization):
    register(organization, "graph-update", "tell-people", collection="people")
    register(organization, "structured-query", "ask-people", collection="people")
    add_triples(agent)
    assert ask_graph(agent, "SELECT * { ?s ?p ?o }", "ask-people")["rows"] == []
    called(agent, "tell-people", triples=TRIPLES[:1])
    assert len(ask_graph(agent, "SELECT * { ?s ?p ?o }", "ask-people")["rows"]) == 1


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "query",
    [
        "DROP ALL",
        "SELECT * { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
        "SELECT * { ?s ?p",
        "SELECT nonsense { ?s ?p ?o }",
        "",
    ],
)
def test_the_error_of_a_query_that_cannot_be_run_reaches_its_author(agent, query):
    done = called(agent, "structured-query", question=query)
    assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")
    assert done.error_message


def test_rows_are_capped_and_it_says_so(agent, organization):
    register(organization, "structured-query", "few", limit=2)
    add_triples(agent)
    found = ask_graph(agent, "SELECT * { ?s ?p ?o } LIMIT 50", "few")
    assert (len(found["rows"]), found["truncated"]) == (2, True)
    found = ask_graph(agent, "SELECT * { ?s ?p ?o }", "few")
    assert (len(found["rows"]), found["truncated"]) == (2, True)


def test_a_query_without_end_ends_with_the_tools_time(agent, organization):
    fields = {"constraints": {"max_execution_time": "PT0.2S"}}
    register(organization, "structured-query", "quick", fields=fields)
    values = " ".join(str(number) for number in range(60))
    bomb = " ".join(f"VALUES ?v{at} {{ {values} }}" for at in range(4))
    done = called(agent, "quick", question=f"SELECT (COUNT(*) AS ?n) {{ {bomb} }}")
    assert (done.status, done.error_code) == ("Timeout", "TIMEOUT")


def test_statements_that_are_none_are_refused_before_anything_is_said(agent, organization):
    triples = {"name": "triples", "type": "Array", "description": "Statements."}
    done = factories.definition("loose", type="graph-update", implementation={})
    done |= {"argument_validation": "off", "parameters": [triples]}
    factories.register(organization, done)
    bad = [{"subject": "urn:s> ?p ?o } } #", "predicate": "urn:p", "object": "x"}]
    done = called(agent, "loose", triples=bad)
    assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")
    assert everything(agent) == []


# --- an untrusted endpoint ------------------------------------------------------------------------


@pytest.fixture
def endpoint(settings):
    with web.serving() as server:
        settings.SPARQL_URL, settings.SPARQL_UPDATE_URL = server.url("/q"), server.url("/u")
        yield server


def outcome(agent, question="SELECT * { ?s ?p ?o }"):
    done = called(agent, "structured-query", question=question)
    return done.status, done.error_code


@pytest.mark.part("generated")
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(500, [], b"java.lang.NullPointerException"), "KNOWLEDGE_UNAVAILABLE"),
        (Reply(302, [("Location", "http://127.0.0.1/")]), "KNOWLEDGE_UNAVAILABLE"),
        (Reply(400, [], b"no\x00 \x1b[31mquery"), "QUERY_INVALID"),
        (Reply(200, [], b"<html>"), "KNOWLEDGE_UNREADABLE"),
        (Reply(200, [], b"[" * 100_000), "KNOWLEDGE_UNREADABLE"),
        (Reply(200, [], b"[]"), "KNOWLEDGE_UNREADABLE"),
        (Reply(200, [], b'{"results": 5, "head": []}'), "KNOWLEDGE_UNREADABLE"),
        (
            Reply(200, [], b'{"head": {"vars": []}, "results": {"bindings": [{"a": 5}]}}'),
            "KNOWLEDGE_UNREADABLE",
        ),
        (Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"]), "KNOWLEDGE_CUT"),
        (Raw([b"\x00\x01\x02\r\n\r\n"]), "KNOWLEDGE_CUT"),
    ],
    ids=range(10),
)
def test_an_answer_that_is_none_fails_the_call(agent, endpoint, reply, code):
    endpoint.replies["/q"] = reply
    assert outcome(agent) == ("Failed", code)


def test_an_answer_without_end_is_ended_here(agent, organization, endpoint):
    fields = {"constraints": {"max_output_size": 10_000}}
    register(organization, "structured-query", "small", fields=fields)
    endless = threading.Event()

    def pieces():
        while not endless.is_set():
            yield b" " * 1_000

    endpoint.replies["/q"] = Reply(200, [], pieces())
    done = called(agent, "small", question="SELECT * { ?s ?p ?o }")
    endless.set()
    assert (done.status, done.error_code) == ("Failed", "OUTPUT_LIMIT")


def test_control_characters_do_not_reach_the_output(agent, endpoint):
    body = (
        b'{"head": {"vars": ["a"]}, "results": {"bindings":'
        b' [{"a": {"type": "literal", "value": "x\\u001by"}}]}}'
    )
    endpoint.replies["/q"] = Reply(200, [], body)
    assert ask_graph(agent, "SELECT ?a { ?a ?b ?c }")["text"] == "x\ufffdy"


def test_the_graph_goes_with_every_query(agent, organization, endpoint):
    outcome(agent)
    graph = f"default-graph-uri=urn%3Atoolcrib%3A{organization.pk}%3Adefault"
    assert endpoint.seen[0].target == f"/q?{graph}"


def test_an_update_whose_answer_is_lost_follows_its_delivery(agent, organization, endpoint):
    register(organization, "graph-update", "once", fields={"delivery": "external"})
    endpoint.replies["/u"] = Raw([b""])
    done = called(agent, "once", triples=TRIPLES)
    assert (done.status, done.error_code) == ("Failed", "OUTCOME_UNKNOWN")


def test_a_cancelled_call_hangs_up_on_the_endpoint(agent, endpoint):
    go_on = threading.Event()

    def silent(_):
        go_on.wait(60)
        return Reply(500)

    endpoint.replies["/q"] = silent
    call = factories.call("structured-query", {"question": "SELECT * { ?s ?p ?o }"})
    execution = admit(factories.caller(agent), call)
    thread = attempted_in_thread(execution)
    endpoint.received()
    answer.cancel(execution=execution, caller=factories.caller(agent))
    thread.join(30)
    go_on.set()
    assert not thread.is_alive()
    assert Execution.objects.get(pk=execution.pk).status == "Cancelled"


def queried(agent, query, **more):
    reader = factories.agent(
        agent.organization, groups=["knowledge"], permissions=["tool.knowledge.read"]
    )
    call = factories.call("execute_ckvs_query", {"query": query, **more}, group=["knowledge"])
    execution = admit(factories.caller(reader), call)
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def test_the_built_in_query_answers_in_all_four_forms(agent):
    add_triples(agent)
    rows = queried(agent, f"SELECT ?name {{ <{ADA}> <{LABEL}> ?name }}")
    assert rows.status == "Success", rows.error_message
    assert rows.output["rows"] == [{"name": {"type": "literal", "value": "Ada Lovelace"}}]
    assert queried(agent, f"ASK {{ <{ADA}> ?p ?o }}").output["boolean"] is True
    made = queried(agent, f"CONSTRUCT {{ ?s <urn:x> ?o }} WHERE {{ ?s <{LABEL}> ?o }}", limit=1)
    assert made.output["statements"] == [
        {"subject": f"<{ADA}>", "predicate": "<urn:x>", "object": '"Ada Lovelace"'}
    ]
    assert made.output["truncated"]
    assert len(queried(agent, f"DESCRIBE <{ADA}>").output["statements"]) == 2


def test_the_built_in_query_takes_parameters(agent):
    add_triples(agent)
    query = f"SELECT ?s {{ ?s <{LABEL}> ?name }}"
    found = queried(agent, query, parameters={"name": "Ada Lovelace"})
    assert found.status == "Success", found.error_message
    assert [row["s"]["value"] for row in found.output["rows"]] == [ADA]
    assert queried(agent, query, parameters={"name": '" } #'}).output["rows"] == []
    unknown = queried(agent, query, parameters={"nam": "Ada"})
    assert unknown.error_code == "QUERY_INVALID" and "?name" in unknown.error_message


def test_the_built_in_query_describes_nothing_of_others(agent):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    add_triples(agent)
    for query in (f"DESCRIBE <{ADA}>", "CONSTRUCT WHERE { ?s ?p ?o }"):
        assert queried(factories.agent(other), query).output["statements"] == []


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "query",
    [
        "DROP ALL",
        "INSERT DATA { <urn:a> <urn:b> 1 }",
        "SELECT * { ?s ?p ?o } ; DROP ALL",
        "ASK {} DELETE WHERE { ?s ?p ?o }",
        "CONSTRUCT { ?s ?p ?o } FROM <urn:g> WHERE { ?s ?p ?o }",
        "DESCRIBE <urn:a> FROM <urn:g>",
        "DESCRIBE ?s { GRAPH ?g { ?s ?p ?o } }",
        "CONSTRUCT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1/> { ?s ?p ?o } }",
        "CONSTRUCT { ?s ?p ?o } WHERE { SERVICE SILENT <urn:x> { ?s ?p ?o } }",
        "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o",
        "SELECT * { ?s ?p '\\u0022' }",
        "CLEAR GRAPH <urn:g>",
        "LOAD <http://127.0.0.1/>",
    ],
)
def test_the_built_in_query_refuses_what_is_more_than_reading_its_graph(agent, query):
    add_triples(agent)
    done = queried(agent, query)
    assert (done.status, done.error_code) == ("Failed", "QUERY_INVALID")
    assert len(everything(agent)) == 3
