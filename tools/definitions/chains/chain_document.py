"""Parses a chain document into its canonical form (Chains, API contract).

steps:
  - id: page
    tool_name: web_fetch
    parameters: {url: {$input: /url}}
    retries: {attempts: 3, wait: PT1S, factor: 2}
  - id: tell
    tool_name: send_message
    when: {succeeded: page}
    for_each: {$input: /to}
    parameters: {channel: team, to: [{$item: ""}], subject: Found, body: {$text: "…"}}
    on_error: compensate
output: {$step: page, path: /output/title}
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tools.definitions.chains import conditions, expressions
from tools.definitions.texts import names
from tools.definitions.values import durations
from tools.definitions.vocabulary import ToolType
from tools.errors import InvalidDefinition

MOST_STEPS = 100
MOST_REFERENCES = 1_000
MOST_FLAWS = 100  # reported at most
MOST_ITEMS = 500
MOST_PARALLEL = 20
MOST_ATTEMPTS = 10
LONGEST_WAIT_S = 3_600
LONGEST_STEP_S = 3_600
STEP_ID = re.compile(r"[a-z][a-z0-9_-]{0,62}")
ON_ERROR = ("stop", "continue", "compensate")
ON_CANCEL = ("stop", "compensate")
_STEP_FIELDS = (
    "id", "tool_name", "parameters", "when", "for_each", "parallel", "on_error",
    "compensate_with", "retries", "timeout",
)  # fmt: skip
_COMPENSATION_FIELDS = ("tool_name", "parameters", "retries", "timeout")
_RETRY_FIELDS = ("attempts", "wait", "factor")
Raw = dict[str, Any]
type Flaws = list[dict[str, str]]
CHAIN_KEYS = ("steps", "output", "on_cancel")
_DERIVED_KEYS = ("type", "implementation", "delivery")


@dataclass(frozen=True)
class ChainStep:
    """One step of a canonical chain."""

    raw: Raw

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def tool_name(self) -> str:
        return str(self.raw["tool_name"])

    @property
    def parameters(self) -> Raw:
        found: Raw = self.raw["parameters"]
        return found

    @property
    def when(self) -> Raw | None:
        return self.raw.get("when")

    @property
    def loop(self) -> bool:
        return "for_each" in self.raw

    @property
    def for_each(self) -> Any:
        return self.raw["for_each"]

    @property
    def parallel(self) -> int:
        return int(self.raw.get("parallel", 1))

    @property
    def on_error(self) -> str:
        return str(self.raw.get("on_error", "stop"))

    @property
    def compensation(self) -> Raw | None:
        return self.raw.get("compensate_with")

    @property
    def compensation_step(self) -> "ChainStep | None":
        """What compensates it, as a step."""
        return ChainStep({**self.compensation, "id": self.id}) if self.compensation else None

    @property
    def attempts(self) -> int:
        return int(self.raw.get("retries", {}).get("attempts", 1))

    def wait_s(self, after: int) -> float:
        """The wait after so many failed attempts."""
        retries = self.raw.get("retries", {})
        first = durations.parse_duration(retries.get("wait", "PT1S"))
        return float(min(LONGEST_WAIT_S, first * retries.get("factor", 2) ** (after - 1)))

    @property
    def timeout_s(self) -> float | None:
        written = self.raw.get("timeout")
        return None if written is None else durations.parse_duration(written)


@dataclass(frozen=True)
class Chain:
    raw: Raw

    @cached_property
    def steps(self) -> tuple[ChainStep, ...]:
        return tuple(ChainStep(one) for one in self.raw["steps"])

    @property
    def compensates_when_cancelled(self) -> bool:
        return bool(self.raw.get("on_cancel", "stop") == "compensate")

    @property
    def output(self) -> Any:
        """Its output; by default that of the last step."""
        last = self.steps[-1].id
        return self.raw.get("output", {expressions.STEP: last, "default": None})

    def tools(self) -> Iterator[tuple[str, str]]:
        """Each tool it calls, and where that is written."""
        for number, step in enumerate(self.steps):
            yield f"steps.{number}.tool_name", step.tool_name
            if step.compensation:
                where = f"steps.{number}.compensate_with.tool_name"
                yield where, str(step.compensation["tool_name"])


def parse_chain(raw: Any, flaws: Flaws, prefix: str) -> Raw:
    """The canonical form; every flaw is added with its place. It has only the given keys."""
    reader = _ChainReader(flaws, prefix)
    if not isinstance(raw, dict):
        reader.wrong("", "must be an object with steps")
        return {}
    reader.reject_unknown(raw, ("steps", "output", "on_cancel"), "")
    made: Raw = {"steps": reader.steps(raw.get("steps"))}
    ids = frozenset(step["id"] for step in made["steps"] if "id" in step)
    if "output" in raw:
        reader.value(raw["output"], "output", steps=ids, loop=False)
        made["output"] = raw["output"]
    if raw.get("on_cancel") is not None:
        made["on_cancel"] = reader.choice(raw["on_cancel"], "on_cancel", ON_CANCEL)
    return made


class _ChainReader:
    def __init__(self, flaws: Flaws, prefix: str) -> None:
        self._flaws, self._prefix = flaws, prefix
        self._reported = {flaw["field"] for flaw in flaws}
        self._references_left = MOST_REFERENCES

    def wrong(self, place: str, message: str) -> None:
        field = f"{self._prefix}{place}".rstrip(".")
        if field not in self._reported and len(self._reported) < MOST_FLAWS:
            self._reported.add(field)
            self._flaws.append({"field": field, "message": message})

    def reject_unknown(self, raw: Raw, allowed: tuple[str, ...], place: str) -> None:
        for key in raw:
            if key not in allowed:
                meant = names.suggestion(str(key)[:80], allowed)
                self.wrong(f"{place}{str(key)[:80]}", f"is not a field of a chain{meant}")

    def choice(self, value: Any, place: str, allowed: tuple[str, ...]) -> str:
        if value not in allowed:
            self.wrong(place, f"must be one of {', '.join(allowed)}")
            return allowed[0]
        return str(value)

    def value(self, value: Any, place: str, *, steps: frozenset[str], loop: bool) -> None:
        if not self._count_references(value, place):
            return
        for where, message in expressions.reference_flaws(value, place, steps=steps, loop=loop):
            self.wrong(where, message)

    def _count_references(self, value: Any, place: str) -> bool:
        """Bounds the number of references, since each is checked against schemas of tools."""
        self._references_left -= sum(1 for _ in expressions.find_references(value))
        if self._references_left < 0:
            self.wrong(place, f"stands after {MOST_REFERENCES} references, which is the most")
        return self._references_left >= 0

    def steps(self, raw: Any) -> list[Raw]:
        if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_STEPS:
            self.wrong("steps", f"must be a list of 1 to {MOST_STEPS} steps")
            return []
        made: list[Raw] = []
        earlier: set[str] = set()
        for number, one in enumerate(raw):
            step = self._step(one, f"steps.{number}.", frozenset(earlier))
            if (name := step.get("id")) in earlier:
                self.wrong(f"steps.{number}.id", "is the id of an earlier step")
            elif name is not None:
                earlier.add(name)
            made.append(step)
        return made

    def _step(self, raw: Any, place: str, earlier: frozenset[str]) -> Raw:
        if not isinstance(raw, dict):
            self.wrong(place, "must be an object")
            return {}
        self.reject_unknown(raw, _STEP_FIELDS, place)
        loop = raw.get("for_each") is not None
        made: Raw = {"id": self._id(raw.get("id"), place)}
        made |= self._call(raw, place, earlier, loop=loop)
        if loop:
            made["for_each"] = self._for_each(raw["for_each"], place, earlier)
            made |= self._number(raw, "parallel", place, most=MOST_PARALLEL)
        elif raw.get("parallel") is not None:
            self.wrong(f"{place}parallel", "is for steps with for_each")
        if raw.get("when") is not None:
            made["when"] = raw["when"]
            self._count_references(raw["when"], f"{place}when")
            for where, said in conditions.condition_flaws(
                raw["when"], f"{place}when", steps=earlier, loop=False
            ):
                self.wrong(where, said)
        return made | self._failure_fields(raw, place, earlier | {made["id"]}, loop=loop)

    def _failure_fields(self, raw: Raw, place: str, steps: frozenset[str], *, loop: bool) -> Raw:
        made: Raw = {}
        if raw.get("on_error") is not None:
            made["on_error"] = self.choice(raw["on_error"], f"{place}on_error", ON_ERROR)
        if (undo := raw.get("compensate_with")) is not None:
            where = f"{place}compensate_with."
            if isinstance(undo, dict):
                self.reject_unknown(undo, _COMPENSATION_FIELDS, where)
                call = self._call(undo, where, steps, loop=loop)
                made["compensate_with"] = call | self._retry_fields(undo, where)
            else:
                self.wrong(where, "must be an object with tool_name and parameters")
        return made | self._retry_fields(raw, place)

    def _retry_fields(self, raw: Raw, place: str) -> Raw:
        made: Raw = {}
        if raw.get("retries") is not None:
            made["retries"] = self._retries(raw["retries"], f"{place}retries.")
        if raw.get("timeout") is not None:
            made["timeout"] = self._duration(raw["timeout"], f"{place}timeout", LONGEST_STEP_S)
        return made

    def _call(self, raw: Raw, place: str, steps: frozenset[str], *, loop: bool) -> Raw:
        name, parameters = raw.get("tool_name"), raw.get("parameters", {})
        if not isinstance(name, str) or not names.TOOL_NAME.fullmatch(name):
            self.wrong(f"{place}tool_name", "must be the name of a tool")
            name = ""
        if not isinstance(parameters, dict) or expressions.reference_key(parameters) is not None:
            self.wrong(f"{place}parameters", "must be an object, each parameter by its name")
            parameters = {}
        self.value(parameters, f"{place}parameters", steps=steps, loop=loop)
        return {"tool_name": name, "parameters": parameters}

    def _for_each(self, raw: Any, place: str, earlier: frozenset[str]) -> Any:
        where = f"{place}for_each"
        if isinstance(raw, list):
            if len(raw) > MOST_ITEMS:
                self.wrong(where, f"must have at most {MOST_ITEMS} items")
        elif expressions.reference_key(raw) not in (expressions.INPUT, expressions.STEP):
            self.wrong(where, "must be a list, a $input or a $step")
        self.value(raw, where, steps=earlier, loop=False)
        return raw

    def _id(self, raw: Any, place: str) -> str:
        if not isinstance(raw, str) or not STEP_ID.fullmatch(raw):
            self.wrong(f"{place}id", "must begin with a letter; a-z, 0-9, _ and - may follow")
            return ""
        return raw

    def _retries(self, raw: Any, place: str) -> Raw:
        if not isinstance(raw, dict):
            self.wrong(place, "must be an object with attempts")
            return {}
        self.reject_unknown(raw, _RETRY_FIELDS, place)
        made = self._number(raw, "attempts", place, most=MOST_ATTEMPTS)
        made |= self._number(raw, "factor", place, most=10)
        if raw.get("wait") is not None:
            made["wait"] = self._duration(raw["wait"], f"{place}wait", LONGEST_WAIT_S)
        return made

    def _number(self, raw: Raw, name: str, place: str, *, most: int) -> Raw:
        value = raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            self.wrong(f"{place}{name}", f"must be a whole number from 1 to {most}")
            return {}
        return {name: value}

    def _duration(self, raw: Any, place: str, longest_s: float) -> str:
        try:
            return durations.normalize_duration(raw, longest_s)
        except ValueError as error:
            self.wrong(place, str(error))
            return "PT1S"


def chain_definition(written: Any) -> dict[str, Any]:
    """The input of `read_definition`, which reports other errors. Raises `InvalidDefinition`."""
    if not isinstance(written, dict):
        raise InvalidDefinition("A chain is an object with a name and steps.", errors=[])
    if written.get("type") not in (None, ToolType.CHAIN):
        flaw = {"field": "type", "message": f"of a chain is {ToolType.CHAIN}"}
        raise InvalidDefinition("This is no chain.", errors=[flaw])
    if "implementation" in written:  # as a tool's definition has it
        return {**written, "type": ToolType.CHAIN}
    chain = {key: written[key] for key in CHAIN_KEYS if key in written}
    rest = {key: value for key, value in written.items() if key not in (*CHAIN_KEYS, "warnings")}
    return {**rest, "type": ToolType.CHAIN, "implementation": {"chain": chain}}


def chain_document(definition: dict[str, Any]) -> dict[str, Any]:
    """The chain document of a definition, with the fields that the catalog adds."""
    chain = definition["implementation"]["chain"]
    rest = {key: value for key, value in definition.items() if key not in _DERIVED_KEYS}
    return rest | {key: chain[key] for key in CHAIN_KEYS if key in chain}


def chain_field(field: str) -> str:
    """The field of an error, as named in the chain document."""
    return field.removeprefix("implementation.chain.")
