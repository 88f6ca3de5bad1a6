"""Rate limits, quotas and budgets as a REST client sees them."""

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.tools.limits import allowance_fixtures, rate_fixtures
from tests.tools.shapes import check_error, check_execution
from tools.limits import rate_limits
from tools.limits.rate_limits import RateWindow
from tools.models import Allowance, Organization

QUOTA = {"tool": None, "kind": "calls", "period": "day", "amount": "100"}


@pytest.fixture(params=["redis", "postgres"])
def counter(request, monkeypatch, organization):
    """The store that counts calls."""
    rate_fixtures.trust()
    if request.param == "postgres":
        monkeypatch.setattr(rate_limits, "window", RateWindow(rate_fixtures.nowhere))
    return request.param


def place(agent):
    return f"/agents/{agent.slug}"


@pytest.mark.usefixtures("counter")
def test_an_answer_says_how_much_of_the_limit_is_used(api, organization):
    rate_fixtures.limited(organization, 2)
    first = api.execute("echo", {"text": "x"}, options={"wait_s": 0}).json()
    second = api.execute("echo", {"text": "x"}, options={"wait_s": 0}).json()
    check_execution(first, "Pending")
    assert (first["rate"]["limit"], first["rate"]["used"], second["rate"]["used"]) == (2, 1, 2)
    assert 1 <= first["rate"]["resets_in_s"] <= 60
    assert "rate" not in api.get(f"/executions/{first['execution_id']}").json()


@pytest.mark.usefixtures("counter")
def test_one_too_many_is_429_with_all_it_takes_to_wait(api, organization):
    rate_fixtures.limited(organization, 1)
    api.execute("echo", {"text": "x"}, options={"wait_s": 0})
    response = api.execute("echo", {"text": "x"}, options={"wait_s": 0})
    body = check_error(response, 429, "rate_limited")
    assert (body["status"], body["limit"], body["used"]) == ("PermissionDenied", 1, 1)
    assert response.headers["Retry-After"] == str(body["resets_in_s"])
    assert 1 <= body["resets_in_s"] <= 60 and body["execution_id"]


def test_a_tool_without_a_limit_says_nothing_of_one(api, organization):
    factories.tool(organization)
    assert "rate" not in api.execute("echo", {"text": "x"}, options={"wait_s": 0}).json()


@pytest.mark.usefixtures("counter")
def test_the_same_call_again_is_not_counted_again(api, organization):
    rate_fixtures.limited(organization, 1)
    key = {"Idempotency-Key": "k"}
    body = {"parameters": {"text": "x"}, "options": {"wait_s": 0}}
    first = api.post("/tools/echo/execute", body, **key).json()
    again = api.post("/tools/echo/execute", body, **key).json()
    assert again["execution_id"] == first["execution_id"] and "rate" not in again


def test_a_used_up_budget_is_429_and_names_cheaper_tools(api, agent, organization):
    allowance_fixtures.priced(organization, "3", group=["write"])
    allowance_fixtures.priced(organization, "0.5", "cheap", group=["write"])
    allowance_fixtures.bound(agent, budget=allowance_fixtures.budget("2.5"))
    response = api.execute("echo", {"text": "x"}, group=["write"])
    body = check_error(response, 429, "budget_exceeded")
    assert (body["limit"], body["used"], body["status"]) == ("2.5", "0", "PermissionDenied")
    assert body["details"]["cheaper"] == ["write_file", "cheap"]
    assert body["details"]["period"] == "day"
    assert response.headers["Retry-After"] == str(body["resets_in_s"])


def test_a_used_up_quota_is_429(api, agent, organization):
    factories.tool(organization)
    allowance_fixtures.bound(agent, ("calls", "0"))
    body = check_error(api.execute("echo", {"text": "x"}), 429, "quota_exceeded")
    assert (body["limit"], body["used"]) == (0, 0)


def test_a_budget_is_set_shown_and_taken_away(admin_api, agent):
    wanted = {"budget": {"amount": "12.50", "period": "month"}}
    shown = admin_api.patch(place(agent), wanted).json()
    assert shown["budget"]["amount"] == "12.5" and shown["budget"]["period"] == "month"
    assert (shown["budget"]["used"], shown["budget"]["held"]) == ("0", "0")
    assert shown["budget"]["resets_at"].endswith("Z")
    assert [quota["kind"] for quota in shown["quotas"]] == ["cost"]
    assert admin_api.patch(place(agent), {"budget": None}).json()["budget"] is None
    assert not Allowance.objects.filter(agent=agent).exists()


def test_what_is_used_and_held_is_shown(admin_api, agent, organization):
    allowance_fixtures.priced(organization, "2")
    admin_api.patch(place(agent), {"budget": {"amount": 10, "period": "day"}})
    factories.execution(agent)
    assert admin_api.get(place(agent)).json()["budget"]["held"] == "2"
    admin_api.patch(place(agent), {"budget": {"amount": "20", "period": "day"}})
    assert admin_api.get(place(agent)).json()["budget"]["held"] == "2"


def test_another_period_replaces_the_budget(admin_api, agent):
    admin_api.patch(place(agent), {"budget": {"amount": "1", "period": "day"}})
    shown = admin_api.patch(place(agent), {"budget": {"amount": "9", "period": "month"}}).json()
    assert [(one["amount"], one["period"]) for one in shown["quotas"]] == [("9", "month")]


def test_quotas_replace_each_other_and_leave_the_budget(admin_api, agent, organization):
    factories.tool(organization)
    admin_api.patch(place(agent), {"budget": {"amount": "5", "period": "day"}, "quotas": [QUOTA]})
    other = {"tool": "echo", "kind": "cost", "period": "month", "amount": "0.5"}
    shown = admin_api.patch(place(agent), {"quotas": [other]}).json()
    assert [(q["tool"], q["kind"], q["amount"]) for q in shown["quotas"]] == [
        (None, "cost", "5"),
        ("echo", "cost", "0.5"),
    ]
    assert admin_api.patch(place(agent), {"quotas": []}).json()["budget"]["amount"] == "5"


def test_a_day_and_a_month_may_both_be_bound(admin_api, agent):
    cost = {"tool": None, "kind": "cost"}
    both = [cost | {"period": "day", "amount": "1"}, cost | {"period": "month", "amount": "20"}]
    shown = admin_api.patch(place(agent), {"quotas": both}).json()
    assert [(one["period"], one["amount"]) for one in shown["quotas"]] == [
        ("day", "1"),
        ("month", "20"),
    ]
    assert shown["budget"]["period"] == "day"
    kept = [{k: q[k] for k in QUOTA} for q in shown["quotas"]]
    assert admin_api.patch(place(agent), {"quotas": kept}).json()["quotas"] == shown["quotas"]


WRONG = [
    {"budget": 5}, {"budget": {}}, {"budget": {"amount": "1"}}, {"budget": []},
    {"budget": {"amount": 0.1, "period": "day"}}, {"budget": {"amount": "-1", "period": "day"}},
    {"budget": {"amount": "1e3", "period": "day"}}, {"budget": {"amount": "NaN", "period": "day"}},
    {"budget": {"amount": "0.0000001", "period": "day"}}, {"budget": {"amount": True,
    "period": "day"}},
    {"budget": {"amount": "1" * 13, "period": "day"}}, {"budget": {"amount": 10**13,
    "period": "day"}},
    {"budget": {"amount": "1", "period": "week"}}, {"budget": {"amount": "1", "period": "day",
    "x": 1}}, {"budget": {"amount": "1\u0000", "period": "day"}},
    {"budget": {"amount": "١", "period": "day"}}, {"budget": {"amount": "1\n", "period": "day"}},
    {"quotas": None}, {"quotas": {}}, {"quotas": [None]}, {"quotas": [{}]}, {"quotas": [QUOTA] * 2},
    {"quotas": [QUOTA | {"amount": "1.5"}]}, {"quotas": [QUOTA | {"kind": "hugs"}]},
    {"quotas": [QUOTA | {"tool": ""}]}, {"quotas": [QUOTA] * 201},
    {"quotas": [QUOTA | {"tool": 1}]},
    {"quotas": [QUOTA | {"kind": "cost"}], "budget": {"amount": "1", "period": "day"}},
]  # fmt: skip


def test_a_wrong_bound_is_400_and_changes_nothing(admin_api, agent, subtests):
    for body in WRONG:
        with subtests.test(body=body):
            check_error(admin_api.patch(place(agent), body | {"strict": True}), 400)
            agent.refresh_from_db()
            assert not agent.strict and not Allowance.objects.filter(agent=agent).exists()


def test_a_tool_that_is_not_there_cannot_be_bound(admin_api, agent):
    body = {"quotas": [QUOTA | {"tool": "ghost"}], "groups": ["*"]}
    check_error(admin_api.patch(place(agent), body), 404, "tool_not_found")
    agent.service_account.refresh_from_db()
    assert agent.service_account.granted_groups != ["*"]


def test_a_bound_on_a_tool_that_is_gone_may_stay(admin_api, agent, organization):
    factories.tool(organization)
    quota = QUOTA | {"tool": "echo"}
    admin_api.patch(place(agent), {"quotas": [quota]})
    admin_api.delete("/tools/echo")
    assert admin_api.patch(place(agent), {"quotas": [quota]}).status_code == 200


def test_a_changed_bound_is_on_record_and_counts_at_once(admin_api, api, agent, organization):
    factories.tool(organization)
    before = Organization.objects.get(pk=organization.pk).revision
    admin_api.patch(place(agent), {"quotas": [QUOTA | {"amount": 0}]})
    changes = AuditRecord.objects.filter(organization=organization.slug, subject=agent.slug)
    record = changes.filter(code="ADMIN.ALLOWANCE_CHANGE").latest("id")
    assert record.details["after"]["allowances"][0]["amount"] == "0"
    assert Organization.objects.get(pk=organization.pk).revision > before
    check_error(api.execute("echo", {"text": "x"}), 429, "quota_exceeded")


def test_an_agent_cannot_raise_its_own_budget(api, agent):
    check_error(api.patch(place(agent), {"budget": {"amount": "9", "period": "day"}}), 403)
    assert not Allowance.objects.filter(agent=agent).exists()
