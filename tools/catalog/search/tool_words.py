"""The search index of tools: rows written with each version, and complete from the start.

Of each tool the words of its current version, by their weight: A of its name, B of its title and
of what it can do, C of its description and category, D of its parameters, and of questions that it
answered before. Words are compared as `tools.definitions.texts.names` has them.
"""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from audit.actions import redactor_of
from tools.catalog.snapshot import CatalogTool
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.definitions.texts.names import split_words
from tools.definitions.tool import Definition
from tools.models import Execution, Tool, ToolQuestion, ToolSearch, ToolWords
from tools.models.tool import LONGEST_QUESTION

MOST_QUESTIONS = 50  # of one tool, those asked most
MOST_KEPT = 200  # of one tool, the latest
_MOST_FORGOTTEN = 1_000  # tools in one round
_MOST_TEXT = 50_000
_KEEP = """
INSERT INTO tools_toolwords (tool_id, organization_id, digest, words, letters)
VALUES (%(tool)s, %(organization)s, %(digest)s,
    setweight(to_tsvector('simple', %(name)s), 'A')
    || setweight(to_tsvector('simple', %(able)s), 'B')
    || setweight(to_tsvector('simple', %(about)s), 'C')
    || setweight(to_tsvector('simple', %(inside)s), 'D'), %(letters)s)
ON CONFLICT (tool_id) DO UPDATE SET digest = excluded.digest, words = excluded.words,
    letters = excluded.letters
"""
WITHIN = timedelta(minutes=10)  # after a search a call counts as what it led to
DUE_AFTER = WITHIN
MOST_FOUND = 25
MOST_WAITING = 10_000  # searches of one organization; beyond that none is remembered
MOST_OF_CALLER = 100  # of one caller
KEPT = timedelta(days=180)  # after a question was asked last
_MARK = re.compile(r"\[(redacted|whole) [^\]]*\]")


def note_words(tool: Tool, *, new: bool = False) -> None:
    """Index the words of the tool's current version. Call it in the transaction that creates it. A
    `new` tool has no questions."""
    assert tool.version is not None
    asked = tool.questions.none() if new else tool.questions.order_by("-times", "-last_at")
    questions = asked.values_list("question", flat=True)[:MOST_QUESTIONS]
    values: dict[str, Any] = _tool_texts(tool.version.definition, questions) | {
        "tool": tool.pk,
        "organization": tool.organization_id,
        "digest": tool.version.digest,
    }
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, values)


def forget_words(tool: Tool) -> None:
    """Delete the words and questions of a deleted tool."""
    ToolWords.objects.filter(tool=tool).delete()
    tool.questions.all().delete()


def note_missing() -> int:
    """Index tools that have no words, or those of another version. Returns how many."""
    ToolWords.objects.filter(tool__deleted_at__isnull=False).delete()
    behind = (
        Tool.objects.present()
        .filter(version__isnull=False)
        .exclude(found_by__digest=F("version__digest"), found_by__isnull=False)
        .values_list("pk", flat=True)
    )
    return sum(_note_again(pk) for pk in list(behind))


@transaction.atomic
def _note_again(pk: UUID) -> bool:
    tool = lock_words(pk)
    if tool is not None:
        note_words(tool)
    return tool is not None


def lock_words(pk: UUID) -> Tool | None:
    """The tool with its row locked. A process that writes words outside of a change locks one tool
    at a time, so that two never deadlock."""
    rows = Tool.objects.present().filter(version__isnull=False).select_for_update(no_key=True)
    return rows.filter(pk=pk).first()


def _tool_texts(definition: Definition, asked: Iterable[str]) -> dict[str, str]:
    name, able = str(definition["name"]), [definition["title"] or "", *definition["capabilities"]]
    return {
        "name": _tool_words(name),
        "able": _tool_words(*able),
        "about": _tool_words(str(definition["description"]), str(definition["category"])),
        "inside": _tool_words(*parameter_texts(definition["input_schema"]), *asked),
        "letters": _tool_words(name, *able)[:2_000],
    }


def _tool_words(*texts: str) -> str:
    return " ".join(split_words(" ".join(texts)[:_MOST_TEXT]))


def parameter_texts(schema: dict[str, Any]) -> Iterable[str]:
    """The names of a schema's parameters, and what they are for."""
    properties = schema.get("properties", {})
    for name, parameter in properties.items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(parameter, dict):
            yield str(parameter.get("description", ""))


def note_question(tool: Tool, question: str) -> None:
    """A question that this tool, which is `locked`, has answered, in words."""
    row, new = ToolQuestion.objects.get_or_create(tool=tool, question=question)
    if not new:
        ToolQuestion.objects.filter(pk=row.pk).update(times=F("times") + 1, last_at=Now())
    beyond = tool.questions.order_by("-last_at", "-pk").values("pk")[MOST_KEPT:]
    ToolQuestion.objects.filter(pk__in=beyond).delete()
    note_words(tool)


def forget_questions(age: timedelta) -> int:
    """Deletes questions that were not asked again within `age`; returns the number of affected
    tools."""
    old = Q(last_at__lt=Now() - age)
    tools = ToolQuestion.objects.filter(old).values_list("tool", flat=True).distinct()
    return sum(_forget(pk, old) for pk in list(tools[:_MOST_FORGOTTEN]))


@transaction.atomic
def _forget(pk: UUID, old: Q) -> bool:
    tool = lock_words(pk)
    ToolQuestion.objects.filter(old, tool=pk).delete()
    if tool is not None:
        note_words(tool)
    return True


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
