"""Retries of failed calls by a user: a new call with the same parameters and options.

A user makes it as in the playground: in their own name, or as an agent that they may impersonate. A
call is retried once; if its retry fails, that one can be retried.
"""

from django.db import IntegrityError

from tools.accounts.callers import caller_at_playground, impersonable_agents
from tools.definitions.callers import Caller
from tools.definitions.results import Status
from tools.errors import Conflict, Forbidden, ToolcribError
from tools.execution import answer
from tools.execution.call import Call
from tools.execution.outputs import redact_execution
from tools.models import Execution
from tools.models.execution import Resolution
from tools.models.execution_queryset import RETRIED_ONCE


def retry_call(*, person: Caller, execution: Execution, wait_s: float = 0.0) -> Execution:
    """The new call. Raises the errors of `admit`, `Forbidden` and `Conflict`."""
    check_may_retry(person, execution)
    agent = execution.agent.slug if execution.agent else None
    caller = caller_at_playground(person, agent, source_ip=person.source_ip)
    options = execution.options
    call = Call(
        execution.tool_name,
        execution.asked,
        group=execution.requested_groups,
        state=execution.state,
        timeout_s=options.get("timeout_s"),
        require_confirmation=bool(options.get("require_confirmation")),
        at_its_door=bool(options.get("at_its_door")),
        plain=bool(options.get("plain")),
        retry_of=execution.pk,
    )
    try:
        return answer.execute(caller=caller, call=call, wait_s=wait_s)
    except IntegrityError as error:
        if RETRIED_ONCE not in str(error):
            raise
        raise _already_retried() from None


def check_may_retry(person: Caller, execution: Execution) -> None:
    """Raises `Forbidden` and `Conflict`, whose messages say what to do instead."""
    _check_caller(person, execution)
    if not execution.is_final or execution.status == Status.SUCCESS:
        raise Conflict("Only a call that failed is retried.", code="nothing_to_retry")
    if execution.parent_id is not None:
        raise Conflict(
            "Another call made this one: retry that one as a whole.", code="part_of_another"
        )
    if execution.unresolved:
        raise Conflict(
            "Whether its effect happened is not known. Find out and say so first: to make the "
            "call again could do it twice.",
            code="outcome_unknown",
        )
    if execution.resolved_as == Resolution.HAPPENED:
        raise Conflict(
            "Its effect happened, as somebody found out: again would be twice. To do it twice on "
            "purpose, make a new call at the playground.",
            code="effect_happened",
        )
    if redact_execution(execution)["parameters"] != execution.asked:
        raise Conflict(
            "Its parameters hold what you may not see. Open it in the playground, and fill in what "
            "was taken out.",
            code="parameters_taken_out",
        )
    if find_retry(execution) is not None:
        raise _already_retried()


def retry_refusal(person: Caller, execution: Execution) -> ToolcribError | None:
    """The error that `check_may_retry` raises; None if the call may be retried."""
    try:
        check_may_retry(person, execution)
    except ToolcribError as refusal:
        return refusal
    return None


def find_retry(execution: Execution) -> Execution | None:
    """The retry of this call, if there is one."""
    rows = Execution.objects.filter(keys__retry_of=execution.pk)
    return rows.only("status", "parked_below", "user_id", "organization_id").first()


def _check_caller(person: Caller, execution: Execution) -> None:
    if execution.agent is None:
        if execution.user_id != person.user_id:
            raise Forbidden("Somebody else's own call is retried by them.", code="not_permitted")
        return
    if not impersonable_agents(person.user_id).filter(pk=execution.agent.pk).exists():
        raise Forbidden(f"You may not call tools as {execution.agent.slug}.", code="not_permitted")


def _already_retried() -> Conflict:
    return Conflict("It was retried already: retry that call.", code="retried_already")
