"""`/settings/`: what the installation is set to, and what is an organization's own."""

import pytest
from django.test import Client

from audit.events import Event
from audit.models import AuditRecord
from tests import factories
from tests.ui.conftest import Grant
from tests.ui.pages import inline_code, notes, text
from tools.accounts.environment_settings import _source
from tools.catalog.signatures.newest import newest
from tools.models import Organization, SigningKey
from tools.ui.settings.signing_keys import _key_state


def test_each_setting_is_shown_with_its_value_and_its_origin(
    admin_client: Client, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_DAYS", "7")
    settings.TOKEN_DAYS = 7
    monkeypatch.setenv("EGRESS_CA_FILE_FILE", "/run/secrets/ca")
    page = text(admin_client.get("/settings/"))
    row = page.partition("<code>TOKEN_DAYS</code>")[2].partition("</tr>")[0]
    assert ">7<" in row and notes(row)["source"] == [_source("TOKEN_DAYS")]
    assert notes(row)["default"] == ["90"]
    row = page.partition("<code>EGRESS_CA_FILE</code>")[2].partition("</tr>")[0]
    assert "EGRESS_CA_FILE_FILE" in notes(row)["source"][0]
    row = page.partition("<code>QUEUE_AGE_S</code>")[2].partition("</tr>")[0]
    assert "its-default" in notes(row) and "source" not in notes(row)


def test_no_secret_is_ever_shown(
    admin_client: Client, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_KEY", "METRICS_TOKEN", "LLM_API_KEY", "DATABASE_URL", "EMAIL_URL",
                 "AUDIT_ANCHOR_URL", "TOOL_SERVICE_BROKERS", "LICENSE_KEYS"):  # fmt: skip
        monkeypatch.setenv(name, "swordfish")
    secret = settings.SECRET_KEY
    settings.METRICS_TOKEN = settings.LLM_API_KEY = "swordfish"
    page = text(admin_client.get("/settings/"))
    assert "swordfish" not in page and secret not in page
    assert page.count(">set<") >= 8


def test_it_is_for_those_who_read_evidence(client_of) -> None:
    assert client_of("tools.change_tool", is_staff=True).get("/settings/").status_code == 403
    page = text(client_of("audit.view_auditrecord").get("/settings/"))
    assert "superuser-changes" in notes(page) and "/settings/organization/" not in page


def test_an_organization_is_changed_by_a_superuser(
    admin_client: Client, organization: Organization
) -> None:
    given = {
        "name": "Rocket", "time_zone": "Europe/Berlin", "minimum_isolation": "Strict",
        "max_concurrency": "4", "max_queue_depth": "50", "workspace_max_files": "10",
        "workspace_max_bytes": "2000", "output_days": "30",
    }  # fmt: skip
    assert admin_client.post("/settings/organization/", given)["Location"] == "/settings/"
    organization.refresh_from_db()
    assert {name: str(getattr(organization, name)) for name in given} == given
    changed = AuditRecord.objects.filter(code=Event.ORGANIZATION_CHANGE)
    assert changed.filter(organization=organization.slug).count() == 6
    admin_client.post("/settings/organization/", given | {"max_concurrency": ""})
    organization.refresh_from_db()
    assert organization.max_concurrency is None and changed.count() >= 7


@pytest.mark.parametrize(
    ("wrong", "note", "value"),
    [
        ({"name": ""}, "flaw-name", "200"),
        ({"time_zone": "Mars/Base"}, "refused", "Mars/Base"),
        ({"minimum_isolation": "Loose"}, "flaw-minimum_isolation", ""),
        ({"max_queue_depth": ""}, "flaw-max_queue_depth", ""),
        ({"max_queue_depth": "0"}, "refused", "max_queue_depth"),
        ({"output_days": "9" * 40}, "flaw-output_days", ""),
        ({"workspace_max_bytes": "²"}, "flaw-workspace_max_bytes", ""),
    ],
)
def test_what_cannot_be_is_explained_and_nothing_is_changed(
    admin_client: Client, organization: Organization, wrong: dict[str, str], note: str, value: str
) -> None:
    good = {
        "name": "Rocket", "time_zone": "UTC", "minimum_isolation": "Standard",
        "max_queue_depth": "50", "workspace_max_files": "10", "workspace_max_bytes": "2000",
    }  # fmt: skip
    page = admin_client.post("/settings/organization/", good | wrong)
    assert page.status_code == 400 and note in notes(page)
    assert value in notes(page)[note][0]
    organization.refresh_from_db()
    assert organization.name != "Rocket"


@pytest.fixture
def key(organization: Organization) -> SigningKey:
    factories.tool(organization)
    return SigningKey.objects.get(organization=organization)


def test_each_key_says_what_it_is_and_how_much_it_signed(
    admin_client: Client, key: SigningKey
) -> None:
    answer = admin_client.get("/keys/")
    page = text(answer)
    signed = key.organization.tools.count()
    assert key.key_id in page and 'data-note="key-state" data-status="active"' in page
    assert notes(page)["versions"] == [str(signed)]
    assert inline_code(answer) == []


def test_a_new_key_signs_and_the_old_one_stays_good(
    admin_client: Client, organization: Organization, key: SigningKey
) -> None:
    page = text(admin_client.post("/keys/", follow=True))
    made = SigningKey.objects.get(organization=organization, retired_at=None)
    assert made.key_id != key.key_id and made.key_id in notes(page)["message-success"][0]
    assert 'data-note="key-state" data-status="disabled"' in page
    codes = AuditRecord.objects.filter(organization=organization.slug, subject=made.key_id)
    assert codes.get().code == "ADMIN.SIGNING_KEY_CREATE"


def test_what_distrusting_closes_is_said_before(admin_client: Client, key: SigningKey) -> None:
    page = text(admin_client.get(f"/keys/{key.key_id}/distrust"))
    assert 'href="/tools/echo/">echo</a>' in page and "verify_tools --resign" in page
    key.refresh_from_db()
    assert key.distrusted_at is None


def test_a_key_that_nothing_in_use_was_signed_under_closes_nothing(
    admin_client: Client, key: SigningKey
) -> None:
    admin_client.post("/keys/")
    made = SigningKey.objects.get(organization=key.organization, retired_at=None)
    assert "closes-nothing" in notes(admin_client.get(f"/keys/{made.key_id}/distrust"))


def test_a_key_is_distrusted(
    admin_client: Client, organization: Organization, key: SigningKey
) -> None:
    page = text(admin_client.post(f"/keys/{key.key_id}/distrust", follow=True))
    assert key.key_id in notes(page)["message-success"][0]
    assert 'data-status="rejected">distrusted' in page
    code = "ADMIN.SIGNING_KEY_DISTRUST"
    assert AuditRecord.objects.filter(organization=organization.slug, code=code).count() == 1
    again = text(admin_client.get(f"/keys/{key.key_id}/distrust"))
    assert "not-trusted-now" in notes(again) and '<button class="danger"' not in again


def test_a_key_that_this_installation_did_not_make_says_so(
    admin_client: Client, key: SigningKey
) -> None:
    SigningKey.objects.filter(pk=key.pk).update(voucher="x" * 88)
    key.refresh_from_db()
    state, _ = _key_state(key, newest.read_state(key.organization_id))
    assert notes(admin_client.get("/keys/"))["key-state"] == [state]


def test_who_may_only_look_makes_and_distrusts_nothing(client_of: Grant, key: SigningKey) -> None:
    client = client_of("tools.view_signingkey")
    page = text(client.get("/keys/"))
    assert key.key_id in page
    assert 'method="post" action="/keys/"' not in page and "/distrust" not in page
    assert client.post("/keys/").status_code == 403
    assert client.get(f"/keys/{key.key_id}/distrust").status_code == 403
    assert client.post(f"/keys/{key.key_id}/distrust").status_code == 403
    assert SigningKey.objects.filter(organization=key.organization, retired_at=None).get() == key
