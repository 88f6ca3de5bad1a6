"""The sandbox around a run, as it is recorded and as the tool experiences it."""

import shutil
import tempfile
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import AuditRecord
from sandbox.egress.rules.egress_policy import EgressAttempt
from sandbox.errors import ErrorCode
from sandbox.spec import ResourceUsage, RunOutcome, SandboxResult
from tests import factories
from tests.tools.approval_requests import attempted
from tools import metrics
from tools.catalog.registry import registry
from tools.catalog.sandbox import credentials, profiles
from tools.execution import run
from tools.execution.claim import claim
from tools.execution.finish import finish
from tools.execution.perform import perform
from tools.models import EgressCredential, Execution

pytestmark = pytest.mark.usefixtures("committed")
REFUSED = EgressAttempt("helper", "GET", "evil.example", 443, code="HOST_NOT_ALLOWED")
ALLOWED = EgressAttempt(
    "helper", "POST", "a.example", 443, "192.0.2.1", status=200, bytes_sent=7, bytes_received=30
)


def record_of(execution, code):
    return AuditRecord.objects.get(execution_id=execution.pk, code=code).details


def code_tool(organization, source, **fields):
    return factories.tool(organization, implementation={"source": source}, **fields)


def profile(organization, **fields):
    return profiles.create_profile(
        organization=organization,
        profile={"name": "mine", **fields},
        by=factories.actor(organization),
        everywhere=True,
    )


def finish_with(agent, outcome):
    """The execution of a claimed call that ended with this outcome in the sandbox."""
    execution = factories.execution(agent)
    claimed = claim(execution.pk, "test")
    claimed.result = run.result_of(outcome)
    finish(claimed)
    return Execution.objects.get(pk=execution.pk)


def counted(counter, label):
    return counter.labels(label)._value.get()


@pytest.fixture
def directory():
    place = Path(tempfile.mkdtemp(prefix="tc-walls-", dir="/var/tmp"))
    place.chmod(0o755)
    (place / "table.csv").write_text("a,b")
    yield place
    shutil.rmtree(place)


def test_the_start_record_says_how_strong_the_wall_is(agent, organization):
    profile(organization, minimum_isolation="Strict")
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    started = record_of(attempted(factories.execution(agent)), "TOOL.START")
    assert (started["isolation"], started["sandbox_profile"]) == ("Strict", "mine")


def test_code_of_an_agent_runs_at_restricted_and_says_so(agent, organization):
    factories.tool(organization, metadata={"origin": "agent"})
    done = attempted(factories.execution(agent))
    assert (done.status, record_of(done, "TOOL.START")["isolation"]) == ("Success", "Restricted")


def test_a_profiles_memory_is_all_there_is(agent, organization):
    profile(organization, max_memory_bytes=64 * 1024 * 1024)
    source = "def main(p):\n    return len(b'x' * 150_000_000)"
    code_tool(organization, source, constraints={"sandbox_profile": "mine"})
    done = attempted(factories.execution(agent))
    assert done.status == "Failed" and done.output is None
    assert done.metrics["peak_memory_bytes"] < 100_000_000


def test_a_profiles_processor_time_is_all_there_is(agent, organization):
    profile(organization, max_cpu_time="PT0.3S")
    code_tool(
        organization, "def main(p):\n    while True:\n        pass",
        constraints={"sandbox_profile": "mine"},
    )  # fmt: skip
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code) == ("Failed", "CPU_LIMIT")


@pytest.mark.parametrize(("allowed", "status"), [(True, "Success"), (False, "Failed")])
def test_an_allowed_path_is_there_under_its_own_name(
    agent, organization, directory, allowed, status
):
    profile(organization, allow_filesystem=allowed, allowed_paths=[{"path": str(directory)}])
    source = f"def main(p):\n    return open('{directory}/table.csv').read()"
    code_tool(organization, source, constraints={"sandbox_profile": "mine"})
    done = attempted(factories.execution(agent))
    assert (done.status, done.output) == (status, "a,b" if allowed else None)


@pytest.mark.parametrize("level", ["Standard", "Strict", "Restricted"])
def test_a_javascript_tool_runs_behind_the_same_wall(agent, organization, level):
    source = "function main(parameters) { return { echo: parameters } }"
    factories.tool(
        organization,
        implementation={"language": "javascript", "source": source},
        constraints={"required_isolation": level},
    )
    done = attempted(factories.execution(agent))
    assert (done.status, done.output) == ("Success", {"echo": {"text": "x"}}), done.error_message


def test_glue_runs_in_a_language_vm_behind_the_wall(agent, organization):
    profile(organization, backend="monty")
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    done = attempted(factories.execution(agent))
    assert (done.status, done.output) == ("Success", {"echo": {"text": "x"}}), done.error_message


def test_a_path_shared_for_reading_is_not_written(agent, organization, directory):
    profile(organization, allow_filesystem=True, allowed_paths=[{"path": str(directory)}])
    source = f"def main(p):\n    open('{directory}/new', 'w').close()"
    code_tool(organization, source, constraints={"sandbox_profile": "mine"})
    assert attempted(factories.execution(agent)).status == "Failed"
    assert not (directory / "new").exists()


def test_a_run_whose_credential_cannot_be_read_does_not_begin(agent, organization):
    key = {"name": "key", "header": "X-Key", "value": "c4nary"}
    by = factories.actor(organization)
    row = credentials.create_credential(organization=organization, credential=key, by=by)
    hosts = [{"host": "a.example", "credential": "key"}]
    profile(organization, allow_network=True, allowed_hosts=hosts)
    factories.tool(organization, constraints={"sandbox_profile": "mine"})
    EgressCredential.objects.filter(pk=row.pk).update(sealed=b"\x01" + bytes(row.sealed)[::-1])
    registry.forget()
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code) == ("SandboxError", "EGRESS_UNAVAILABLE")
    assert (done.output, done.sandbox_id) == (None, "")


def test_a_profile_and_its_credentials_cost_a_call_no_query(agent, organization):
    key = {"name": "key", "header": "X-Key", "value": "v"}
    by = factories.actor(organization)
    credentials.create_credential(organization=organization, credential=key, by=by)
    hosts = ["b.example", {"host": "a.example", "credential": "key"}]
    profile(organization, allow_network=True, allowed_hosts=hosts)
    factories.tool(organization, "plain")
    factories.tool(organization, "walled", constraints={"sandbox_profile": "mine"})
    attempted(factories.execution(agent, "plain"))
    counts = []
    for name in ("plain", "walled"):
        execution = factories.execution(agent, name)
        with CaptureQueriesContext(connection) as asked:
            perform(execution.pk)
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_the_end_record_says_what_was_asked_of_the_network(agent, organization):
    factories.tool(organization)
    usage = ResourceUsage(network_requests=2, filesystem_operations=9)
    outcome = SandboxResult(RunOutcome.SUCCESS, "x", usage=usage, network=(REFUSED, ALLOWED))
    done = finish_with(agent, outcome)
    assert record_of(done, "TOOL.END")["network"] == [
        {"door": "helper", "method": "GET", "host": "evil.example", "port": 443, "address": "",
         "code": "HOST_NOT_ALLOWED", "status": 0, "bytes_sent": 0, "bytes": 0},
        {"door": "helper", "method": "POST", "host": "a.example", "port": 443,
         "address": "192.0.2.1", "code": "", "status": 200, "bytes_sent": 7, "bytes": 37},
    ]  # fmt: skip
    assert (done.metrics["network_requests"], done.metrics["filesystem_operations"]) == (2, 9)


def test_a_run_that_asked_for_much_writes_down_little(agent, organization):
    factories.tool(organization)
    wild = EgressAttempt("helper", "GET" * 100, "a\x00\ud800" * 500, 443, code="x" * 100)
    outcome = SandboxResult(RunOutcome.FAILED, error_code="MINE", network=(wild,) * 200)
    said = record_of(finish_with(agent, outcome), "TOOL.END")["network"]
    assert len(said) == 50
    assert all(len(str(value)) <= 255 for value in said[0].values())


def test_a_late_result_still_says_what_was_asked_of_the_network(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    claimed = claim(execution.pk, "test")
    factories.release(execution)
    factories.claimed(execution)
    outcome = SandboxResult(RunOutcome.SUCCESS, "x", network=(ALLOWED,))
    claimed.result = run.result_of(outcome)
    finish(claimed)
    late = record_of(execution, "TOOL.LATE_COMPLETION_REJECTED")
    assert [attempt["host"] for attempt in late["network"]] == ["a.example"]
    Execution.objects.filter(pk=execution.pk).delete()


STATUSES = [
    (RunOutcome.TIMEOUT, "TIMEOUT", "Timeout"),
    (RunOutcome.FAILED, "MEMORY_LIMIT", "Failed"),
    (RunOutcome.FAILED, "DISK_LIMIT", "Failed"),
    (RunOutcome.FAILED, "QUOTA_LIMIT", "Failed"),
    (RunOutcome.FAILED, "MINE", "Failed"),
    (RunOutcome.SANDBOX_ERROR, "ISOLATION_UNAVAILABLE", "SandboxError"),
    (RunOutcome.SANDBOX_ERROR, "EGRESS_UNAVAILABLE", "SandboxError"),
    (RunOutcome.SANDBOX_ERROR, "LAUNCH_FAILED", "SandboxError"),
]


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(("outcome", "code", "status"), STATUSES)
def test_how_a_run_ended_is_its_status_and_its_code(agent, organization, outcome, code, status):
    factories.tool(organization)
    result = SandboxResult(outcome, error_code=code, error_message="/secret/place of sandboxd")
    done = finish_with(agent, result)
    assert (done.status, done.error_code, done.output) == (status, code, None)
    assert (outcome == RunOutcome.SANDBOX_ERROR) == ("/secret/place" not in done.error_message)


ENDS = [(None, "OK"), *((code, code) for code in ErrorCode), ("MINE", "tool"), ("ok", "tool")]


@pytest.mark.parametrize(("code", "label"), ENDS)
def test_ends_are_counted_under_words_of_ours(code, label):
    before = counted(metrics.sandbox_ends, label)
    run.count_outcome(SandboxResult(RunOutcome.FAILED, error_code=code))
    assert counted(metrics.sandbox_ends, label) == before + 1


def test_attempts_are_counted_under_words_of_ours():
    labels = ("allowed", "host_not_allowed", "other", "not_described")
    before = [counted(metrics.egress_attempts, label) for label in labels]
    strange = EgressAttempt("helper", "GET", "a.example", 443, code="a-label-of-the-tools")
    usage = ResourceUsage(network_requests=7)
    attempts = (ALLOWED, REFUSED, strange)
    run.count_outcome(SandboxResult(RunOutcome.SUCCESS, usage=usage, network=attempts))
    after = [counted(metrics.egress_attempts, label) for label in labels]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1, 4]
