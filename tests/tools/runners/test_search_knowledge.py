"""The built-in knowledge search over statements in the crib's Oxigraph."""

from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import call_command

from tests import factories
from tests.stubs import web
from tests.stubs.web import Reply
from tools.execution.pipeline import perform
from tools.knowledge import entity_index, sparql_endpoint
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
def tell(organization):
    return teller(organization)


def searcher(organization):
    return factories.agent(organization, groups=["knowledge"], permissions=["tool.knowledge.read"])


def teller(organization, **implementation):
    """Returns a function that writes triples with a tool of the organization."""
    name = f"tell-{uuid4().hex[:8]}"
    definition = {"name": name, "type": "graph-update", "description": "Of graphs."}
    definition |= {"implementation": implementation} if implementation else {}
    factories.register(organization, definition)
    agent = factories.agent(organization)

    def tell(*triples):
        parts = ("subject", "predicate", "object")
        given = [dict(zip(parts, one, strict=True)) for one in triples]
        execution = factories.execution(agent, name, triples=given)
        perform(execution.pk)
        return Execution.objects.get(pk=execution.pk)

    return tell


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


def test_labels_come_before_descriptions_and_those_before_other_texts(reader, tell):
    tell(
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


def test_a_phrase_is_found_as_it_stands_and_nothing_looser(reader, tell):
    tell(("urn:x:1", LABEL, "noble gas law"), ("urn:x:2", LABEL, "gas of noble kind"))
    assert names(reader, '"noble gas"') == ["urn:x:1"]
    assert names(reader, '"gas noble"') == []
    assert sorted(names(reader, "noble gas")) == ["urn:x:1", "urn:x:2"]
    assert names(reader, "noble -law") == ["urn:x:2"]


def test_case_and_accents_make_no_difference(reader, tell):
    tell(("urn:x:1", LABEL, "Müller"), ("urn:x:2", LABEL, "muller"), ("urn:x:3", LABEL, "ΑΘΉΝΑ"))
    assert names(reader, "MULLER") == names(reader, "müller") == ["urn:x:1", "urn:x:2"]
    assert names(reader, "αθηνα") == ["urn:x:3"]


def test_where_not_all_words_are_there_looser_ways_are_tried(reader, tell):
    tell(
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


def test_a_type_is_named_by_its_iri_its_end_or_its_label(reader, tell):
    tell(
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


def test_the_label_shown_is_in_the_language_preferred(reader, tell):
    spoken = [("Iron", "en"), ("Eisen", "de"), ("fer", "fr-CA")]
    tell(*(("urn:x:Fe", LABEL, {"value": value, "language": tag}) for value, tag in spoken))

    def label(**more):
        (one,) = search(reader, "eisen", **more)["results"]
        return one["label"], one["language"]

    assert label() == ("Iron", "en")
    assert label(language="de-AT") == ("Eisen", "de")
    assert label(language="fr") == ("fer", "fr-ca")
    assert label(language="zu") == ("Iron", "en")


def test_pages_follow_each_other_and_each_entity_comes_once(reader, tell):
    tell(*((f"urn:x:{at}", LABEL, f"thing {at}") for at in range(7)))
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


def test_neighbours_come_to_the_depth_asked_for_in_both_directions(reader, tell):
    tell(
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


def test_a_neighbourhood_without_end_is_cut_and_says_so(reader, tell):
    tell(("urn:x:a", LABEL, "hub"), *(("urn:x:a", NEAR, f"<urn:n:{at}>") for at in range(500)))
    found = search(reader, "hub", depth=2)
    assert len(found["neighbours"]) == 10
    assert found["neighbours_truncated"]


def test_another_organizations_entities_are_not_there(reader, tell):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    teller(other)(("urn:x:1", LABEL, "secret place"), ("urn:x:1", NEAR, "<urn:x:2>"))
    tell(("urn:x:2", LABEL, "open place"))
    assert names(reader, "place") == names(reader, "plce") == ["urn:x:2"]
    assert names(searcher(other), "place") == ["urn:x:1"]
    assert search(reader, "open", depth=2)["neighbours"] == []


def test_another_collection_of_the_same_organization_is_apart(organization, reader, tell):
    teller(organization, collection="people")(("urn:x:1", LABEL, "place of people"))
    assert names(reader, "place") == []


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "query",
    [
        "'", '"', '"""', "\\", "-", "&|!():*<->", "%s %(x)s {0}", "- OR -", "\x01", "a" * 500,
        "{}", "の",
    ],
)  # fmt: skip
def test_no_text_is_a_question_that_fails(reader, tell, query):
    tell(("urn:x:1", LABEL, "something"))
    assert names(reader, query) == []
    assert names(reader, "something", type=query) == []


def test_words_of_symbols_alone_are_found_as_a_name(reader, tell):
    tell(("urn:x:1", LABEL, "C++"), ("urn:x:2", LABEL, "++"))
    assert names(reader, "C++")[0] == "urn:x:1"
    assert names(reader, "++") == ["urn:x:2"]


def test_what_another_program_wrote_is_found_after_the_index_is_made_anew(
    organization, reader, tell
):
    tell(("urn:x:1", LABEL, "lonely thing"))
    scope = GraphScope.of(organization.pk, None)
    directly(scope, "INSERT", 'urn:x:2> <urn:p> "strange thing" . <urn:x:2')
    assert names(reader, "thing") == ["urn:x:1"]
    call_command("index_knowledge", "--organization", organization.slug, stdout=StringIO())
    assert sorted(names(reader, "thing")) == ["urn:x:1", "urn:x:2"]
    directly(scope, "DELETE", 'urn:x:2> <urn:p> "strange thing" . <urn:x:2')
    entity_index.touched(organization.pk, ["urn:x:2"])
    assert names(reader, "strange") == []


def directly(scope, verb, triple):
    graph = entity_index.graph_of(scope)
    text = f'{verb} DATA {{ GRAPH <{graph.iri}> {{ <{triple}> <urn:q> "" }} }}'
    sparql_endpoint.update(graph.endpoint, text, entity_index._soon())


def test_a_graph_that_is_older_than_its_index_is_said_to_be_behind(organization, reader, tell):
    assert search(reader, "anything")["stale"]
    directly(GraphScope.of(organization.pk, None), "INSERT", 'urn:x:1> <urn:p> "old" . <urn:x:1')
    tell(("urn:x:2", LABEL, "new"))
    assert search(reader, "new")["stale"]
    entity_index.rebuild(GraphScope.of(organization.pk, None), lambda _: None)
    found = search(reader, "old")
    assert (len(found["results"]), found["stale"]) == (1, False)


def test_a_store_that_fails_after_a_write_leaves_the_index_behind(
    organization, reader, tell, settings
):
    tell(("urn:x:1", LABEL, "thing"))
    with web.serving() as server:
        settings.SPARQL_URL, settings.SPARQL_UPDATE_URL = server.url("/q"), server.url("/u")
        server.replies["/q"], server.replies["/u"] = Reply(500), Reply(204)
        assert tell(("urn:x:2", LABEL, "thing")).status == "Success"
    assert KnowledgePending.objects.filter(organization=organization).count() == 1
    found = search(reader, "thing")
    assert (len(found["results"]), found["stale"]) == (1, True)
