"""Upstream changes over REST, and differences between versions."""

import pytest

from tests import factories
from tools.catalog.signatures.drift import note_upstream


@pytest.fixture
def change(organization):
    tool = factories.tool(organization)
    seen = tool.version.definition | {"description": "Re\u0430ds it."}
    return note_upstream(tool=tool, seen=seen, by=factories.actor(organization))


def test_a_person_reads_the_difference_and_approves_what_was_read(admin_api, change):
    [listed] = admin_api.get("/tools/changes?decision=open").json()["results"]
    read = admin_api.get(f"/tools/changes/{listed['id']}").json()
    [found] = read["differences"]
    assert found["path"] == "/description" and "looks like 'a'" in found["warnings"][0]
    wrong = admin_api.post(f"/tools/changes/{read['id']}/approve", {"digest": "sha256:1"})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "change_not_read")
    done = admin_api.post(f"/tools/changes/{read['id']}/approve", {"digest": read["digest"]})
    assert done.status_code == 200, done.content
    assert done.json()["status"] == "active" and done.json()["version"] == "1.0.1"


def test_a_change_is_rejected_once(admin_api, change):
    said = {"digest": change.digest, "reason": "No."}
    assert admin_api.post(f"/tools/changes/{change.pk}/reject", said).status_code == 200
    again = admin_api.post(f"/tools/changes/{change.pk}/approve", {"digest": change.digest})
    assert (again.status_code, again.json()["code"]) == (409, "change_decided")


def test_two_versions_are_distinguished_with_their_notes(admin_api, organization):
    factories.tool(organization)
    note = {"description": "Other words.", "change_note": "Clearer."}
    assert admin_api.patch("/tools/echo", note).status_code == 200
    answer = admin_api.get("/tools/echo/difference?from=1.0.0").json()
    assert (answer["before"], answer["after"]) == ("1.0.0", "1.0.1")
    assert [one["path"] for one in answer["differences"]] == ["/description"]
    versions = admin_api.get("/tools/echo/versions").json()["results"]
    assert [one["change_note"] for one in versions] == ["Clearer.", ""]


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("from=9.9.9", 404), ("from=%00", 400), ("from=1.0.0&to=x", 404)],
)
def test_a_version_that_is_not_there_is_named(admin_api, organization, query, status):
    factories.tool(organization)
    assert admin_api.get(f"/tools/echo/difference?{query}").status_code == status


@pytest.mark.parametrize(
    ("label", "status"),
    [("2.0.0", 200), ("1.0.1", 200), ("0.9.0", 400), ("1.0", 400), ("1.0.0-beta", 400)],
)
def test_a_label_is_semantic_and_only_grows(admin_api, organization, label, status):
    factories.tool(organization)
    sent = {"description": "Other words.", "version": label}
    response = admin_api.patch("/tools/echo", sent)
    assert response.status_code == status, response.content
    if status == 200:
        assert response.json()["version"] == label


@pytest.mark.parametrize("name", ["read-fi1e", "Read.File", "readfile"])
def test_a_name_that_reads_like_another_one_is_refused(admin_api, organization, name):
    response = admin_api.post("/tools", factories.definition(name))
    assert (response.status_code, response.json()["code"]) == (409, "tool_lookalike")
