"""`/api/v1/agent/requests`: a question is asked once, found at its address, and taken back."""

from tests.api import Api
from tests.tools.shapes import check_error
from tools.models import Organization

PLACE = "/agent/requests"
WAITS_FOR_NOTHING = {"wait_s": 0}


def test_a_question_is_found_at_its_address_and_taken_back(
    api: Api, organization: Organization
) -> None:
    body = {"question": "Why?", "options": WAITS_FOR_NOTHING}
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


def test_what_goes_on_from_a_run_names_one_that_is_there(api: Api) -> None:
    nobodys = "00000000-0000-7000-8000-000000000000"
    for name in ("continues", "replays"):
        check_error(api.post(PLACE, {name: nobodys, "options": WAITS_FOR_NOTHING}), 404)
    check_error(api.post(PLACE, {"options": WAITS_FOR_NOTHING}), 400)
