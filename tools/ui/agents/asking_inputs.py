"""The inputs of the form that asks an agent, and the groups and states that it offers."""

from django.conf import settings

from tools.agents import agent_requests
from tools.agents.run_parameters import ITERATIONS, MOST_ITERATIONS, REACT, THRESHOLD, TOKENS
from tools.authorization.listings import visible_tools
from tools.definitions.texts.names import WILDCARD
from tools.definitions.tool import DEFAULT_GROUP
from tools.models import Session
from tools.policy.questions import DEFAULT_STATE
from tools.ui.agents.agent_requests import WORDS
from tools.ui.inputs import FormInput, Widget, choices
from tools.ui.playground.playground import PlaygroundContext

CONTINUES, REPLAYS = "continues", "replays"
MOST_OFFERED = 60  # groups and states that the form offers
_MOST_SESSIONS = 50


def question(kind: str) -> list[FormInput]:
    label, about = "Question", "What it is to find out or to do. Its tools are all it has."
    if kind == CONTINUES:
        label, about = "Follow-up question", "It knows the steps of the request it goes on from."
    return [FormInput("question", label, Widget.AREA, help=about, required=kind != REPLAYS)]


def ways(standing: PlaygroundContext) -> list[FormInput]:
    usual = settings.LLM_MODEL or "none"
    mine = Session.objects.filter(
        organization_id=standing.caller.organization_id, user_id=standing.caller.user_id
    )
    open_ones = [(str(one.pk), _told(one)) for one in mine.open()[:_MOST_SESSIONS]]
    return [
        FormInput("session", "Session", Widget.SELECT, value="",
              options=(("", "One of its own, closed at its end"), *open_ones),
              help="In a session, groups and state are the session's."),
        FormInput("pattern", "Pattern", Widget.SELECT, value=REACT, options=tuple(WORDS.items()),
              help="By a plan, it says how sure it is of each step before it takes any."),
        FormInput("confidence", "Ask a person below", value=f"{THRESHOLD:g}",
              help="Of a plan: steps that are less sure than this wait for a person."),
        FormInput("model", "Model", Widget.SELECT, value="",
              options=(("", f"The installation's ({usual})"), *choices(agent_requests.models()))),
        FormInput("shared_with", "Shared with",
              help="Agents that may go on from it, with commas between them. They need the same"
              " rights."),
    ]  # fmt: skip


def budgets() -> list[FormInput]:
    return [
        FormInput("max_iterations", "Turns", value=str(ITERATIONS),
              help=f"At most {MOST_ITERATIONS}. In the last one it gives the best answer it has."),
        FormInput("max_tokens", "Tokens", value=str(TOKENS),
              help="Of all it asks the model and is told."),
        FormInput("timeout_s", "Seconds", help="Empty: what the tool allows."),
        FormInput("max_cost", "Money", help="Empty: what its caller's budget allows."),
    ]  # fmt: skip


def groups(standing: PlaygroundContext) -> tuple[list[str], list[str]]:
    """The groups that are offered, and those of them that are checked initially."""
    granted = sorted(standing.caller.granted_groups - {WILDCARD})
    if WILDCARD in standing.caller.granted_groups:
        granted = [WILDCARD, *sorted({DEFAULT_GROUP, *standing.snapshot.groups})]
    usual = [DEFAULT_GROUP] if DEFAULT_GROUP in granted else granted[:1]
    return list(dict.fromkeys([*usual, *granted]))[:MOST_OFFERED], usual


def states(standing: PlaygroundContext) -> list[str]:
    tools = visible_tools(standing.viewer, standing.snapshot)
    named = {state for one in tools for state in one.definition.states} - {WILDCARD}
    return sorted(named | {DEFAULT_STATE})[:MOST_OFFERED]


def _told(session: Session) -> str:
    opened = f"{session.created_at:%d %b %H:%M}"
    return f"{session.state}, of {opened}, {', '.join(session.groups)}"[:90]
