"""Every page there is, with what an organization has in its places: from the resolver, so that a
page that comes later is among them."""

from django.contrib import admin
from django.urls import reverse

from tests.browser.test_accessibility import ASKED, SHOWN
from tests.tools.api.test_authorization_matrix import Side

LISTS = ["admin:index"] + [
    f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    for model in admin.site._registry
]
# The same pages asked for what costs most; {…} is what `Side` has.
ASKED_FOR_MORE = {
    "catalog, all": "/",
    "catalog, a word": "/?q=invoice",
    "catalog, a state": "/?status=active&sort=-updated",
    "catalog, the last page": "/?page=99999",
    "home, 14 days": "/home/?over=14d",
    "usage by agent": "/usage/?by=agent",
    "usage by tool": "/usage/?by=tool",
    "usage by group": "/usage/?by=group",
    "usage of a tool": "/usage/?tool={tool}",
    "usage of an agent": "/usage/?agent={agent}&by=tool",
    "executions, failed": "/executions/?status=failed",
    "executions, a status": "/executions/?status=ValidationError",
    "executions, a status that is not there": "/executions/?status=SandboxError",
    "executions of a tool": "/executions/?tool={tool}",
    "executions of an agent": "/executions/?agent={agent}",
    "executions of nobody": "/executions/?agent=nobody",
    "audit, a word": "/audit/?q=accept",
    "audit, no such word": "/audit/?q=nowhere",
    "audit of a tool": "/audit/?tool={tool}",
    "audit, a code": "/audit/?code=TOOL.END",
    "messages, a state": "/messages/?state=failed",
    "agents, sorted": "/agents/?sort=-state&q=o",
    "services, live": "/services/?q=e",
    "changes, rejected": "/changes/?state=rejected",
    "alerts, acknowledged": "/audit/alerts/?show=acknowledged",
    "alerts, channels": "/audit/alerts/?show=channels",
    "a server, stdio": "/servers/new/?transport=stdio",
    "knowledge, all": "/knowledge/",
    "admin executions, a word": "/admin/tools/execution/?q=invoice",
    "admin executions, a status": "/admin/tools/execution/?status__exact=Failed",
    "admin tools, a word": "/admin/tools/tool/?q=invoice",
    "readiness": "/readyz",
}


def addresses_of(side: Side, *, tool: str, agent: str) -> dict[str, str]:
    """By the page's name. `tool` and `agent` are those that were busiest."""
    asked = {name: query.replace("-axe", f"-{side.label}") for name, query in ASKED.items()}
    pages = {name: reverse(name, kwargs=side.place(name)) + asked.get(name, "") for name in SHOWN}
    more = {name: one.format(tool=tool, agent=agent) for name, one in ASKED_FOR_MORE.items()}
    busiest = {
        f"{name}, the busiest": reverse(name, kwargs={"name": tool})
        for name in ("tool", "tool-who", "tool-usage", "tool-edit")
    }
    return pages | busiest | more | {name: reverse(name) for name in LISTS}
