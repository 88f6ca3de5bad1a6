"""`/api/v1/agent/requests`: an agent request is created once, read at its address, and
cancelled."""

from tests.api import Api
from tests.tools.shapes import check_error
from tools.models import Organization

PLACE = "/agent/requests"
NO_WAIT = {"wait_s": 0}


def test_a_request_is_read_at_its_address_and_cancelled(
    api: Api, organization: Organization
) -> None:
    body = {"question": "Why?", "options": NO_WAIT}
    asked = api.post(PLACE, body, **{"Idempotency-Key": "why-1"})
    assert (asked.status_code, asked.json()["status"]) == (202, "Pending")
    address = asked.headers["Location"].removeprefix("/api/v1")
    again = api.post(PLACE, body, **{"Idempotency-Key": "why-1"})
    assert again.headers["Location"].endswith(address)
    assert api.get(address).json()["status"] == "Pending"
    (listed,) = api.get(PLACE).json()["results"]
    assert address.endswith(listed["request_id"])
    assert api.post(f"/executions/{listed['request_id']}/cancel").status_code == 200
    assert (api.get(address).status_code, api.get(address).json()["status"]) == (200, "Cancelled")


def test_a_request_without_a_question_names_an_existing_run(api: Api) -> None:
    missing = "00000000-0000-7000-8000-000000000000"
    for name in ("continues", "replays"):
        check_error(api.post(PLACE, {name: missing, "options": NO_WAIT}), 404)
    check_error(api.post(PLACE, {"options": NO_WAIT}), 400)
