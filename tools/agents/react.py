"""ReAct: think, act, observe, until there is an answer (specification S1, 4.3).

A refusal, an unknown tool, a failure and a reply that cannot be used are observations, and the loop
continues. The last turn asks for the best possible answer.
"""

from functools import partial
from itertools import count

from tools.agents.prompts import Prompt, PromptForm, PromptTooLong, build_prompt
from tools.agents.runs import AgentRun, RunOver


def run_react_turn(run: AgentRun) -> str:
    """The answer. Raises `NotYet` and `RunOver`."""
    for number in count(1):
        last = run.is_last(number)
        move = run.think(number, partial(_react_prompt, run, number, last=last))
        if move.answer is not None:
            return move.answer
        if last:
            raise RunOver("NO_ANSWER", "It gave no answer when it was asked for the best it has.")
        if move.action is not None:
            run.act(number, move.action)
    raise AssertionError("a run ends with an answer, or with `RunOver`")


def _react_prompt(run: AgentRun, number: int, *, last: bool) -> Prompt:
    form = PromptForm(run.toolbox(), run.fence, run.native, last)
    try:
        return build_prompt(run.asked.question, run.past, run.rows.steps()[: number - 1], form)
    except PromptTooLong as limit:
        raise RunOver("PROMPT_TOO_LONG", str(limit)) from None
