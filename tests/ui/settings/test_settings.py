"""`/settings/`: what the installation is set to, and what is an organization's own."""

import pytest
from django.test import Client

from audit.events import Event
from audit.models import AuditRecord
from tests.ui.pages import notes, text
from tools.accounts.installation import _source
from tools.models import Organization


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
