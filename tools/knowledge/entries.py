"""Derives the search entry of an entity from its statements in a graph. Pure."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyoxigraph as ox

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_RDFS, _SKOS = "http://www.w3.org/2000/01/rdf-schema#", "http://www.w3.org/2004/02/skos/core#"
_TERMS, _DC = "http://purl.org/dc/terms/", "http://purl.org/dc/elements/1.1/"
_SCHEMA, _FOAF = ("http://schema.org/", "https://schema.org/"), "http://xmlns.com/foaf/0.1/"
LABELS = frozenset(
    {
        f"{_RDFS}label", f"{_SKOS}prefLabel", f"{_SKOS}altLabel", f"{_FOAF}name",
        f"{_TERMS}title", f"{_DC}title", *(f"{one}name" for one in _SCHEMA),
    }
)  # fmt: skip
DESCRIPTIONS = frozenset(
    {
        f"{_RDFS}comment", f"{_SKOS}definition", f"{_TERMS}description", f"{_DC}description",
        *(f"{one}description" for one in _SCHEMA),
    }
)  # fmt: skip
LONGEST_IRI = 2_000  # bytes
LONGEST_NAME = 200
_MOST_TEXT = 100_000  # characters of one entity that are indexed
_MOST_SHOWN, _LONGEST_SHOWN = 50, 500
_MOST_TYPES = 50
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ACCENTS = re.compile("[\u0300-\u036f]")


@dataclass
class EntityIndexEntry:
    """The search entry of one entity. `texts` are its labels, descriptions, and other literals."""

    iri: str
    types: list[str] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)
    descriptions: list[tuple[str, str]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    room: int = _MOST_TEXT

    @property
    def shown(self) -> dict[str, list[tuple[str, str]]]:
        return {
            "labels": [(text[:_LONGEST_SHOWN], tag) for text, tag in self.labels[:_MOST_SHOWN]],
            "descriptions": [
                (text[:_LONGEST_SHOWN], tag) for text, tag in self.descriptions[:_MOST_SHOWN]
            ],
        }

    @property
    def names(self) -> list[str]:
        return sorted({name_of(text) for text, _ in self.labels})

    @property
    def kinds(self) -> list[str]:
        """Each type by its IRI and by its local name."""
        return sorted({*self.types, *(name_of(local_name(one)) for one in self.types)})

    def add(self, predicate: str, thing: ox.NamedNode | ox.Literal) -> None:
        if isinstance(thing, ox.NamedNode):
            if predicate == TYPE and fits(thing.value) and len(self.types) < _MOST_TYPES:
                self.types.append(thing.value)
            return
        text = plain(thing.value)[: self.room]
        self.room -= len(text)
        if not text:
            return
        if predicate in LABELS:
            self.labels.append((text, thing.language or ""))
        elif predicate in DESCRIPTIONS:
            self.descriptions.append((text, thing.language or ""))
        else:
            self.others.append(text)


def entries(n_triples: bytes) -> list[EntityIndexEntry]:
    """One for each IRI that is a subject. Raises `SyntaxError`, `ValueError`."""
    found: dict[str, EntityIndexEntry] = {}
    for one in ox.parse(n_triples, format=ox.RdfFormat.N_TRIPLES):
        if isinstance(one.subject, ox.NamedNode) and isinstance(
            one.object, ox.NamedNode | ox.Literal
        ):
            entry = found.setdefault(one.subject.value, EntityIndexEntry(one.subject.value))
            entry.add(one.predicate.value, one.object)
    return list(found.values())


def subjects(iris: Iterable[str]) -> list[str]:
    """Valid subjects, each once; others are no IRIs, or too long for an index."""
    return sorted({iri for iri in iris if fits(iri)})


def fits(iri: str) -> bool:
    try:
        ox.NamedNode(iri)
        return len(iri.encode()) <= LONGEST_IRI and not _CONTROL.search(iri)
    except ValueError:  # UnicodeEncodeError is one too
        return False


def plain(text: str) -> str:
    return _CONTROL.sub(" ", text)


def fold(text: str) -> str:
    """Without differences of case, accents and forms of one letter."""
    apart = unicodedata.normalize("NFKD", plain(text)).casefold()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def name_of(text: str) -> str:
    """A text in the form in which whole names are compared."""
    return " ".join(fold(text[: 4 * LONGEST_NAME]).split())[:LONGEST_NAME]


def local_name(iri: str) -> str:
    return plain(unquote(re.split(r"[/#:]", iri.rstrip("/#:"))[-1])) or iri


def local_words(iri: str) -> str:
    """`atomicNumber_2` is found by atomic, and by number."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[_.-]+", " ", local_name(iri))
