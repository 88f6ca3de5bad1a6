"""`manage.py install_license`: its output and its exit codes."""

import json

import pytest

from tests import factories, licenses
from tools.models import Organization


@pytest.fixture(autouse=True)
def _trusted(settings):
    settings.LICENSE_KEYS = [licenses.PUBLIC]


@pytest.fixture
def file(tmp_path, organization):
    """The path of a license file."""

    def write(tier="WriterPro", slug=organization.slug, **fields):
        place = tmp_path / "license.json"
        place.write_bytes(licenses.license_file(slug, tier, **fields))
        return str(place)

    return write


def tier_of(organization):
    return Organization.objects.select_related("tier").get(pk=organization.pk).tier.name


def test_a_licence_is_installed_for_the_organization_it_names(typed, organization, file):
    for number in range(11):
        factories.tool(organization, f"t{number}")
    ran = typed("install_license", file())
    assert (ran.code, tier_of(organization)) == (0, "WriterPro")
    assert "WriterPro (before: Enterprise)" in ran.out and "t10" in ran.out


def test_with_json_the_answer_says_how_the_licence_stands(typed, organization, file):
    ran = typed("install_license", file("Teams"), "--json")
    assert ran.json["organization"] == organization.slug
    assert (ran.json["license"]["id"], ran.json["license"]["state"]) == ("L-1", "valid")
    assert ran.json["tier_change"]["gated"] == []


def test_a_licence_is_removed(typed, organization, file):
    typed("install_license", file())
    ran = typed("install_license", "--remove", "--organization", organization.slug, "--json")
    assert (ran.code, ran.json["license"]["state"], tier_of(organization)) == (0, "none", "Core")


def test_a_tampered_file_is_refused_with_a_sentence(typed, organization, file, tmp_path):
    document = json.loads((tmp_path / "license.json").read_text()) if file() else {}
    document["license"]["tier"] = "Enterprise"
    (tmp_path / "license.json").write_text(json.dumps(document))
    ran = typed("install_license", str(tmp_path / "license.json"))
    assert (ran.code, ran.out) == (1, "")
    assert "signature does not fit" in ran.err and "Traceback" not in ran.err


def test_a_refusal_is_json_where_that_was_asked_for(typed, organization, file):
    ran = typed("install_license", file(), "--organization", "another", "--json")
    assert (ran.code, ran.error["code"]) == (1, "organization_not_found")


def test_a_licence_for_another_organization_is_not_installed_here(typed, organization, file):
    other = factories.organization("licensed-elsewhere")
    ran = typed("install_license", file(slug=other.slug), "--organization", organization.slug)
    assert ran.code == 1 and "not for" in ran.err
    assert tier_of(other) == tier_of(organization) == "Enterprise"


def test_without_trusted_keys_the_setting_is_named(typed, organization, file, settings):
    settings.LICENSE_KEYS = []
    ran = typed("install_license", file())
    assert ran.code == 1 and "LICENSE_KEYS" in ran.err


@pytest.mark.parametrize(
    "words", [[], ["/nowhere/license.json"], ["--remove", "x"], ["x\0y"], ["--organization", "A"]]
)
def test_bad_usage_is_2(typed, db, words):
    assert typed("install_license", *words).code == 2
