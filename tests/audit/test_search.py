"""GET /audit/records: for people who were granted it, in the organization where they act."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api


def codes(response):
    assert response.status_code == 200, response.content
    return {record["code"] for record in response.json()["results"]}


def test_a_superuser_reads_the_records_of_the_organization(admin_api, agent):
    found = admin_api.get("/audit/records?page_size=200").json()["results"]
    assert {record["organization"] for record in found} == {agent.organization.slug}
    assert {"ADMIN.AGENT_CREATE", "REG.TOOL_CREATE"} <= {record["code"] for record in found}


def test_an_agent_reads_no_records(api):
    assert api.get("/audit/records").status_code == 403


def test_a_person_without_the_permission_reads_no_records(organization):
    api = Api(factories.token(factories.person(organization)))
    assert api.get("/audit/records").status_code == 403


def test_searches_narrow_the_records(admin_api, agent, api):
    api.get("/tools?group=admin")
    slug = agent.slug
    assert codes(admin_api.get("/audit/records?code=LIST.DENY")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?code=LIST.")) == {"LIST.DENY"}
    assert codes(admin_api.get(f"/audit/records?agent={slug}")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?outcome=denied")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?q=granted_groups+admin")) == {"LIST.DENY"}
    assert codes(admin_api.get("/audit/records?tool=read_file")) == {"REG.TOOL_CREATE"}
    assert codes(admin_api.get("/audit/records?since=2999-01-01T00:00:00Z")) == set()


WRONG = ["since=yesterday", "since=2026-01-01", "since=2026-99-99T00:00:00Z", "execution=x",
         "agent=%00", "cursor=x", "page_size=x"]  # fmt: skip


@pytest.mark.parametrize("query", WRONG)
def test_a_wrong_search_is_400(admin_api, query):
    assert admin_api.get(f"/audit/records?{query}").status_code == 400


def test_records_come_in_pages_the_newest_first(admin_api, agent):
    first = admin_api.get("/audit/records?page_size=3").json()
    second = admin_api.get(first["next"].partition("/api/v1")[2]).json()
    ids = [record["id"] for page in (first, second) for record in page["results"]]
    assert len(ids) == 6 and ids == sorted(ids, reverse=True)


def test_one_record_is_read_by_its_id_and_only_at_home(admin_api, agent):
    ours = AuditRecord.objects.filter(organization=agent.organization.slug).latest("id")
    factories.organization("elsewhere")
    theirs = AuditRecord.objects.filter(organization="elsewhere").latest("id")
    assert admin_api.get(f"/audit/records/{ours.pk}").json()["id"] == str(ours.pk)
    assert admin_api.get(f"/audit/records/{theirs.pk}").status_code == 404
