"""The search index of tools: rows written with each version, and complete from the start.

Of each tool the words of its current version, by their weight: A of its name, B of its title and
of what it can do, C of its description and category, D of its parameters, and of questions that it
answered before. Words are compared as `tools.definitions.texts.names` has them.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from tools.definitions.texts.names import split_words
from tools.definitions.tool import Definition
from tools.models import Tool, ToolQuestion, ToolWords

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
        "inside": _tool_words(*_parameter_texts(definition["input_schema"]), *asked),
        "letters": _tool_words(name, *able)[:2_000],
    }


def _tool_words(*texts: str) -> str:
    return " ".join(split_words(" ".join(texts)[:_MOST_TEXT]))


def _parameter_texts(schema: dict[str, Any]) -> Iterable[str]:
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
