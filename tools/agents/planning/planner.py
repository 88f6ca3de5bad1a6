"""The planner asks a model for a plan and parses it; at the end it asks for the answer.

A reply that is no plan, or a plan of which a step would be refused, is sent back with the reason, a
few times. The decision about a reply is stored, so that a repeated turn decides the same.
"""

from functools import partial

from django.db import transaction

from tools.agents.planning import plan_language, plan_prompts, plan_records
from tools.agents.planning.plan_language import MOST_STEPS, AgentPlan, UnfitPlan
from tools.agents.planning.plan_outcomes import ANSWER, FLAWS, PLANS, PlannedRows
from tools.agents.planning.plan_prompts import Occasion
from tools.agents.prompts import Prompt, TooLong
from tools.agents.runs import AgentRun, RunOver
from tools.agents.steps import AgentReply

MOST_TRIES = 3  # for one plan
_MOST_FLAW = 2_000  # characters


def next_plan(run: AgentRun) -> AgentPlan | None:
    """None where the answer is next. Raises `NotYet`, and `RunOver` where the model made no plan at
    all.

    Call it only while no other plan is running.
    """
    accepted = len(rows_of(run).plans)
    flaw = ""
    for _ in range(MOST_TRIES):
        number = rows_of(run).next_number
        if _tries(run, accepted) >= MOST_TRIES or run.is_last(number):
            break
        move = run.think(number, partial(_plan_prompt, run, number))
        flaw = _judge(run, number, move)
        if not flaw:
            return rows_of(run).plans[-1]
    if accepted == 0 and _tries(run, accepted) >= MOST_TRIES:
        raise RunOver("PLAN_UNFIT", f"It made no plan that can be carried out: {_last_flaw(run)}")
    return None


def answer(run: AgentRun) -> str:
    """From all that was observed. Raises `NotYet` and `RunOver`."""
    memory = run.view.memory
    if ANSWER not in memory:
        memory[ANSWER] = rows_of(run).next_number
        run.view.remember()
    move = run.think(memory[ANSWER], partial(_answer_prompt, run))
    if move.answer is None or not move.answer.strip():
        raise RunOver("NO_ANSWER", "It gave no answer when it was asked for the best it has.")
    return move.answer


def rows_of(run: AgentRun) -> PlannedRows:
    assert isinstance(run.rows, PlannedRows)
    return run.rows


def room(run: AgentRun, number: int) -> int:
    """The maximum of steps in a plan: with the answer they are turns of the run."""
    return max(0, min(MOST_STEPS, run.asked.iterations - number - 1))


def _judge(run: AgentRun, number: int, move: AgentReply) -> str:
    """Why it is no plan that can be carried out from here; empty where it was accepted."""
    rows, memory = rows_of(run), run.view.memory
    try:
        plan = _checked(run, number, move)
    except UnfitPlan as unfit:
        flaw = str(unfit)[:_MOST_FLAW]
        memory.setdefault(FLAWS, {})[str(number)] = flaw
        run.view.remember()
        run.look()
        return flaw
    with transaction.atomic():  # the audit record and the acceptance: both or neither
        plan_records.accepted(run, plan, rows)
        memory.setdefault(PLANS, []).append(number)
        run.view.remember()
    run.look()
    return ""


def _checked(run: AgentRun, number: int, move: AgentReply) -> AgentPlan:
    """Raises `UnfitPlan`."""
    if move.answer is None:
        raise UnfitPlan([move.flaw or "nothing was said"])
    known = frozenset(rows_of(run).outcomes)
    steps = plan_language.read(move.answer, known=known, most=room(run, number))
    if flaws := run.ground().flaws_of(steps, run.state):
        raise UnfitPlan(flaws)
    return AgentPlan(number, tuple(steps))


def _plan_prompt(run: AgentRun, number: int) -> Prompt:
    return _fitting(partial(plan_prompts.for_plan, _occasion(run), room(run, number)))


def _answer_prompt(run: AgentRun) -> Prompt:
    return _fitting(partial(plan_prompts.for_answer, _occasion(run)))


def _fitting(prompt: partial[Prompt]) -> Prompt:
    try:
        return plan_prompts.fitting(prompt)
    except TooLong as limit:
        raise RunOver("PROMPT_TOO_LONG", str(limit)) from None


def _occasion(run: AgentRun) -> Occasion:
    rows, toolbox = rows_of(run), run.workflow_toolbox()
    return Occasion(run.asked.question, run.state, toolbox, run.fence, run.past, rows)


def _tries(run: AgentRun, accepted: int) -> int:
    """Replies since the last plan that were none."""
    plans_made = rows_of(run).plans
    first = plans_made[accepted - 1].next if accepted else 1
    return rows_of(run).next_number - first


def _last_flaw(run: AgentRun) -> str:
    return str(run.view.memory[FLAWS][str(rows_of(run).next_number - 1)])
