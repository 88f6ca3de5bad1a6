"""`create_entity` through the whole execution pipeline, against the crib's Oxigraph."""

import threading
from uuid import uuid4

import pytest
from django.db import connection

from tests import factories
from tests.waiting import blocks_another_connection, until
from tools.execution import pipeline
from tools.execution.performance import RUN
from tools.execution.pipeline import admit, perform
from tools.knowledge import entities
from tools.knowledge.entity_index import entity_lock
from tools.knowledge.rdf_terms import BadTerm
from tools.models import Execution

pytestmark = pytest.mark.usefixtures("committed")
GROUPS = ["knowledge/read", "knowledge/write", "knowledge"]
ORGANIZATION = uuid4()


@pytest.fixture
def agent(organization):
    factories.install(organization)
    return factories.agent(organization, groups=GROUPS)


def called(agent, tool, /, **parameters):
    call = factories.call(tool, parameters, group=GROUPS)
    execution = admit(factories.caller(agent), call)
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def created(agent, **given):
    done = called(agent, "create_entity", **{"type": "Element", "name": "Oxygen"} | given)
    assert done.status == "Success", done.error_message
    return done.output


def rows(agent, query):
    done = called(agent, "execute_ckvs_query", query=query)
    assert done.status == "Success", done.error_message
    return done.output.get("rows", done.output)


def statements(agent, iri):
    found = rows(agent, f"SELECT ?p ?o WHERE {{ <{iri}> ?p ?o }}")
    return {(row["p"]["value"].rpartition(":")[2], row["o"]["value"]) for row in found}


def test_an_entity_is_created_with_its_statements(agent):
    output = created(
        agent,
        labels={"de": "Sauerstoff", "fr": ["Oxygène"]},
        language="en",
        description="A gas.",
        properties={
            "symbol": "O",
            "number": 8,
            "stable": True,
            "found": {"value": "1774-08-01", "datatype": "date"},
        },
        relations={"discoverer": {"type": "Person", "key": "Joseph Priestley"}},
    )
    assert (output["created"], output["merged"], output["statements"]) == (True, False, 10)
    said = statements(agent, output["iri"])
    assert {("symbol", "O"), ("number", "8"), ("stable", "true"), ("found", "1774-08-01")} <= said


def test_described_again_it_is_the_same_one_and_nothing_is_doubled(agent):
    first = created(agent, properties={"symbol": "O"})
    before = statements(agent, first["iri"])
    second = created(agent, properties={"symbol": "O", "number": 8})
    assert (second["iri"], second["created"], second["merged"]) == (first["iri"], False, True)
    assert statements(agent, first["iri"]) - before == {("number", "8")}


def test_one_that_is_there_is_refused_where_that_was_asked_for(agent):
    first = created(agent, on_existing="refuse", properties={"symbol": "O"})
    done = called(
        agent,
        "create_entity",
        type="Element",
        name="Oxygen",
        on_existing="refuse",
        properties={"symbol": "X"},
    )
    assert (done.status, done.error_code) == ("Failed", "ENTITY_EXISTS")
    assert first["iri"] in done.error_message
    assert ("symbol", "X") not in statements(agent, first["iri"])


def test_a_call_that_is_run_again_does_not_refuse_itself(agent, monkeypatch):
    """Its worker is lost after the store's update, and before the result is written."""
    given = {"type": "Element", "name": "Oxygen", "on_existing": "refuse"}
    execution = admit(factories.caller(agent), factories.call("create_entity", given, group=GROUPS))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "RUN", RUN[:2])  # the result is not written
        perform(execution.pk)
    factories.release(execution)
    perform(execution.pk)
    assert Execution.objects.get(pk=execution.pk).output["created"] is True


def test_of_two_at_once_one_creates_it(agent):
    ended = []

    def create():
        ended.append(
            called(agent, "create_entity", type="T", name="one", on_existing="refuse").status
        )
        connection.close()

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["Failed", "Success"]


def test_concurrent_creations_of_one_entity_are_serialized(agent, organization):
    """The store does not serialize them: in 40 of 300 runs of eight concurrent updates, more than
    one update inserted the entity."""
    iri = created(agent)["iri"]
    with entity_lock(organization.pk, iri):
        again = threading.Thread(target=create_in_thread, args=(agent,))
        again.start()
        until(blocks_another_connection)
        assert again.is_alive()
    again.join()


def create_in_thread(agent):
    called(agent, "create_entity", type="Element", name="Oxygen")
    connection.close()


def test_relations_lead_to_the_same_entity_whoever_comes_first(agent):
    oxygen = created(agent, relations={"discoverer": {"type": "Person", "key": "Priestley"}})
    person = created(agent, type="Person", name="Joseph Priestley", key="Priestley")
    query = f"ASK {{ <{oxygen['iri']}> <{entities.VOCABULARY}discoverer> <{person['iri']}> }}"
    assert called(agent, "execute_ckvs_query", query=query).output["boolean"] is True


def test_it_can_be_found_at_once(agent):
    output = created(agent, labels={"de": "Sauerstoff"})
    found = called(agent, "search_knowledge", query="sauerstoff").output
    assert output["iri"] in str(found)


def test_anothers_graph_stays_as_it_is(agent):
    created(agent)
    place = factories.organization(f"other-{uuid4().hex[:8]}")
    factories.install(place)
    other = factories.agent(place, groups=GROUPS)
    assert called(other, "search_knowledge", query="oxygen").output["total"] == 0


def test_who_may_only_read_creates_nothing(organization, agent):
    reader = factories.agent(organization, groups=["knowledge/read"])
    call = factories.call("create_entity", {"type": "T", "name": "x"}, group=["knowledge/read"])
    with pytest.raises(Exception, match="not in a requested group"):
        admit(factories.caller(reader), call)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "no name"}, "type"),
        ({"type": "http://example.org/a> . <urn:x"}, "type"),
        ({"iri": "nonsense"}, "iri"),
        ({"iri": "urn:a b"}, "iri"),
        ({"properties": {"x": None}}, "properties.x.0"),
        ({"properties": {"x": [{"value": "x", "nonsense": 1}]}}, "properties.x.0"),
        ({"properties": {"x": {"value": "yesterday", "datatype": "date"}}}, "is no date"),
        ({"properties": {"x": {"value": "x", "language": "no tag"}}}, "language tag"),
        ({"properties": {"x": {"value": "x", "language": "en", "datatype": "date"}}}, "not both"),
        ({"properties": {"a b": 1}}, "properties"),
        ({"labels": {"english, rather": "x"}}, "language tag"),
        ({"labels": {"en": 7}}, "labels.en"),
        ({"relations": {"x": 7}}, "relations.x.0"),
        ({"relations": {"x": {"type": "T"}}}, "relations.x.0.key"),
        ({"relations": {"x": {"key": "k"}}}, "relations.x.0.type"),
        ({"name": "\ud800"}, "half a character"),
        ({"properties": {"x": list(range(1001))}}, "at most 1000"),
    ],
)
def test_what_is_no_entity_is_refused_by_its_place(given, said):
    with pytest.raises(BadTerm, match=said):
        entities.read(ORGANIZATION, {"type": "T", "name": "n"} | given)


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "text", ['" } } ; DROP ALL #', "'''", "\\", "\n\r\t", "}} UNION {{", "\u2028", "<urn:x>"]
)
def test_a_text_is_a_text_whatever_stands_in_it(agent, text):
    output = created(agent, name=f"n{uuid4().hex}", properties={"said": f"x{text}x"})
    assert ("said", f"x{text}x") in statements(agent, output["iri"])


def test_two_keys_never_make_one_iri():
    def iri(kind, key):
        return entities.read(ORGANIZATION, {"type": kind, "name": "n", "key": key}).iri

    keys = [("a", "b:c"), ("a:b", "c"), ("a", "b%3Ac"), ("a", "b/c"), ("a", "B:C")]
    assert len({iri(kind, key) for kind, key in keys}) == len(keys)
