"""Finds tools that are similar to another one, by the words of both, without a database query.

The ranking is BM25 over weighted fields, with a word's contribution to a tool computed when the
index is built; a search only sums. The index belongs to a snapshot, and parsed definitions are
cached by digest, so that a change of one tool parses one tool again.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from tools.catalog.search.tool_search import ToolSearchHit
from tools.catalog.search.tool_words import parameter_texts
from tools.catalog.snapshot import CatalogTool, Snapshot
from tools.definitions.texts.names import split_words

_FIELDS = (("name", 4.0), ("title", 3.0), ("capabilities", 3.0), ("category", 1.0),
           ("description", 1.0))  # fmt: skip
_OF_PARAMETERS = 0.4
_SATURATION, _LENGTH = 1.2, 0.6  # k1 and b of BM25
_PREFIX = 0.5  # what the beginning of a word is worth beside the whole word
_SHORTEST_PREFIX = 3
_MOST_PREFIXES = 40
_MOST_WORDS = 32
MOST_READ = 30_000  # entries of the index one search reads; rare words come first
_KEPT = 20_000

Terms = dict[str, float]
Forms = list[tuple[str, float]]
_terms: dict[str, Terms] = {}
_indexes: "WeakKeyDictionary[Snapshot, Index]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Index:
    """By word: the positions of the tools that contain it, with weights."""

    tools: tuple[CatalogTool, ...]
    entries: dict[str, list[tuple[int, float]]] = field(repr=False)
    words: list[str] = field(repr=False)  # sorted

    def ranked(self, text: str, most_read: int = MOST_READ) -> Iterator[ToolSearchHit]:
        """The tools that share a word with the text, the best first."""
        scores, matched = [0.0] * len(self.tools), [0] * len(self.tools)
        for forms in self._telling(text, most_read):
            for place, weight in self._hits(forms):
                scores[place] += weight
                matched[place] += 1
        # A tool that matches all words ranks above one that matches a single word strongly.
        found = [place for place, count in enumerate(matched) if count]
        for place in found:
            scores[place] *= math.sqrt(matched[place])
        found.sort(key=lambda place: -scores[place])
        return (ToolSearchHit(self.tools[place], scores[place], scores[place]) for place in found)

    def _telling(self, text: str, left: int) -> Iterator[Forms]:
        """The words of a text, the rare ones first, while there is something `left` to be read: a
        word that every tool has distinguishes none."""
        asked = dict.fromkeys(split_words(text)[:_MOST_WORDS])
        words = sorted((self._forms(word) for word in asked), key=self._size)
        for at, forms in enumerate(words):
            left -= self._size(forms)
            if left < 0 and at:
                return
            yield forms

    def _hits(self, forms: Forms) -> Iterable[tuple[int, float]]:
        """Each tool's score for a word: the maximum over the word's forms."""
        if len(forms) == 1 and forms[0][1] == 1.0:
            return self.entries[forms[0][0]]
        hits: dict[int, float] = {}
        for form, worth in forms:
            for place, weight in self.entries[form]:
                if weight * worth > hits.get(place, 0.0):
                    hits[place] = weight * worth
        return hits.items()

    def _size(self, forms: Forms) -> int:
        return sum(len(self.entries[form]) for form, _ in forms)

    def _forms(self, word: str) -> Forms:
        """The word itself where it is known, and longer ones that begin with it."""
        found = [(word, 1.0)] if word in self.entries else []
        if len(word) >= _SHORTEST_PREFIX or not word.isascii():
            at = bisect_left(self.words, word)
            for longer in self.words[at : at + _MOST_PREFIXES]:
                if not longer.startswith(word):
                    break
                if longer != word:
                    found.append((longer, _PREFIX))
        return found


def rank_similar(
    snapshot: Snapshot, text: str, most_read: int = MOST_READ
) -> Iterator[ToolSearchHit]:
    """Matching tools of any status and group; the caller checks who may use them."""
    return index_of(snapshot).ranked(text, most_read)


def index_of(snapshot: Snapshot) -> Index:
    """Kept as long as the snapshot, apart from what clients can make it forget."""
    found = _indexes.get(snapshot)
    if found is None:
        found = _indexes[snapshot] = build(snapshot.sorted_tools)
    return found


def build(tools: tuple[CatalogTool, ...]) -> Index:
    documents = [terms_of(tool) for tool in tools]
    lengths = [sum(terms.values()) for terms in documents]
    usual = sum(lengths) / len(lengths) if lengths else 1.0
    spread = Counter(word for terms in documents for word in terms)
    rarity = {
        word: math.log(1 + (len(tools) - count + 0.5) / (count + 0.5))
        for word, count in spread.items()
    }
    entries: dict[str, list[tuple[int, float]]] = {word: [] for word in spread}
    for place, (terms, length) in enumerate(zip(documents, lengths, strict=True)):
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * length / usual)
        for word, count in terms.items():
            entries[word].append((place, rarity[word] * count / (count + norm)))
    return Index(tools, entries, sorted(entries))


def terms_of(tool: CatalogTool) -> Terms:
    """The words of a definition with their weights."""
    known = _terms.get(tool.digest)
    if known is None:
        if len(_terms) >= _KEPT:
            _terms.clear()
        known = _terms[tool.digest] = _read(tool.definition.raw)
    return known


def _read(raw: dict[str, Any]) -> Terms:
    terms: dict[str, float] = defaultdict(float)
    for name, weight in _FIELDS:
        for word in split_words(_text(raw[name])):
            terms[word] += weight
    for text in parameter_texts(raw["input_schema"]):
        for word in split_words(text):
            terms[word] += _OF_PARAMETERS
    return dict(terms)


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value or "")
