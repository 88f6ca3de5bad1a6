"""`/workflow/walk/`: the workflow simulator, which steps through the states as an agent would. Its
whole state is in the URL, so that it can be shared; no tool is run."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from tools.authorization.pins import snapshot_for
from tools.catalog.snapshot import CatalogTool
from tools.catalog.workflow.workflow import graph, leads_to
from tools.definitions.texts.names import WILDCARD
from tools.insight.explain import subject_of
from tools.insight.workflow_simulator import MOST_STEPS, Walk, walked
from tools.policy.questions import DEFAULT_STATE, EffectiveRequest
from tools.ui.agents.agent_choices import explained_agents
from tools.ui.workflow.explanations import split_names
from tools.ui.workflow.workflow import draw_workflow
from tools.web.pages import PageRequest, page

TEMPLATE = "workflow/workflow_simulator.html"
PAGE_SIZE = 25


@dataclass(frozen=True)
class SimulatorQuery:
    """The parameters of the URL."""

    agent: str
    groups: str
    start: str
    q: str
    steps: tuple[str, ...]

    @classmethod
    def of_query(cls, query: QueryDict) -> "SimulatorQuery":
        return cls(
            agent=_clean_text(query.get("agent", ""), 63),
            groups=_clean_text(query.get("groups", ""), 2000),
            start=_clean_text(query.get("start", ""), 200),
            q=_clean_text(query.get("q", ""), 200),
            steps=tuple(_clean_text(name, 128) for name in query.getlist("step")[:MOST_STEPS]),
        )

    def address(self, steps: tuple[str, ...], **more: Any) -> str:
        """The URL of the same simulation with other steps; each step clears the search."""
        said = [("agent", self.agent), ("groups", self.groups), ("start", self.start)]
        query = [*said, *(("step", name) for name in steps), *more.items()]
        written = urlencode([(name, value) for name, value in query if value])
        return reverse("walk") + (f"?{written}" if written else "")

    def matches(self, tool: CatalogTool) -> bool:
        return all(word in tool.name.lower() for word in self.q.lower().split())


@page()
def simulator_page(request: PageRequest) -> HttpResponse:
    way = SimulatorQuery.of_query(request.GET)
    about, everything = subject_of(request.caller, way.agent or None)
    groups = split_names(way.groups) or sorted(about.granted_groups)
    simulation = walked(
        about,
        EffectiveRequest.from_options(groups, way.start or None),
        way.steps,
        snapshot=snapshot_for(about),
        everything=everything,
    )
    offered = simulation.offered()
    context = {
        "way": way,
        "simulation": simulation,
        "about": about,
        "himself": about is request.caller,
        "groups": ", ".join(groups),
        "agents": explained_agents(request, way.agent),
        "start": way.start or DEFAULT_STATE,
        "trod": _taken_steps(way, simulation),
        "back": way.address(way.steps[:-1]) if way.steps else "",
        "again": way.address(()),
        "drawing": _draw_walk(simulation, groups) if everything else None,
        **_tool_choices(request, way, simulation, offered),
    }
    return render(request, TEMPLATE, context)


def _taken_steps(way: SimulatorQuery, simulation: Walk) -> list[dict[str, Any]]:
    """Each step, with the URL of the simulation after it."""
    return [
        {"step": step, "address": way.address(way.steps[: at + 1])}
        for at, step in enumerate(simulation.steps)
    ]


def _tool_choices(
    request: PageRequest, way: SimulatorQuery, simulation: Walk, offered: list[CatalogTool]
) -> dict[str, Any]:
    """Tools that can be called in this state, and the others with the refusal, a page of each."""
    there = {tool.name for tool in offered}
    others = [tool for tool in simulation.explanation.tools if tool.name not in there]
    yes = Paginator([one for one in offered if way.matches(one)], PAGE_SIZE)
    no = Paginator([one for one in others if way.matches(one)], PAGE_SIZE)
    open_page = yes.get_page(request.GET.get("yes"))
    shut_page = no.get_page(request.GET.get("no"))
    goes_on = not simulation.stopped and not simulation.full
    return {
        "open_page": open_page,
        "open": [
            {
                "tool": tool,
                "after": leads_to(tool) or simulation.state,
                "moves": leads_to(tool) not in {None, simulation.state},
                "address": way.address((*way.steps, tool.name)) if goes_on else "",
            }
            for tool in open_page
        ],
        "shut_page": shut_page,
        "shut": [{"tool": tool, "reason": simulation.reason(tool)} for tool in shut_page],
        "more_open": _page_address(way, "yes", open_page),
        "more_shut": _page_address(way, "no", shut_page),
    }


def _page_address(way: SimulatorQuery, name: str, shown: Any) -> str:
    if not shown.has_next():
        return ""
    return way.address(way.steps, q=way.q, **{name: shown.next_page_number()})


def _draw_walk(simulation: Walk, groups: list[str]) -> Any:
    asked = frozenset([WILDCARD]) if WILDCARD in groups else frozenset(groups)
    return draw_workflow(graph(simulation.explanation.snapshot, asked), here=simulation.state)


def _clean_text(text: str, longest: int) -> str:
    return text.strip()[:longest]
