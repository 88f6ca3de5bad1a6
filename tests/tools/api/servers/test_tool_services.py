"""`/api/v1/tool-services`: descriptors in the form of specification S2."""

import pytest

from tests import factories
from tests.tools.shapes import check_error
from tools.catalog.actions import register_tool

SERVICE = {
    "id": "rag", "request-queue": "non-persistent://tg/request/rag", "response-queue": "r",
    "config-params": [{"name": "collection", "required": True}],
}  # fmt: skip
PLACE = "/tool-services/rag"


@pytest.fixture
def created_service(admin_api):
    answer = admin_api.post("/tool-services", SERVICE)
    assert answer.status_code == 201
    return answer.json()


def test_a_descriptor_of_the_specification_is_taken_as_it_stands(created_service, admin_api):
    assert created_service["request_queue"] == SERVICE["request-queue"]
    assert (
        created_service["status"],
        created_service["announced"],
        created_service["closed_because"],
    ) == ("approved", None, None)
    assert admin_api.get(PLACE).json() == created_service
    assert admin_api.get("/tool-services").json()["results"] == [created_service]
    check_error(admin_api.post("/tool-services", SERVICE), 409, "service_exists")


def test_every_wrong_field_is_named(admin_api, organization):
    answer = admin_api.post("/tool-services", {"id": 3, "request-queue": "q", "states": []})
    wrong = check_error(answer, 400, "invalid_definition")["details"]["errors"]
    assert {one["field"] for one in wrong} == {"id", "response_queue", "states"}


NONSENSE = [[], 3, "x", None, {"id": {}}, {"id": "a" * 500}, {"config-params": [[]]}]


def test_nonsense_is_refused(admin_api, organization, created_service, subtests):
    for body in NONSENSE:
        with subtests.test(body=body):
            assert admin_api.post("/tool-services", body).status_code == 400
            assert admin_api.patch(PLACE, body).status_code in {200, 400}
            for word in ("approve", "reject"):
                assert admin_api.post(f"{PLACE}/{word}", body).status_code == 400


def test_a_service_that_people_wrote_needs_no_approval(created_service, admin_api):
    answer = admin_api.post(f"{PLACE}/approve", {"digest": "sha256:0"})
    check_error(answer, 409, "not_announced")


def test_a_change_that_tools_do_not_fit_names_them(created_service, admin_api, organization):
    definition = factories.definition(
        "ask", type="tool-service",
        implementation={"service": "rag", "config": {"collection": "c"}},
    )  # fmt: skip
    register_tool(
        organization=organization, definition=definition, by=factories.actor(organization)
    )
    error = check_error(admin_api.patch(PLACE, {"config_params": []}), 409, "has_dependants")
    assert error["details"]["dependants"] == ["ask"]
    check_error(admin_api.delete(PLACE), 409, "has_dependants")
    assert admin_api.patch(PLACE, {"default_groups": ["a"]}).json()["default_groups"] == ["a"]
    admin_api.delete("/tools/ask")
    assert admin_api.delete(PLACE).status_code == 204
    check_error(admin_api.get(PLACE), 404, "service_not_found")


def test_its_state_says_that_no_worker_listens(created_service, admin_api):
    assert admin_api.get(f"{PLACE}/state").json() == {
        "alive": False, "processes": 0, "lease_s": 0.0, "waiting": 0,
    }  # fmt: skip
