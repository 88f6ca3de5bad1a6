"""Learns from tool searches: the words of a question are stored with the tool that was then called
with success, so that a similar question finds it sooner.

Only words are kept, none of what was masked as a secret, and their weight is small: no user can
move a tool far up for others by asking for it.
"""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from audit.actions import redactor_of
from tools.catalog.registry import CatalogTool
from tools.catalog.search.words import forget_questions, lock_words, note_question
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.texts.names import split_words
from tools.models import Execution, ToolSearch
from tools.models.tool import LONGEST_QUESTION

WITHIN = timedelta(minutes=10)  # after a search a call counts as what it led to
DUE_AFTER = WITHIN
MOST_FOUND = 25
MOST_WAITING = 10_000  # searches of one organization; beyond that none is remembered
MOST_OF_CALLER = 100  # of one caller
KEPT = timedelta(days=180)  # after a question was asked last
_MARK = re.compile(r"\[(redacted|whole) [^\]]*\]")


def note_search(caller: Caller, question: str, found: Iterable[CatalogTool]) -> None:
    """Store a search and its results, until it is known which tool was called."""
    words = _normalize_question(caller, question)
    tools = [tool.id for tool, _ in zip(found, range(MOST_FOUND), strict=False)]
    if not words or not tools:
        return
    waiting = ToolSearch.objects.filter(organization_id=caller.organization_id)
    asker: dict[str, Any] = {"user": caller.user_id, "agent": caller.agent_id}
    own = waiting.filter(**asker)
    if _reach(own, MOST_OF_CALLER) or _reach(waiting, MOST_WAITING):
        return
    ToolSearch.objects.create(
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        agent_id=caller.agent_id,
        question=words,
        found=tools,
    )


def _reach(rows: QuerySet[ToolSearch], count: int) -> bool:
    return rows[count - 1 : count].exists()


def _normalize_question(caller: Caller, question: str) -> str:
    clean = redactor_of(caller.organization).clean(question[:4_000])
    words = dict.fromkeys(split_words(_MARK.sub(" ", clean)))
    return " ".join(words)[:LONGEST_QUESTION].strip()


def learn_questions() -> int:
    """Evaluate the searches that are old enough. Returns how many had a successful call."""
    due = ToolSearch.objects.filter(asked_at__lt=Now() - DUE_AFTER).order_by("asked_at")
    taught = sum(map(_learn_question, list(due.values_list("pk", flat=True)[:MOST_WAITING])))
    forget_questions(KEPT)
    return taught


@transaction.atomic
def _learn_question(pk: int) -> bool:
    """Whether one of the tools it found was called with success; the first one is the answer."""
    search = ToolSearch.objects.select_for_update(skip_locked=True).filter(pk=pk).first()
    if search is None:
        return False
    called = _called_after(search)
    tool = lock_words(called) if called else None
    if tool is not None:
        note_question(tool, search.question)
    search.delete()
    return tool is not None


def _called_after(search: ToolSearch) -> UUID | None:
    caller: dict[str, Any] = {"user": search.user_id, "agent": search.agent_id}
    return (
        Execution.objects.filter(
            **caller,
            organization_id=search.organization_id,
            status=Status.SUCCESS,
            tool_version__tool__in=search.found,
            created_at__gte=search.asked_at,
            created_at__lt=search.asked_at + WITHIN,
        )
        .order_by("created_at")
        .values_list("tool_version__tool", flat=True)
        .first()
    )
