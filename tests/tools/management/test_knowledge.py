"""Import and export of RDF graphs, with the Oxigraph of the crib."""

import json

import pytest
from django.conf import settings

from audit.models import AuditRecord
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]
ELEMENTS = settings.BASE_DIR / "examples" / "elements.ttl"


def test_the_sample_graph_goes_in_and_comes_out_as_json_ld(typed, organization_arguments):
    ran = typed("import_knowledge", str(ELEMENTS), *organization_arguments)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "366 statements are in the graph.\n"
    out = json.loads(typed("export_knowledge", *organization_arguments, "--format", "json-ld").out)
    (iron,) = [one for one in out if one["@id"].endswith("/iron")]
    assert iron["http://example.org/chemistry/symbol"] == [{"@value": "Fe"}]


def test_what_was_exported_is_imported_again_and_changes_nothing(
    typed, organization_arguments, tmp_path
):
    typed("import_knowledge", str(ELEMENTS), *organization_arguments)
    for syntax in ("turtle", "json-ld"):
        once = typed("export_knowledge", *organization_arguments, "--format", syntax).out
        (file := tmp_path / "graph").write_text(once, "utf-8")
        again = typed(
            "import_knowledge", str(file), *organization_arguments, "--format", syntax, "--json"
        )
        assert again.json == {"statements": 366}
        assert len(
            typed("export_knowledge", *organization_arguments, "--format", syntax).out
        ) == len(once)


def test_a_flaw_is_reported_with_its_line_and_nothing_is_imported(
    typed, organization_arguments, tmp_path
):
    (file := tmp_path / "bad.ttl").write_text("<urn:a> <urn:b> 1 .\n\n<urn:a> nonsense .\n")
    ran = typed("import_knowledge", str(file), *organization_arguments)
    assert ran.code == 1
    assert "line 3: " in ran.err
    assert "urn:a" not in typed("export_knowledge", *organization_arguments).out


def test_another_organizations_graph_is_never_written_or_read(
    typed, organization_arguments, tmp_path
):
    other = factories.organization("org-of-others-graphs")
    (file := tmp_path / "named.json").write_text(
        json.dumps(
            {"@id": f"urn:toolcrib:{other.pk}:default", "@graph": [{"@id": "urn:x", "urn:p": 1}]}
        )
    )
    assert (
        typed("import_knowledge", str(file), *organization_arguments, "--format", "json-ld").code
        == 1
    )
    typed("import_knowledge", str(ELEMENTS), *organization_arguments)
    assert "iron" not in typed("export_knowledge", "--organization", other.slug).out


def test_an_import_is_on_record(typed, organization, organization_arguments):
    typed("import_knowledge", str(ELEMENTS), *organization_arguments)
    reported = AuditRecord.objects.get(organization=organization.slug, code="KNOWLEDGE.IMPORT")
    assert (reported.details["statements"], reported.details["answer_lost"]) == (366, False)


@pytest.mark.parametrize("words", [["/nowhere/at/all"], [str(ELEMENTS.parent)]])
def test_a_file_that_cannot_be_read_is_a_refusal(typed, organization_arguments, words):
    assert typed("import_knowledge", *words, *organization_arguments).code == 1


def test_every_flaw_of_a_document_is_reported_at_once(typed, organization_arguments, tmp_path):
    lines = ["<urn:a> nonsense 1 .", "<urn:a> <urn:b> 1 .", "<urn:a> other:b 1 ."]
    (file := tmp_path / "bad.ttl").write_text("\n".join(lines))
    ran = typed("import_knowledge", str(file), *organization_arguments)
    assert ran.code == 1 and "line 1: " in ran.err and "line 3: " in ran.err
    assert "urn:a" not in typed("export_knowledge", *organization_arguments).out


def test_an_import_says_how_large_the_graph_was_before_and_after(
    typed, organization, organization_arguments
):
    for before, after in ((0, 366), (366, 366)):
        typed("import_knowledge", str(ELEMENTS), *organization_arguments)
        reported = AuditRecord.objects.filter(organization=organization.slug).latest("id").details
        assert (reported["before"], reported["after"]) == (
            {"statements": before},
            {"statements": after},
        )
