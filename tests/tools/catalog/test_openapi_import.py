"""Tools out of OpenAPI documents: made, brought up to date, and kept as people decided them."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.definitions.openapi.documents import one, petstore
from tools.catalog.actions import amended, update_tool
from tools.catalog.credentials import create_credential
from tools.catalog.openapi_import import import_openapi
from tools.errors import Malformed
from tools.models import Organization, Tool

PICK = ["listPets", "addPet"]


@pytest.fixture
def imported(organization):
    def run(document, **options):
        by = factories.by(organization)
        return import_openapi(organization=organization, document=document, by=by, **options)

    return run


@pytest.fixture
def credential(organization):
    said = {"name": "api_key", "header": "x-api-key", "value": "s3cret"}
    create_credential(organization=organization, credential=said, by=factories.by(organization))


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
    update_tool(tool=row, definition=definition, by=factories.by(organization))
    assert result_of(imported(petstore(), pick=["listPets"])) == {"GET /pets": "unchanged"}
    imported(changed(), pick=["listPets"])
    kept = tool(organization, "listPets").version.definition
    assert {name: kept[name] for name in decided} == decided
    imported(changed(), pick=["listPets"], group=["pets"])
    assert tool(organization, "listPets").version.definition["group"] == ["pets"]


def test_another_method_is_another_delivery(imported, organization):
    imported(one(method="get"))
    (row,) = imported(one(method="post"))
    assert "delivery" in {change["field"] for change in row["changes"]}
    definition = tool(organization, "one").version.definition
    assert (definition["delivery"], definition["constraints"]["allow_side_effects"]) == (
        "external",
        True,
    )


def test_a_tool_somebody_wrote_is_not_taken_over(imported, organization):
    factories.tool(organization, "LISTPETS")
    (row,) = imported(petstore(), pick=["listPets"])
    assert row["result"] == "refused" and row["errors"][0]["field"] == "name"
    imported(one())
    document = one() | {"info": {"title": "Another"}}
    assert result_of(imported(document)) == {"GET /x": "refused"}


def test_a_credential_must_be_there_and_of_the_same_header(imported, organization):
    (row,) = imported(petstore(), pick=["addPet"])
    assert row["result"] == "refused"
    assert "api_key with the header X-Api-Key" in row["errors"][0]["message"]
    said = {"name": "mine", "header": "Authorization", "value": "s3cret"}
    create_credential(organization=organization, credential=said, by=factories.by(organization))
    (row,) = imported(petstore(), pick=["addPet"], credentials={"api_key": "mine"})
    assert "wants X-Api-Key" in row["errors"][0]["message"]


def test_a_bad_operation_keeps_no_good_one_out(imported, credential, organization):
    rows = imported(petstore())
    assert {row["result"] for row in rows} == {"created", "refused"}
    refused = {row["key"] for row in rows if row["result"] == "refused"}
    assert {"GET /search", "GET /secret"} < refused
    assert all(row["errors"] for row in rows if row["result"] == "refused")
    assert not Tool.objects.filter(organization=organization, name="search").exists()


def test_what_is_no_document_is_refused(imported):
    with pytest.raises(Malformed, match="no OpenAPI document"):
        imported({"swagger": "2.0"})
