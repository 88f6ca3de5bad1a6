"""The page of a call: its retry, its road, and what it used."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests import factories
from tests.ui.pages import codes, notes, text
from tools.models import Agent, Execution, Organization
from tools.policy.gates import GATES
from tools.ui.executions.execution_details import execution_timeline, resource_usage
from tools.ui.workflow.explanations import GATE_LABELS


@pytest.fixture
def failed(organization: Organization, agent: Agent) -> Execution:
    factories.tool(organization)
    execution = factories.execution(agent, text="again")
    factories.end_execution(execution, status="Failed", error_code="TOOL_FAILED")
    return Execution.objects.get(pk=execution.pk)


def test_it_is_retried_by_a_button_and_both_are_linked(
    admin_client: Client, failed: Execution
) -> None:
    address = f"/executions/{failed.pk}/"
    assert f"{address}retry" in text(admin_client.get(address))
    answer = admin_client.post(f"{address}retry")
    made = Execution.objects.get(retry_of=failed.pk)
    assert answer["Location"] == f"/executions/{made.pk}/"
    assert f'href="/executions/{made.pk}/"' in text(admin_client.get(address))
    assert f'href="{address}"' in text(admin_client.get(f"/executions/{made.pk}/"))
    assert admin_client.post(f"{address}retry").status_code == 409


def test_a_retry_that_is_refused_leads_to_the_refusal(
    admin_client: Client, failed: Execution
) -> None:
    admin_client.post("/tools/echo/disable")
    answer = admin_client.post(f"/executions/{failed.pk}/retry")
    made = Execution.objects.get(retry_of=failed.pk)
    assert made.status == "PermissionDenied"
    assert answer["Location"] == f"/executions/{made.pk}/"
    page = text(admin_client.get(f"/executions/{made.pk}/"))
    assert 'data-word="no" title="tool_disabled"' in page and "not-asked" in notes(page)


def test_what_is_not_known_is_resolved_first(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    unknown = factories.execution(agent)
    factories.end_execution(unknown, status="Failed", error_code="OUTCOME_UNKNOWN")
    page = text(admin_client.get(f"/executions/{unknown.pk}/"))
    assert codes(page) == ["outcome_unknown"] and "why-not" in notes(page)
    assert f"/executions/{unknown.pk}/retry" not in page
    assert admin_client.post(f"/executions/{unknown.pk}/retry").status_code == 409
    assert not Execution.objects.filter(retry_of=unknown.pk).exists()


def test_the_page_says_why_a_user_may_not_retry(client_of, failed: Execution) -> None:
    client = client_of("tools.view_execution")
    page = text(client.get(f"/executions/{failed.pk}/"))
    assert codes(page) == ["not_permitted"] and "why-not" in notes(page)
    assert client.post(f"/executions/{failed.pk}/retry").status_code == 403


# --- the timeline ---------------------------------------------------------------------------


def timed(**fields: Any) -> Execution:
    """Called a minute ago; times are seconds from then."""
    begun = timezone.now() - timedelta(minutes=1)
    moments = {
        name: begun + timedelta(seconds=fields.pop(name))
        for name in ("queued_at", "started_at", "completed_at")
        if name in fields
    }
    return Execution(**{"created_at": begun, "queued_at": begun, **moments, **fields})


def test_the_phases_of_a_call_are_those_that_were_measured() -> None:
    execution = timed(
        queued_at=10, started_at=12, completed_at=20, status="Success",
        metrics={"sandbox_start_ms": 500},
    )  # fmt: skip
    phases = [(one.kind, one.took) for one in execution_timeline(execution).phases]
    assert phases == [("held", "10.00 s"), ("queued", "2.00 s"), ("sandbox", "500 ms"),
                    ("ran", "7.50 s")]  # fmt: skip
    assert sum(one.width for one in execution_timeline(execution).phases) == pytest.approx(100)


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"status": "RequiresConfirmation"}, ["held"]),
        ({"status": "Pending"}, ["queued"]),
        ({"status": "PermissionDenied", "completed_at": 0}, []),
        ({"status": "Running", "started_at": 3, "metrics": {"sandbox_start_ms": "x"}},
         ["queued", "ran"]),
        ({"status": "Success", "started_at": 0, "completed_at": 1, "attempt": 2, "queued_at": 0},
         ["queued", "ran"]),
    ],
)  # fmt: skip
def test_what_is_open_or_never_began_has_what_there_is(fields: dict, kinds: list[str]) -> None:
    assert [one.kind for one in execution_timeline(timed(**fields)).phases] == kinds


def test_gates_after_a_refusal_were_not_asked() -> None:
    refused = timed(
        status="PermissionDenied", completed_at=0, error_code="rate_limited",
        error_details={"gate": "rate"},
    )  # fmt: skip
    words = {gate.name: gate.word for gate in execution_timeline(refused).gates}
    asked = [words[GATE_LABELS[gate]] for gate in ("object_permission", "rate", "budget")]
    assert asked == ["yes", "no", "–"]


def test_every_gate_is_shown_in_the_order_of_the_list() -> None:
    refused = timed(
        status="PermissionDenied", completed_at=0, error_details={"gate": GATES[2].name}
    )
    words = [gate.word for gate in execution_timeline(refused).gates]
    assert words == ["yes", "yes", "no", *["–"] * (len(GATES) - 3)]


def test_a_refusal_by_a_gate_of_another_name_is_shown_too() -> None:
    details = {"gate": "parent"}
    refused = timed(status="PermissionDenied", completed_at=0, error_details=details)
    assert [gate.word for gate in execution_timeline(refused).gates][-1] == "no"


# --- what it used -----------------------------------------------------------------------------


def test_what_it_used_stands_against_its_limits(
    admin_client: Client, organization: Organization, agent: Agent
) -> None:
    factories.tool(organization)
    execution = factories.execution(agent)
    used = {"cpu_time_ms": 150_000, "peak_memory_bytes": 250 * 1024**2}
    factories.end_execution(
        execution, metrics=used, sandbox_id="s", duration_ms=300, output_bytes=10
    )
    page = text(admin_client.get(f"/executions/{execution.pk}/"))
    used = " ".join(notes(page)["used"])
    for amount in ("250.0 MB", "256.0 MB", "2 min 30 s", "5 min 0 s"):
        assert amount in used.replace("\xa0", " ")
    assert 'data-tone="warn"' in page and "limits-of-every-sandbox" in notes(page)


def test_what_never_ran_used_nothing(organization: Organization, agent: Agent) -> None:
    assert resource_usage(timed(status="PermissionDenied", completed_at=0), None) is None  # type: ignore[arg-type]
