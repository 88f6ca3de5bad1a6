"""The form that asks an agent: its values, its errors, and the call that it produces."""

import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.http import QueryDict

from tools.agents import agent_requests
from tools.agents.agent_requests import AgentRunRequest
from tools.agents.run_parameters import MOST_ITERATIONS, MOST_QUESTION, MOST_TOKENS, PLAN
from tools.errors import NotFound, ToolcribError
from tools.execution.call import Call
from tools.models import Execution
from tools.policy.questions import DEFAULT_STATE
from tools.ui.agents import asking_inputs
from tools.ui.agents.asking_inputs import CONTINUES, MOST_OFFERED, REPLAYS
from tools.ui.inputs import FormInput, words
from tools.ui.playground.playground import PlaygroundContext

MOST_TIME_S = 86_400
MOST_SHARED, MOST_NAME = 20, 63  # agents, and characters of a name
_MONEY = re.compile(r"\d{1,9}(\.\d{1,6})?")
_SHARE = re.compile(r"0(\.\d{1,6})?|1(\.0{1,6})?")
_WHOLE = {"max_iterations": MOST_ITERATIONS, "max_tokens": MOST_TOKENS, "timeout_s": MOST_TIME_S}
_TEXTS = ("question", "pattern", "model", "max_cost")
_NOT_YET = "?"  # placeholder for a question


@dataclass
class Asking:
    """`kind` says whether the run continues or replays another one, whose groups and state it then
    uses."""

    standing: PlaygroundContext
    inputs: dict[str, FormInput]
    groups: list[str]
    offered: list[str]
    state: str
    states: list[str]
    kind: str = ""
    earlier: Execution | None = None
    other: str = ""
    refusal: ToolcribError | None = None
    flaws: list[dict[str, str]] = field(default_factory=list)

    @property
    def flawed(self) -> bool:
        return any(one.errors for one in self.inputs.values())

    @property
    def budgets(self) -> list[FormInput]:
        return [self.inputs[name] for name in (*_WHOLE, "max_cost")]

    def fill(self, data: QueryDict) -> None:
        """Read the submitted values, which stay in the form."""
        for name, one in self.inputs.items():
            if name in data:
                one.value = _plain(str(data[name]))[: MOST_QUESTION + 1]
        if "state" in data:
            self.groups = [_plain(name)[:100] for name in data.getlist("group")][:MOST_OFFERED]
            self.other = _plain(data.get("other_group", ""))[:100]
            self.state = _plain(str(data["state"]))[:100] or DEFAULT_STATE

    def check(self) -> None:
        """Set the error of each invalid value."""
        self._check_question()
        for name, most in _WHOLE.items():
            _check_whole(self.inputs[name], most)
        _check_form(self.inputs["max_cost"], _MONEY, "Give an amount such as 2.50.")
        _check_form(self.inputs["confidence"], _SHARE, "Give a number from 0 to 1, such as 0.7.")
        for name in ("pattern", "model", "session"):
            _check_choice(self.inputs[name])
        _check_names(self.inputs["shared_with"])

    def call(self) -> Call:
        """The call of a valid form. Raises as `actions.call_of` does."""
        time = self.inputs["timeout_s"].value.strip()
        return self._call(self._parameters(), float(time) if time else None)

    def call_so_far(self) -> Call:
        """A call with the same groups and state, for a form that may be invalid. Raises the
        same."""
        return self._call({"question": _NOT_YET} | self._follows())

    def refuse(self, refusal: ToolcribError) -> None:
        """Set the refusal at the field that it is about."""
        self.refusal = refusal
        for flaw in refusal.details.get("errors") or []:
            self._place(str(flaw.get("place", "")).strip("/"), str(flaw.get("message", "")))
        if about := self.inputs.get(str(refusal.details.get("field", ""))):
            about.errors.append(refusal.message)

    def _place(self, place: str, message: str) -> None:
        owner = self.inputs.get(place.partition("/")[0])
        if owner is None:
            self.flaws.append({"field": place, "message": message})
        else:
            owner.errors.append(message)

    def _check_question(self) -> None:
        one = self.inputs["question"]
        if len(one.value) > MOST_QUESTION:
            one.errors.append(f"It has more than {MOST_QUESTION:,} characters. Say less.")
        elif not one.value.strip() and self.kind != REPLAYS:
            one.errors.append("Write what the agent is to find out or to do.")

    def _call(self, parameters: dict[str, Any], timeout_s: float | None = None) -> Call:
        own = self.kind == ""
        session = self.inputs["session"].value if own else ""
        outside = own and not session
        wanted = AgentRunRequest(
            parameters,
            group=self._asked() if outside else None,
            state=self.state if outside else None,
            session=session or None,
            timeout_s=timeout_s,
        )
        return agent_requests.call_of(self.standing.caller, wanted)

    def _parameters(self) -> dict[str, Any]:
        given: dict[str, Any] = {name: self.inputs[name].value.strip() for name in _TEXTS}
        given |= {name: _number(self.inputs[name]) for name in ("max_iterations", "max_tokens")}
        if given["pattern"] == PLAN and self.inputs["confidence"].value.strip():
            given["confidence"] = float(self.inputs["confidence"].value)
        given["shared_with"] = words(self.inputs["shared_with"].value)
        known = {name: one for name, one in given.items() if one not in ("", None, [])}
        return known | self._follows()

    def _follows(self) -> dict[str, str]:
        return {self.kind: str(self.earlier.pk)} if self.earlier is not None else {}

    def _asked(self) -> list[str]:
        other = [self.other] if self.other and self.other not in self.groups else []
        return self.groups + other


def asking_of(standing: PlaygroundContext, data: QueryDict) -> Asking:
    """A form with the defaults, or with the values of the run that it continues. Raises
    `NotFound`."""
    kind, earlier = _earlier(standing, data)
    offered, usual = asking_inputs.groups(standing)
    states = asking_inputs.states(standing)
    asking = Asking(
        standing, _inputs(kind, standing), usual, offered, DEFAULT_STATE, states, kind, earlier
    )
    if earlier is not None:
        _as_before(asking, earlier)
    return asking


def _inputs(kind: str, standing: PlaygroundContext) -> dict[str, FormInput]:
    found = (
        *asking_inputs.question(kind),
        *asking_inputs.ways(standing),
        *asking_inputs.budgets(),
    )
    return {one.key: one for one in found}


def _earlier(standing: PlaygroundContext, data: QueryDict) -> tuple[str, Execution | None]:
    """The kind, and the earlier run, which the user must be allowed to read."""
    for kind in (CONTINUES, REPLAYS):
        if text := data.get(kind):
            return kind, agent_requests.one_of(standing.person, _identifier(text))
    return "", None


def _identifier(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is no such request of an agent among yours.") from None


def _as_before(asking: Asking, earlier: Execution) -> None:
    """Copy the pattern, model and budgets of the earlier run."""
    given = earlier.parameters
    for name in ("pattern", "model", "max_cost", "max_iterations", "max_tokens", "confidence"):
        if isinstance(given.get(name), str | int | float) and name in asking.inputs:
            asking.inputs[name].value = str(given[name])
    if (asked_s := earlier.options.get("timeout_s")) is not None:
        asking.inputs["timeout_s"].value = f"{float(asked_s):g}"


def _plain(text: str) -> str:
    """Converts the line ends of browsers to a newline."""
    return text.replace("\r\n", "\n")


def _number(one: FormInput) -> int | None:
    return int(one.value) if one.value.strip() else None


def _check_whole(one: FormInput, most: int) -> None:
    text = one.value.strip()
    good = text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most
    if text and not good:
        one.errors.append(f"Give a whole number from 1 to {most:,}.")


def _check_form(one: FormInput, form: re.Pattern[str], says: str) -> None:
    if one.value.strip() and not form.fullmatch(one.value.strip()):
        one.errors.append(says)


def _check_names(one: FormInput) -> None:
    names = words(one.value)
    if len(names) > MOST_SHARED or any(len(name) > MOST_NAME for name in names):
        one.errors.append(
            f"Name at most {MOST_SHARED} agents, each with at most {MOST_NAME} characters."
        )


def _check_choice(one: FormInput) -> None:
    if one.value not in dict(one.options):
        one.errors.append("This cannot be chosen. Choose one of the list.")
