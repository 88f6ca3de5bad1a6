"""Environment settings are described as they are documented, and changes are audited at the next
start."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings

from audit.models import AuditRecord
from tools.accounts.environment_settings import (
    HIDDEN,
    ON_PAGE,
    SECTIONS,
    VISIBLE,
    record_settings,
    setting_statuses,
)

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]


def last(organization):
    found = AuditRecord.objects.filter(organization=organization.slug, code="ADMIN.SETTINGS_CHANGE")
    return found.order_by("-id").first()


def test_the_first_start_tells_all_and_the_next_nothing(organization):
    assert record_settings()
    assert last(organization).details["after"]["TOKEN_DAYS"] == 90
    assert not record_settings()


def test_a_changed_setting_is_audited_with_before_and_after(organization, settings):
    record_settings()
    settings.EGRESS_ALLOW_PRIVATE = ["10.0.0.0/8"]
    assert record_settings()
    said = last(organization).details
    assert said["before"] == {"EGRESS_ALLOW_PRIVATE": []}
    assert said["after"] == {"EGRESS_ALLOW_PRIVATE": ["10.0.0.0/8"]}


def test_a_changed_secret_is_audited_without_its_value(organization, settings):
    record_settings()
    settings.METRICS_TOKEN = "swordfish-swordfish"
    assert record_settings()
    said = json.dumps(last(organization).details)
    assert "METRICS_TOKEN" in said and "swordfish" not in said
    assert settings.SECRET_KEY not in said


ROW = re.compile(r"^\| `([A-Z_]+)` \| (.*?) \| (.*) \|$", re.MULTILINE)


def test_every_documented_variable_is_described_as_it_is_documented() -> None:
    text = Path(settings.BASE_DIR, "docs/operations.md").read_text().replace("; see below", "")
    documented = {name: (default, does) for name, default, does in ROW.findall(text)}
    described = {one.name: (one.default, one.does) for every in SECTIONS.values() for one in every}
    assert described == {
        name: (default.replace("`", ""), does.replace("`", ""))
        for name, (default, does) in documented.items()
    }


def test_every_audited_setting_is_described() -> None:
    every = {one.attribute or one.name for rows in SECTIONS.values() for one in rows}
    assert set(VISIBLE) <= every
    assert not ON_PAGE & set(HIDDEN)


def test_only_what_evidence_holds_has_a_value() -> None:
    for rows in setting_statuses().values():
        for one in rows:
            assert one.has_value == ((one.described.attribute or one.described.name) in ON_PAGE)
