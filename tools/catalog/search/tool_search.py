"""Finds tools by words, with PostgreSQL full-text search (`tools.catalog.search.tool_words`).

Rare words weigh more than common ones: the rarest words of a question select the candidates, and
those that match most of it rank first. The frequency of a word is estimated from a sample. Prefixes
of words count as words. Where no tool has any of them, similarly spelled names are found.

Only the tools that the caller may find are counted: ranks reveal nothing of others.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.texts.names import split_words

MOST_FOUND = 300  # and ranked
_MOST_WORDS = 32  # of a question
_MOST_RANKING = 12  # of them, the most distinctive
_MOST_ALIKE = 8  # of them: those that are compared by their letters
_MOST_READ = 1_000  # hits of words, if it is not a single one that has more
_SAMPLE = 250  # tools
_SHORTEST_BEGINNING = 3
_NOISE = 0.05  # of the best tool's `worth`
_ALIKE = 50
_LIKENESS = 0.4

_SAY_NOTHING = frozenset(
    split_words(
        "a an and are as at be by can do for from how i in is it me my of on or please that the"
        " this to up was we what when where which with you your"
    )
)

_SAMPLED = """
SELECT count(*) FILTER (WHERE words @@ w.query)
FROM tools_toolwords, unnest(%(queries)s::tsquery[]) WITH ORDINALITY AS w(query, at)
WHERE tool_id = ANY(%(sample)s::uuid[])
GROUP BY w.at ORDER BY w.at
"""
# Tools with common words are read in this order: all of the question, in the name, in the title.
_RANKED = """
WITH looked_at AS MATERIALIZED (
    SELECT tool_id, words FROM tools_toolwords
    WHERE words @@ %(any)s::tsquery AND {within}
    ORDER BY words @@ %(telling)s::tsquery DESC, words @@ %(all)s::tsquery DESC,
        words @@ %(named)s::tsquery DESC, words @@ %(titled)s::tsquery DESC, tool_id
    LIMIT %(limit)s
), hit AS MATERIALIZED (
    SELECT tool_id, w.at, w.count, rank
    FROM looked_at, unnest(%(queries)s::tsquery[], %(counts)s::float8[])
        WITH ORDINALITY AS w(query, count, at),
    LATERAL ts_rank('{{0.2,0.4,0.8,1.0}}', words, w.query, 1) AS rank WHERE rank > 0
), word AS (
    SELECT at, ln(1 + (greatest(%(size)s - count, 0) + 0.5) / (count + 0.5)) AS worth
    FROM (SELECT at, greatest(max(count), count(*)) AS count FROM hit GROUP BY at) AS counted
)
SELECT tool_id, sum(worth * rank) * power(sum(worth), 2) AS score, sum(worth * rank)
FROM hit JOIN word USING (at) GROUP BY tool_id ORDER BY score DESC
"""
_BY_LETTERS = """
SELECT tool_id, alike, alike
FROM (SELECT tool_id, (SELECT max(word_similarity(word, letters))
        FROM unnest(%(words)s::text[]) AS word) AS alike
    FROM tools_toolwords WHERE ({alike}) AND {within}) AS e
ORDER BY alike DESC, tool_id LIMIT %(limit)s
"""
_ONLY = "tool_id = ANY(%(among)s::uuid[])"
_OF_PLACE = "organization_id = %(place)s"
_BUT = f"{_OF_PLACE} AND tool_id NOT IN (SELECT unnest(%(among)s::uuid[]))"
_THRESHOLD = "SELECT set_config('pg_trgm.word_similarity_threshold', %s, true)"

Scores = list[tuple[UUID, float, float]]


@dataclass(frozen=True, slots=True)
class ToolSearchHit:
    """`score` is its rank; `worth` the weight of its words, however few of the question they
    are."""

    tool: CatalogTool
    score: float
    worth: float


def rank_tools(
    snapshot: Snapshot, text: str, among: Collection[CatalogTool] | None = None
) -> list[ToolSearchHit]:
    """The tools that fit, the best first; at most `MOST_FOUND`. `among`: only of these.

    Of any status and group; the caller checks who may use them.
    """
    words = _words(text)
    within = _Within(snapshot, list(snapshot.sorted_tools if among is None else among))
    if not words or not within.tools:
        return []
    scores = _by_words(within, words) or _by_letters(within, words)
    known = snapshot.settle(
        ("tools by id",), lambda: {one.id: one for one in snapshot.sorted_tools}
    )
    found = [
        ToolSearchHit(known[one], score, worth) for one, score, worth in scores if one in known
    ]
    return sorted(found, key=lambda one: (-one.score, one.tool.name.lower()))


def _words(text: str) -> list[str]:
    """Stop words are kept only where there are no others: with few tools, counts do not show how
    common a word is."""
    words = list(dict.fromkeys(split_words(text)))
    return ([word for word in words if word not in _SAY_NOTHING] or words)[:_MOST_WORDS]


def relevant_tools(found: Iterable[ToolSearchHit]) -> Iterator[ToolSearchHit]:
    """Without those that share only a word such as "the" with what was asked. The threshold depends
    on the best shown tool only, so that it reveals nothing of others."""
    best: float | None = None
    for one in found:
        best = one.worth if best is None else best
        if one.worth >= best * _NOISE:
            yield one


class _Within:
    """The tools that may be found, as SQL conditions: by themselves or, where they are most of the
    catalog, by those that are left out."""

    def __init__(self, snapshot: Snapshot, tools: list[CatalogTool]) -> None:
        self.snapshot, self.tools = snapshot, tools
        every = snapshot.sorted_tools
        if len(tools) * 2 <= len(every):
            self.clause, named = _ONLY, tools
        elif len(tools) < len(every):
            names = {tool.name for tool in tools}
            self.clause, named = _BUT, [tool for tool in every if tool.name not in names]
        else:
            self.clause, named = _OF_PLACE, []
        self.values: dict[str, Any] = {
            "place": snapshot.organization_id,
            "among": self.array(named),
        }

    def array(self, tools: list[CatalogTool]) -> str:
        """As one text: thousands of values are slow to adapt one by one."""
        texts = self.snapshot.settle(
            ("tools as text",),
            lambda: {one.name: str(one.id) for one in self.snapshot.sorted_tools},
        )
        return "{" + ",".join([texts[tool.name] for tool in tools]) + "}"

    def sample(self) -> list[CatalogTool]:
        """Evenly out of them all, the same each time."""
        step = max(1, len(self.tools) / _SAMPLE)
        return [self.tools[int(at * step)] for at in range(min(_SAMPLE, len(self.tools)))]

    def ask(self, statement: str, values: dict[str, Any], **parts: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(within=self.clause, **parts), self.values | values)
            return cursor.fetchall()


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    count: float  # how many tools have it, as the sample says

    def query(self, classes: str = "") -> str:
        """Words hold letters and digits only: nothing in them is query syntax."""
        prefix = "*" if len(self.text) >= _SHORTEST_BEGINNING or not self.text.isascii() else ""
        return f"{self.text}:{prefix}{classes}".rstrip(":")


def _by_words(within: _Within, texts: list[str]) -> Scores:
    words = sorted(_counted(within, texts), key=lambda word: word.count)[:_MOST_RANKING]
    unseen = [word for word in words if not word.count]
    # A word that is not in the sample may be in no tool: then the other words select.
    return _chosen(within, words, words) or _chosen(within, words, words[len(unseen) :])


def _counted(within: _Within, texts: list[str]) -> list[_Word]:
    sample = within.sample()
    queries = [_Word(text, 0).query() for text in texts]
    rows = within.ask(_SAMPLED, {"queries": queries, "sample": within.array(sample)})
    share = len(within.tools) / len(sample)
    counts = [count * share for (count,) in rows] or [0.0] * len(texts)
    return [_Word(text, count) for text, count in zip(texts, counts, strict=True)]


def _chosen(within: _Within, words: list[_Word], choosing: list[_Word]) -> Scores:
    telling, read = _up_to(choosing, MOST_FOUND), _up_to(choosing, _MOST_READ)
    if not telling:
        return []
    values = {
        "any": _either(read),
        "telling": _either(telling),
        "all": " & ".join(word.query() for word in choosing),
        "named": _either(read, "A"),
        "titled": _either(read, "B"),
        "queries": [word.query() for word in words],
        "counts": [word.count for word in words],
        "size": len(within.tools),
        "limit": MOST_FOUND,
    }
    return _scores(within.ask(_RANKED, values))


def _up_to(words: list[_Word], most: int) -> list[_Word]:
    """The rare ones first, while there is something left to be read; one in any case."""
    left, found = float(most), list[_Word]()
    for word in words:
        left -= word.count
        if left < 0 and found:
            break
        found.append(word)
    return found


def _either(words: list[_Word], classes: str = "") -> str:
    return " | ".join(word.query(classes) for word in words)


def _by_letters(within: _Within, texts: list[str]) -> Scores:
    long = [text for text in texts if len(text) >= _SHORTEST_BEGINNING][:_MOST_ALIKE]
    if not long:
        return []
    each = {f"word_{at}": text for at, text in enumerate(long)}
    alike = " OR ".join(f"%({name})s <%% letters" for name in each)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_THRESHOLD, [str(_LIKENESS)])
        values: dict[str, Any] = {"words": long, "limit": _ALIKE, **each}
        return _scores(within.ask(_BY_LETTERS, values, alike=alike))


def _scores(rows: list[tuple[Any, ...]]) -> Scores:
    return [(tool, float(score), float(worth)) for tool, score, worth in rows]
