"""`/search/`: search by name for pages and tools that the user may open, also for the command
palette."""

from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice

from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse

from tools.authorization.listings import visible_tools
from tools.catalog.search.tool_search import rank_tools, relevant_tools
from tools.catalog.snapshot import CatalogTool
from tools.web.pages import PageRequest, page, snapshot_of

TEMPLATE = "home/search.html"
MENU_TEMPLATE = "base.html#links"
MOST_TOOLS = 8
LONGEST_QUERY = 200


@dataclass(frozen=True)
class PageLink:
    label: str
    address: str


@page()
def search_page(request: PageRequest) -> HttpResponse:
    q = request.GET.get("q", "").strip()[:LONGEST_QUERY]
    context = {"q": q, "places": list(_find_pages(request, q)), "tools": _find_tools(request, q)}
    return render(request, f"{TEMPLATE}#found" if request.htmx else TEMPLATE, context)


def _find_pages(request: PageRequest, q: str) -> Iterator[PageLink]:
    """The pages whose names have, for each word of `q`, a word that starts with it."""
    wanted = q.casefold().split()
    for place in menu_links(request):
        words = place.label.casefold().split()
        if all(any(word.startswith(one) for word in words) for one in wanted):
            yield place


def _find_tools(request: PageRequest, q: str) -> list[CatalogTool]:
    if not q:
        return []
    snapshot = snapshot_of(request)
    found = relevant_tools(rank_tools(snapshot, q, visible_tools(request.caller, snapshot)))
    return [one.tool for one in islice(found, MOST_TOOLS)]


def menu_links(request: PageRequest) -> list[PageLink]:
    """The links of the user's menu, parsed from its template, so that they are written once."""
    reader = _LinkParser()
    reader.feed(render_to_string(MENU_TEMPLATE, request=request))
    return [*reader.found, PageLink("Profile", reverse("profile"))]


class _LinkParser(HTMLParser):
    """The text of each link, without the counter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[PageLink] = []
        self._address, self._inner = "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self._address = dict(attrs).get("href") or ""
        self._inner += tag == "span"

    def handle_endtag(self, tag: str) -> None:
        self._inner -= tag == "span"
        if tag == "a":
            self._address = ""

    def handle_data(self, data: str) -> None:
        if self._address and not self._inner and data.strip():
            self.found.append(PageLink(data.strip(), self._address))
