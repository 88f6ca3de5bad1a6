"""Calls whose run is lost: what may be retried is retried, and what may not never is."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from audit.models import AuditRecord
from sandbox.errors import ErrorCode
from sandbox.spec import RunOutcome, SandboxResult
from tests import factories
from tests.conditions import LIMIT_S, until
from tests.tools.approval_requests import attempted_in_thread
from tools.catalog.sandbox import profiles
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition, Refused
from tools.execution import accept, answer
from tools.execution.claim import claim
from tools.execution.perform import RUN, perform
from tools.models import Execution
from tools.policy.questions import Gate
from tools.runners.tool_runs import Runner, sandbox_client
from tools.runners.tool_types import RUNNERS

pytestmark = pytest.mark.usefixtures("committed")
ROOT = Path(__file__).resolve().parents[3]
MARKS_AND_STAYS = """
import os, time
def main(p):
    name = f"{place}/" + p["text"]
    again = os.path.exists(name)
    with open(name, "a") as file:
        file.write("x")
    while not again:
        time.sleep(1)
    return "done"
"""
# Orphaned grandchildren in their own sessions, which ignore SIGTERM.
STUBBORN = """
import subprocess, sys, time
STAY = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(86400) # "
BEAR = "import os, sys; a = [sys.executable, '-S', '-c', sys.argv[1]]\\n" + \\
    "for n in range(4):\\n if os.fork() == 0:\\n  os.setsid()\\n  os.execv(sys.executable, a)"
def main(p):
    subprocess.run([sys.executable, "-S", "-c", BEAR, STAY + p["text"]])
    time.sleep(86400)
"""


@pytest.fixture
def ledger(organization):
    """A directory in which a run leaves a file that outlives it."""
    place = Path(tempfile.mkdtemp(prefix="tc-lost-", dir="/var/tmp"))
    place.chmod(0o777)
    profiles.create_profile(
        organization=organization,
        profile={
            "name": "ledger",
            "allow_filesystem": True,
            "allowed_paths": [{"path": str(place), "mode": "rw"}],
        },
        by=factories.actor(organization),
        everywhere=True,
    )
    yield place
    shutil.rmtree(place)


def marking(organization, ledger, delivery):
    """A tool that appends to a file; the first run for a name then stays until it is killed."""
    source = MARKS_AND_STAYS.replace("{place}", str(ledger))
    factories.tool(
        organization,
        delivery,
        delivery=delivery,
        implementation={"source": source},
        constraints={"sandbox_profile": "ledger", "allow_side_effects": delivery != "pure"},
    )


def row_of(execution):
    return Execution.objects.get(pk=execution.pk)


def reasons(execution):
    found = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.LOST")
    return list(found.values_list("reason", flat=True))


def finish_with(agent, outcome, delivery, organization, attempts=1):
    """The row of a claimed call whose run ended with this outcome."""
    factories.tool(organization, delivery=delivery)
    execution = factories.execution(agent)
    if attempts > 1:
        factories.claimed(execution, attempts - 1)
        factories.release(execution)
    claimed = claim(execution.pk, "test")
    original = RUNNERS[ToolType.CODE]
    RUNNERS[ToolType.CODE] = Runner(lambda run: outcome)
    try:
        for step in RUN:
            step(claimed)
    finally:
        RUNNERS[ToolType.CODE] = original
    return row_of(execution)


LOST = SandboxResult(RunOutcome.SANDBOX_ERROR, error_code=ErrorCode.LOST, error_message="it died")
GIVEN_UP = SandboxResult(RunOutcome.CANCELLED, error_code=ErrorCode.CANCELLED)
NEVER_BEGUN = SandboxResult(RunOutcome.CANCELLED, error_code=ErrorCode.NOT_BEGUN)


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("outcome", [LOST, GIVEN_UP, NEVER_BEGUN])
@pytest.mark.parametrize("delivery", ["pure", "idempotent"])
def test_what_may_be_repeated_goes_back_and_nothing_more_is_written(
    agent, organization, delivery, outcome
):
    row = finish_with(agent, outcome, delivery, organization)
    assert row.status in {"Pending", "Running", "Success"}  # a worker may have claimed it already
    assert len(reasons(row)) == 1
    assert "Failed" not in {event.type for event in row.events.all()}


@pytest.mark.parametrize("outcome", [LOST, GIVEN_UP])
def test_an_effect_that_may_have_happened_is_not_repeated(agent, organization, outcome):
    row = finish_with(agent, outcome, "external", organization)
    assert (row.status, row.error_code, row.attempt) == ("Failed", "OUTCOME_UNKNOWN", 1)
    assert [event.type for event in row.events.all()] == ["Started", "Failed"]


def test_an_external_call_that_never_began_goes_back(agent, organization):
    row = finish_with(agent, NEVER_BEGUN, "external", organization)
    assert row.error_code == "" and len(reasons(row)) == 1


def test_a_call_that_was_lost_three_times_is_set_aside(agent, organization):
    row = finish_with(agent, LOST, "pure", organization, attempts=3)
    assert (row.status, row.error_code, row.attempt) == ("Failed", "WORKER_LOST", 3)


STOPPED = [
    (SandboxResult(RunOutcome.TIMEOUT, error_code="TIMEOUT", error_message="too long"), "external"),
    (
        SandboxResult(RunOutcome.TIMEOUT, error_code="TIMEOUT", error_message="too long"),
        "idempotent",
    ),
]


@pytest.mark.parametrize(("outcome", "delivery"), STOPPED)
def test_a_timeout_says_that_the_effect_may_have_happened(agent, organization, outcome, delivery):
    row = finish_with(agent, outcome, delivery, organization)
    assert (row.status, row.error_code) == ("Timeout", "TIMEOUT")
    assert row.error_details == {"effect_possible": True}
    assert "may have happened" in row.error_message


def test_a_pure_timeout_says_nothing_of_effects(agent, organization):
    outcome = SandboxResult(RunOutcome.TIMEOUT, error_code="TIMEOUT", error_message="too long")
    row = finish_with(agent, outcome, "pure", organization)
    assert (row.error_details, row.error_message) == ({}, "too long")


@pytest.mark.part("faults")
@pytest.mark.usefixtures("crib")
def test_a_sandboxd_that_is_killed_under_eight_calls_loses_and_doubles_nothing(
    agent, organization, ledger
):
    marking(organization, ledger, "idempotent")
    marking(organization, ledger, "external")
    calls = {
        f"{kind}-{number}": factories.execution(agent, kind, text=f"{kind}-{number}")
        for kind in ("idempotent", "external")
        for number in range(4)
    }
    threads = [attempted_in_thread(execution) for execution in calls.values()]
    until(lambda: len(list(ledger.iterdir())) == 8)
    os.kill(sandbox_client().ping()["pid"], signal.SIGKILL)
    [thread.join(LIMIT_S) for thread in threads]
    until(lambda: all(row_of(one).is_final for one in calls.values()))
    for name, execution in calls.items():
        row, marks = row_of(execution), len((ledger / name).read_text())
        expected = ("Success", 2) if name.startswith("idempotent") else ("Failed", 1)
        assert (row.status, marks) == expected, (name, row.error_code)


def test_a_cancelled_calls_grandchildren_are_gone(agent, organization):
    factories.tool(organization, implementation={"source": STUBBORN}, delivery="external")
    execution = factories.execution(agent, text=f"marker-{os.urandom(6).hex()}")
    thread, marker = attempted_in_thread(execution), execution.parameters["text"]
    members = until(lambda: len(found := _running(marker)) >= 4 and found)
    answer.cancel(caller=factories.caller(agent), execution=execution)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members))
    thread.join(LIMIT_S)
    row = row_of(execution)
    assert (row.status, row.error_details) == ("Cancelled", {"effect_possible": True})


def _running(marker):
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and marker in _command_of(entry)
    }


def _command_of(entry):
    try:
        return (entry / "cmdline").read_text()
    except (OSError, UnicodeDecodeError):
        return ""


@pytest.fixture
def stored(organization, monkeypatch):
    """A transactional tool that an earlier version accepted."""
    with monkeypatch.context() as earlier:
        earlier.setattr("tools.definitions.tool._check_combinations", lambda *_: None)
        factories.tool(organization, "keeps", delivery="transactional")


def test_a_stored_tool_that_cannot_be_transactional_is_refused_at_the_door(agent, stored):
    with pytest.raises(Refused, match="can be transactional") as caught:
        factories.execution(agent, "keeps")
    assert caught.value.code == "delivery_unsupported"


def test_one_that_was_accepted_before_is_refused_at_the_claim(agent, stored, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setitem(accept.SKIPPED, Gate.DELIVERY, "An earlier release had no such gate.")
        execution = factories.execution(agent, "keeps")
    perform(execution.pk)
    row = until(lambda: row_of(execution) if row_of(execution).is_final else None)
    assert (row.status, row.error_code) == ("PermissionDenied", "delivery_unsupported")


@pytest.mark.parametrize("kind", [{}, {"type": "builtin", "implementation": {}}])
def test_a_tool_that_works_outside_cannot_be_called_transactional(organization, kind):
    with pytest.raises(InvalidDefinition) as caught:
        factories.tool(organization, delivery="transactional", **kind)
    assert [flaw["field"] for flaw in caught.value.details["errors"]] == ["delivery"]
