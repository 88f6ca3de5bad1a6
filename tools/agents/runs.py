"""The state of a running agent run that all agent patterns share."""

from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import salted_hmac

from tools.accounts.callers import actor_of
from tools.agents import recordings
from tools.agents.planning.plan_outcomes import load_rows
from tools.agents.prompts import DataDelimiters, Prompt
from tools.agents.recordings import Recording
from tools.agents.run_parameters import AgentRunParameters, PastStep, UnusableParameters
from tools.agents.steps import ACT, THINK, AgentAction, AgentReply, Spending
from tools.agents.usable_tools import Toolbox, UsableTools, build_toolbox, build_workflow_toolbox
from tools.authorization import pins
from tools.catalog.snapshot import Snapshot
from tools.definitions.callers import Caller
from tools.definitions.implementations.tool_types import ASK_MODEL
from tools.definitions.results import Status
from tools.errors import ToolcribError
from tools.execution import events
from tools.execution.call import Result
from tools.models import Execution, Session
from tools.policy.questions import EffectiveRequest
from tools.workflows import session_actions
from tools.workflows.chain_boundary import last_attempt
from tools.workflows.composition import WaitCondition
from tools.workflows.nested_calls import Composition, CompositionFailed, NestedCall

MOST_REPLY_TOKENS = 4_096  # tokens of one reply
clock = timezone.now
NO_NATIVE = "MODEL_NO_TOOLS"
_MAX_ATTEMPTS = 4
_RETRYABLE_CODES = frozenset(
    {"MODEL_BUSY", "MODEL_UNAVAILABLE", "MODEL_CUT", "TIMEOUT", "rate_limited", "INTERNAL_ERROR"}
)
_LAST_TURN_SHARE = 0.8  # of what may be spent: then comes the last turn


class RunOver(Exception):
    """The run ends here. Code and message are for its caller."""

    def __init__(self, code: str, message: str, status: Status = Status.FAILED) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class RunMustWait(Exception):
    """The turn waits for the end of a call, or for a time."""

    def __init__(self, waiting: WaitCondition) -> None:
        super().__init__("the run waits")
        self.waiting = waiting


class AgentRun:
    """`view` is the composite call of the run."""

    def __init__(self, view: Composition) -> None:
        self.view = view
        try:
            self.parameters = AgentRunParameters.from_call(view.parameters)
        except UnusableParameters as flaw:
            raise CompositionFailed("PARAMETERS_WRONG", str(flaw)) from None
        self.reload()
        view.calls = self.rows.call_states

    # --- session, state and tools ---
    def open_session(self) -> None:
        """Join the given session, or create one, in which the run's calls move the state."""
        execution = self.view.execution
        has_one = execution.session_id is not None or "session" in self.view.memory
        if has_one or self.parameters.replays is not None:  # a replay moves nothing
            return
        try:
            session, _ = session_actions.open_session(
                caller=self.view.performance.caller,
                group=execution.requested_groups,
                state=execution.state,
            )
        except ToolcribError as refusal:
            raise CompositionFailed(refusal.code, refusal.message) from None
        self.view.memory["session"] = str(session.pk)
        self.view.save_memory()

    def close_session(self) -> None:
        """Close the session that the run created."""
        if (own := self.view.memory.get("session")) is not None:
            by = actor_of(self.view.performance.caller)
            session_actions.close_open_session(
                Session.objects.filter(pk=own), by, reason="agent_run_over"
            )

    @property
    def session(self) -> str:
        return str(self.view.execution.session_id or self.view.memory["session"])

    @property
    def state(self) -> str:
        """The current state; in a replay the recorded one."""
        if self.parameters.replays is not None:
            return self.rows.state_after(self.view.execution.state)
        return str(Session.objects.values_list("state", flat=True).get(pk=self.session))

    def toolbox(self) -> Toolbox:
        return build_toolbox(self._caller, self._filter, self._snapshot, self.parameters.question)

    def workflow_toolbox(self) -> Toolbox:
        """With the tools that are usable in states that follow."""
        return build_workflow_toolbox(
            self._caller, self._filter, self._snapshot, self.parameters.question
        )

    def usable_tools(self) -> UsableTools:
        """The tools that the caller may use now."""
        return UsableTools(self._caller, self._filter.groups, self._snapshot)

    @property
    def _caller(self) -> Caller:
        return self.view.performance.caller

    @property
    def _filter(self) -> EffectiveRequest:
        return EffectiveRequest.from_options(self.view.execution.requested_groups, self.state)

    @property
    def _snapshot(self) -> Snapshot:
        """Only a session that the caller gave may have pins."""
        return pins.snapshot_for(self._caller, self.view.execution.session_id)

    @cached_property
    def delimiters(self) -> DataDelimiters:
        about = str(self.view.execution.pk)
        secret = salted_hmac("tools.agents.fence", about, algorithm="sha256").hexdigest()
        return DataDelimiters(secret[:16])

    @cached_property
    def recording(self) -> Recording:
        assert self.parameters.replays is not None
        return recordings.load_recording(self.view.performance.caller, self.parameters.replays)

    def check_recording(self) -> None:
        """Raises `NotFound` and `Forbidden`, in every turn: what may be read can change."""
        if self.parameters.replays is not None:
            _ = self.recording

    @cached_property
    def past_steps(self) -> list[PastStep]:
        """Steps before this run: given by the caller, or from the run that it continues."""
        earlier = recordings.past_steps(self.view.performance.caller, self.parameters.continues)
        return [*earlier, *self.parameters.history]

    # --- budget ---
    @property
    def spent(self) -> Spending:
        return self.rows.spent

    def is_last(self, number: int) -> bool:
        """Whether this turn is the last: decided once and stored, so that a repeated turn decides
        the same."""
        decided = self.view.memory.get("last")
        new = f"{THINK}{number}" not in self.view.calls
        if (
            decided is None
            and new
            and (number >= self.parameters.iterations or self.is_nearly_spent())
        ):
            self.view.memory["last"] = decided = number
            self.view.save_memory()
        return decided is not None and number >= decided

    def is_nearly_spent(self) -> bool:
        spent, limits = self.spent, self.parameters
        left_s = (self.view.deadline - clock()).total_seconds()
        return (
            spent.tokens >= _LAST_TURN_SHARE * limits.tokens
            or (
                limits.cost is not None
                and float(spent.cost) >= _LAST_TURN_SHARE * float(limits.cost)
            )
            or left_s <= (1 - _LAST_TURN_SHARE) * self.view.timeout_s
        )

    def _check_spending(self) -> None:
        """Raises `RunOver` where the budget of tokens or cost is spent."""
        spent, limits = self.spent, self.parameters
        if spent.tokens >= limits.tokens:
            raise RunOver("TOKENS_SPENT", f"It used its {limits.tokens} tokens without an answer.")
        if limits.cost is not None and spent.cost >= limits.cost:
            raise RunOver("MONEY_SPENT", f"It used its {limits.cost} without an answer.")

    # --- calls ---
    def ask_model(self, number: int, prompt: Callable[[], Prompt]) -> AgentReply:
        """The model's answer at this step. Raises `RunMustWait` and `RunOver`.

        A busy endpoint is asked again after a pause; one without native tool calls is asked in the
        text form from then on.
        """
        place = f"{THINK}{number}"
        attempt, made = last_attempt(self.view.calls, place)
        if made is None:
            self._begin_model_call(place, prompt())
        elif made.succeeded:
            return self.rows.move(number) or AgentReply(
                flaw="What was said cannot be read any more."
            )
        elif not made.open:
            self._check_retryable(made, attempt)
            self._begin_model_call(f"{place}#{attempt + 1}", prompt())
        else:
            raise RunMustWait(WaitCondition())
        return self.ask_model(number, prompt)

    def call_tool(
        self, number: int, action: AgentAction, *, place: str = "", approval_reason: str = ""
    ) -> None:
        """The call that a step leads to. Raises `RunMustWait` until it is over, however it ends.

        A retry has a `place` of its own; with `approval_reason`, the call needs an approval.
        """
        if self.parameters.replays is not None:
            self._replay(number, action)
            return
        place = place or f"{ACT}{number}"
        new = place not in self.view.calls
        action = self._clean_action(action) if new else action
        made = self.view.begin_call(
            place,
            action.name,
            action.arguments,
            session=self.session,
            approval_reason=approval_reason,
        )
        if new:
            events.notify_waiters(self.view.execution.pk)
        if made.open:
            raise RunMustWait(WaitCondition())
        if new:  # refused, or known already
            self.reload()

    def reload(self) -> None:
        """Read the rows again after a change."""
        self.rows = load_rows(self.view.execution, Execution.objects.all())

    def _clean_action(self, action: AgentAction) -> AgentAction:
        """With the tool's own name, and without the delimiters of this run."""
        known = self.view.performance.snapshot.tool(action.name) is not None
        name = action.name if known else self.toolbox().tool_name(action.name)
        return AgentAction(name, self.delimiters.strip_from(action.arguments))

    @property
    def native(self) -> bool:
        return bool(self.view.memory.get("native", settings.LLM_TOOL_CALLS))

    def _replay(self, number: int, action: AgentAction) -> None:
        """Raises `RunOver` where the recording knows no such call."""
        replayed = self.view.memory.setdefault("replayed", {})
        place = f"{ACT}{number}"
        if place in replayed:
            return
        there = self.recording.place_of(self._clean_action(action), set(replayed.values()))
        if there is None:
            raise RunOver(
                "DIVERGED",
                f"At step {number} it calls {action.name}, which the recorded run did not with"
                " these arguments. A replay calls no tool, so it ends here.",
            )
        replayed[place] = there
        self.view.save_memory()
        self.reload()

    def _check_retryable(self, made: NestedCall, attempt: int) -> None:
        """Raises `RunOver`, or `RunMustWait` until the moment has come."""
        if made.error_code == NO_NATIVE and self.native:
            self.view.memory["native"] = False
            self.view.save_memory()
            return
        if made.error_code not in _RETRYABLE_CODES or attempt >= _MAX_ATTEMPTS:
            raise RunOver(made.error_code, made.error_message, made.status)
        due = (made.completed_at or clock()) + timedelta(seconds=2**attempt)
        if clock() < due:
            raise RunMustWait(WaitCondition(below=0, until=due))

    def _begin_model_call(self, place: str, prompt: Prompt) -> None:
        self._check_spending()
        tool = self.view.performance.snapshot.tool(ASK_MODEL)
        if tool is not None and tool.definition.entry_point != ASK_MODEL:
            message = f"{ASK_MODEL} is another tool here; an administrator renames it."
            raise RunOver("MODEL_TOOL_TAKEN", message)
        question = {
            "messages": prompt.messages,
            "tools": prompt.tools,
            "format": prompt.format,
            "model": self.parameters.model,
            "max_tokens": MOST_REPLY_TOKENS,
        }
        self.view.begin_call(place, ASK_MODEL, question, at_its_door=True)
        events.notify_waiters(self.view.execution.pk)  # followers of the run read its rows

    # --- results ---
    def success_result(self, answer: str) -> Result:
        return Result(Status.SUCCESS, output=self.summary() | {"answer": answer})

    def failure_result(self, end: RunOver) -> Result:
        """Without an answer; the details list its steps."""
        return Result(
            end.status,
            error_code=end.code,
            error_message=str(end),
            error_details=self.summary(),
        )

    def summary(self) -> dict[str, Any]:
        spent = self.spent
        return {
            "session": None if self.parameters.replays else self.session,
            "state": self.state,
            "iterations": len(self.rows.steps()),
            "tokens": {"input": spent.input_tokens, "output": spent.output_tokens},
            "cost": str(spent.cost),
            "plan": self.rows.plan_document(),
        }
