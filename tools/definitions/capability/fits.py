"""Rates how well an output of one tool fits an input of another.

The rule. Two values may be the same thing where what they are called agrees: where both schemas
declare what they mean (`x-means`), by that alone; else by the name of the property, by its name
with that of the object around it (`user: {id}` is a `userId`), or by the `title` of its schema, all
without case, plural or punctuation. A name that half of all tools use (`VAGUE`: id, name, status …)
and a `format` that both declare are weak evidence only. That both are texts is no evidence. And
where their schemas exclude each other, whatever they are called, there is no fit.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tools.definitions.capability.ports import MEANING_KEYWORD, TOO_LARGE, Port
from tools.definitions.schemas.fitting import find_misfits

MISSING_INPUT_COST = 10  # in steps: plans without missing inputs rank first
_MOST_REASONS = 3


class Fit(StrEnum):
    EXACT = "exact"  # a property of the output, all of whose values are accepted
    PATH = "path"  # the same, deeper in the output
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class Link:
    """`why` says what is doubtful; of other links nothing. `hinted`: only weak names agree."""

    fit: Fit
    why: tuple[str, ...] = ()
    hinted: bool = False

    @property
    def doubtful(self) -> bool:
        return self.fit == Fit.DOUBTFUL

    @property
    def effort(self) -> int:
        """What it costs beside steps: a doubt as much as one step, weak evidence more than a
        parameter of the chain."""
        return (MISSING_INPUT_COST + 1 if self.hinted else 1) if self.doubtful else 0


EXACT_LINK, PATH_LINK = Link(Fit.EXACT), Link(Fit.PATH)


def link_ports(given: Port, taken: Port) -> Link | None:
    """None where no name agrees, or where it certainly does not fit."""
    agreed = _compare_names(given, taken)
    if agreed is None:
        return None
    ours = given.cataloged and taken.cataloged  # schemas of callers are not cached
    compared = _compare_schemas if ours else _compare_schemas.__wrapped__
    doubts = () if given.free else compared(given.schema, taken.schema)
    if doubts is None:
        return None
    why = (*agreed, *(() if given.sure else ("it may be missing",)), *doubts)
    if why:
        return Link(Fit.DOUBTFUL, why[:_MOST_REASONS], hinted=bool(agreed))
    return PATH_LINK if given.deep else EXACT_LINK


def _compare_names(given: Port, taken: Port) -> tuple[str, ...] | None:
    """What is doubtful of the names; None where none agrees."""
    if given.means and taken.means:
        return () if given.means == taken.means else None
    theirs = dict(taken.keys)
    shared = [(key, sure and theirs[key]) for key, sure in given.keys if key in theirs]
    if not shared:
        return None
    if any(sure for _, sure in shared):
        return ()
    return (_weak_name_reason(shared[0][0]),)


def _weak_name_reason(key: str) -> str:
    if key.startswith("format:"):
        return f"only the format {key.removeprefix('format:')} agrees"
    return f"the name {key} is used for many things: {MEANING_KEYWORD} would say what is meant"


@lru_cache(maxsize=16_384)
def _compare_schemas(given: str, taken: str) -> tuple[str, ...] | None:
    """Uncertain mismatches of two schemas; None where no value fits."""
    if TOO_LARGE in (given, taken):
        return ("its schema is too large to be compared here",)
    if given == taken or not taken:
        return ()
    if not given:
        return ("what it is, its schema does not say",)
    found = find_misfits(_schema(given), _schema(taken))
    if any(one.certain for one in found):
        return None
    return tuple(f"{one.path} {one.message}".strip() for one in found[:_MOST_REASONS])


def _schema(text: str) -> Any:
    return json.loads(text)
