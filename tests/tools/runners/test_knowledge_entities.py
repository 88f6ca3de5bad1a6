"""The built-in knowledge search over statements in the crib's Oxigraph."""

import threading
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection

from tests import factories
from tests.conditions import blocks_another_connection, until
from tests.stubs import web
from tests.stubs.web import Reply
from tools.execution import perform as execution_pipeline
from tools.execution.admit import admit
from tools.execution.perform import RUN, perform
from tools.knowledge import entities, entity_index, sparql_endpoint
from tools.knowledge.entity_index import entity_lock
from tools.knowledge.rdf_terms import BadTerm
from tools.models import Execution, GraphScope, KnowledgePending

pytestmark = pytest.mark.usefixtures("committed")
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
LABEL, COMMENT = f"{RDFS}label", f"{RDFS}comment"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
NOTE, NEAR = "urn:x:note", "urn:x:near"


@pytest.fixture
def reader(organization):
    return searcher(organization)


@pytest.fixture
def add_triples(organization):
    return triple_writer(organization)


def searcher(organization):
    return factories.agent(organization, groups=["knowledge"], permissions=["tool.knowledge.read"])


def triple_writer(organization, **implementation):
    """Returns a function that writes triples with a tool of the organization."""
    name = f"add-triples-{uuid4().hex[:8]}"
    definition = {"name": name, "type": "graph-update", "description": "Of graphs."}
    definition |= {"implementation": implementation} if implementation else {}
    factories.register(organization, definition)
    agent = factories.agent(organization)

    def add_triples(*triples):
        parts = ("subject", "predicate", "object")
        given = [dict(zip(parts, one, strict=True)) for one in triples]
        execution = factories.execution(agent, name, triples=given)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return add_triples


def search(agent, query, **more):
    execution = factories.execution(
        agent, "search_knowledge", group=["knowledge"], query=query, **more
    )
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert done.status == "Success", done.error_message
    return done.output


def names(agent, query, **more):
    return [one["iri"] for one in search(agent, query, **more)["results"]]


def test_labels_come_before_descriptions_and_those_before_other_texts(reader, add_triples):
    add_triples(
        ("urn:x:1", NOTE, "made of iron"),
        ("urn:x:2", LABEL, "Steel"),
        ("urn:x:2", COMMENT, "An alloy of iron"),
        ("urn:x:3", LABEL, "Iron ore"),
        ("urn:x:4", LABEL, "Iron"),
        ("urn:x:5", LABEL, "Gold"),
    )
    found = search(reader, "iron")
    assert [(one["iri"], one["match"]) for one in found["results"]] == [
        ("urn:x:4", "exact"),
        ("urn:x:3", "label"),
        ("urn:x:2", "description"),
        ("urn:x:1", "text"),
    ]
    assert (found["total"], found["total_is_exact"], found["matched"]) == (4, True, "all")
    assert found["text"].splitlines()[0] == "Iron <urn:x:4>"
    assert (found["stale"], found["next_offset"]) == (False, None)
    assert found["indexed_at"]


def test_a_phrase_is_found_as_it_stands_and_nothing_looser(reader, add_triples):
    add_triples(("urn:x:1", LABEL, "noble gas law"), ("urn:x:2", LABEL, "gas of noble kind"))
    assert names(reader, '"noble gas"') == ["urn:x:1"]
    assert names(reader, '"gas noble"') == []
    assert sorted(names(reader, "noble gas")) == ["urn:x:1", "urn:x:2"]
    assert names(reader, "noble -law") == ["urn:x:2"]


def test_case_and_accents_make_no_difference(reader, add_triples):
    add_triples(
        ("urn:x:1", LABEL, "Müller"), ("urn:x:2", LABEL, "muller"), ("urn:x:3", LABEL, "ΑΘΉΝΑ")
    )
    assert names(reader, "MULLER") == names(reader, "müller") == ["urn:x:1", "urn:x:2"]
    assert names(reader, "αθηνα") == ["urn:x:3"]


def test_where_not_all_words_are_there_looser_ways_are_tried(reader, add_triples):
    add_triples(
        ("urn:x:1", LABEL, "Hydrogen"),
        ("urn:x:1", NOTE, "discovered by Cavendish"),
        ("urn:x:2", LABEL, "Oxygen"),
        ("urn:x:2", NOTE, "discovered by Scheele"),
    )
    begun = search(reader, "hydro cav")
    assert (begun["matched"], begun["results"][0]["iri"]) == ("beginnings", "urn:x:1")
    some = search(reader, "Who discovered oxygen with a telescope?")
    assert (some["matched"], some["results"][0]["iri"], some["total"]) == ("any", "urn:x:2", 2)
    near = search(reader, "hidrogen")
    assert (near["matched"], near["results"][0]["match"]) == ("similar", "similar")
    assert near["results"][0]["iri"] == "urn:x:1"


def test_a_type_is_named_by_its_iri_its_end_or_its_label(reader, add_triples):
    add_triples(
        ("urn:x:Metal", LABEL, {"value": "Metalle", "language": "de"}),
        ("urn:x:1", TYPE, "<urn:x:Metal>"),
        ("urn:x:1", LABEL, "heavy one"),
        ("urn:x:2", TYPE, "<urn:x:Gas>"),
        ("urn:x:2", LABEL, "heavy two"),
    )
    for name in ("urn:x:Metal", "metal", "METALLE"):
        assert names(reader, "heavy", type=name) == ["urn:x:1"]
    assert names(reader, "heavy", type="nonsense") == []
    assert search(reader, "heavy", type="Gas")["results"][0]["types"] == ["urn:x:Gas"]


def test_the_label_shown_is_in_the_language_preferred(reader, add_triples):
    spoken = [("Iron", "en"), ("Eisen", "de"), ("fer", "fr-CA")]
    add_triples(*(("urn:x:Fe", LABEL, {"value": value, "language": tag}) for value, tag in spoken))

    def label(**more):
        (one,) = search(reader, "eisen", **more)["results"]
        return one["label"], one["language"]

    assert label() == ("Iron", "en")
    assert label(language="de-AT") == ("Eisen", "de")
    assert label(language="fr") == ("fer", "fr-ca")
    assert label(language="zu") == ("Iron", "en")


def test_pages_follow_each_other_and_each_entity_comes_once(reader, add_triples):
    add_triples(*((f"urn:x:{at}", LABEL, f"thing {at}") for at in range(7)))
    pages, offset = [], 0
    while offset is not None:
        found = search(reader, "thing", limit=3, offset=offset)
        pages.append([one["iri"] for one in found["results"]])
        assert found["total"] == 7
        offset = found["next_offset"]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert len({iri for page in pages for iri in page}) == 7
    beyond = search(reader, "thing", offset=100)
    assert (beyond["results"], beyond["total"], beyond["next_offset"]) == ([], 7, None)


def test_neighbours_come_to_the_depth_asked_for_in_both_directions(reader, add_triples):
    add_triples(
        ("urn:x:a", LABEL, "start"),
        ("urn:x:a", NEAR, "<urn:x:b>"),
        ("urn:x:b", NEAR, "<urn:x:c>"),
        ("urn:x:c", NEAR, "<urn:x:d>"),
        ("urn:x:z", NEAR, "<urn:x:a>"),
        ("urn:x:b", LABEL, "Second"),
    )
    assert search(reader, "start")["neighbours"] == []
    first = search(reader, "start", depth=1)
    ends = [(one["subject"], one["object"]) for one in first["neighbours"]]
    assert ends == [("urn:x:a", "urn:x:b"), ("urn:x:z", "urn:x:a")]
    assert first["labels"] == {"urn:x:a": "start", "urn:x:b": "Second", "urn:x:z": "z"}
    assert "start near Second" in first["text"]
    second = search(reader, "start", depth=2)
    assert [one["depth"] for one in second["neighbours"]] == [1, 1, 2]
    assert not second["neighbours_truncated"]


def test_a_neighbourhood_without_end_is_cut_and_says_so(reader, add_triples):
    add_triples(
        ("urn:x:a", LABEL, "hub"), *(("urn:x:a", NEAR, f"<urn:n:{at}>") for at in range(500))
    )
    found = search(reader, "hub", depth=2)
    assert len(found["neighbours"]) == 10
    assert found["neighbours_truncated"]


def test_another_organizations_entities_are_not_there(reader, add_triples):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    triple_writer(other)(("urn:x:1", LABEL, "secret place"), ("urn:x:1", NEAR, "<urn:x:2>"))
    add_triples(("urn:x:2", LABEL, "open place"))
    assert names(reader, "place") == names(reader, "plce") == ["urn:x:2"]
    assert names(searcher(other), "place") == ["urn:x:1"]
    assert search(reader, "open", depth=2)["neighbours"] == []


def test_another_collection_of_the_same_organization_is_apart(organization, reader, add_triples):
    triple_writer(organization, collection="people")(("urn:x:1", LABEL, "place of people"))
    assert names(reader, "place") == []


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "query",
    [
        "'", '"', '"""', "\\", "-", "&|!():*<->", "%s %(x)s {0}", "- OR -", "\x01", "a" * 500,
        "{}", "の",
    ],
)  # fmt: skip
def test_no_text_is_a_question_that_fails(reader, add_triples, query):
    add_triples(("urn:x:1", LABEL, "something"))
    assert names(reader, query) == []
    assert names(reader, "something", type=query) == []


def test_words_of_symbols_alone_are_found_as_a_name(reader, add_triples):
    add_triples(("urn:x:1", LABEL, "C++"), ("urn:x:2", LABEL, "++"))
    assert names(reader, "C++")[0] == "urn:x:1"
    assert names(reader, "++") == ["urn:x:2"]


def test_what_another_program_wrote_is_found_after_a_rebuild_of_the_index(
    organization, reader, add_triples
):
    add_triples(("urn:x:1", LABEL, "lonely thing"))
    scope = GraphScope.of(organization.pk, None)
    directly(scope, "INSERT", 'urn:x:2> <urn:p> "strange thing" . <urn:x:2')
    assert names(reader, "thing") == ["urn:x:1"]
    call_command("index_knowledge", "--organization", organization.slug, stdout=StringIO())
    assert sorted(names(reader, "thing")) == ["urn:x:1", "urn:x:2"]
    directly(scope, "DELETE", 'urn:x:2> <urn:p> "strange thing" . <urn:x:2')
    entity_index.index_subjects(organization.pk, ["urn:x:2"])
    assert names(reader, "strange") == []


def directly(scope, verb, triple):
    graph = entity_index.graph_of(scope)
    text = f'{verb} DATA {{ GRAPH <{graph.iri}> {{ <{triple}> <urn:q> "" }} }}'
    sparql_endpoint.update(graph.endpoint, text, entity_index._touch_bounds())


def test_a_graph_that_is_older_than_its_index_is_said_to_be_behind(
    organization, reader, add_triples
):
    assert search(reader, "anything")["stale"]
    directly(GraphScope.of(organization.pk, None), "INSERT", 'urn:x:1> <urn:p> "old" . <urn:x:1')
    add_triples(("urn:x:2", LABEL, "new"))
    assert search(reader, "new")["stale"]
    entity_index.rebuild_index(GraphScope.of(organization.pk, None), lambda _: None)
    found = search(reader, "old")
    assert (len(found["results"]), found["stale"]) == (1, False)


def test_a_store_that_fails_after_a_write_leaves_the_index_behind(
    organization, reader, add_triples, settings
):
    add_triples(("urn:x:1", LABEL, "thing"))
    with web.serving() as server:
        settings.SPARQL_URL, settings.SPARQL_UPDATE_URL = server.url("/q"), server.url("/u")
        server.replies["/q"], server.replies["/u"] = Reply(500), Reply(204)
        assert add_triples(("urn:x:2", LABEL, "thing")).status == "Success"
    assert KnowledgePending.objects.filter(organization=organization).count() == 1
    found = search(reader, "thing")
    assert (len(found["results"]), found["stale"]) == (1, True)


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
        patch.setattr(execution_pipeline, "RUN", RUN[:2])  # the result is not written
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


def test_relations_lead_to_the_same_entity_in_either_order(agent):
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
        entities.read_entity(ORGANIZATION, {"type": "T", "name": "n"} | given)


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    "text", ['" } } ; DROP ALL #', "'''", "\\", "\n\r\t", "}} UNION {{", "\u2028", "<urn:x>"]
)
def test_a_text_is_a_text_whatever_stands_in_it(agent, text):
    output = created(agent, name=f"n{uuid4().hex}", properties={"said": f"x{text}x"})
    assert ("said", f"x{text}x") in statements(agent, output["iri"])


def test_two_keys_never_make_one_iri():
    def iri(kind, key):
        return entities.read_entity(ORGANIZATION, {"type": kind, "name": "n", "key": key}).iri

    keys = [("a", "b:c"), ("a:b", "c"), ("a", "b%3Ac"), ("a", "b/c"), ("a", "B:C")]
    assert len({iri(kind, key) for kind, key in keys}) == len(keys)
