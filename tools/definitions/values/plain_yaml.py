"""A parser for untrusted YAML: the subset of YAML 1.2 that is equivalent to JSON.

`no`, `on` and `off` are texts, as are dates and clock times; tags other than the plain ones and
duplicate keys are refused, and merge keys where they are not asked for. Anchors may be used as long
as their expansion is bounded. Documents of the catalog are read with it, and inside the sandbox the
content that `validate_content` is given: it needs PyYAML and the standard library alone.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

type Path = tuple[str | int, ...]
type Note = Callable[[Path, int, bool], None]  # the line of a part, and whether it is its key's

MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_WEIGHT = 4 * 1024 * 1024
MAX_DOCUMENTS = 1_000
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNKNOWN = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MERGE = "<<"
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None, "true": True, "True": True,
    "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {None, "!", *(f"{_TAG}{kind}" for kind in ("str", "map", "seq"))}


class BadYaml(ValueError):
    """Not valid or not allowed YAML; `line` and `column` are where, from 1."""

    def __init__(self, message: str, mark: Any = None) -> None:
        super().__init__(message)
        self.line: int | None = mark.line + 1 if mark else None
        self.column: int | None = mark.column + 1 if mark else None


@dataclass
class _YamlReader:
    """Builds the documents from the parser's events."""

    events: Any
    note: Note
    foreign: bool
    most_values: int
    anchors: dict[str, tuple[Any, tuple[int, int]]] = field(default_factory=dict)
    count: int = 0
    weight: int = 0  # characters

    def next(self) -> Event:
        event: Event = next(self.events)
        self.grow(event, 1, _event_weight(event))
        return event

    def grow(self, event: Event, count: int, weight: int) -> None:
        self.count += count
        self.weight += weight
        if self.count > self.most_values:
            raise BadYaml(f"holds more than {self.most_values} values", event.start_mark)
        if self.weight > MAX_WEIGHT:
            raise BadYaml(f"stands for more than {MAX_WEIGHT} characters", event.start_mark)


def parse(
    text: str,
    note_of: Callable[[], Note],
    *,
    foreign: bool = False,
    most_values: int = MAX_VALUES,
) -> list[Any]:
    """Each document of the text; `note_of` makes for each the recorder of its parts' lines.

    In a `foreign` text, which the user cannot change, merge keys are read, and numbers that JSON
    does not know are refused. Raises `BadYaml`.
    """
    found: list[Any] = []
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    reading = _YamlReader(events, note_of(), foreign, most_values)
    try:
        while True:
            event = reading.next()
            if isinstance(event, DocumentStartEvent):
                reading.note, reading.anchors = note_of() if found else reading.note, {}
                found.append(_parse_value(reading, reading.next(), ()))
            if isinstance(event, DocumentEndEvent) and len(found) > MAX_DOCUMENTS:
                raise BadYaml(f"holds more than {MAX_DOCUMENTS} documents", event.start_mark)
    except StopIteration:
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(f"is not YAML: {error.problem or error.context}", mark) from None
    except yaml.YAMLError:
        raise BadYaml("is not YAML: it holds characters YAML does not know") from None


def _parse_value(reading: _YamlReader, event: Event, path: Path) -> Any:
    reading.note(path, _event_line(event), False)
    if len(path) > MAX_DEPTH:
        raise BadYaml(f"is nested deeper than {MAX_DEPTH} levels", event.start_mark)
    if isinstance(event, AliasEvent):
        return _expand_alias(reading, event)
    before = reading.count - 1, reading.weight - _event_weight(event)
    if isinstance(event, ScalarEvent):
        value = _parse_scalar(event)
        if reading.foreign and event.implicit[0] and _UNKNOWN.fullmatch(event.value):
            raise BadYaml(
                f"holds {event.value}, a number that JSON does not know", event.start_mark
            )
    elif not isinstance(event, SequenceStartEvent | MappingStartEvent):
        raise BadYaml("ends too early", event.start_mark)
    elif event.tag not in _PLAIN_TAGS:
        raise BadYaml("holds a tag; only plain values are read", event.start_mark)
    elif isinstance(event, SequenceStartEvent):
        value = _parse_sequence(reading, path)
    else:
        value = _parse_mapping(reading, path)
    if event.anchor:
        size = reading.count - before[0], reading.weight - before[1]
        reading.anchors[event.anchor] = (value, size)
    return value


def _expand_alias(reading: _YamlReader, event: AliasEvent) -> Any:
    """What an anchor stands for; counted as if it were written out."""
    name = event.anchor or ""
    if name not in reading.anchors:
        raise BadYaml(f"refers to {name[:60]!r}, which is not there yet", event.start_mark)
    value, size = reading.anchors[name]
    reading.grow(event, *size)
    return value


def _parse_sequence(reading: _YamlReader, path: Path) -> list[Any]:
    found: list[Any] = []
    while not isinstance(event := reading.next(), SequenceEndEvent):
        found.append(_parse_value(reading, event, (*path, len(found))))
    return found


def _parse_mapping(reading: _YamlReader, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    merged: list[dict[str, Any]] = []
    while not isinstance(event := reading.next(), MappingEndEvent):
        key = _parse_key(event)
        if key == _MERGE and isinstance(event, ScalarEvent) and event.implicit[0]:
            merged += _parse_merge(reading, event, (*path, key))
            continue
        if key in found:
            raise BadYaml(f"has the key {key[:60]!r} twice in one object", event.start_mark)
        reading.note((*path, key), _event_line(event), True)
        found[key] = _parse_value(reading, reading.next(), (*path, key))
    for others in merged:  # the object's own keys win, and of several the first
        found |= {key: value for key, value in others.items() if key not in found}
    return found


def _parse_merge(reading: _YamlReader, event: Event, path: Path) -> list[dict[str, Any]]:
    if not reading.foreign:
        raise BadYaml("has a merge key; write the fields out", event.start_mark)
    value = _parse_value(reading, reading.next(), path)
    others = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in others):
        raise BadYaml("merges what is no object", event.start_mark)
    return others


def _parse_key(event: Event) -> str:
    key = _parse_scalar(event) if isinstance(event, ScalarEvent) else None
    if isinstance(event, ScalarEvent) and type(key) is int and str(key) == event.value:
        return event.value  # such as the 200 of an OpenAPI document, which JSON has in quotes
    if not isinstance(key, str):
        raise BadYaml("has a key that is not a text", event.start_mark)
    return key


def _parse_scalar(event: ScalarEvent) -> Any:
    if event.tag not in _PLAIN_TAGS:
        raise BadYaml("holds a tag; only plain values are read", event.start_mark)
    text = event.value
    if not event.implicit[0] or event.tag is not None:
        return text  # quoted, or marked as a text
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= 20 and _INTEGER.fullmatch(text):
        return int(text)
    if len(text) <= 40 and _NUMBER.fullmatch(text):
        return float(text)
    return text


def _event_weight(event: Event) -> int:
    return len(event.value) if isinstance(event, ScalarEvent) else 0


def _event_line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
