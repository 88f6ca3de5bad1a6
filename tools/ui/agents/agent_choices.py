"""`/choices/agents/…/`: the agents that a form offers. Up to a hundred are a list; more are
searched while their names are typed. What was chosen is offered whatever else is.
"""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tools.accounts.callers import impersonable_agents
from tools.accounts.user_permissions import may
from tools.models import Agent
from tools.web.pages import PageRequest, page

MOST_OFFERED = 100
OFFERED = EXPLAINED, CALLED_AS = "explained", "called-as"
_TEMPLATE = "_parts/agent_choice.html"


@dataclass(frozen=True)
class AgentChoices:
    """The agents that a field offers. `of` says which, where they are searched."""

    of: str
    names: list[str]
    chosen: str
    searched: bool

    @property
    def view(self) -> str:
        """The name of the address that searches them."""
        return f"{self.of}-agents"

    def __bool__(self) -> bool:
        return bool(self.names)


def explained_agents(request: PageRequest, chosen: str = "") -> AgentChoices:
    """The agents that the user may ask about."""
    return _choices(request, EXPLAINED, chosen)


def called_as_agents(request: PageRequest, chosen: str = "") -> AgentChoices:
    """The agents that the user may impersonate."""
    return _choices(request, CALLED_AS, chosen)


@require_safe
@page
def search_agents(request: PageRequest, of: str) -> HttpResponse:
    """The options of a field whose text is the one parameter."""
    words = str(next(iter(request.GET.values()), "")).strip()[:63]
    found = _offered(request, of).filter(slug__icontains=words).order_by("slug")
    names = found.values_list("slug", flat=True)[:MOST_OFFERED]
    return render(request, f"{_TEMPLATE}#options", {"names": names})


def _choices(request: PageRequest, of: str, chosen: str) -> AgentChoices:
    rows = _offered(request, of).order_by("slug").values_list("slug", flat=True)
    names = list(rows[: MOST_OFFERED + 1])
    searched = len(names) > MOST_OFFERED
    offered = names[:MOST_OFFERED]
    kept = [chosen] if chosen and chosen not in offered else []
    return AgentChoices(of, kept + offered, chosen, searched)


def _offered(request: PageRequest, of: str) -> QuerySet[Agent]:
    if of == CALLED_AS:
        return impersonable_agents(request.caller.user_id).filter(active=True)
    if not (may(request.caller, "view_agent") and may(request.caller, "view_tool")):
        return Agent.objects.none()
    return Agent.objects.filter(organization_id=request.caller.organization_id)
