"""Changes that an operator makes in the environment are recorded at the next start."""

import json

import pytest

from audit.models import AuditRecord
from tools.accounts.environment_settings import record_settings

pytestmark = [pytest.mark.django_db, pytest.mark.own_organization]


def last(organization):
    found = AuditRecord.objects.filter(organization=organization.slug, code="ADMIN.SETTINGS_CHANGE")
    return found.order_by("-id").first()


def test_the_first_start_tells_all_and_the_next_nothing(organization):
    assert record_settings()
    assert last(organization).details["after"]["TOKEN_DAYS"] == 90
    assert not record_settings()


def test_a_changed_setting_is_told_with_before_and_after(organization, settings):
    record_settings()
    settings.EGRESS_ALLOW_PRIVATE = ["10.0.0.0/8"]
    assert record_settings()
    said = last(organization).details
    assert said["before"] == {"EGRESS_ALLOW_PRIVATE": []}
    assert said["after"] == {"EGRESS_ALLOW_PRIVATE": ["10.0.0.0/8"]}


def test_a_new_secret_is_noticed_and_not_told(organization, settings):
    record_settings()
    settings.METRICS_TOKEN = "swordfish-swordfish"
    assert record_settings()
    said = json.dumps(last(organization).details)
    assert "METRICS_TOKEN" in said and "swordfish" not in said
    assert settings.SECRET_KEY not in said
