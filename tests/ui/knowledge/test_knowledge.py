"""The pages of the graph: entities found, one of them drawn, documents in and out."""

import json
import re
from collections.abc import Callable
from itertools import combinations
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from audit.models import AuditRecord
from tests import factories
from tests.stubs import web
from tests.stubs.web import Reply
from tests.ui.conftest import Grant
from tests.ui.pages import body_of, inline_code, notes, text
from tools.catalog.knowledge_graphs import import_graph
from tools.knowledge.entity_search import EntityLabel
from tools.knowledge.graph_documents import Syntax
from tools.models import Organization
from tools.ui.knowledge import knowledge_import
from tools.ui.knowledge.knowledge import MOST_ENTITIES, draw_neighborhood
from tools.ui.layout import LayoutBox

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
ELEMENTS = settings.BASE_DIR / "examples" / "elements.ttl"
OXYGEN = "http://example.org/elements/oxygen"
DAVY = "http://example.org/people/humphry-davy"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>'"
ENTITY, IMPORT, EXPORT = "/knowledge/entity/", "/knowledge/import/", "/knowledge/export"
ImportTurtle = Callable[[str], None]


@pytest.fixture
def import_turtle(organization: Organization) -> ImportTurtle:
    """Adds Turtle to the organization's graph."""
    return turtle_importer(organization)


def turtle_importer(organization: Organization) -> ImportTurtle:
    def import_turtle(turtle: str) -> None:
        import_graph(
            organization=organization, data=turtle.encode(), syntax=Syntax.TURTLE,
            collection=None, by=factories.actor(organization),
        )  # fmt: skip

    return import_turtle


@pytest.fixture
def elements(import_turtle: ImportTurtle) -> None:
    import_turtle(ELEMENTS.read_text())


def main_of(response: object) -> str:
    return text(response).partition("<main")[2]


def kept_of(page: str) -> str:
    found = re.search(r'name="preview" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_an_empty_graph_says_what_to_do(admin_client: Client) -> None:
    page = main_of(admin_client.get("/knowledge/"))
    assert "empty-graph" in notes(page) and "examples/elements.ttl" in page
    assert f'href="{IMPORT}"' in page and 'href="/tools/create_entity/"' in page


@pytest.mark.usefixtures("elements")
def test_entities_are_listed_searched_and_chosen_by_type(admin_client: Client) -> None:
    page = main_of(admin_client.get("/knowledge/"))
    assert "size" in notes(page) and "Element 54" in page and "offset=25" in page
    found = main_of(admin_client.get("/knowledge/?q=sauerstoff"))
    assert notes(found)["total"] == ["1"] and "best-first" in notes(found)
    assert "oxygen" in found and "helium" not in found
    assert "no-match" in notes(admin_client.get("/knowledge/?q=sauerstoff&type=nothing"))
    assert notes(admin_client.get("/knowledge/?type=element"))["total"] == ["54"]
    assert "no-match" in notes(admin_client.get("/knowledge/?offset=5000"))


@pytest.mark.usefixtures("elements")
def test_an_entity_shows_what_the_graph_says_of_it(admin_client: Client) -> None:
    page = main_of(admin_client.get(ENTITY, {"iri": OXYGEN}))
    for part in ("<h1>Oxygen", "Sauerstoff", ">de<", "Element", "atomicNumber", ">8<", "integer"):
        assert part in page
    davy = main_of(admin_client.get(ENTITY, {"iri": DAVY}))
    assert 'id="in"' in davy and "discoveredBy" in davy
    assert 'href="/knowledge/entity/?iri=http%3A%2F%2Fexample.org%2Felements%2Fsodium"' in davy


@pytest.mark.usefixtures("elements")
def test_its_neighborhood_is_a_drawing_and_a_table(admin_client: Client) -> None:
    page = main_of(admin_client.get(ENTITY, {"iri": DAVY}))
    assert '<title id="flow-title">' in page and '<desc id="flow-about">' in page
    assert "as-table" in notes(page) and "Sodium" in page.partition("<svg")[2]
    sodium = "http://example.org/elements/sodium"
    near = main_of(admin_client.get(ENTITY, {"iri": sodium}))
    far = main_of(admin_client.get(ENTITY, {"iri": sodium, "depth": 2}))
    assert "Potassium" not in near and "Potassium" in far and "one-step" in notes(far)


def test_of_many_neighbours_some_are_drawn_and_the_rest_is_counted(
    admin_client: Client, import_turtle: ImportTurtle
) -> None:
    import_turtle("\n".join(f"<urn:hub> <urn:near> <urn:n:{at}> ." for at in range(150)))
    page = main_of(admin_client.get(ENTITY, {"iri": "urn:hub"}))
    assert page.count('data-kind="thing"') == MOST_ENTITIES - 1
    assert notes(page)["drawn"] == [str(MOST_ENTITIES - 1)]
    assert notes(page)["left-out"] == [str(150 - MOST_ENTITIES + 1)]
    assert page.count("urn%3An%3A") >= 150  # each has its link below


def test_an_entity_without_relations_has_no_picture(
    admin_client: Client, import_turtle: ImportTurtle
) -> None:
    import_turtle('<urn:alone> <urn:says> "hello" . _:x <urn:knows> <urn:other> .')
    page = main_of(admin_client.get(ENTITY, {"iri": "urn:alone"}))
    assert "<svg" not in page and "no-relation" in notes(page) and "hello" in page
    assert "nameless" in notes(admin_client.get(ENTITY, {"iri": "urn:other"}))


def test_nothing_is_drawn_over_anything_else_or_outside() -> None:
    ends = [("c", f"o{at}") for at in range(9)] + [(f"i{at}", "c") for at in range(5)]
    ends += [("c", "c"), ("o1", "o2"), ("o1", "c"), ("i1", "i2"), ("o3", "i3"), ("o4", "far")]
    edges = [
        {"subject": start, "predicate": f"urn:{at % 4}", "object": end, "depth": 1 + (at > 15)}
        for at, (start, end) in enumerate(ends)
    ]
    named = {iri: EntityLabel(iri, iri * 12) for pair in ends for iri in pair}
    drawing = draw_neighborhood("c", edges, named, lambda iri: f"/{iri}")
    boxes = drawing.things + drawing.labels
    assert len(drawing.things) == 16 and len(drawing.lines) == len(set(ends))
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box.x >= 0 and box.x + box.width <= drawing.width for box in boxes)
    assert all(box.y >= 0 and box.y + box.height <= drawing.height for box in boxes)


def overlap(one: LayoutBox, other: LayoutBox) -> bool:
    beside = one.x < other.x + other.width and other.x < one.x + one.width
    return beside and one.y < other.y + other.height and other.y < one.y + one.height


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("address", "status"),
    [
        (f"{ENTITY}?iri=urn:nothing", 404), (ENTITY, 400), (f"{ENTITY}?iri=%00", 400),
        (f"{ENTITY}?iri=a%20b", 400), (f"{ENTITY}?iri=urn:%3E%20.%20%7D", 400),
        (f"{ENTITY}?iri={'urn:' + 'x' * 3000}", 400), (f"{ENTITY}?iri=urn:a&depth=9", 400),
        (f"{ENTITY}?iri=urn:a&depth=%D9%A1", 400), ("/knowledge/?offset=-1", 400),
        ("/knowledge/?offset=999999999999999", 200),
        (f"/knowledge/?q={'a' * 3000}&type={'b' * 3000}", 200), (f"{EXPORT}?format=xml", 400),
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused(admin_client: Client, address: str, status: int) -> None:
    assert admin_client.get(address).status_code == status


def test_hostile_texts_run_nowhere_and_nothing_hides(
    admin_client: Client, import_turtle: ImportTurtle
) -> None:
    label = json.dumps(HOSTILE + "\u202e")
    import_turtle(f"<urn:a> <{RDFS}label> {label} ; <urn:says> {label} ; <urn:near> <urn:b> .")
    import_turtle(f"<urn:b> <{RDFS}label> {label} .")
    for address in ("/knowledge/", "/knowledge/?q=script", f"{ENTITY}?iri=urn:a"):
        page = admin_client.get(address)
        assert inline_code(page) == [] and "<script>alert" not in text(page)
        assert "\u202e" not in text(page) and "U+202E" in text(page)
    given = {"do": "look", "text": f"<urn:a> <urn:b> {label} . <urn:%3Cscript%3E> nonsense"}
    page = admin_client.post(IMPORT, given)
    assert inline_code(page) == [] and "<script>alert" not in text(page)


@pytest.mark.usefixtures("elements")
def test_a_store_that_is_away_is_a_page_too(admin_client: Client, settings: object) -> None:
    with web.serving() as server:
        settings.SPARQL_URL = server.url("/q")  # type: ignore[attr-defined]
        server.replies["/q"] = Reply(500)
        for address in (f"{ENTITY}?iri={OXYGEN}", EXPORT):
            assert admin_client.get(address).status_code == 503
        assert admin_client.get("/knowledge/?q=oxygen").status_code == 200


# --- documents ------------------------------------------------------------------------------------


def test_a_document_is_seen_before_it_is_added(
    admin_client: Client, organization: Organization
) -> None:
    file = SimpleUploadedFile("elements.ttl", ELEMENTS.read_bytes())
    seen = text(admin_client.post(IMPORT, {"do": "look", "file": file}))
    assert notes(seen)["statements"] == ["366"] and notes(seen)["known-entities"] == ["0"]
    assert "elements.ttl" in seen
    assert "empty-graph" in notes(admin_client.get("/knowledge/"))
    done = text(admin_client.post(IMPORT, {"do": "write", "preview": kept_of(seen)}))
    assert notes(done)["added"] == ["366"]
    assert notes(done)["held-before"] == ["0"] and notes(done)["held-now"] == ["366"]
    errors = AuditRecord.objects.get(organization=organization.slug, code="KNOWLEDGE.IMPORT")
    assert errors.details["before"] == {"statements": 0}
    assert errors.details["after"] == {"statements": 366}
    again = text(admin_client.post(IMPORT, {"do": "look", "text": ELEMENTS.read_text()}))
    assert notes(again)["new-entities"] == ["0"]


def test_json_ld_is_recognized_by_what_it_looks_like(admin_client: Client) -> None:
    document = '\ufeff{"@id": "urn:a", "urn:p": [{"@id": "urn:b"}, {"urn:q": 1}]}'
    seen = text(admin_client.post(IMPORT, {"do": "look", "text": document}))
    assert notes(seen)["statements"] == ["3"] and notes(seen)["nameless"] == ["1"]


def test_every_error_is_shown_with_its_line_and_nothing_is_added(
    admin_client: Client, organization: Organization
) -> None:
    document = "<urn:a> nonsense 1 .\n<urn:a> <urn:b> 1 .\n<urn:a> other:b 1 ."
    answer = admin_client.post(IMPORT, {"do": "look", "text": document})
    assert answer.status_code == 400
    page = text(answer)
    first, last = notes(page)["wrong"]
    assert re.match(r"\D* 1 ", first) and re.match(r"\D* 3 ", last)  # their lines
    assert "nonsense 1 ." in page
    assert 'name="preview"' not in page
    assert not AuditRecord.objects.filter(
        organization=organization.slug, code="KNOWLEDGE.IMPORT"
    ).exists()


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    "given",
    [
        {}, {"text": " "}, {"text": "\x00"}, {"text": "[" * 100_000}, {"text": "{"},
        {"text": '{"@context": "http://127.0.0.1:9/"}'}, {"format": "nonsense", "text": "a"},
        {"do": "write"}, {"do": "write", "preview": "AAAA"}, {"do": "write", "preview": "\u00e9"},
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused(admin_client: Client, given: dict[str, str]) -> None:
    answer = admin_client.post(IMPORT, {"do": "look", **given})
    assert answer.status_code == 400 and 'role="alert"' in text(answer)


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"#" * (knowledge_import.MOST_BYTES + 1), 413), (b"<urn:a> <urn:b> '\xff' .", 400)],
    ids=["long", "no text"],
)
def test_a_document_is_bounded_and_must_be_text(
    admin_client: Client, content: bytes, status: int
) -> None:
    file = SimpleUploadedFile("a.ttl", content)
    assert admin_client.post(IMPORT, {"do": "look", "file": file}).status_code == status


def test_a_document_of_another_user_cannot_be_imported(
    admin_client: Client, organization: Organization, client_of: Grant
) -> None:
    seen = text(admin_client.post(IMPORT, {"do": "look", "text": "<urn:a> <urn:b> 1 ."}))
    other = client_of("tools.add_knowledgeentry")
    assert other.post(IMPORT, {"do": "write", "preview": kept_of(seen)}).status_code == 400


@pytest.mark.usefixtures("elements")
def test_the_graph_is_downloaded_and_can_be_imported_again(admin_client: Client) -> None:
    turtle = admin_client.get(EXPORT)
    assert turtle["Content-Disposition"].endswith('-knowledge.ttl"')
    whole = body_of(turtle)
    assert b"Sauerstoff" in whole
    seen = text(admin_client.post(IMPORT, {"do": "look", "text": whole.decode()}))
    assert notes(seen)["statements"] == ["366"] and notes(seen)["new-entities"] == ["0"]
    document = json.loads(body_of(admin_client.get(f"{EXPORT}?format=json-ld")))
    assert OXYGEN in {one["@id"] for one in document}


# --- who may --------------------------------------------------------------------------------------


def test_another_organizations_graph_is_never_shown(
    admin_client: Client, import_turtle: ImportTurtle
) -> None:
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    turtle_importer(other)(f'<urn:theirs> <{RDFS}label> "Theirs" ; <urn:near> <urn:ours> .')
    import_turtle(f'<urn:ours> <{RDFS}label> "Ours" .')
    page = main_of(admin_client.get("/knowledge/"))
    assert "Ours" in page and "Theirs" not in page
    assert admin_client.get(f"{ENTITY}?iri=urn:theirs").status_code == 404
    assert "theirs" not in main_of(admin_client.get(f"{ENTITY}?iri=urn:ours"))
    assert b"theirs" not in body_of(admin_client.get(EXPORT))


def test_reading_needs_what_a_call_of_the_search_needs(
    client_of: Grant, import_turtle: ImportTurtle
) -> None:
    import_turtle(f'<urn:a> <{RDFS}label> "Secret" .')
    addresses = ("/knowledge/", f"{ENTITY}?iri=urn:a", EXPORT)
    client = client_of()
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 403 and "Secret" not in text(answer)
    client = client_of("tools.execute_tool", granted_groups=["knowledge"])
    assert [client.get(address).status_code for address in addresses] == [200, 200, 200]
    assert "Secret" in text(client.get("/knowledge/"))
    assert f'href="{IMPORT}"' not in text(client.get("/knowledge/"))


def test_importing_needs_a_permission_of_its_own(client_of: Grant) -> None:
    client = client_of("tools.execute_tool", granted_groups=["knowledge"])
    assert client.get(IMPORT).status_code == 403
    given = {"do": "look", "text": "<urn:a> <urn:b> 1 ."}
    assert client.post(IMPORT, given).status_code == 403
    client = client_of("tools.add_knowledgeentry")
    assert client.post(IMPORT, given).status_code == 200
