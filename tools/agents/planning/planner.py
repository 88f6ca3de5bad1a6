"""The planner asks a model for a plan and parses it; at the end it asks for the answer.

A reply that is no plan, or a plan of which a step would be refused, is sent back with the reason, a
few times. The decision about a reply is stored, so that a repeated turn decides the same.
"""

from functools import partial

from django.db import transaction

from tools.agents.planning import plan_language, plan_prompts, plan_records
from tools.agents.planning.plan_language import MOST_STEPS, AgentPlan, InvalidPlan
from tools.agents.planning.plan_outcomes import ANSWER, FLAWS, PLANS, PlanCallRows
from tools.agents.planning.plan_prompts import PromptContext
from tools.agents.prompts import Prompt, PromptTooLong
from tools.agents.runs import AgentRun, RunOver
from tools.agents.steps import AgentReply

MOST_TRIES = 3  # for one plan
_MOST_FLAW = 2_000  # characters


def ask_plan(run: AgentRun) -> AgentPlan | None:
    """None where the answer is next. Raises `NotYet`, and `RunOver` where the model made no plan at
    all.

    Call it only while no other plan is running.
    """
    accepted = len(plan_rows(run).plans)
    flaw = ""
    for _ in range(MOST_TRIES):
        number = plan_rows(run).next_number
        if _rejected_replies(run, accepted) >= MOST_TRIES or run.is_last(number):
            break
        move = run.think(number, partial(_plan_prompt, run, number))
        flaw = _accept_or_reject(run, number, move)
        if not flaw:
            return plan_rows(run).plans[-1]
    if accepted == 0 and _rejected_replies(run, accepted) >= MOST_TRIES:
        raise RunOver("PLAN_UNFIT", f"It made no plan that can be carried out: {_last_flaw(run)}")
    return None


def ask_answer(run: AgentRun) -> str:
    """From all that was observed. Raises `NotYet` and `RunOver`."""
    memory = run.view.memory
    if ANSWER not in memory:
        memory[ANSWER] = plan_rows(run).next_number
        run.view.remember()
    move = run.think(memory[ANSWER], partial(_answer_prompt, run))
    if move.answer is None or not move.answer.strip():
        raise RunOver("NO_ANSWER", "It gave no answer when it was asked for the best it has.")
    return move.answer


def plan_rows(run: AgentRun) -> PlanCallRows:
    assert isinstance(run.rows, PlanCallRows)
    return run.rows


def max_steps(run: AgentRun, number: int) -> int:
    """The maximum of steps in a plan: with the answer they are turns of the run."""
    return max(0, min(MOST_STEPS, run.asked.iterations - number - 1))


def _accept_or_reject(run: AgentRun, number: int, move: AgentReply) -> str:
    """Why it is no plan that can be carried out from here; empty where it was accepted."""
    rows, memory = plan_rows(run), run.view.memory
    try:
        plan = _parse_plan_reply(run, number, move)
    except InvalidPlan as unfit:
        flaw = str(unfit)[:_MOST_FLAW]
        memory.setdefault(FLAWS, {})[str(number)] = flaw
        run.view.remember()
        run.look()
        return flaw
    with transaction.atomic():  # the audit record and the acceptance: both or neither
        plan_records.record_accepted_plan(run, plan, rows)
        memory.setdefault(PLANS, []).append(number)
        run.view.remember()
    run.look()
    return ""


def _parse_plan_reply(run: AgentRun, number: int, move: AgentReply) -> AgentPlan:
    """Raises `InvalidPlan`."""
    if move.answer is None:
        raise InvalidPlan([move.flaw or "nothing was said"])
    known = frozenset(plan_rows(run).outcomes)
    steps = plan_language.parse_plan(move.answer, known=known, most=max_steps(run, number))
    if flaws := run.ground().flaws_of(steps, run.state):
        raise InvalidPlan(flaws)
    return AgentPlan(number, tuple(steps))


def _plan_prompt(run: AgentRun, number: int) -> Prompt:
    return _fit_or_end(
        partial(plan_prompts.plan_prompt, _prompt_context(run), max_steps(run, number))
    )


def _answer_prompt(run: AgentRun) -> Prompt:
    return _fit_or_end(partial(plan_prompts.answer_prompt, _prompt_context(run)))


def _fit_or_end(prompt: partial[Prompt]) -> Prompt:
    try:
        return plan_prompts.fit_prompt(prompt)
    except PromptTooLong as limit:
        raise RunOver("PROMPT_TOO_LONG", str(limit)) from None


def _prompt_context(run: AgentRun) -> PromptContext:
    rows, toolbox = plan_rows(run), run.workflow_toolbox()
    return PromptContext(run.asked.question, run.state, toolbox, run.fence, run.past, rows)


def _rejected_replies(run: AgentRun, accepted: int) -> int:
    """Replies since the last plan that were none."""
    plans_made = plan_rows(run).plans
    first = plans_made[accepted - 1].next if accepted else 1
    return plan_rows(run).next_number - first


def _last_flaw(run: AgentRun) -> str:
    return str(run.view.memory[FLAWS][str(plan_rows(run).next_number - 1)])
