"""The sandbox's capabilities are recorded for every organization, once for each change."""

import pytest

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.models import AuditRecord
from tests import factories
from tools.execution import isolation
from tools.models import Organization

pytestmark = [pytest.mark.own_organization]


def known(organization: Organization) -> list[AuditRecord]:
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


def test_an_organization_is_told_what_the_wall_can_do(organization: Organization) -> None:
    isolation.record_changes()
    (news,) = known(organization)
    assert news.reason.startswith("ceiling ") and news.subject == "sandboxd"
    assert set(news.details["levels"]) == {"None", "Standard", "Strict", "Restricted"}
    assert news.details["cgroup_mode"] in {"v2", "hybrid", "v1", "none"}
    assert "attacks" not in news.details


def test_what_is_known_is_not_told_again(organization: Organization) -> None:
    isolation.record_changes()
    assert isolation.record_changes() == 0
    assert len(known(organization)) == 1


def test_a_change_is_told_and_what_was_known_before_stays(organization: Organization) -> None:
    claim(organization, "sha256:of-another-day")
    isolation.record_changes()
    first, second = known(organization)
    assert first.subject_digest == "sha256:of-another-day"
    assert second.subject_digest != first.subject_digest


def test_a_change_back_is_a_change(organization: Organization) -> None:
    isolation.record_changes()
    claim(organization, "sha256:of-another-day")
    isolation.record_changes()
    before, _, after = known(organization)
    assert before.subject_digest == after.subject_digest


def test_an_organization_that_is_new_is_told_too(organization: Organization) -> None:
    isolation.record_changes()
    newcomer = factories.organization("newcomer-of-the-wall")
    assert isolation.record_changes() == 1
    assert len(known(newcomer)) == 1 and len(known(organization)) == 1


@pytest.fixture
def _silent_sandboxd(settings, tmp_path):
    settings.SANDBOX_SOCKET = str(tmp_path / "none")
    isolation.watch.cache_clear()
    yield
    isolation.watch.cache_clear()


@pytest.mark.usefixtures("_silent_sandboxd")
def test_a_sandboxd_that_does_not_answer_is_no_change(organization: Organization) -> None:
    assert isolation.record_changes() == 0
    assert known(organization) == []
