"""The sandbox's capabilities are recorded for every organization, once for each change."""

import pytest

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from tests import factories
from tools.models import Organization
from tools.runners import isolation

pytestmark = [pytest.mark.own_organization]


def capability_records(organization: Organization) -> list[AuditRecord]:
    records = AuditRecord.objects.filter(
        organization=organization.slug, code=Event.SANDBOX_CAPABILITY
    )
    return list(records.order_by("occurred_at"))


def claim(organization: Organization, digest: str) -> None:
    """A record of other capabilities of the machine from another day."""
    by = Actor("system", isolation.SUBJECT, organization.slug)
    record(
        Event.SANDBOX_CAPABILITY,
        by=by,
        outcome=Outcome.CHANGED,
        subject=isolation.SUBJECT,
        digest=digest,
    )


def test_the_sandbox_capability_is_audited_for_an_organization(organization: Organization) -> None:
    isolation.record_changes()
    (news,) = capability_records(organization)
    assert news.reason.startswith("ceiling ") and news.subject == "sandboxd"
    assert set(news.details["levels"]) == {"None", "Standard", "Strict", "Restricted"}
    assert news.details["cgroup_mode"] in {"v2", "hybrid", "v1", "none"}
    assert "attacks" not in news.details


def test_an_unchanged_capability_is_not_audited_again(organization: Organization) -> None:
    isolation.record_changes()
    assert isolation.record_changes() == 0
    assert len(capability_records(organization)) == 1


def test_a_changed_capability_is_audited_and_earlier_records_stay(
    organization: Organization,
) -> None:
    claim(organization, "sha256:of-another-day")
    isolation.record_changes()
    first, second = capability_records(organization)
    assert first.subject_digest == "sha256:of-another-day"
    assert second.subject_digest != first.subject_digest


def test_a_change_back_is_a_change(organization: Organization) -> None:
    isolation.record_changes()
    claim(organization, "sha256:of-another-day")
    isolation.record_changes()
    before, _, after = capability_records(organization)
    assert before.subject_digest == after.subject_digest


def test_the_capability_is_audited_for_a_new_organization(organization: Organization) -> None:
    isolation.record_changes()
    newcomer = factories.organization("newcomer-of-the-wall")
    assert isolation.record_changes() == 1
    assert len(capability_records(newcomer)) == 1 and len(capability_records(organization)) == 1


@pytest.fixture
def _silent_sandboxd(settings, tmp_path):
    settings.SANDBOX_SOCKET = str(tmp_path / "none")
    isolation.watch.cache_clear()
    yield
    isolation.watch.cache_clear()


@pytest.mark.usefixtures("_silent_sandboxd")
def test_a_sandboxd_that_does_not_answer_is_no_change(organization: Organization) -> None:
    assert isolation.record_changes() == 0
    assert capability_records(organization) == []
