"""Each program of examples/agents, run as a user runs it, with a model of ours and the running
product: Toolcrib is its only toolbox, decides each call, and nothing leaves this machine."""

import os
import re
import runpy
import subprocess
import sys
import urllib.error
from dataclasses import dataclass

import pytest

from tests import factories
from tests.conditions import until
from tests.crib import CHECKOUT
from tests.journeys.client import Http
from tests.journeys.test_confirmations import Browser
from tests.stubs import llm
from tests.stubs.llm import text_reply, tool_call, tool_calls_reply
from tests.tools.approval_requests import codes
from tools.models import Confirmation, Execution, Session

AGENTS = CHECKOUT / "examples" / "agents"
FRAMEWORKS = CHECKOUT / ".venv" / "frameworks"
WITH_FRAMEWORKS = ["langchain_agent.py", "openai_agents.py", "pydantic_ai_agent.py"]
installed = pytest.mark.skipif(
    not (FRAMEWORKS / "installed").exists(),
    reason="THE AGENT FRAMEWORKS ARE NOT INSTALLED: sh tests/frameworks.sh",
)
each_program = pytest.mark.parametrize(
    "program",
    [
        "plain_http.py",
        *(
            pytest.param(name, marks=[installed, pytest.mark.part("frameworks")])
            for name in WITH_FRAMEWORKS
        ),
    ],
)
GUARDED = str(CHECKOUT / "tests" / "frameworks" / "loopback_guard.py")
SEND_EVERY_NAME = ["plain_http.py", "langchain_agent.py"]  # the others refuse one themselves
X = {"text": "x"}
RAN = ("Success", "", ["TOOL.ACCEPT", "TOOL.START", "TOOL.END", "STATE.TRANSITION"])


def refused(code):
    return ("PermissionDenied", code, ["TOOL.DENY"])


@dataclass
class Run:
    """A program's way to its end, and the model it spoke with."""

    model: llm.Endpoint
    environment: dict[str, str]

    def start(self, program: str) -> subprocess.Popen[str]:
        python = sys.executable if program == "plain_http.py" else f"{FRAMEWORKS}/bin/python"
        return subprocess.Popen(
            [python, GUARDED, str(AGENTS / program), "What is there?"],
            env=self.environment | {"OPENAI_BASE_URL": self.model.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer_of(self, program: str) -> str:
        """What it answers."""
        return self.finish(self.start(program))[0]

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
        answer, complaints = process.communicate(timeout=100)
        assert process.returncode == 0, complaints
        return answer.strip(), complaints

    @property
    def offered(self) -> list[dict[str, dict]]:
        """The schemas of the tools by their names, at each step."""
        return [
            {one["function"]["name"]: one["function"]["parameters"] for one in question["tools"]}
            if question.get("tools")
            else {}
            for question in self.model.questions
        ]

    @property
    def observations(self) -> list[str]:
        messages = self.model.questions[-1]["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.fixture
def agent(organization):
    """May walk a workflow of two states; a third tool is in a group it was not granted."""
    wanted = {"name": "how_many", "type": "Integer", "description": "At most.", "default": 3}
    sort = {"name": "sort", "type": "String", "description": "By what.", "enum": ["age", "name"]}
    steps = (
        ("look-up", "library", ["undefined"], "analysis"),
        ("analyse", "compute", ["analysis"], "results"),
        ("open_vault", "vault", None, None),
    )
    for name, group, before, after in steps:
        parameters = [*factories.definition()["parameters"], wanted, sort]
        flow = {"group": [group], "available_in_states": before, "state": after}
        factories.tool(organization, name, parameters=parameters, **flow)
    return factories.agent(organization, groups=["library", "compute"])


@pytest.fixture
def run(crib, committed, agent):
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLCRIB_URL": crib.url,
        "TOOLCRIB_TOKEN": factories.token(agent.service_account),
        "OPENAI_API_KEY": "sk-of-the-stub",
        "MODEL": "stub",
        "LANGSMITH_TRACING": "true",  # as a user may have them for other work
        "LANGSMITH_API_KEY": "lsv2-nothing",
    }
    with llm.serving() as model:
        yield Run(model, environment)


def call_outcomes(agent, tool):
    """How the agent's calls of a tool ended, and what the audit says of each."""
    rows = Execution.objects.filter(agent=agent, tool_name=tool).order_by("pk")
    return [(row.status, row.error_code, codes(row)) for row in rows]


@pytest.mark.part("agents")
@each_program
def test_each_step_has_the_tools_of_its_state_and_goes_on_after_refusals(run, program, agent, crib):
    http = Http(crib.url, factories.token(agent.service_account))
    there = http("GET", "/api/v1/tools?group=library").json()["results"]
    run.model.answers(
        tool_calls_reply(tool_call("look-up", X), tool_call("look-up", X)),
        tool_calls_reply(tool_call("open_vault", X)),
        tool_calls_reply(tool_call("analyse", '{"text": ')),
        tool_calls_reply(tool_call("analyse", X)),
        text_reply("All is done."),
    )
    assert run.answer_of(program) == "All is done."
    assert run.offered[0] == {tool["name"]: tool["input_schema"] for tool in there}
    steps = [[*tools] for tools in run.offered]
    assert steps == [["look-up"], ["analyse"], ["analyse"], ["analyse"], []]
    flags = [question.get("parallel_tool_calls") for question in run.model.questions]
    assert flags == [False] * 4 + [None]
    # Two calls of one reply begin at the same moment in some frameworks: either may come first.
    late, ran = sorted(run.observations[:2])
    outside, flawed, last = run.observations[2:]
    assert ran == last == '{"echo": {"how_many": 3, "text": "x"}}'
    assert late.startswith("Refused (tool_not_in_state): ")
    assert "open_vault" in outside and "JSON" in flawed
    assert sorted(call_outcomes(agent, "look-up")) == sorted([RAN, refused("tool_not_in_state")])
    forwarded = [refused("tool_not_in_group")] if program in SEND_EVERY_NAME else []
    assert call_outcomes(agent, "open_vault") == forwarded
    assert call_outcomes(agent, "analyse") == [RAN]
    assert Session.objects.get(organization=agent.organization).closed_at


@pytest.mark.part("agents")
@each_program
def test_a_model_that_never_answers_is_given_up(run, program):
    run.model.answers(
        *(tool_calls_reply(tool_call("look-up", {"text": number})) for number in range(50))
    )
    run.start(program).communicate(timeout=100)
    assert len(run.model.questions) == 20


@pytest.mark.part("agents")
@pytest.mark.parametrize(
    ("verdict", "end"),
    [
        ("approve", '{"echo": {"text": "x"}}'),
        ("reject", "PermissionDenied (confirmation_rejected): "),
    ],
)
def test_it_waits_for_a_person_and_tells_the_model_what_came_of_it(
    crib, run, agent, admin_user, verdict, end
):
    factories.tool(agent.organization, "ask_first", group=["library"], requires_confirmation=True)
    run.model.answers(tool_calls_reply(tool_call("ask_first", X)), text_reply("I see."))
    process, browser = run.start("plain_http.py"), Browser(crib.url, admin_user)
    held = until(Confirmation.objects.filter(execution__agent=agent).first)
    word = {"bound_hash": held.bound_hash, "reason": "Not on a Friday."}
    assert browser.api("POST", f"/confirmations/{held.pk}/{verdict}", word)[0] == 200
    answer, complaints = run.finish(process)
    assert answer == "I see." and f"{crib.url}/confirmations/" in complaints
    assert run.observations[0].startswith(end)


@pytest.fixture
def toolbox(crib, committed, agent):
    """Opens one in this process."""
    there = runpy.run_path(str(AGENTS / "toolbox.py"))["Toolbox"]
    token = factories.token(agent.service_account)
    return lambda groups=None: there(crib.url, token, groups)


def test_it_lists_every_page(toolbox, agent):
    for name in ("a", "b"):
        factories.tool(agent.organization, name, group=["library"])
    with toolbox() as box:
        assert [tool["name"] for tool in box.tools(page_size=1)] == ["a", "b", "look-up"]


def test_it_may_be_opened_with_fewer_groups_and_never_with_others(toolbox):
    with toolbox(["compute"]) as box:
        assert box.tools() == []
        assert box.call("look-up", X).startswith("Refused (tool_not_in_group")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        toolbox(["vault"])


def test_whatever_a_model_says_is_answered_in_words(toolbox, agent):
    names = ["../agents", "look-up/../open_vault", "", "explain", "\0", "é" * 999]
    flaws = [[], "x", 1, {}, {"text": 1}, {"$result": "x"}, {"text": 1e999}, {"text": "\0"}]
    with toolbox() as box:
        for name, arguments in [*((one, X) for one in names), *(("look-up", one) for one in flaws)]:
            assert box.call(name, arguments).startswith("Refused (")
    assert not Execution.objects.filter(agent=agent, status="Success").exists()


def test_a_token_that_is_no_good_ends_the_run(run):
    run.environment["TOOLCRIB_TOKEN"] = "tcr_wrong"
    assert "401" in run.start("plain_http.py").communicate(timeout=100)[1]
    assert run.model.questions == []


def test_a_program_under_test_reaches_nothing_elsewhere(tmp_path):
    program = tmp_path / "outward.py"
    program.write_text("import socket\nsocket.create_connection(('192.0.2.1', 80))\n")
    watched = subprocess.run(
        [sys.executable, GUARDED, str(program)], capture_output=True, check=False
    )
    assert (watched.returncode, watched.stderr) == (97, b"Traffic to 192.0.2.1\n")


def test_the_page_names_every_program_and_the_versions_it_was_tested_with():
    page = (CHECKOUT / "docs" / "frameworks.md").read_text("utf-8")
    programs = {path.name for path in AGENTS.glob("*.py")}
    assert set(re.findall(r"\(\.\./examples/agents/([\w.]+)\)", page)) == programs
    wanted = (CHECKOUT / "tests/frameworks/requirements.in").read_text("utf-8")
    tested = re.findall(r"^([\w-]+)\S*==(\S+)$", wanted, re.MULTILINE)
    assert tested
    assert [one for one in tested if "`{}` {}".format(*one) not in page] == []
