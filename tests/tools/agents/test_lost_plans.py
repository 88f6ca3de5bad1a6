"""Workers that are killed during a run with a plan: accepted decisions are not made again."""

import pytest

from tests import factories
from tests.tools.agents.conftest import begun, reported
from tests.tools.agents.test_flow import codes, outcomes, places, plan, said, step
from tests.tools.execution.working import calls_of
from tools.agents.planning import plan_records
from tools.catalog import actions as catalog
from tools.execution import composition
from tools.execution.composing import Composition
from tools.execution.pipeline import perform
from tools.models import Execution, Tool, queue
from tools.worker import reaper

pytestmark = pytest.mark.usefixtures("alone")
SAID = {"$step": "a", "path": "/output/said"}
MOVES = ("no plan", plan(step("a"), step("b", "say", "a", text=SAID)), "There.")


class Killed(BaseException):
    """Kills the worker: nothing after it is executed."""


def work_off_losing(organization, run):
    """Each worker that is killed during the run is followed by another one."""
    times = 0
    while waiting := queue.next_of_organization(organization.pk):
        try:
            perform(waiting[0])
        except Killed:
            times += 1
            lose(run)
    return times


def lose(run):
    rows = Execution.objects.filter(pk=run.pk, status="Running")
    rows.update(lease_until="2020-01-01T00:00:00Z")
    reaper.reap()


def every_second(function, *, after):
    """Every second call is killed before it starts, or right after it has done its work."""
    calls = []

    def dying(*given, **more):
        calls.append(1)
        if len(calls) % 2 and not after:
            raise Killed
        found = function(*given, **more)
        if len(calls) % 2:
            raise Killed
        return found

    return dying


@pytest.mark.part("agents")
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize(
    ("place", "name"),
    [
        (composition, "_park"),
        (Composition, "begin"),
        (Composition, "remember"),
        (plan_records, "accepted"),
        (plan_records, "ended"),
    ],
)
def test_a_turn_that_was_lost_is_taken_again_with_the_same_result(
    agent, organization, model, monkeypatch, place, name, after
):
    model.plays(*MOVES)
    run = begun(agent, pattern="plan")
    monkeypatch.setattr(place, name, every_second(getattr(place, name), after=after))
    assert work_off_losing(organization, run) > 0
    report = reported(agent, run)
    assert (report.answer, places(report)) == ("There.", ["act/3", "act/4"])
    assert len(model.questions) == calls_of(run).filter(tool_name="ask_model").count() == 3
    assert [len(codes(report, code)) for code in ("PLAN.ACCEPT", "PLAN.END")] == [1, 1]


def test_a_plan_that_was_accepted_stays_so_whatever_has_changed_meanwhile(
    agent, organization, model, monkeypatch
):
    model.plays(plan(step("a", "open")), plan(), "It is gone.")
    run = begun(agent, pattern="plan")
    monkeypatch.setattr(Composition, "begin", every_second(Composition.begin, after=False))

    while waiting := queue.next_of_organization(organization.pk):
        try:
            perform(waiting[0])
        except Killed:
            if Execution.objects.get(pk=run.pk).memory.get("plans"):
                tool = Tool.objects.get(organization=organization, name="open")
                catalog.set_enabled(tool=tool, enabled=False, by=factories.by(organization))
            lose(run)
    report = reported(agent, run)
    assert outcomes(report) == {"a": "refused"} and report.answer == "It is gone."
    assert len(codes(report, "PLAN.ACCEPT")) == 2 and "tool_disabled" in said(model, 1)
