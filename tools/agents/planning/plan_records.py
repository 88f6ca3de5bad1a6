"""Audit records of plans: the accepted plan before any step runs, and its outcome."""

from audit.actions import record
from audit.events import Event, Outcome
from tools.agents.planning.plan_language import AgentPlan
from tools.agents.planning.plan_outcomes import SUCCEEDED, PlannedRows
from tools.agents.runs import AgentRun


def accepted(run: AgentRun, plan: AgentPlan, rows: PlannedRows) -> None:
    """The arguments are the payload, by step, and the record commits to each."""
    execution, snapshot = run.view.execution, run.ground().snapshot
    tools = [snapshot.tool(step.tool) for step in plan.steps]
    sensitive = frozenset().union(*(tool.definition.sensitive for tool in tools if tool))
    record(
        Event.PLAN_ACCEPT,
        by=run.view.performance.actor,
        outcome=Outcome.STARTED,
        subject=execution.tool_name,
        execution_id=execution.pk,
        payload={step.id: step.arguments for step in plan.steps},
        sensitive=sensitive,
        details={
            "thought": plan.at,
            "state": run.state,
            "requested_groups": execution.requested_groups,
            "steps": [
                {
                    "number": number,
                    "id": step.id,
                    "tool": step.tool,
                    "confidence": step.confidence,
                    "threshold": rows.threshold_of(step.tool),
                    "depends_on": list(step.depends_on),
                }
                for number, step in plan.numbered()
            ],
        },
    )


def ended(run: AgentRun, plan: AgentPlan, rows: PlannedRows) -> None:
    outcomes = {step.id: rows.outcomes[step.id] for step in plan.steps}
    good = all(one.word == SUCCEEDED for one in outcomes.values())
    record(
        Event.PLAN_END,
        by=run.view.performance.actor,
        outcome=Outcome.SUCCESS if good else Outcome.FAILURE,
        subject=run.view.execution.tool_name,
        execution_id=run.view.execution.pk,
        details={
            "thought": plan.at,
            "state": run.state,
            "steps": [
                {
                    "id": name,
                    "outcome": one.word,
                    "code": one.code,
                    "attempts": one.attempts,
                    "execution_id": str(one.execution_id) if one.execution_id else None,
                }
                for name, one in outcomes.items()
            ],
        },
    )
