"""Held calls and the people who decide about them."""

import threading
from dataclasses import replace
from typing import Any

from django.db import connection

from audit.models import AuditRecord
from tests import factories
from tools.accounts.callers import caller_of_token, caller_of_user
from tools.approvals import decisions
from tools.approvals.decisions import Word
from tools.definitions.callers import Caller
from tools.execution.pipeline import perform
from tools.models import Agent, Confirmation, Execution, Organization, User


def held(agent: Agent, name: str = "echo", **fields: Any) -> Confirmation:
    """A call of the agent's that waits for a person."""
    execution = factories.execution(agent, name, **fields)
    return Confirmation.objects.get(execution=execution)


def approver(organization: Organization) -> User:
    """A person who may decide."""
    user = factories.person(organization)
    factories.permit(user, "decide_confirmation")
    return user


def at_the_browser(user: User) -> Caller:
    """The person in their browser's session."""
    return caller_of_user(User.objects.select_related("organization").get(pk=user.pk))


def with_a_token(user: User) -> Caller:
    """The same person, calling with a personal token."""
    text = factories.token(user, scopes=["read", "execute", "manage"])
    return caller_of_token(text)


def word(confirmation: Confirmation, *, approve: bool = True, **fields: Any) -> Word:
    """What somebody says who has read it."""
    return replace(Word(confirmation.pk, confirmation.bound_hash, approve), **fields)


def approve(confirmation: Confirmation, *people: User) -> Confirmation:
    """With the consent of everybody named."""
    for person in people:
        confirmation = decisions.decide(caller=at_the_browser(person), word=word(confirmation))
    return confirmation


def reject(confirmation: Confirmation, person: User) -> Confirmation:
    """The person says no."""
    no = word(confirmation, approve=False)
    return decisions.decide(caller=at_the_browser(person), word=no)


def attempted(execution: Execution) -> Execution:
    """The execution after a worker has tried to run it."""
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def over(execution: Execution) -> Execution | None:
    """Its row once it is over, which a worker of the product may have been quicker with."""
    row = Execution.objects.get(pk=execution.pk)
    return row if row.over else None


def attempted_in_thread(execution: Execution) -> threading.Thread:
    """The thread in which a worker tries to run it."""

    def attempt() -> None:
        perform(execution.pk)
        connection.close()

    thread = threading.Thread(target=attempt)
    thread.start()
    return thread


def never_began(execution: Execution) -> bool:
    """No start of it is on record, and nothing came out of it."""
    row = Execution.objects.get(pk=execution.pk)
    started = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START").exists()
    return not started and row.output is None and row.status not in {"Success", "Running"}


def codes(execution: Execution) -> list[str]:
    found = AuditRecord.objects.filter(execution_id=execution.pk).order_by("id")
    return list(found.values_list("code", flat=True))
