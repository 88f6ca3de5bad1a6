"""Names that a text field suggests. Up to a hundred are in the page; of more, others are searched
while they are typed. What is typed is kept whatever is suggested.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render

from tools.web.pages import PageRequest

MOST_OFFERED = 100
_TEMPLATE = "_parts/suggestions.html"


@dataclass(frozen=True)
class Suggestions:
    """`view` is the address that searches others; empty where all are here."""

    names: list[str]
    view: str


def first_names(names: Sequence[str] | QuerySet[Any, str], view: str) -> Suggestions:
    found = list(names[: MOST_OFFERED + 1])
    return Suggestions(found[:MOST_OFFERED], view if len(found) > MOST_OFFERED else "")


def matching_names(
    request: PageRequest, find: Callable[[str], Iterable[str] | QuerySet[Any, str]], longest: int
) -> HttpResponse:
    """The options of a field whose text is the one parameter."""
    words = str(next(iter(request.GET.values()), "")).strip()[:longest]
    found = find(words)
    limited = found[:MOST_OFFERED] if isinstance(found, QuerySet) else islice(found, MOST_OFFERED)
    return render(request, f"{_TEMPLATE}#options", {"names": list(limited)})
