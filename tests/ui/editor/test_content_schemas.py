"""The pages of the schemas that `validate_content` knows by name."""

import json

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import inline_code, notes, text
from tools.catalog.sandbox import content_schemas
from tools.models import ContentSchema, Organization

pytestmark = pytest.mark.django_db

ORDER = {"type": "object", "required": ["id"]}
HOSTILE = "<script>alert(1)</script>\u202e"
FORM = {"name": "order", "kind": "json-schema", "description": "", "note": "First."}


def create_schema(
    organization: Organization, name: str = "order", **fields: object
) -> ContentSchema:
    said = {"name": name, "document": ORDER, **fields}
    by = factories.actor(organization)
    return content_schemas.create_schema(organization=organization, schema=said, by=by)


def test_a_schema_is_written_shown_changed_and_removed(
    admin_client: Client, organization: Organization
) -> None:
    assert "no-schemas" in notes(admin_client.get("/schemas/"))
    given = FORM | {"document": json.dumps(ORDER)}
    page = text(admin_client.post("/schemas/new/", given, follow=True))
    assert "order" in notes(page)["message-success"][0]
    assert "First." in page and "&quot;required&quot;" in page
    edited = text(admin_client.get("/schemas/order/edit/"))
    assert "&quot;object&quot;" in edited
    change = {"document": '{"type": "array"}', "note": "Lists."}
    page = text(admin_client.post("/schemas/order/edit/", change, follow=True))
    (said,) = notes(page)["message-success"]
    assert "2" in said and "order" in said and notes(page)["version"] == ["2"]
    assert 'data-kind="removed"' in page and "Lists." in page
    assert "First." in text(admin_client.get("/schemas/order/?version=1"))
    assert 'class="danger"' in text(admin_client.get("/schemas/order/remove/"))
    page = admin_client.post("/schemas/order/remove/", follow=True)
    assert "order" in notes(page)["message-success"][0] and "no-schemas" in notes(page)
    assert not organization.content_schemas.exists()


def test_an_xsd_is_a_text(admin_client: Client, organization: Organization) -> None:
    xsd = (
        '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a"/></xs:schema>'
    )
    given = FORM | {"kind": "xml-schema", "document": xsd}
    assert admin_client.post("/schemas/new/", given).status_code == 302
    assert organization.content_schemas.get().versions.get().document == xsd


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"document": "{"}, "JSON"),
        ({"document": '{"a": 1, "a": 2}'}, "'a'"),
        ({"document": '{"type": "nothing"}'}, "nothing"),
        ({"document": "[]"}, ""),
        ({"document": ""}, "JSON"),
        ({"name": "a b"}, "'_'"),
        ({"name": ""}, ""),
        ({"kind": "poem"}, "xml-schema"),
        ({"kind": "xml-schema", "document": "<a>"}, "line"),
        ({"note": "n" * 1001}, "1000"),
    ],
)
def test_what_is_refused_stays_in_the_form_with_its_flaw(
    admin_client: Client, organization: Organization, change: dict[str, str], word: str
) -> None:
    given = FORM | {"document": "{}"} | change
    answer = admin_client.post("/schemas/new/", given)
    page = text(answer)
    field = "document" if "document" in change else next(iter(change))
    (flaw,) = notes(page)[f"flaw-{field}"]
    assert answer.status_code == 400 and word in flaw and "refused" in notes(page)
    assert not organization.content_schemas.exists()


def test_a_schema_name_that_is_taken_is_refused(
    admin_client: Client, organization: Organization
) -> None:
    create_schema(organization)
    answer = admin_client.post("/schemas/new/", FORM | {"document": "{}"})
    assert answer.status_code == 409
    assert any("order" in flaw for flaw in notes(answer)["flaw-document"])


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("version", ["0", "7", "x", "9" * 30, "-1"])
def test_a_version_that_is_not_there_is_not_found(
    admin_client: Client, organization: Organization, version: str
) -> None:
    create_schema(organization)
    assert admin_client.get(f"/schemas/order/?version={version}").status_code == 404


def test_hostile_words_run_nowhere_and_hide_nothing(
    admin_client: Client, organization: Organization
) -> None:
    create_schema(
        organization, description="<script>", document={"title": HOSTILE}, note="<script>"
    )
    for place in ("/schemas/", "/schemas/order/", "/schemas/order/edit/"):
        page = admin_client.get(place)
        assert inline_code(page) == [] and "<script>alert" not in text(page)
    assert "U+202E" in text(admin_client.get("/schemas/order/"))
