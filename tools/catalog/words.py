"""The rows by which tools are found: written with each version, and complete from the start.

Of each tool the words of its current version, by their weight: A of its name, B of its title and
of what it can do, C of its description and category, D of its parameters, and of questions that it
answered before. Words are compared as `tools.definitions.words` has them.
"""

from collections.abc import Iterable
from typing import Any

from django.db import connection
from django.db.models import F

from tools.definitions.tool import Definition
from tools.definitions.words import words_of
from tools.models import Tool, ToolQuestion

MOST_QUESTIONS = 50  # of one tool, those asked most
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


def note_words(tool: Tool) -> None:
    """Of its current version. In the transaction that made it."""
    assert tool.version is not None
    asked = tool.questions.order_by("-times", "-last_at").values_list("question", flat=True)
    values: dict[str, Any] = _texts(tool.version.definition, asked[:MOST_QUESTIONS]) | {
        "tool": tool.pk,
        "organization": tool.organization_id,
        "digest": tool.version.digest,
    }
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, values)


def note_missing() -> int:
    """Of tools that have none, or those of another version. How many there were."""
    behind = (
        Tool.objects.present()
        .filter(version__isnull=False)
        .exclude(found_by__digest=F("version__digest"), found_by__isnull=False)
        .select_related("version")
    )
    count = 0
    for tool in behind.iterator(chunk_size=200):
        note_words(tool)
        count += 1
    return count


def _texts(definition: Definition, asked: Iterable[str]) -> dict[str, str]:
    name, able = str(definition["name"]), [definition["title"] or "", *definition["capabilities"]]
    return {
        "name": _words(name),
        "able": _words(*able),
        "about": _words(str(definition["description"]), str(definition["category"])),
        "inside": _words(*_of_parameters(definition["input_schema"]), *asked),
        "letters": _words(name, *able)[:2_000],
    }


def _words(*texts: str) -> str:
    return " ".join(words_of(" ".join(texts)[:_MOST_TEXT]))


def _of_parameters(schema: dict[str, Any]) -> Iterable[str]:
    properties = schema.get("properties", {})
    for name, parameter in properties.items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(parameter, dict):
            yield str(parameter.get("description", ""))


def note_question(tool: Tool, question: str) -> None:
    """A question that this tool has answered, in words."""
    row, new = ToolQuestion.objects.get_or_create(tool=tool, question=question)
    if not new:
        ToolQuestion.objects.filter(pk=row.pk).update(times=F("times") + 1)
    note_words(tool)
