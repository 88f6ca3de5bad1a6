"""Content schemas that `validate_content` finds by name."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.shapes import check_error
from tools.catalog.sandbox import content_schemas
from tools.errors import NotFound
from tools.models import ContentSchema, ContentSchemaVersion

pytestmark = pytest.mark.usefixtures("crib")  # the sandbox compiles each schema
ORDER = {"type": "object", "required": ["id"]}
TABLE = {"fields": [{"name": "id", "type": "integer"}]}
XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a"/></xs:schema>'


@pytest.fixture
def create_schema(admin_api):
    def make(name="order", document=ORDER, **given):
        return admin_api.post("/content-schemas", {"name": name, "document": document, **given})

    return make


def test_a_schema_is_kept_read_listed_and_deleted(admin_api, create_schema, organization):
    answer = create_schema(description="What a shop sends.", note="First.")
    assert answer.status_code == 201, answer.json()
    body = answer.json()
    assert answer.headers["Location"] == "/api/v1/content-schemas/order"
    assert (body["kind"], body["versions"], body["current"]["document"]) == (
        "json-schema",
        1,
        ORDER,
    )
    assert (body["current"]["note"], body["current"]["number"]) == ("First.", 1)
    (listed,) = admin_api.get("/content-schemas").json()["results"]
    assert (listed["name"], listed["versions"]) == ("order", 1)
    assert admin_api.delete("/content-schemas/order").status_code == 204
    check_error(admin_api.get("/content-schemas/order"), 404, "schema_not_found")
    codes = AuditRecord.objects.filter(organization=organization.slug, subject="order")
    assert {*codes.values_list("code", flat=True)} == {"REG.SCHEMA_CREATE", "REG.SCHEMA_DELETE"}


def test_a_change_is_a_new_version_and_the_old_one_stays(admin_api, create_schema):
    create_schema()
    changed = admin_api.put(
        "/content-schemas/order", {"document": {"type": "array"}, "note": "No."}
    )
    assert (changed.json()["versions"], changed.json()["current"]["note"]) == (2, "No.")
    first = admin_api.get("/content-schemas/order/versions/1").json()
    assert (first["document"], first["number"]) == (ORDER, 1)
    again = admin_api.put("/content-schemas/order", {"document": {"type": "array"}})
    assert again.json()["versions"] == 2
    check_error(admin_api.get("/content-schemas/order/versions/9"), 404, "version_not_found")


@pytest.mark.parametrize(
    ("kind", "document"), [("table-schema", TABLE), ("xml-schema", XSD), ("json-schema", {})]
)
def test_every_kind_is_kept(create_schema, kind, document):
    answer = create_schema(kind=kind, document=document)
    assert (answer.status_code, answer.json()["current"]["document"]) == (201, document)


UNUSABLE = [
    ({"document": {"type": "nonsense"}}, "document"),
    ({"document": {"$ref": "file:///etc/passwd"}}, "document"),
    ({"document": []}, "document"),
    ({"document": {"description": "x" * 300_000}}, "document"),
    ({"kind": "table-schema", "document": {"fields": []}}, "document"),
    ({"kind": "xml-schema", "document": "<a>"}, "document"),
    ({"kind": "xml-schema", "document": ORDER}, "document"),
    ({"kind": "dtd"}, "kind"),
    ({"kind": ["dtd"]}, "kind"),
    ({"name": "a b"}, "name"),
    ({"name": "json-schema"}, "name"),
    ({"name": 7}, "name"),
    ({"note": "\u202e"}, "note"),
    ({"color": "red"}, "color"),
]


def test_what_cannot_be_used_is_refused_and_named(create_schema, organization, subtests):
    for given, field in UNUSABLE:
        with subtests.test(given=given, field=field):
            body = check_error(create_schema(**given), 400, "invalid_schema")
            assert [flaw["field"] for flaw in body["details"]["errors"]] == [field]
            assert not ContentSchema.objects.filter(organization=organization).exists()


def test_a_name_is_taken_once(create_schema):
    create_schema()
    check_error(create_schema(), 409, "schema_exists")


def test_a_version_is_never_changed(create_schema):
    create_schema()
    with pytest.raises(Exception, match="never changed"):
        ContentSchemaVersion.objects.update(document={})


def test_a_schema_has_no_more_than_a_thousand_versions(admin_api, create_schema, organization):
    create_schema()
    row = ContentSchema.objects.get(organization=organization)
    ContentSchemaVersion.objects.bulk_create(
        ContentSchemaVersion(schema=row, number=number, document={}, digest="", created_by="x")
        for number in range(2, 1001)
    )
    refused = admin_api.put("/content-schemas/order", {"document": {"type": "array"}})
    check_error(refused, 409, "too_many_versions")
    assert row.versions.count() == 1000


def test_a_schema_that_was_deleted_meanwhile_is_not_found(create_schema, organization):
    create_schema()
    by, row = factories.actor(organization), ContentSchema.objects.get(organization=organization)
    content_schemas.delete_schema(row=content_schemas.find_schema(organization, "order"), by=by)
    for late in (
        lambda: content_schemas.add_version(row=row, change={"document": {}}, by=by),
        lambda: content_schemas.delete_schema(row=row, by=by),
        lambda: content_schemas.newest(row),
    ):
        with pytest.raises(NotFound, match="There is no schema"):
            late()
    reported = AuditRecord.objects.filter(organization=organization.slug, code="REG.SCHEMA_DELETE")
    assert reported.count() == 1


def test_a_schema_of_another_organization_is_not_there(create_schema):
    create_schema()
    elsewhere = factories.organization("elsewhere")
    token = factories.token(factories.superuser(elsewhere), scopes=["read", "manage"])
    theirs = Api(token)
    for path in ("/content-schemas/order", "/content-schemas/order/versions/1"):
        check_error(theirs.get(path), 404, "schema_not_found")
