"""Rate limits, quotas and budgets as a REST client sees them."""

from itertools import product

import pytest

from audit.models import AuditRecord
from tests import factories
from tests.api import Api
from tests.tools.limits import allowance_fixtures, rate_fixtures
from tests.tools.shapes import check_error, check_execution
from tools.api.common import event_streams
from tools.api.common.event_streams import CallerConcurrency
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


@pytest.fixture
def three(organization, settings, monkeypatch):
    """Three reads a minute; Redis is trusted as if it had counted for a whole window."""
    settings.READS_PER_MINUTE = 3
    window = rate_limits.RateWindow()
    window._client.script_load(rate_limits._SCRIPT)
    window._client.set(rate_limits.SINCE, 1)
    monkeypatch.setattr(rate_limits, "window", window)


def test_the_fourth_read_of_a_minute_is_429_and_says_when(three, agent):
    api = Api(factories.token(agent.service_account))
    left = [api.get("/tools").headers["RateLimit"].partition(";t=")[0] for _ in range(3)]
    assert left == ['"read";r=2', '"read";r=1', '"read";r=0']
    answer = api.get("/sessions")
    refusal = check_error(answer, 429, "rate_limited")
    assert (refusal["limit"], refusal["used"]) == (3, 3) and 0 < refusal["resets_in_s"] <= 60
    assert int(answer.headers["Retry-After"]) == refusal["resets_in_s"]
    assert answer.headers["RateLimit-Policy"].endswith(";q=3;w=60")


def test_another_token_of_the_same_agent_has_its_own(three, agent):
    first, second = (Api(factories.token(agent.service_account)) for _ in range(2))
    for _ in range(4):
        first.get("/tools")
    assert first.get("/tools").status_code == 429
    assert second.get("/tools").status_code == 200


def test_evidence_is_read_as_often_and_changes_are_not_counted(three, admin_api):
    for _ in range(3):
        assert admin_api.get("/audit/records").status_code == 200
    assert admin_api.get("/audit/records").status_code == 429
    assert admin_api.post("/groups", {"name": "still"}).status_code == 201


def test_a_call_says_what_is_left_of_its_tool(api, organization):
    factories.tool(organization, rate_limit_per_minute=5)
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 0})
    assert answer.headers["RateLimit"].startswith('"call";r=4;t=')


def test_without_redis_reading_goes_on(settings, monkeypatch, api):
    settings.READS_PER_MINUTE = 1
    monkeypatch.setattr(rate_limits.window, "ask", lambda *_: None)
    assert [api.get("/tools").status_code for _ in range(3)] == [200] * 3


@pytest.fixture
def places(agent, organization):
    factories.tool(organization)
    return {
        "max_concurrency": f"/organizations/{organization.slug}",
        "max_queue_depth": f"/organizations/{organization.slug}",
        "max_in_flight": f"/agents/{agent.slug}",
        "tool": "/tools/echo",
    }


BOUNDS = [
    ("max_concurrency", "max_concurrency", "ADMIN.ORGANIZATION_CHANGE"),
    ("max_queue_depth", "max_queue_depth", "ADMIN.ORGANIZATION_CHANGE"),
    ("max_in_flight", "max_in_flight", "ADMIN.AGENT_CHANGE"),
    ("tool", "max_concurrency", "REG.TOOL_UPDATE"),
]


@pytest.mark.parametrize(("place", "name", "code"), BOUNDS)
def test_a_bound_is_set_shown_and_on_record(admin_api, organization, places, place, name, code):
    assert admin_api.patch(places[place], {name: 7}).json()[name] == 7
    assert admin_api.get(places[place]).json()[name] == 7
    row = AuditRecord.objects.filter(organization=organization.slug, code=code).latest(
        "occurred_at"
    )
    assert row.details["after"][name] == 7


def test_a_bound_is_a_whole_number_that_lets_something_through(admin_api, places, subtests):
    for value, (place, name) in product(
        [0, -1, 1_000_001, 2**60, True, "7", 1.5, [], {}], [bound[:2] for bound in BOUNDS]
    ):
        with subtests.test(value=value, place=place, name=name):
            assert admin_api.patch(places[place], {name: value}).status_code == 400


@pytest.mark.parametrize(("place", "name"), [bound[:2] for bound in BOUNDS])
def test_only_a_queue_needs_a_bound(admin_api, places, place, name):
    admin_api.patch(places[place], {name: 7})
    answer = admin_api.patch(places[place], {name: None})
    assert answer.status_code == (400 if name == "max_queue_depth" else 200)


def test_a_bound_leaves_a_tools_version_alone(admin_api, places):
    before = admin_api.get("/tools/echo").json()
    after = admin_api.patch("/tools/echo", {"max_concurrency": 2}).json()
    assert (after["version"], after["digest"]) == (before["version"], before["digest"])
    assert after["max_concurrency"] == 2


def test_an_agent_does_not_raise_its_own_bound(api, places):
    for place, name, _ in BOUNDS:
        assert api.patch(places[place], {name: 1000}).status_code in {403, 404}


@pytest.fixture
def no_free_slots(monkeypatch):
    """All places are taken."""
    monkeypatch.setattr(event_streams, "_slots", CallerConcurrency(0))


def test_a_call_is_answered_at_once_and_goes_on(api, organization, no_free_slots):
    factories.tool(organization)
    answer = api.execute("echo", {"text": "x"}, options={"wait_s": 60})
    assert (answer.status_code, answer.json()["status"]) == (202, "Pending")
    assert answer.headers["Location"].endswith(answer.json()["execution_id"])


SCHEMA = {"name": "a", "kind": "json-schema", "document": {"type": "object"}}
MAIL = {"name": "mail", "kind": "email", "host": "mail.example", "sender": "crib@a.example"}


@pytest.fixture
def created_rows(admin_api, organization):
    far = {"name": "far", "transport": "sse", "url": "https://x.example/"}
    for path, body in (("/mcp-servers", far), ("/content-schemas", SCHEMA), ("/channels", MAIL)):
        answer = admin_api.post(path, body)
        assert answer.status_code == 201, answer.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("post", "/mcp-servers/far/refresh", {}),
     ("post", "/content-schemas", SCHEMA | {"name": "b"}),
     ("put", "/content-schemas/a", {"document": {"type": "array"}}),
     ("post", "/channels/mail/test", {"to": ["ada@a.example"]})],
)  # fmt: skip
def test_what_waits_for_others_is_503_and_says_when(
    created_rows, admin_api, no_free_slots, method, path, body
):
    answer = getattr(admin_api, method)(path, body)
    check_error(answer, 503, "unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
