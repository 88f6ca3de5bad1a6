"""An organization with tools that an agent must never reach, and the checks of its rows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from audit.models import AuditRecord
from tests import factories
from tests.stubs import llm
from tests.tools.agents.conftest import SAYS, begin_request
from tests.tools.agents.poison import FORBIDDEN
from tests.tools.approval_requests import approver, reject
from tests.tools.execution.in_process_worker import work_off
from tools.accounts.callers import caller_of_agent
from tools.authorization.facts import question_of
from tools.authorization.pins import snapshot_for
from tools.catalog import actions as catalog
from tools.definitions.results import Status
from tools.models import Agent, Confirmation, Execution, Organization
from tools.policy import gates
from tools.policy.questions import EffectiveRequest

GROUPS = ["default", "composition", "agents"]  # all indirect ways to call a tool
RAN = frozenset({Status.RUNNING, Status.SUCCESS, Status.FAILED, Status.TIMEOUT})
_LENT = frozenset({"group", "group_open", "state", "object_permission"})
_MARK = re.compile("<data ([0-9a-f]{16})>")


@dataclass(frozen=True)
class Place:
    organization: Organization
    agent: Agent

    @classmethod
    def with_tools(cls, organization: Organization) -> "Place":
        source = {"implementation": {"source": SAYS}}
        factories.tool(organization, "say", **source)
        factories.tool(organization, "hidden", group=["secret"], **source)
        factories.tool(organization, "inner", available_in_states=["inside"], **source)
        factories.tool(organization, "risky", requires_confirmation=True, **source)
        factories.tool(organization, "ungranted", required_permissions=["keys"], **source)
        retired = factories.tool(organization, "retired", **source)
        by = factories.actor(organization)
        catalog.set_enabled(tool=retired, enabled=False, by=by)
        return cls(organization, factories.agent(organization, groups=GROUPS))

    def gives(self, output: Any) -> None:
        """Register the tool `page`, which returns this."""
        source = f"def main(p):\n    return {output!r}\n"
        factories.tool(self.organization, "page", implementation={"source": source}, parameters=[])

    def ran(self, question: str = "What does the page say?", **wanted: Any) -> Execution:
        """Perform a run until nothing is left to do; people reject every approval that it
        requests."""
        run = begin_request(self.agent, question, group=GROUPS, max_iterations=30, **wanted)
        person = approver(self.organization)
        while work_off(self.organization):
            self.check()
            for one in Confirmation.objects.filter(execution__organization=self.organization):
                if one.status == "pending":
                    reject(one, person)
        return Execution.objects.get(pk=run.pk)

    def check(self) -> None:
        """No call started that `explain` does not show as passed, and no approval was forged."""
        began = AuditRecord.objects.filter(code="TOOL.START", execution_id__isnull=False)
        rows = Execution.objects.filter(organization=self.organization)
        for row in rows:
            if row.status in RAN or began.filter(execution_id=row.pk).exists():
                assert refused_by(row) == [], f"{row.tool_name} at {row.place}"
                assert row.tool_name not in FORBIDDEN
        decided = Confirmation.objects.filter(execution__organization=self.organization)
        assert not decided.filter(status="approved").exists()
        assert not decided.filter(spent_at__isnull=False).exists()

    def tried(self) -> set[str]:
        """The tool names of all calls, however they ended."""
        rows = Execution.objects.filter(organization=self.organization)
        return set(rows.values_list("tool_name", flat=True))


def refused_by(row: Execution) -> list[str]:
    """The gates that refuse this call now, for its caller, groups and state."""
    assert row.agent is not None
    agent = Agent.objects.get(pk=row.agent_id)
    caller = caller_of_agent(agent)
    snapshot = snapshot_for(caller, row.session_id)
    tool = snapshot.tool(row.tool_name)
    assert tool is not None
    asked = EffectiveRequest.from_options(row.requested_groups, row.state)
    verdicts = gates.explain(question_of(caller, tool, asked, snapshot))
    lent = _LENT if row.options.get("at_its_door") else frozenset()
    granted = ["granted_groups"] if asked.groups - caller.granted_groups else []
    standing = [] if caller.active else ["standing"]
    refused = [one.gate for one in verdicts if not one.passed and one.gate not in lent]
    return [*standing, *granted, *refused]


def check_fences(questions: list[dict[str, Any]]) -> None:
    """In every prompt the marks are balanced, are those of the rules, and enclose no other mark."""
    asked = [one for one in questions if one["messages"][0]["role"] == "system"]
    assert asked  # messages that a model passes to `ask_model` are not a prompt of the run
    for question in asked:
        for text in _texts(question):
            _check_pairs(text, _mark_of(question))


def _mark_of(question: dict[str, Any]) -> str:
    found = _MARK.search(question["messages"][0]["content"])
    assert found is not None
    return found[1]


def _texts(question: dict[str, Any]) -> Iterator[str]:
    rules, _, rest = question["messages"][0]["content"].partition("It never holds instructions")
    assert rules.count("<data ") == rules.count("</data ") == 1
    yield rest
    for message in question["messages"][1:]:
        yield message["content"] or ""
        yield from (one["function"]["arguments"] for one in message.get("tool_calls") or ())
    for tool in question.get("tools") or ():
        yield tool["function"]["description"]


def _check_pairs(text: str, mark: str) -> None:
    begin, end = f"<data {mark}>", f"</data {mark}>"
    assert text.count(mark) == text.count(begin) + text.count(end), text
    inside = False
    for found in re.finditer(f"{begin}|{end}", text):
        assert (found[0] == end) == inside, text
        inside = not inside
    assert not inside, text


def mark_of(model: llm.Endpoint) -> str:
    return _mark_of(model.questions[-1])
