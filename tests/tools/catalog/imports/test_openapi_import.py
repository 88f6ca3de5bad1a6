"""Tools imported from OpenAPI documents are created and updated, and keep an administrator's
changes."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import AuditRecord
from tests import factories
from tests.tools.definitions.openapi.openapi_documents import document_of_one, petstore
from tools.catalog.actions import amended, update_tool
from tools.catalog.imports.openapi_import import import_openapi
from tools.catalog.sandbox.credentials import create_credential
from tools.catalog.signatures.drift import approve_change, difference_of, reject_change
from tools.catalog.signatures.version_signatures import trusted
from tools.definitions.dialects import import_documents
from tools.definitions.schemas.json_schemas import Validator
from tools.errors import Malformed
from tools.models import Organization, Tool, ToolStatus

PICK = ["listPets", "addPet"]


@pytest.fixture
def imported(organization):
    def run(document, **options):
        by = factories.actor(organization)
        return import_openapi(organization=organization, document=document, by=by, **options)

    return run


@pytest.fixture
def credential(organization):
    said = {"name": "api_key", "header": "x-api-key", "value": "s3cret"}
    create_credential(organization=organization, credential=said, by=factories.actor(organization))


def result_of(rows):
    return {row["key"]: row["result"] for row in rows}


def tool(organization, name):
    return Tool.objects.present().select_related("version").get(
        organization=organization, name=name
    )  # fmt: skip


def test_operations_become_tools(imported, organization, credential):
    rows = imported(petstore(), pick=PICK, group=["pets"])
    assert result_of(rows) == {"GET /pets": "created", "POST /pets": "created"}
    assert tool(organization, "listPets").version.definition["group"] == ["pets"]
    assert tool(organization, "addPet").version.definition["implementation"]["credential"]


def test_the_same_again_changes_nothing(imported, organization, credential):
    imported(petstore(), pick=PICK)
    before = Organization.objects.get(pk=organization.pk).revision
    assert set(result_of(imported(petstore(), pick=PICK)).values()) == {"unchanged"}
    assert Organization.objects.get(pk=organization.pk).revision == before
    assert tool(organization, "listPets").versions.count() == 1


def changed():
    document = petstore()
    operation = document["paths"]["/pets"]["get"]
    operation["parameters"][0]["schema"]["maximum"] = 50
    operation["summary"] = "List some pets"
    return document


def test_an_update_says_what_it_changes(imported, organization):
    imported(petstore(), pick=["listPets"])
    (row,) = imported(changed(), pick=["listPets"])
    assert row["result"] == "updated"
    assert {change["field"]: (change["before"], change["after"]) for change in row["changes"]} == {
        "title": ("List pets", "List some pets"),
        "input_schema.properties.limit.maximum": (100, 50),
    }
    assert tool(organization, "listPets").version.label == "2.0.0"


def test_a_dry_run_says_the_same_and_keeps_nothing(imported, organization):
    imported(petstore(), pick=["listPets"])
    records = AuditRecord.objects.filter(organization=organization.slug).count()
    rows = imported(changed(), pick=["listPets", "getPet"], dry_run=True)
    assert (rows[0]["result"], len(rows[0]["changes"])) == ("updated", 2)
    assert tool(organization, "listPets").versions.count() == 1
    assert AuditRecord.objects.filter(organization=organization.slug).count() == records


def test_what_people_decided_about_a_tool_stays(imported, organization):
    imported(petstore(), pick=["listPets"])
    decided = {
        "group": ["mine"], "requires_confirmation": True, "rate_limit_per_minute": 3,
        "delivery": "external", "required_permissions": ["pets.read"],
    }  # fmt: skip
    row = tool(organization, "listPets")
    definition = amended(row.version.definition, decided)
    update_tool(tool=row, definition=definition, by=factories.actor(organization))
    assert result_of(imported(petstore(), pick=["listPets"])) == {"GET /pets": "unchanged"}
    imported(changed(), pick=["listPets"])
    kept = tool(organization, "listPets").version.definition
    assert {name: kept[name] for name in decided} == decided
    imported(changed(), pick=["listPets"], group=["pets"])
    assert tool(organization, "listPets").version.definition["group"] == ["pets"]


def test_another_method_under_a_name_waits_for_a_person(imported, organization):
    imported(document_of_one(method="get"))
    (row,) = imported(document_of_one(method="post"))
    assert (row["name"], row["result"], row["errors"]) == ("one", "review", [])
    shown = {change["field"]: (change["before"], change["after"]) for change in row["changes"]}
    assert shown["implementation.method"] == ("GET", "POST")
    assert shown["metadata.operation"] == ("GET /x", "POST /x")
    assert shown["delivery"] == ("pure", "external")
    kept = tool(organization, "one")
    assert kept.version.definition["implementation"]["method"] == "GET"
    assert kept.status == ToolStatus.QUARANTINED
    change = kept.upstream_changes.get()
    assert [one.path for one in difference_of(change) if "method" in one.path]
    said = {"read_digest": change.digest, "by": factories.actor(organization)}
    approve_change(change=change, **said)
    after = tool(organization, "one")
    assert after.version.definition["implementation"]["method"] == "POST"
    assert after.version.definition["constraints"]["allow_side_effects"] is True
    assert after.status == ToolStatus.ACTIVE
    assert result_of(imported(document_of_one(method="post"))) == {"POST /x": "unchanged"}


@pytest.mark.parametrize(
    "elsewhere",
    [
        document_of_one(path="/y"),
        document_of_one(servers=[{"url": "https://two.example.com"}]),
        document_of_one(servers=[{"url": "https://one.example.com/v2"}]),
        document_of_one(path="/x", method="head"),
    ],
)
def test_another_place_waits_for_a_person(imported, organization, elsewhere):
    imported(document_of_one())
    (row,) = imported(elsewhere)
    assert row["result"] == "review"
    assert tool(organization, "one").versions.count() == 1


def test_what_a_person_rejected_is_refused_and_going_back_ends_it(imported, organization):
    imported(document_of_one())
    imported(document_of_one(path="/y"))
    change = tool(organization, "one").upstream_changes.get()
    by = factories.actor(organization)
    reject_change(change=change, read_digest=change.digest, by=by, reason="no")
    (row,) = imported(document_of_one(path="/y"))
    assert row["result"] == "refused" and "rejected" in row["errors"][0]["message"]
    assert result_of(imported(document_of_one())) == {"GET /x": "unchanged"}
    assert tool(organization, "one").status == ToolStatus.ACTIVE


def test_a_dry_run_of_another_place_closes_nothing(imported, organization):
    imported(document_of_one())
    (row,) = imported(document_of_one(path="/y"), dry_run=True)
    assert row["result"] == "review"
    kept = tool(organization, "one")
    assert kept.status == ToolStatus.ACTIVE and not kept.upstream_changes.exists()


def test_a_server_that_the_administrator_names_is_no_change_of_the_upstream(imported, organization):
    imported(document_of_one())
    (row,) = imported(document_of_one(), server="https://two.example.com")
    assert row["result"] == "updated"
    (row,) = imported(document_of_one(path="/y"), server="https://two.example.com")
    assert row["result"] == "review"


def test_what_a_parameter_of_the_path_is_called_is_no_other_place(imported, organization):
    def document(name):
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        return document_of_one(path=f"/x/{{{name}}}", parameters=[parameter])

    imported(document("id"))
    assert result_of(imported(document("pet"))) == {"GET /x/{pet}": "updated"}


def test_an_operation_keeps_its_tool_when_its_id_changes(imported, organization):
    imported(document_of_one())
    (row,) = imported(document_of_one(operationId="get_the_one"))
    assert (row["name"], row["result"]) == ("one", "unchanged")
    assert Tool.objects.custom().filter(organization=organization).count() == 1


LONG = "list_every_subscription_invoice_line_of_one_customer_account_of_x_"


def test_a_tool_that_reads_is_never_put_in_the_place_of_one_that_deletes(imported, organization):
    """Also where an earlier version gave the reading tool the name that both were truncated to."""
    document = document_of_one(path="/z", operationId=f"{LONG}read")
    document["paths"]["/z"]["delete"] = {"operationId": f"{LONG}remove", "responses": {}}
    imported(document)
    imported(document, pick=["DELETE /z"])
    both = Tool.objects.custom().filter(organization=organization).select_related("version")
    found = {one.version.definition["implementation"]["method"]: one.name for one in both}
    assert len({*found.values()}) == 2 and {*found} == {"GET", "DELETE"}


def test_a_name_that_is_another_operations_is_not_taken(imported, organization):
    imported(document_of_one(path="/a", operationId="first"))
    document = document_of_one(path="/a", operationId="other")
    document["paths"]["/b"] = {"get": {"operationId": "first", "responses": {}}}
    document["paths"]["/b"]["get"]["servers"] = [{"url": "https://one.example.com"}]
    rows = {row["key"]: (row["name"], row["result"]) for row in imported(document)}
    assert rows["GET /a"] == ("first", "unchanged")
    name, result = rows["GET /b"]
    assert name.startswith("first_") and result == "created"


def test_an_operation_asks_the_database_a_few_times(imported, organization, credential):
    """Shared lookups run once, so that an import of hundreds of operations takes seconds."""

    def statements(count):
        operation = document_of_one(security=[{"api_key": []}])["paths"]["/x"]["get"]
        paths = {
            f"/x{at}": {"get": operation | {"operationId": f"op{at}x{count}"}}
            for at in range(count)
        }
        document = petstore() | {"paths": paths}
        with CaptureQueriesContext(connection) as asked:
            rows = imported(document, dry_run=True)
        assert {row["result"] for row in rows} == {"created"}
        return len(asked)

    statements(1)
    assert (statements(21) - statements(1)) / 20 <= 16


def test_an_import_does_not_take_over_a_custom_tool(imported, organization):
    factories.tool(organization, "LISTPETS")
    (row,) = imported(petstore(), pick=["listPets"])
    assert row["result"] == "refused" and row["errors"][0]["field"] == "name"
    imported(document_of_one())
    document = document_of_one() | {"info": {"title": "Another"}}
    assert result_of(imported(document)) == {"GET /x": "refused"}


def test_a_credential_must_be_there_and_of_the_same_header(imported, organization):
    (row,) = imported(petstore(), pick=["addPet"])
    assert row["result"] == "refused"
    assert "api_key with the header X-Api-Key" in row["errors"][0]["message"]
    said = {"name": "mine", "header": "Authorization", "value": "s3cret"}
    create_credential(organization=organization, credential=said, by=factories.actor(organization))
    (row,) = imported(petstore(), pick=["addPet"], credentials={"api_key": "mine"})
    assert "wants X-Api-Key" in row["errors"][0]["message"]


def test_a_bad_operation_keeps_no_good_one_out(imported, credential, organization):
    rows = imported(petstore())
    assert {row["result"] for row in rows} == {"created", "refused"}
    refused = {row["key"] for row in rows if row["result"] == "refused"}
    assert {"POST /pets/{pet-id}/photo", "GET /secret"} <= refused
    assert all(row["errors"] for row in rows if row["result"] == "refused")
    assert not Tool.objects.filter(organization=organization, name="upload").exists()


def test_what_is_no_document_is_refused(imported):
    with pytest.raises(Malformed, match="no OpenAPI document"):
        imported({"swagger": "2.0"})


def test_large_numbers_of_a_document_are_kept_where_they_bind_and_refuse_nothing(
    imported, organization
):
    """Services in Go, Rust and Java publish such documents, with the bounds of 64-bit integers."""
    schema = """{"type": "integer", "format": "int64", "minimum": -9223372036854775808,
        "maximum": 9223372036854775807, "example": 1917043659912705296, "x-limit": 1e999}"""
    ratio = '{"type": "number", "maximum": 1e999}'
    text = f"""{{"openapi": "3.1.0", "info": {{"title": "Ids"}},
        "servers": [{{"url": "https://ids.example.com"}}], "paths": {{
        "/ids/{{id}}": {{"get": {{"operationId": "id", "parameters": [
            {{"name": "id", "in": "path", "required": true, "schema": {schema}}},
            {{"name": "ratio", "in": "query", "schema": {ratio}}}]}}}},
        "/all": {{"get": {{"operationId": "all", "description": "cut \\ud83d"}}}}}}}}"""
    (document,) = import_documents.parse_documents(text, openapi=True)
    one_id, everything = imported(document.value)
    assert (one_id["result"], everything["result"]) == ("created", "created")
    assert one_id["notes"] == ["maximum was left out of a schema: no number of JSON is as large"]
    kept = tool(organization, "id")
    assert trusted(kept)
    properties = kept.version.definition["input_schema"]["properties"]
    assert (properties["id"]["minimum"], properties["id"]["maximum"]) == (-(2**63), 2**63 - 1)
    assert properties["ratio"] == {"type": "number"}
    validator = Validator(kept.version.definition["input_schema"])
    assert not validator.flaws({"id": 2**63 - 1}) and validator.flaws({"id": 2**63})
    assert {row["result"] for row in imported(document.value)} == {"unchanged"}
