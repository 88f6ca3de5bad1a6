"""`/choices/agents/…/`: the agents that a form offers. Up to a hundred are a list; more are
searched while their names are typed. What was chosen is offered whatever else is.
"""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpResponse

from tools.accounts.callers import impersonable_agents
from tools.accounts.user_permissions import may
from tools.models import Agent
from tools.ui.suggestions import first_names, matching_names
from tools.web.pages import PageRequest, page

OFFERED = EXPLAINED, CALLED_AS = "explained", "called-as"


@dataclass(frozen=True)
class AgentChoices:
    """The agents that a field offers; `view` is the address that searches others."""

    view: str
    names: list[str]
    chosen: str

    def __bool__(self) -> bool:
        return bool(self.names)


def explained_agents(request: PageRequest, chosen: str = "") -> AgentChoices:
    """The agents that the user may ask about."""
    return _choices(request, EXPLAINED, chosen)


def called_as_agents(request: PageRequest, chosen: str = "") -> AgentChoices:
    """The agents that the user may impersonate."""
    return _choices(request, CALLED_AS, chosen)


@page()
def search_agents(request: PageRequest, of: str) -> HttpResponse:
    """The options of a field of agents."""
    rows = _offered(request, of).order_by("slug").values_list("slug", flat=True)
    return matching_names(request, lambda words: rows.filter(slug__icontains=words), 63)


def _choices(request: PageRequest, of: str, chosen: str) -> AgentChoices:
    rows = _offered(request, of).order_by("slug").values_list("slug", flat=True)
    first = first_names(rows, f"{of}-agents")
    kept = [chosen] if chosen and chosen not in first.names else []
    return AgentChoices(first.view, kept + first.names, chosen)


def _offered(request: PageRequest, of: str) -> QuerySet[Agent]:
    if of == CALLED_AS:
        return impersonable_agents(request.caller.user_id).filter(active=True)
    if not (may(request.caller, "view_agent") and may(request.caller, "view_tool")):
        return Agent.objects.none()
    return Agent.objects.filter(organization_id=request.caller.organization_id)
