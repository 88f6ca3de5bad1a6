"""MCP servers that others wrote, started inside the sandbox: listed, imported and called through
the whole pipeline, as an administrator and an agent do it."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from config.local.process_specs import cgroup_name
from tests.conditions import until
from tests.sandbox.run_observer import pidfds_of
from tests.stubs.stdio import MAY_BE_SHOWN, UPSTREAMS
from tests.stubs.web import Reply, serving
from tests.tools.shapes import check_execution
from tools.builtin.workspaces import workspace_path

SERVERS = "/api/v1/mcp-servers"
installed = pytest.mark.skipif(
    not ((UPSTREAMS / "installed").exists() and MAY_BE_SHOWN),
    reason="THE REAL MCP SERVERS ARE NOT INSTALLED (sh tests/upstreams.sh), OR LIE BELOW /tmp",
)


class Upstream:
    """One server of the organization's, registered and imported over the API as `<command>_<tool>`
    in the agent's own group."""

    def __init__(self, admin, http, command, *words, **more):
        self.http, self.admin, self.name = http, admin, command
        fields = {"name": command, "transport": "stdio", "command": command, "args": list(words)}
        made = admin("POST", SERVERS, {**fields, **more})
        assert made.status_code == 201, made.json()
        self.shape = self._done("POST", "refresh", {})
        self.listed = {one["tool"] for one in self._done("GET", "difference")["tools"]}

    def _done(self, method, what, body=None):
        answer = self.admin(method, f"{SERVERS}/{self.name}/{what}", body)
        assert answer.status_code == 200, answer.json()
        return answer.json()

    def imported(self, **more):
        wanted = [
            {"tool": tool, "name": self.name_of(tool), "group": ["default"], **more}
            for tool in sorted(self.listed)
        ]
        items = self._done("POST", "import", {"tools": wanted})["items"]
        assert [one["errors"] for one in items] == [[] for _ in wanted]
        return self

    def name_of(self, tool):
        return f"{self.name}_{tool}"

    def call(self, tool, **parameters):
        return self.http.execute(self.name_of(tool), parameters).json()

    def output(self, tool, **parameters):
        return check_execution(self.call(tool, **parameters), "Success")["output"]


@pytest.fixture
def upstream(admin, http):
    return lambda *words, **more: Upstream(admin, http, *words, **more)


@pytest.fixture
def workspace(organization):
    place = workspace_path(organization.slug)
    place.chmod(0o777)
    return place


@pytest.mark.part("conformance")
@installed
def test_the_time_server_tells_the_time(upstream):
    time = upstream("mcp-server-time", "--local-timezone=Europe/Vienna")
    assert time.shape["protocol"] == "2026-07-28"
    assert time.listed == {"get_current_time", "convert_time"}
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert "21:00" in str(time.imported().output("convert_time", **arguments))


@pytest.mark.part("conformance")
@installed
def test_the_git_server_reads_a_repository_of_the_workspace(upstream, workspace):
    place = workspace / "repository"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(place)]
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "the first"], check=True)
    server = upstream("mcp-server-git", "--repository", "/workspace/repository")
    assert len(server.listed) == 12
    log = server.imported().output("git_log", repo_path="/workspace/repository")
    assert "the first" in str(log)
    refused = server.call("git_log", repo_path="/usr")
    assert check_execution(refused, "Failed")["error_code"] == "TOOL_ERROR"


@pytest.mark.part("conformance")
@installed
def test_the_everything_server_echoes_and_tells_its_progress(upstream):
    server = upstream("server-everything")
    assert {"echo", "get-sum", "trigger-long-running-operation"} <= server.listed
    assert server.shape["protocol"] == "2025-11-25"
    server.imported()
    assert "hello" in str(server.output("echo", message="hello"))
    long = server.output("trigger-long-running-operation", duration=1, steps=2)
    assert "completed" in str(long)


@pytest.mark.part("conformance")
@installed
def test_the_filesystem_server_reads_and_writes_the_workspace_alone(upstream, workspace):
    server = upstream("server-filesystem")
    assert len(server.listed) == 14
    server.imported()
    server.output("write_file", path="/workspace/a.txt", content="written upstream")
    assert (workspace / "a.txt").read_text() == "written upstream"
    assert "written upstream" in str(server.output("read_text_file", path="/workspace/a.txt"))
    refused = check_execution(server.call("read_text_file", path="/etc/passwd"), "Failed")
    assert refused["error_code"] == "TOOL_ERROR"


@pytest.mark.part("conformance")
@installed
def test_the_memory_server_remembers_beyond_its_process(upstream, workspace, admin):
    server = upstream("server-memory")
    assert len(server.listed) == 9
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
    server.imported().output("create_entities", entities=[entity])
    assert "Ada" in (workspace / "memory.json").read_text()
    assert "wrote notes" in str(server.output("read_graph"))


@pytest.mark.part("conformance")
@installed
def test_the_fetch_server_reaches_what_the_organization_allows_through_the_broker(
    upstream, admin, organization
):
    with serving() as web:
        page = [("Content-Type", "text/html")]
        web.replies["/page"] = Reply(200, page, b"<p>The bridge is open again.</p>")
        allowed = [{"host": "127.0.0.1", "ports": [web.port]}]
        place = f"/api/v1/organizations/{organization.slug}"
        server = upstream(
            "mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"
        ).imported()
        assert server.listed == {"fetch"}
        arguments = {"url": web.url("/page"), "raw": True}  # else it wants to install a parser
        refused = check_execution(server.call("fetch", **arguments), "Failed")
        assert refused["error_code"] == "TOOL_ERROR"
        assert web.connections == 0
        assert admin("PATCH", place, {"allowed_hosts": allowed}).status_code == 200
        assert "The bridge is open again." in str(server.output("fetch", **arguments))


# --- a server that dies ---------------------------------------------------------------------------
def kill(crib, words):
    """The processes of this crib's whose command line holds the words, by their handles."""
    ours = f"/{cgroup_name(crib.data)}/"
    found = [pid for pid in pids_of(words) if ours in Path(f"/proc/{pid}/cgroup").read_text()]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def pids_of(words):
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and words.encode() in (entry / "cmdline").read_bytes():
                yield int(entry.name)


@pytest.mark.part("conformance")
@installed
def test_a_real_server_that_is_killed_during_a_call_leaves_its_outcome_unknown(
    upstream, http, crib
):
    server = upstream("server-everything").imported()
    name, arguments = "trigger-long-running-operation", {"duration": 600, "steps": 6_000}
    begun = http.execute(server.name_of(name), arguments, options={"wait_s": 0}).json()
    place = f"/api/v1/executions/{begun['execution_id']}"
    with http.events(f"{place}/events") as events:
        next(event for event in events if event["event"] == "InProgress")
    assert kill(crib, "server-everything/dist/index.js")
    done = until(lambda: finished_execution(http, place))
    assert (done["status"], done["error_code"]) == ("Failed", "OUTCOME_UNKNOWN")
    assert "again" in str(server.output("echo", message="again"))


def finished_execution(http, place):
    shown = http("GET", place).json()
    return shown if shown["status"] not in {"Pending", "Running"} else None


@pytest.mark.parametrize(
    ("delivery", "code"),
    [
        ("external", "OUTCOME_UNKNOWN"),
        pytest.param("idempotent", "WORKER_LOST", marks=pytest.mark.part("faults")),
    ],
)
def test_what_becomes_of_a_call_whose_server_died_is_the_tools_delivery_to_decide(
    upstream, delivery, code
):
    """The idempotent one was repeated, as often as it may be."""
    server = upstream("stub", "2026-07-28", env={"KEY": "s3cret-key"}).imported(delivery=delivery)
    born = server.output("born")
    done = server.call("die")
    assert (done["status"], done["error_code"]) == ("Failed", code)
    assert "s3cret-key" not in str(done)
    assert server.output("born") != born


def test_what_a_tenant_wrote_is_no_command(admin):
    for said in (
        {"command": "/bin/sh", "args": ["-c", "id"]},
        {"command": "stub", "args": ["-c", "print(1)"]},
        {"command": "stub", "args": ["2026-07-28"], "env": {"PYTHONINSPECT": "1"}},
        {"command": "stub", "args": ["2026-07-28"], "env": {"LD_PRELOAD": "/x.so"}},
    ):
        answer = admin("POST", SERVERS, {"name": "evil", "transport": "stdio", **said})
        assert answer.status_code == 400, said


def test_a_secret_reaches_its_server_only(upstream, crib, organization):
    secret = f"swordfish-{organization.slug}"
    server = upstream("stub", "2025-11-25", env={"KEY": secret}).imported()
    assert server.output("key") == "[credential]"  # it has it, and the caller does not see it
    assert pidfds_of(secret) == []
    logs = [path for path in (crib.data / "log").rglob("*") if path.is_file()]
    assert logs and not any(secret.encode() in path.read_bytes() for path in logs)
