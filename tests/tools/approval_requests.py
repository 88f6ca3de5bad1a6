"""Calls that require approval, and the people who decide about them."""

import threading
from dataclasses import replace
from typing import Any

from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tools.accounts.callers import caller_of_user
from tools.accounts.token_authentication import caller_of_token
from tools.approvals import decisions
from tools.approvals.decisions import Word
from tools.definitions.callers import Caller
from tools.execution.perform import perform
from tools.models import Agent, Confirmation, Execution, Organization, User


def call_awaiting_approval(agent: Agent, name: str = "echo", **fields: Any) -> Confirmation:
    """A call of the agent that awaits approval."""
    execution = factories.execution(agent, name, **fields)
    return Confirmation.objects.get(execution=execution)


def approver(organization: Organization) -> User:
    """A person with the permission to decide."""
    user = factories.person(organization)
    factories.permit(user, "decide_confirmation")
    return user


def at_the_browser(user: User) -> Caller:
    """The person as the caller of a browser session."""
    return caller_of_user(User.objects.select_related("organization").get(pk=user.pk))


def with_a_token(user: User) -> Caller:
    """The person as the caller of a personal token."""
    text = factories.token(user, scopes=["read", "execute", "manage"])
    return caller_of_token(text)


def word(confirmation: Confirmation, *, approve: bool = True, **fields: Any) -> Word:
    """The decision of a person who has read the call."""
    return replace(Word(confirmation.pk, confirmation.bound_hash, approve), **fields)


def approve(confirmation: Confirmation, *people: User) -> Confirmation:
    """Approve as each of these people."""
    for person in people:
        confirmation = decisions.decide(caller=at_the_browser(person), word=word(confirmation))
    return confirmation


def reject(confirmation: Confirmation, person: User) -> Confirmation:
    """Reject as this person."""
    no = word(confirmation, approve=False)
    return decisions.decide(caller=at_the_browser(person), word=no)


def attempted(execution: Execution) -> Execution:
    """The execution after a worker has tried to run it."""
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def ended_execution(execution: Execution) -> Execution | None:
    """Its row once it has ended; a worker of the crib may have performed it."""
    row = Execution.objects.get(pk=execution.pk)
    return row if row.is_final else None


def attempted_in_thread(execution: Execution) -> threading.Thread:
    """A thread in which a worker tries to run it."""

    def attempt() -> None:
        perform(execution.pk)
        connection.close()

    thread = threading.Thread(target=attempt)
    thread.start()
    return thread


def never_began(execution: Execution) -> bool:
    """No start is recorded, and there is no output."""
    row = Execution.objects.get(pk=execution.pk)
    started = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START").exists()
    return not started and row.output is None and row.status not in {"Success", "Running"}


def codes(execution: Execution) -> list[str]:
    found = AuditRecord.objects.filter(execution_id=execution.pk).order_by("id")
    return list(found.values_list("code", flat=True))
