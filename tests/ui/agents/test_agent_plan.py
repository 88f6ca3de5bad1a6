"""A plan on the page of its request: how sure each step is, what it asks for, what became of it."""

from typing import Any

from django.template.loader import render_to_string

from tests.ui.pages import notes
from tools.models import Organization
from tools.ui.agents.agent_steps import plan_view, step_reader


def planned_step(**more: Any) -> dict[str, Any]:
    usual = {"revision": 1, "number": 2, "id": "find", "tool": "echo", "depends_on": [], "why": ""}
    ended = {"outcome": "planned", "error_code": None, "error_message": None, "attempts": 0}
    return {"confidence": 0.9, "threshold": 0.7, "execution_id": None} | usual | ended | more


def page_of(organization: Organization, *steps: dict[str, Any], revisions: int = 1) -> str:
    reading = step_reader(organization.slug)
    plan = plan_view({"revisions": revisions, "steps": list(steps)}, reading)
    return render_to_string("agents/agent_request.html#plan", {"plan": plan})


def test_a_step_tells_how_sure_it_is_and_what_becomes_of_it(organization: Organization) -> None:
    page = page_of(
        organization,
        planned_step(),
        planned_step(number=3, depends_on=["find"], outcome="succeeded"),
    )
    sure = notes(page)["sure-enough"]
    assert len(sure) == 2 and all("0.9" in one and "0.7" in one for one in sure)
    assert ">planned<" in page
    assert 'data-status="Success">succeeded' in page and ">find<" in page


def test_a_step_below_its_threshold_says_that_a_person_is_asked(organization: Organization) -> None:
    page = page_of(organization, planned_step(confidence=0.4, outcome="waiting"))
    (below,) = notes(page)["below-threshold"]
    assert "0.4" in below and "0.7" in below and 'data-tone="warn"' in page


def test_a_revised_plan_says_so(organization: Organization) -> None:
    page = page_of(
        organization, planned_step(outcome="failed", error_message="It broke."), revisions=2
    )
    assert "1" in notes(page)["replanned"][0] and "It broke." in page


def test_what_a_model_wrote_into_a_plan_stays_data(organization: Organization) -> None:
    page = page_of(organization, planned_step(tool="<script>", why="Pay\u202eecila"))
    assert "<script>" not in page and "RIGHT-TO-LEFT OVERRIDE" in page and "\u202e" not in page


def test_a_request_without_a_plan_has_none(organization: Organization) -> None:
    reading = step_reader(organization.slug)
    assert plan_view(None, reading) is None
    assert plan_view({"revisions": 0, "steps": []}, reading) is None
