"""The result cache: only successes are reused, only by permitted callers, and concurrent calls
share one run."""

import threading
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tools.accounts import account_actions as policy
from tools.catalog import actions as catalog
from tools.catalog.mcp import mcp_servers
from tools.catalog.registry import registry
from tools.catalog.services import services
from tools.execution import cache
from tools.execution.perform import perform
from tools.models import CacheEntry, Execution, Organization, StateTransition
from tools.worker.reaper import reap

pytestmark = pytest.mark.usefixtures("committed")
COUNTS = "import uuid\ndef main(parameters):\n    return str(uuid.uuid4())\n"
BREAKS = "def main(parameters):\n    raise ValueError('no')\n"
WAITS = "import time, uuid\ndef main(p):\n    time.sleep(0.4)\n    return str(uuid.uuid4())\n"


def dice(organization, name="dice", source=COUNTS, **fields):
    """A tool that returns another value each time it runs, although it is declared pure."""
    wanted = {"delivery": "pure", "cache_ttl": "PT5M", "implementation": {"source": source}}
    return factories.tool(organization, name, **wanted | fields)


def ask(agent, name="dice", text="x", **options):
    execution = factories.execution(agent, name, text=text, **options)
    if execution.status == "Pending":
        perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def fresh(organization):
    return Organization.objects.get(pk=organization.pk)


def test_the_second_caller_gets_the_first_callers_output(agent, organization):
    dice(organization)
    other = factories.agent(organization, groups=["default"])
    first, second = ask(agent), ask(other)
    assert (first.cached, second.cached) == (False, True)
    assert (second.status, second.output) == ("Success", first.output)
    assert second.cached_from == first.pk


@pytest.mark.part("calls")
def test_a_cache_hit_is_recorded_like_a_run(agent, organization):
    dice(organization)
    first, second = ask(agent), ask(agent)
    record = AuditRecord.objects.get(execution_id=second.pk)
    assert (record.code, record.outcome) == ("TOOL.CACHE_HIT", "success")
    assert record.details["cached_from"] == str(first.pk)
    assert [event.type for event in second.events.all()] == ["Started", "Completed"]


@pytest.mark.part("calls")
@pytest.mark.parametrize("price", [None, "0.25"])
def test_a_hit_costs_what_the_tool_declares_for_one(agent, organization, price):
    dice(organization, cost_per_invocation="2", **({"cost_per_cache_hit": price} if price else {}))
    first, second = ask(agent), ask(agent)
    assert (str(first.cost), float(second.cost)) == ("2.000000", float(price or 0))


def test_other_parameters_are_another_answer(agent, organization):
    dice(organization)
    assert ask(agent, text="a").output != ask(agent, text="b").output


def test_the_order_of_keys_does_not_matter(agent, organization):
    dice(organization, parameters=[], argument_validation="off")
    one = factories.execution(agent, "dice", a=1, b=2)
    perform(one.pk)
    assert factories.execution(agent, "dice", b=2, a=1).cached_from == one.pk


def test_a_tool_that_declares_no_ttl_runs_each_time(agent, organization):
    dice(organization, cache_ttl=None)
    assert ask(agent).output != ask(agent).output


def test_an_answer_is_forgotten_after_its_time(agent, organization):
    dice(organization)
    first = ask(agent)
    CacheEntry.objects.filter(execution=first).update(expires_at=Now())
    assert ask(agent).output != first.output


def test_a_new_version_does_not_answer_with_the_old_ones_result(agent, organization):
    tool = dice(organization)
    first = ask(agent)
    changed = catalog.amended(tool.version.definition, {"description": "Changed."})
    catalog.update_tool(tool=tool, definition=changed, by=factories.actor(organization))
    assert ask(agent).output != first.output


def test_a_changed_grant_makes_new_answers(agent, organization):
    dice(organization)
    first = ask(agent)
    policy.set_grants(agent=agent, by=factories.actor(organization), permissions=["x"])
    assert ask(agent).output != first.output


def test_a_caller_without_access_gets_no_cached_output(agent, organization):
    dice(organization, group=["write"])
    ask(agent, group=["write"])
    stranger = factories.api(factories.agent(organization, groups=["default"]))
    answer = stranger.execute("dice", {"text": "x"}, group=["write"])
    assert answer.status_code == 403 and "output" not in answer.json()


def test_two_organizations_share_no_answer(agent, organization):
    other = factories.organization(f"org-{uuid4().hex[:12]}")
    for place in (organization, other):
        dice(place)
    stranger = factories.agent(other, groups=["default"])
    assert ask(agent).output != ask(stranger).output


@pytest.mark.part("calls")
def test_a_failure_is_never_cached(agent, organization):
    dice(organization, source=BREAKS)
    first, second = ask(agent), ask(agent)
    assert {first.status, second.status} == {"Failed"}
    assert not second.cached and second.sandbox_id != first.sandbox_id


@pytest.mark.part("calls")
def test_an_invalid_output_is_never_cached(agent, organization):
    dice(organization, output_schema={"type": "integer"})
    first, second = ask(agent), ask(agent)
    assert (second.error_code, second.cached) == ("OUTPUT_INVALID", False)
    assert not CacheEntry.objects.filter(execution__in=[first, second]).exists()


@pytest.mark.part("calls")
def test_a_hit_moves_the_state_as_a_run_does(agent, organization):
    dice(organization, state="rolled")
    ask(agent)
    second = ask(agent)
    assert (second.cached, second.state_after) == (True, "rolled")
    assert StateTransition.objects.get(execution=second).to_state == "rolled"


@pytest.mark.part("calls")
def test_of_many_concurrent_calls_one_runs(agent, organization):
    dice(organization, source=WAITS)
    rows = [factories.execution(agent, "dice", text="x") for _ in range(12)]
    threads = [threading.Thread(target=_perform_all, args=([row.pk],)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = Execution.objects.filter(pk__in=[row.pk for row in rows])
    # If the crib's worker ran it, that worker continues with the others by itself.
    until(lambda: not done.filter(status__in=("Pending", "Running")).exists())
    assert {row.status for row in done} == {"Success"}
    assert len({row.output for row in done}) == 1
    assert [row.cached for row in done].count(False) == 1


@pytest.mark.part("calls")
def test_when_the_leader_fails_the_next_call_runs(agent, organization):
    dice(organization, source=BREAKS)
    rows = [factories.execution(agent, "dice", text="x") for _ in range(3)]
    _perform_all([row.pk for row in rows])
    done = Execution.objects.filter(pk__in=[row.pk for row in rows])
    assert [(row.status, row.cached) for row in done] == [("Failed", False)] * 3


def test_a_claim_that_waits_for_another_is_undone(agent, organization):
    dice(organization)
    leader, waiting = (factories.execution(agent, "dice", text="x") for _ in range(2))
    assert CacheEntry.objects.lead(
        leader.cache_key,
        organization=organization.pk,
        tool=leader.tool_version.tool_id,
        execution=leader.pk,
    )
    perform(waiting.pk)
    row = Execution.objects.get(pk=waiting.pk)
    assert (row.status, row.attempt, row.fence) == ("Pending", 0, 0)


@pytest.mark.part("calls")
def test_a_leader_whose_worker_died_does_not_block_the_others_for_ever(agent, organization):
    dice(organization)
    leader, waiting = (factories.execution(agent, "dice", text="x") for _ in range(2))
    row = Execution.objects.filter(pk=leader.pk)
    factories.claim(leader.pk, worker="dead")
    CacheEntry.objects.lead(
        leader.cache_key,
        organization=organization.pk,
        tool=leader.tool_version.tool_id,
        execution=leader.pk,
    )
    row.update(lease_until=F("created_at"), attempt=3)
    reap()
    perform(waiting.pk)
    assert Execution.objects.get(pk=waiting.pk).status == "Success"


@pytest.mark.parametrize("chosen", [{"tool": "dice"}, {"group": "default"}, {}])
def test_answers_are_forgotten_by_tool_group_and_organization(agent, organization, chosen):
    dice(organization)
    first = ask(agent)
    assert cache.invalidate(
        organization=fresh(organization), by=factories.actor(organization), **chosen
    )
    assert ask(agent).output != first.output


@pytest.mark.part("calls")
def test_forgetting_one_tool_leaves_the_others(agent, organization):
    dice(organization)
    dice(organization, "other")
    first, second = ask(agent), ask(agent, "other")
    cache.invalidate(
        organization=fresh(organization), by=factories.actor(organization), tool="dice"
    )
    assert ask(agent).output != first.output
    assert ask(agent, "other").output == second.output


@pytest.mark.part("calls")
def test_an_output_that_is_being_computed_is_invalidated_too(agent, organization):
    dice(organization, source=WAITS)
    row = factories.execution(agent, "dice", text="x")
    thread = threading.Thread(target=_perform_all, args=([row.pk],))
    thread.start()
    until(lambda: CacheEntry.objects.filter(execution=row).exists())
    cache.invalidate(organization=fresh(organization), by=factories.actor(organization))
    thread.join()
    assert not ask(agent).cached


@pytest.mark.part("calls")
def test_an_administrator_forgets_over_rest(admin_api, api, agent, organization):
    dice(organization)
    first = ask(agent)
    assert api.post("/cache/invalidate", {"tool": "dice"}).status_code == 403
    answer = admin_api.post("/cache/invalidate", {"tool": "dice"})
    assert (answer.status_code, answer.json()) == (200, {"forgotten": 1})
    assert AuditRecord.objects.filter(
        organization=organization.slug, code="REG.CACHE_INVALIDATE"
    ).exists()
    assert ask(agent).output != first.output


@pytest.mark.part("calls")
def test_expired_entries_are_cleared_away(agent, organization):
    dice(organization)
    entries = CacheEntry.objects.filter(execution=ask(agent))
    entries.update(expires_at=Now())
    cache.delete_expired()
    assert not entries.exists()


def _perform_all(identifiers):
    """Like a worker: calls that waited for the result continue when it exists."""
    left = list(identifiers)
    while left:
        left += perform(left.pop(0))
    connection.close()


def key(agent, name):
    """The cache key of a call of the tool by the agent, in the current catalog."""
    caller = factories.caller(agent)
    snapshot = registry.snapshot(caller.organization_id, fresh(agent.organization).revision)
    return cache.build_cache_key(snapshot.tool(name), snapshot, {"text": "x"}, caller)


@pytest.mark.parametrize("scope", ["organization", "agent"])
def test_a_server_with_the_callers_credentials_has_an_output_for_each_caller(
    agent, organization, scope
):
    by, other = factories.actor(organization), factories.agent(organization, groups=["default"])
    server = {"name": "far", "url": "https://mcp.example/", "credential_scope": scope}
    mcp_servers.create_server(organization=organization, server=server, by=by)
    definition = factories.definition("own", delivery="pure", cache_ttl="PT5M") | {
        "type": "mcp-tool",
        "implementation": {"server": "far", "tool": "own"},
    }
    catalog.register_tool(organization=organization, definition=definition, by=by)
    assert key(agent, "own") == key(agent, "own")
    assert (key(agent, "own") == key(other, "own")) == (scope == "organization")


def test_a_service_that_receives_the_caller_has_an_output_for_each_caller(agent, organization):
    by, other = factories.actor(organization), factories.agent(organization, groups=["default"])
    descriptor = {"id": "s", "request-queue": "q", "response-queue": "r"}
    services.create_service(organization=organization, service=descriptor, by=by)
    definition = factories.definition("hello", delivery="pure", cache_ttl="PT5M") | {
        "type": "tool-service",
        "implementation": {"service": "s", "config": {}},
    }
    catalog.register_tool(organization=organization, definition=definition, by=by)
    assert key(agent, "hello") == key(agent, "hello") != key(other, "hello")
