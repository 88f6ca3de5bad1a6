import pytest

from tests import factories
from tests.tools.database import tamper
from tools.models import SigningKey


@pytest.fixture
def here(organization):
    return ("--organization", organization.slug)


def test_what_is_as_it_was_signed_is_done(typed, organization, here):
    factories.tool(organization)
    ran = typed("verify_tools", *here)
    assert (ran.code, ran.out.endswith(" versions checked, 0 not what was signed.\n")) == (0, True)


def test_an_altered_version_is_named(typed, organization, here):
    tamper(factories.tool(organization).version, description="Tampered.")
    ran = typed("verify_tools", *here)
    assert (ran.code, "echo 1.0.0: not what was signed" in ran.out) == (1, True)


def test_what_a_distrusted_key_signed_is_signed_anew_by_name(typed, organization, here):
    factories.tool(organization)
    key = SigningKey.objects.current().get(organization=organization)
    assert typed("rotate_signing_key", *here, "--distrust", key.key_id).code == 0
    ran = typed("verify_tools", *here, "--json")
    names = sorted({one["tool"] for one in ran.json["results"]})
    assert (ran.code, "echo" in names) == (1, True)
    assert typed("verify_tools", *here, "--resign", *names, "--reason", "read").code == 0
