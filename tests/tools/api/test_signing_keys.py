"""Keys over the API and on the command line."""

import pytest

from tests import factories
from tests.tools.database import tamper
from tools.models import SigningKey

pytestmark = pytest.mark.django_db


def address(organization, rest=""):
    return f"/organizations/{organization.slug}/signing-keys{rest}"


def test_a_superuser_rotates_the_key_and_sees_no_private_one(admin_api, organization):
    before = SigningKey.objects.current().get(organization=organization)
    answer = admin_api.post(address(organization), {"reason": "yearly"})
    assert answer.status_code == 201
    shown = admin_api.get(address(organization)).json()["results"]
    assert [one["key_id"] for one in shown] == [answer.json()["key_id"], before.key_id]
    assert set(shown[0]) == {
        "key_id", "public_key", "created_at", "retired_at", "distrusted_at",
    }  # fmt: skip


def test_a_distrusted_key_says_since_when(admin_api, organization):
    key = SigningKey.objects.current().get(organization=organization)
    answer = admin_api.post(address(organization, f"/{key.key_id}/distrust"), {"reason": "lost"})
    assert (answer.status_code, bool(answer.json()["distrusted_at"])) == (200, True)
    assert admin_api.post(address(organization, "/none/distrust"), {}).status_code == 404


def test_an_altered_definition_is_not_signed_by_changing_a_part_of_it(admin_api, organization):
    tool = factories.tool(organization)
    tamper(tool.version, description="Tampered.")
    answer = admin_api.patch("/tools/echo", {"title": "Mine"})
    assert (answer.status_code, answer.json()["code"]) == (409, "signature_invalid")
