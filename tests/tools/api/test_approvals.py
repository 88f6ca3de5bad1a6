"""Calls awaiting approval over REST: agents see them and wait, people with a session decide."""

import json
from uuid import uuid4

import pytest
from django.test import Client

from tests import factories
from tests.api import BASE, Api
from tests.tools.approval_requests import (
    approve,
    approver,
    at_the_browser,
    call_awaiting_approval,
    word,
)
from tests.tools.shapes import check_error
from tools.accounts import account_actions as policy
from tools.approvals import decisions
from tools.models import Confirmation, ConfirmationRule, Execution


class Browser:
    """The API as a logged-in person's browser calls it, with its CSRF token."""

    def __init__(self, user):
        self.client = Client(enforce_csrf_checks=True)
        self.client.force_login(user, backend="tools.accounts.login.login.PeopleBackend")
        self.client.get("/")  # any page sets the cookie
        self.csrf = self.client.cookies["toolcrib_csrf"].value

    def __call__(self, method, path, body=None, **headers):
        content = {} if body is None else {"data": json.dumps(body)}
        return self.client.generic(
            method,
            f"{BASE}{path}",
            content_type="application/json",
            headers={"X-CSRFToken": self.csrf, **headers},
            **content,
        )


@pytest.fixture
def person(organization):
    return approver(organization)


@pytest.fixture
def browser(person):
    return Browser(person)


def decision_body(confirmation, **more):
    return {"bound_hash": confirmation.bound_hash, **more}


def test_an_agent_is_answered_at_once_and_learns_what_it_waits_for(api, asks):
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 60})
    body = answer.json()
    assert (answer.status_code, body["status"]) == (202, "RequiresConfirmation")
    assert answer["Location"] == f"/api/v1/executions/{body['execution_id']}"
    reported = body["confirmation"]
    assert set(reported) == {
        "id", "status", "reasons", "expires_at", "approvals_needed", "approvals",
    }  # fmt: skip
    assert (reported["status"], reported["approvals_needed"], reported["approvals"]) == (
        "pending",
        1,
        0,
    )
    assert reported["expires_at"].endswith("Z") and reported["reasons"]


def test_an_agent_reads_what_became_of_it(api, agent, asks, person):
    confirmation = call_awaiting_approval(agent)
    refusal = word(confirmation, approve=False, reason="No.")
    decisions.decide(caller=at_the_browser(person), word=refusal)
    body = api.get(f"/executions/{confirmation.execution_id}").json()
    assert (body["status"], body["error_code"]) == ("PermissionDenied", "confirmation_rejected")
    assert "No." in body["error_message"]
    assert body["confirmation"]["status"] == "rejected"
    assert person.username not in str(body)


def test_an_execution_that_needed_no_approval_says_so(api, agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    assert api.get(f"/executions/{execution.pk}").json()["confirmation"] is None
    assert api.get("/executions").json()["results"][0]["confirmation"] is None


def test_a_list_of_executions_says_which_are_held(api, confirmation):
    found = api.get("/executions?status=RequiresConfirmation").json()["results"]
    assert [row["confirmation"]["id"] for row in found] == [str(confirmation.pk)]


def test_waiting_ends_at_the_deadline_and_at_once_for_what_is_over(api, agent, confirmation):
    address = f"/executions/{confirmation.execution_id}"
    assert api.get(f"{address}?wait_s=0").status_code == 202
    decided = Execution.objects.filter(pk=confirmation.execution_id)
    decided.update(status="Cancelled", completed_at=confirmation.created_at)
    assert api.get(f"{address}?wait_s=60").status_code == 200


def test_a_wait_that_cannot_be_meant_is_refused(api, confirmation, subtests):
    for wait in ["-1", "61", "x", "1e1", "1.5", "999999999999", "%00"]:
        with subtests.test(wait=wait):
            check_error(api.get(f"/executions/{confirmation.execution_id}?wait_s={wait}"), 400)


def test_a_person_sees_all_that_would_run(browser, agent, confirmation):
    body = browser("GET", f"/confirmations/{confirmation.pk}").json()
    assert (body["bound_hash"], body["agent"]) == (confirmation.bound_hash, agent.slug)
    assert body["parameters"] == {"text": "x"} and body["options"]["require_confirmation"] is False
    assert (body["tool_name"], body["cost"], body["decisions"]) == ("echo", "0", [])
    assert body["digest"].startswith("sha256:")


def test_the_list_is_of_what_waits_unless_more_is_asked_for(browser, agent, asks, person):
    waiting, done = call_awaiting_approval(agent), approve(call_awaiting_approval(agent), person)

    def listed(query=""):
        found = browser("GET", f"/confirmations{query}").json()["results"]
        return {row["id"] for row in found}

    assert listed() == listed("?status=pending") == {str(waiting.pk)}
    assert listed("?status=approved") == {str(done.pk)}
    assert listed("?status=all") == {str(waiting.pk), str(done.pk)}
    check_error(browser("GET", "/confirmations?status=x"), 400)


def test_a_page_of_the_list_leads_to_the_next(browser, agent, asks):
    ids = {str(call_awaiting_approval(agent).pk) for _ in range(3)}
    first = browser("GET", "/confirmations?page_size=2").json()
    rest = browser("GET", "/confirmations?" + first["next"].partition("?")[2]).json()
    assert {row["id"] for row in first["results"] + rest["results"]} == ids


def test_a_person_agrees_with_their_session(browser, person, confirmation):
    answer = browser(
        "POST", f"/confirmations/{confirmation.pk}/approve", decision_body(confirmation)
    )
    body = answer.json()
    assert (answer.status_code, body["status"], body["approvals"]) == (200, "approved", 1)
    assert body["execution_status"] == "Pending"
    assert [one["by"] for one in body["decisions"]] == [person.username]


def test_a_person_refuses_with_a_reason(browser, confirmation):
    path = f"/confirmations/{confirmation.pk}/reject"
    body = browser("POST", path, decision_body(confirmation, reason="No.")).json()
    assert (body["status"], body["execution_status"]) == ("rejected", "PermissionDenied")
    assert body["decisions"][0]["reason"] == "No."


def test_a_session_without_its_csrf_token_decides_nothing(person, confirmation):
    browser = Browser(person)
    path = f"/confirmations/{confirmation.pk}/approve"
    check_error(browser("POST", path, decision_body(confirmation), **{"X-CSRFToken": "x"}), 403)
    assert Confirmation.objects.get(pk=confirmation.pk).status == "pending"


def test_no_token_decides(api, admin_api, person, confirmation):
    own = Api(factories.token(person, scopes=["read", "execute", "manage"]))
    for client in (admin_api, own):
        for verb in ("approve", "reject"):
            path = f"/confirmations/{confirmation.pk}/{verb}"
            check_error(client.post(path, decision_body(confirmation)), 403, "session_required")
        many = {"decisions": [decision_body(confirmation, id=str(confirmation.pk), approve=True)]}
        check_error(client.post("/confirmations/decide", many), 403, "session_required")
    check_error(
        api.post(f"/confirmations/{confirmation.pk}/approve", decision_body(confirmation)), 403
    )
    assert Confirmation.objects.get(pk=confirmation.pk).status == "pending"


def test_an_agent_may_not_even_look(api, confirmation):
    check_error(api.get("/confirmations"), 403, "not_permitted")
    check_error(api.get(f"/confirmations/{confirmation.pk}"), 403, "not_permitted")


def test_a_person_reads_with_a_token_too(person, confirmation):
    reader = Api(factories.token(person, scopes=["read"]))
    assert reader.get(f"/confirmations/{confirmation.pk}").status_code == 200


def test_another_organizations_call_is_not_there(confirmation):
    stranger = Browser(approver(factories.organization(f"org-{uuid4().hex[:12]}")))
    path = f"/confirmations/{confirmation.pk}"
    check_error(stranger("GET", path), 404, "confirmation_not_found")
    check_error(stranger("POST", f"{path}/approve", decision_body(confirmation)), 404)
    assert stranger("GET", "/confirmations?status=all").json()["results"] == []


def test_another_hash_is_a_conflict(browser, confirmation):
    path = f"/confirmations/{confirmation.pk}/approve"
    check_error(browser("POST", path, {"bound_hash": "0" * 64}), 409, "confirmation_changed")


def test_what_was_decided_is_a_conflict(browser, confirmation):
    path = f"/confirmations/{confirmation.pk}/approve"
    browser("POST", path, decision_body(confirmation))
    check_error(browser("POST", path, decision_body(confirmation)), 409, "confirmation_decided")


def test_what_has_changed_is_a_conflict_with_its_reason(browser, agent, organization, confirmation):
    policy.change_agent(agent=agent, active=False, by=factories.actor(organization))
    path = f"/confirmations/{confirmation.pk}/approve"
    error = check_error(
        browser("POST", path, decision_body(confirmation)), 409, "confirmation_void"
    )
    assert error["details"]["reason"] == "caller_suspended"


def test_many_are_decided_with_a_hash_each(browser, agent, asks):
    good, bad = call_awaiting_approval(agent), call_awaiting_approval(agent)
    unknown = str(uuid4())
    words = [
        decision_body(good, id=str(good.pk), approve=True),
        decision_body(good, id=str(bad.pk), approve=True),
        decision_body(good, id=unknown, approve=False, reason="x"),
    ]
    answer = browser("POST", "/confirmations/decide", {"decisions": words})
    first, second, third = answer.json()["results"]
    assert (first["confirmation"]["status"], first["error"]) == ("approved", None)
    assert (second["id"], second["error"]["code"]) == (str(bad.pk), "confirmation_changed")
    assert (third["id"], third["error"]["code"]) == (unknown, "confirmation_not_found")


BODIES = [
    {}, {"bound_hash": None}, {"bound_hash": 1}, {"bound_hash": "x" * 65}, {"reason": "x"},
    {"bound_hash": "0" * 64, "reason": 1}, {"bound_hash": "0" * 64, "reason": "x" * 1001},
    {"bound_hash": "0" * 64, "approve": True}, [], "x",
]  # fmt: skip


def test_a_word_that_cannot_be_read_is_an_error(browser, confirmation, subtests):
    path = f"/confirmations/{confirmation.pk}/approve"
    for body in BODIES:
        with subtests.test(body=body):
            check_error(browser("POST", path, body), 400)


WRONG_DECISIONS = [
    None,
    [],
    [{}],
    [{"id": "x", "bound_hash": "", "approve": True}],
    [None] * 101,
    "x",
]


def test_words_that_cannot_be_read_are_an_error(browser, confirmation, subtests):
    for many in WRONG_DECISIONS:
        with subtests.test(many=many):
            check_error(browser("POST", "/confirmations/decide", {"decisions": many}), 400)


# --- rules ----------------------------------------------------------------------------------------


def test_a_rule_is_written_read_changed_and_deleted(admin_api, api, organization):
    factories.tool(organization)
    made = admin_api.post("/confirmation-rules", {"name": "r", "tool": "echo", "min_cost": "0.5"})
    assert made.status_code == 201
    assert made["Location"] == "/api/v1/confirmation-rules/r"
    assert made.json()["touches"] == [] and made.json()["min_cost"] == "0.5"
    changed = admin_api.patch("/confirmation-rules/r", {"min_cost": None}).json()
    assert (changed["touches"], changed["tool"]) == (["echo"], "echo")
    assert api.execute("echo", {"text": "x"}).status_code == 202
    replaced = admin_api.put("/confirmation-rules/r", {"every_call": True}).json()
    assert (replaced["tool"], replaced["every_call"]) == (None, True)
    assert [row["name"] for row in admin_api.get("/confirmation-rules").json()["results"]] == ["r"]
    assert admin_api.get("/confirmation-rules/r").json() == replaced
    assert admin_api.delete("/confirmation-rules/r").status_code == 204
    check_error(admin_api.get("/confirmation-rules/r"), 404, "confirmation_rule_not_found")


def test_the_address_of_a_rule_may_hold_any_letter(admin_api, organization):
    made = admin_api.post("/confirmation-rules", {"name": "Ûø |", "every_call": True})
    assert made["Location"] == "/api/v1/confirmation-rules/%C3%9B%C3%B8%20%7C"
    assert admin_api.get(made["Location"].removeprefix("/api/v1")).json()["name"] == "Ûø |"


WRONG_RULES = [
    {"name": "r"}, {"name": "", "every_call": True}, {"name": "r", "tool": 1},
    {"name": "r", "min_cost": 0.5}, {"name": "r", "min_cost": "x"},
    *({"name": "r", "min_cost": cost} for cost in ("1_000", "\uff11", " 1", "1e3", "NaN")),
    {"name": "r", "min_cost": "1e99"}, {"name": "r", "tool": "echo", "approvals_needed": 3},
    {"name": "r", "tools": ["echo"]}, {"name": "r", "every_call": "yes"},
    {"name": "r", "min_cost": "NaN"},
]  # fmt: skip


def test_a_rule_that_cannot_be_meant_is_refused(admin_api, organization, subtests):
    for body in WRONG_RULES:
        with subtests.test(body=body):
            check_error(admin_api.post("/confirmation-rules", body), 400)
            assert not ConfirmationRule.objects.filter(organization=organization).exists()


RULES = [
    ("get", "/confirmation-rules", None),
    ("post", "/confirmation-rules", {"name": "n", "every_call": True}),
    ("get", "/confirmation-rules/r", None),
    ("put", "/confirmation-rules/r", {"every_call": True}),
    ("patch", "/confirmation-rules/r", {"enabled": False}),
    ("delete", "/confirmation-rules/r", None),
]


def test_rules_are_for_who_was_permitted(api, admin_api, organization, subtests):
    admin_api.post("/confirmation-rules", {"name": "r", "tool": "echo"})
    clerk = approver(organization)
    token = Api(factories.token(clerk, scopes=["read", "execute", "manage"]))
    for method, path, body in RULES:
        with subtests.test(method=method, path=path, body=body):
            for client in (api, token):
                check_error(getattr(client, method)(path, body), 403)
            assert ConfirmationRule.objects.get(organization=organization).enabled
